#include "control/nic_endpoint.h"

#include <fcntl.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr uint64_t kRetryFirstNs = 100'000'000;
constexpr uint64_t kRetryLastNs = 1'600'000'000;
// A session that lived for less is a failure of the back end, ready or not: the next try waits
// longer still.
constexpr uint64_t kLivedNs = 2'000'000'000;

}  // namespace

NicPortOptions nic_port_options(const NicOptions& options) {
  return {.name = options.name,
          .queue_pairs = options.queue_pairs,
          .ring_size = options.ring_size,
          .packed = options.packed,
          .offload = options.offload,
          .transmit_mode = options.transmit == NicTransmit::napi ? TransmitMode::napi
                                                                 : TransmitMode::inline_reclaim,
          .interrupt_cpu = options.interrupt_cpu};
}

Result<std::unique_ptr<NicEndpoint>> NicEndpoint::open(EventLoop& loop, const NicOptions& options,
                                                       NicPort& port) {
  std::unique_ptr<NicEndpoint> endpoint(new NicEndpoint(loop, options, port));
  NicEndpoint* self = endpoint.get();
  auto watched = loop.watch(port.fault_fd(), EPOLLIN, [self](uint32_t) {
    if (const auto fault = self->port_.take_fault())
      self->drop(fmt::format("the device broke a ring: {}", *fault));
  });
  if (!watched) return watched.error();
  if (options.side == SocketSide::client) {
    endpoint->connect_or_retry();
    return endpoint;
  }
  Result<UnixListener> listener = listen_unix(options.socket_path, 0660, "");
  if (!listener)
    return Failure{fmt::format("{}: {}", options.origin.text, listener.error().text),
                   listener.error().is_usage};
  endpoint->acceptor_ = std::make_unique<Acceptor>(
      loop, std::move(*listener), [self](Fd socket) { self->on_accepted(std::move(socket)); });
  if (auto started = endpoint->acceptor_->start(); !started) return started.error();
  return endpoint;
}

NicEndpoint::NicEndpoint(EventLoop& loop, const NicOptions& options, NicPort& port)
    : loop_(loop),
      port_(port),
      socket_path_(options.socket_path),
      side_(options.side),
      retry_delay_ns_(kRetryFirstNs) {}

NicEndpoint::~NicEndpoint() {
  loop_.cancel_timer(retry_timer_);
  loop_.cancel_timer(deadline_timer_);
  loop_.unwatch(port_.fault_fd());
  unwatch_all();
  session_.reset();
}

// Before they are closed: what a back end has a copy of stays in the epoll otherwise, out of reach,
// and wakes us for ever.
void NicEndpoint::unwatch_all() {
  for (int* fd : {&watched_socket_, &watched_request_}) {
    if (*fd >= 0) loop_.unwatch(*fd);
    *fd = -1;
  }
  if (watched_control_) loop_.unwatch(watched_control_.get());
  watched_control_.reset();
}

// One back end at a time: who comes while another is there is closed. The end of the other may not
// have been read yet.
void NicEndpoint::on_accepted(Fd socket) {
  if (session_ != nullptr) {
    session_->on_readable();
    look_after();
  }
  if (session_ == nullptr) return start_session(std::move(socket));
  if (newcomer_limit_.admit())
    log_warning("{}: a second back end connected to {} and was refused: one is there already",
                port_.name(), socket_path_);
}

void NicEndpoint::start_session(Fd socket) {
  was_ready_ = false;
  session_began_ns_ = monotonic_ns();
  watched_socket_ = socket.get();
  session_ = std::make_unique<FrontEndSession>(std::move(socket), port_);
  auto watched = loop_.watch(watched_socket_, EPOLLIN, [this](uint32_t) {
    session_->on_readable();
    look_after();
  });
  if (!watched) {
    watched_socket_ = -1;
    drop(watched.error().text);
    return;
  }
  look_after();
}

void NicEndpoint::look_after() {
  if (session_->state() == SessionState::closed) {
    last_failure_ = session_->close_reason();
    end_session();
    return;
  }
  if (session_->request_fd() != watched_request_) {
    if (watched_request_ >= 0) loop_.unwatch(watched_request_);
    watched_request_ = session_->request_fd();
    if (watched_request_ >= 0 && !loop_.watch(watched_request_, EPOLLIN, [this](uint32_t) {
          session_->on_request();
          look_after();
        }))
      watched_request_ = -1;
  }
  loop_.cancel_timer(deadline_timer_);
  deadline_timer_ = 0;
  if (session_->deadline_ns() != 0) {
    const uint64_t now_ns = monotonic_ns();
    const uint64_t wait_ns = std::max(session_->deadline_ns(), now_ns) - now_ns;
    deadline_timer_ = loop_.add_timer(wait_ns, [this] {
      deadline_timer_ = 0;
      session_->on_deadline();
      look_after();
    });
  }
  if (was_ready_ || !session_->is_ready()) return;
  was_ready_ = true;
  watch_control();
  if (on_ready_) on_ready_();
}

void NicEndpoint::watch_control() {
  if (port_.control_fd() < 0) return;
  watched_control_ = Fd(::fcntl(port_.control_fd(), F_DUPFD_CLOEXEC, 0));
  if (watched_control_ &&
      loop_.watch(watched_control_.get(), EPOLLIN, [this](uint32_t) { port_.on_control_event(); }))
    return;
  log_warning("{}: the control queue's answers are not watched: {}", port_.name(),
              errno_text(errno));
  watched_control_.reset();
}

void NicEndpoint::end_session() {
  loop_.cancel_timer(deadline_timer_);
  deadline_timer_ = 0;
  unwatch_all();
  session_.reset();
  if (side_ != SocketSide::client) return;
  if (was_ready_ && monotonic_ns() - session_began_ns_ >= kLivedNs) {
    retry_delay_ns_ = kRetryFirstNs;
    logged_failure_.clear();
  }
  retry_later();
}

void NicEndpoint::drop(const std::string& reason) {
  if (session_ == nullptr) return;
  last_failure_ = reason;
  if (drop_limit_.admit()) log_warning("{}: back end dropped: {}", port_.name(), reason);
  session_->close();
  end_session();
}

void NicEndpoint::connect_or_retry() {
  Result<Fd> socket = connect_unix(socket_path_);
  if (socket) return start_session(std::move(*socket));
  last_failure_ = socket.error().text;
  if (last_failure_ != logged_failure_) {  // once a cause
    logged_failure_ = last_failure_;
    log_warning("{}: {}: trying again until there is a back end", port_.name(), last_failure_);
  }
  retry_later();
}

void NicEndpoint::retry_later() {
  if (retry_timer_ != 0) return;
  retry_timer_ = loop_.add_timer(retry_delay_ns_, [this] {
    retry_timer_ = 0;
    connect_or_retry();
  });
  retry_delay_ns_ = std::min(2 * retry_delay_ns_, kRetryLastNs);
}

}  // namespace sluice
