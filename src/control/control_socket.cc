#include "control/control_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "control/option_schema.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr uint32_t kControlSocketMode = 0660;
constexpr size_t kReadBytes = 16 * 1024;

std::string one_line(const json& document) {
  // Names may hold any bytes: what is no UTF-8 is replaced, not thrown at us.
  return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

// Whatever came is owned from here on, wanted or not.
void take_descriptors(msghdr& message, std::vector<Fd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {  // at most kControlFdsMax: there is no more room
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

std::string error_line(std::string_view sentence) { return one_line({{"error", sentence}}); }

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::open(EventLoop& loop, const std::string& path,
                                                           StatsSource& source, uint64_t idle_ns) {
  Result<UnixListener> listener = listen_unix(path, kControlSocketMode, "");
  if (!listener) {
    return Failure{fmt::format("--control {}: {}", path, listener.error().text),
                   listener.error().is_usage};
  }
  std::unique_ptr<ControlSocket> control(new ControlSocket(loop, source, idle_ns));
  ControlSocket* self = control.get();
  control->acceptor_ = std::make_unique<Acceptor>(
      loop, std::move(*listener), [self](Fd socket) { self->on_accepted(std::move(socket)); });
  const Result<void> started = control->acceptor_->start();
  if (!started) return started.error();
  return control;
}

ControlSocket::ControlSocket(EventLoop& loop, StatsSource& source, uint64_t idle_ns)
    : loop_(loop), source_(source), idle_ns_(idle_ns) {}

ControlSocket::~ControlSocket() {
  while (!clients_.empty()) close_client(clients_.begin()->first);
}

void ControlSocket::on_accepted(Fd socket) {
  const int fd = socket.get();
  if (clients_.size() >= kControlClientsMax) {
    const std::string refusal = error_line("too many clients are connected: try again later");
    [[maybe_unused]] const ssize_t sent =
        ::send(fd, refusal.data(), refusal.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  const Result<void> watched =
      loop_.watch(fd, EPOLLIN, [this, fd](uint32_t events) { on_event(fd, events); });
  if (!watched) return;
  Client& client = clients_[fd];
  client.socket = std::move(socket);
  restart_idle_timer(fd, client);
}

void ControlSocket::close_client(int fd) {
  loop_.unwatch(fd);
  const auto found = clients_.find(fd);
  SLUICE_ASSERT(found != clients_.end());
  loop_.cancel_timer(found->second.idle_timer);
  clients_.erase(found);
}

void ControlSocket::restart_idle_timer(int fd, Client& client) {
  loop_.cancel_timer(client.idle_timer);
  client.idle_timer = loop_.add_timer(idle_ns_, [this, fd] { close_client(fd); });
}

// While an answer waits for the client to read, only room for it is waited for: who does not read
// is not listened to either.
void ControlSocket::on_event(int fd, uint32_t events) {
  Client& client = clients_.at(fd);
  const bool was_sending = !client.answer.empty();
  bool lives = (events & EPOLLERR) == 0;
  if (lives && was_sending) lives = send_out(client);
  if (lives && !was_sending) lives = take_in(client);
  if (lives) lives = answer_requests(fd, client);
  if (!lives) {
    close_client(fd);
    return;
  }
  const bool is_sending = !client.answer.empty();
  if (is_sending != was_sending) loop_.change_events(fd, is_sending ? EPOLLOUT : EPOLLIN);
}

bool ControlSocket::take_in(Client& client) {
  char bytes[kReadBytes];
  iovec piece{bytes, sizeof bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kControlFdsMax * sizeof(int))];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = ::recvmsg(client.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  take_descriptors(message, client.fds);
  if (count == 0 || client.fds.size() > kControlFdsMax || (message.msg_flags & MSG_CTRUNC) != 0)
    return false;
  client.request.append(bytes, static_cast<size_t>(count));
  return true;
}

bool ControlSocket::send_out(Client& client) {
  const ssize_t count = ::send(client.socket.get(), client.answer.data(), client.answer.size(),
                               MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  client.answer.erase(0, static_cast<size_t>(count));
  return true;
}

// Answers whole lines while the socket takes the answers: one answer at most is held. Bounded by
// the bytes that were taken in.
bool ControlSocket::answer_requests(int fd, Client& client) {
  while (client.answer.empty()) {
    const size_t end = client.request.find('\n');
    if (end == std::string::npos) {
      if (client.request.size() <= kControlRequestBytesMax) return true;
      client.answer = error_line("a request has at most 65536 bytes and ends with a newline");
      send_out(client);
      return false;
    }
    client.answer = answer_to(std::string_view(client.request).substr(0, end), client.fds);
    client.fds.clear();
    client.request.erase(0, end + 1);
    restart_idle_timer(fd, client);
    if (!send_out(client)) return false;
  }
  return true;
}

std::string ControlSocket::answer_to(std::string_view request, std::vector<Fd>& fds) {
  const json parsed = json::parse(request, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object())
    return error_line("a request is one JSON object, {\"command\":\"stats\"}");
  const auto command = parsed.find("command");
  if (command == parsed.end() || !command->is_string()) {
    return error_line("a request has a \"command\": stats or ports");
  }
  const std::string& name = command->get_ref<const std::string&>();
  if (name == "stats") return one_line(source_.stats());
  if (name == "ports") return one_line(source_.ports());
  if (auto answer = source_.command(name, parsed, fds)) return one_line(*answer);
  return error_line(
      fmt::format("unknown command '{}': this daemon knows stats, ports and those of `sluice xdp`",
                  printable(name)));
}

}  // namespace sluice
