#include "control/vm_endpoint.h"

#include <poll.h>

#include <algorithm>

#include "base/clock.h"

namespace sluice {
namespace {

constexpr uint64_t kRetryFirstNs = 100'000'000;
constexpr uint64_t kRetryLastNs = 1'600'000'000;
// A session that lived for less is a failure of the peer: the next try waits longer still.
constexpr uint64_t kLivedNs = 2'000'000'000;
// A peer that is away for long is mentioned this often.
constexpr uint64_t kFailureLogNs = 60'000'000'000;
// Reads of an old session before a newcomer is judged; each handles many messages.
constexpr int kSettleReadsMax = 8;

bool is_readable(int fd) {
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) > 0;
}

}  // namespace

Result<std::unique_ptr<VmEndpoint>> VmEndpoint::open(EventLoop& loop, const VmOptions& options,
                                                     BackendDevice& device) {
  std::unique_ptr<VmEndpoint> endpoint(new VmEndpoint(loop, options, device));
  if (options.side == SocketSide::client) {
    endpoint->connect_or_retry();
    return endpoint;
  }
  Result<UnixListener> listener =
      listen_unix(options.socket_path, options.socket_mode, options.socket_group);
  if (!listener) {
    return Failure{fmt::format("{}: {}", options.origin.text, listener.error().text),
                   listener.error().is_usage};
  }
  VmEndpoint* self = endpoint.get();
  endpoint->acceptor_ = std::make_unique<Acceptor>(
      loop, std::move(*listener), [self](Fd socket) { self->on_accepted(std::move(socket)); });
  const Result<void> started = endpoint->acceptor_->start();
  if (!started) return started.error();
  return endpoint;
}

VmEndpoint::VmEndpoint(EventLoop& loop, const VmOptions& options, BackendDevice& device)
    : loop_(loop),
      device_(device),
      socket_path_(options.socket_path),
      side_(options.side),
      retry_delay_ns_(kRetryFirstNs) {}

VmEndpoint::~VmEndpoint() {
  loop_.cancel_timer(retry_timer_);
  if (session_) loop_.unwatch(session_->fd());
}

void VmEndpoint::on_accepted(Fd socket) {
  settle_old_session();
  if (session_) {
    if (newcomer_limit_.admit()) {
      log_warning("{}: a second front end connected to {} and was refused: one is there already",
                  device_.device_name(), socket_path_);
    }
    return;  // closes the newcomer
  }
  start_session(std::move(socket));
}

// The end of a front end that was killed may wait in its socket behind messages, while its
// successor is connecting already.
void VmEndpoint::settle_old_session() {
  for (int i = 0; i < kSettleReadsMax && session_ && is_readable(session_->fd()); ++i) {
    read_session();
  }
}

void VmEndpoint::start_session(Fd socket) {
  const int fd = socket.get();
  session_began_ns_ = monotonic_ns();
  session_ = std::make_unique<BackendSession>(std::move(socket), device_);
  const Result<void> watched = loop_.watch(fd, EPOLLIN, [this](uint32_t) { read_session(); });
  if (!watched) {
    log_error("{}: {}", device_.device_name(), watched.error().text);
    end_session();
  }
}

void VmEndpoint::read_session() {
  if (session_->on_readable() == SessionState::closed) end_session();
}

void VmEndpoint::end_session() {
  loop_.unwatch(session_->fd());
  session_.reset();
  if (side_ != SocketSide::client) return;
  if (monotonic_ns() - session_began_ns_ >= kLivedNs) {
    retry_delay_ns_ = kRetryFirstNs;
    failure_logged_ns_ = 0;
  }
  retry_later();
}

void VmEndpoint::drop_front_end(const std::string& reason) {
  if (!session_) return;
  log_warning("{}: front end dropped: {}", device_.device_name(), reason);
  session_->close();
  end_session();
}

void VmEndpoint::connect_or_retry() {
  Result<Fd> socket = connect_unix(socket_path_);
  if (socket) {
    start_session(std::move(*socket));
    return;
  }
  const uint64_t now_ns = monotonic_ns();
  if (failure_logged_ns_ == 0 || now_ns - failure_logged_ns_ >= kFailureLogNs) {
    failure_logged_ns_ = now_ns;
    log_warning("{}: {}: trying again until there is a front end", device_.device_name(),
                socket.error().text);
  }
  retry_later();
}

void VmEndpoint::retry_later() {
  retry_timer_ = loop_.add_timer(retry_delay_ns_, [this] {
    retry_timer_ = 0;
    connect_or_retry();
  });
  retry_delay_ns_ = std::min(2 * retry_delay_ns_, kRetryLastNs);
}

}  // namespace sluice
