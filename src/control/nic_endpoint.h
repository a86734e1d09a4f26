// NicEndpoint: where one nic meets its back end: a socket, and at most one session.
//
// Client mode (the usual one): connects, and again for ever after a failure or an end, waiting
// 100 ms and then twice as long each time, at most 1.6 s, until a session has lived for 2 s. Server
// mode: listens, and takes one back end at a time.
//
//   auto endpoint = NicEndpoint::open(loop, nic_options, nic_port);
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/log.h"
#include "control/event_loop.h"
#include "control/listener.h"
#include "control/options.h"
#include "port/nic_port.h"
#include "vhost/front_end_session.h"

namespace sluice {

// The port that these options ask for.
NicPortOptions nic_port_options(const NicOptions& options);

class NicEndpoint {
 public:
  static Result<std::unique_ptr<NicEndpoint>> open(EventLoop& loop, const NicOptions& options,
                                                   NicPort& port);
  ~NicEndpoint();
  NicEndpoint(const NicEndpoint&) = delete;
  NicEndpoint& operator=(const NicEndpoint&) = delete;

  bool is_ready() const { return session_ != nullptr && session_->is_ready(); }
  // Why the last session ended, or could not begin; empty: it never did.
  const std::string& last_failure() const { return last_failure_; }
  // Called each time that a session has become ready.
  void on_ready(std::function<void()> callback) { on_ready_ = std::move(callback); }

 private:
  NicEndpoint(EventLoop& loop, const NicOptions& options, NicPort& port);
  void start_session(Fd socket);
  // After each event: watches what came, ends what is over, sets the deadline anew.
  void look_after();
  void end_session();
  void drop(const std::string& reason);
  void on_accepted(Fd socket);
  void watch_control();
  void unwatch_all();
  void connect_or_retry();
  void retry_later();

  EventLoop& loop_;
  NicPort& port_;
  const std::string socket_path_;
  const SocketSide side_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<FrontEndSession> session_;
  bool was_ready_ = false;
  int watched_socket_ = -1;
  int watched_request_ = -1;
  Fd watched_control_;  // a copy: the port closes its own before we hear of it
  EventLoop::TimerId deadline_timer_ = 0;
  EventLoop::TimerId retry_timer_ = 0;
  uint64_t retry_delay_ns_;
  uint64_t session_began_ns_ = 0;
  std::string last_failure_;
  std::string logged_failure_;
  std::function<void()> on_ready_;
  RateLimit newcomer_limit_;
  RateLimit drop_limit_;
};

}  // namespace sluice
