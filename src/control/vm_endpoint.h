// VmEndpoint: where the front end of one VM port meets us: its socket, and at most one session.
//
// Server mode: listens for as long as it lives, so a front end that crashed may return at once.
// Client mode: connects, and again for ever after a failure or an end, waiting 100 ms and then
// twice as long each time, at most 1.6 s.
//
//   state      event                          next
//   waiting    front end connects             connected
//   connected  it goes away, or is refused    waiting
//   connected  another connects (server)      the old one is read first: when that ends it, the new
//                                             one takes its place; else the new one is closed
//
// The device is told session_opened() and session_closed() by the session, always in pairs.
//
//   auto endpoint = VmEndpoint::open(loop, vm_options, vm_port);
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "control/event_loop.h"
#include "control/listener.h"
#include "control/options.h"
#include "vhost/backend_session.h"

namespace sluice {

class VmEndpoint {
 public:
  static Result<std::unique_ptr<VmEndpoint>> open(EventLoop& loop, const VmOptions& options,
                                                  BackendDevice& device);
  ~VmEndpoint();
  VmEndpoint(const VmEndpoint&) = delete;
  VmEndpoint& operator=(const VmEndpoint&) = delete;

  bool is_connected() const { return session_ != nullptr; }
  BackendSession* session() { return session_.get(); }
  // Ends the session there is, as if the front end had gone away. It may come back.
  void drop_front_end(const std::string& reason);

 private:
  VmEndpoint(EventLoop& loop, const VmOptions& options, BackendDevice& device);
  void on_accepted(Fd socket);
  void start_session(Fd socket);
  void read_session();
  void end_session();
  void settle_old_session();
  void connect_or_retry();
  void retry_later();

  EventLoop& loop_;
  BackendDevice& device_;
  const std::string socket_path_;
  const SocketSide side_;
  std::unique_ptr<Acceptor> acceptor_;  // server mode
  std::unique_ptr<BackendSession> session_;
  uint64_t session_began_ns_ = 0;
  EventLoop::TimerId retry_timer_ = 0;  // client mode
  uint64_t retry_delay_ns_;
  uint64_t failure_logged_ns_ = 0;  // 0: this run of failures has not been logged
  RateLimit newcomer_limit_;
};

}  // namespace sluice
