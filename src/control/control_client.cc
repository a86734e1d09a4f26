#include "control/control_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "control/listener.h"
#include "control/option_schema.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr uint64_t kAnswerWaitNs = 5'000'000'000;
// Far above the statistics of every queue that a daemon can have.
constexpr size_t kAnswerBytesMax = 256 * 1024 * 1024;

// Waits until `events` or the deadline; false when that has passed.
bool wait_for(int fd, short events, uint64_t deadline_ns) {
  const uint64_t now_ns = monotonic_ns();
  if (now_ns >= deadline_ns) return false;
  pollfd waiting{.fd = fd, .events = events, .revents = 0};
  const int wait_ms = static_cast<int>((deadline_ns - now_ns) / 1'000'000 + 1);
  return poll(&waiting, 1, wait_ms) > 0;
}

Result<std::string> read_line(int fd, uint64_t deadline_ns) {
  std::string answer;
  char bytes[64 * 1024];
  while (answer.size() < kAnswerBytesMax) {
    if (!wait_for(fd, POLLIN, deadline_ns)) return fail("the daemon does not answer");
    const ssize_t count = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return fail("the daemon closed the connection without an answer");
    answer.append(bytes, static_cast<size_t>(count));
    if (answer.back() == '\n') return answer;
  }
  return fail("the daemon's answer has no end");
}

// The descriptors go with the first byte. SCM_RIGHTS takes at most 253.
ssize_t send_with(int socket, const std::string& bytes, std::span<const int> fds) {
  std::vector<char> control(fds.empty() ? 0 : CMSG_SPACE(fds.size_bytes()));
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

}  // namespace

Result<json> ask_daemon(const std::string& control_path, std::string_view command) {
  return ask_daemon(control_path, json{{"command", command}}, {});
}

Result<json> ask_daemon(const std::string& control_path, const json& document,
                        std::span<const int> fds) {
  Result<Fd> socket = connect_unix(control_path);
  if (!socket) {
    return fail("no daemon answers: {}: start `sluice run`, or give its --control PATH",
                socket.error().text);
  }
  const uint64_t deadline_ns = monotonic_ns() + kAnswerWaitNs;
  const std::string request = document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  const ssize_t sent = send_with(socket->get(), request, fds);
  if (sent != static_cast<ssize_t>(request.size())) {
    return fail("{}: the daemon takes no request: {}", control_path, errno_text(errno));
  }
  Result<std::string> line = read_line(socket->get(), deadline_ns);
  if (!line) return fail("{}: {}", control_path, line.error().text);
  json answer = json::parse(*line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object())
    return fail("{}: the answer is no JSON: is this a sluice daemon?", control_path);
  const auto error = answer.find("error");
  if (error != answer.end() && error->is_string()) {
    return fail("the daemon refused: {}", printable(error->get_ref<const std::string&>()));
  }
  return answer;
}

}  // namespace sluice
