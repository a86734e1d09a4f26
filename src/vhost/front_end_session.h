// FrontEndSession: the front end's half of vhost-user over one socket: negotiates with a back end,
// hands it memory and rings, and watches over it until it goes.
//
// What: the protocol, step by step, without ever waiting: the owner calls on_readable() when fd()
// is, on_request() when request_fd() is, and on_deadline() when deadline_ns() has passed. What not:
// rings and buffers, which are the FrontEndDriver's, or how the socket came about.
//
//   step        what goes out                                            what has to come back
//   features    GET_FEATURES                                             what the device offers
//   protocol    GET_PROTOCOL_FEATURES                                    if bit 30 was offered
//   capacity    SET_PROTOCOL_FEATURES, SET_OWNER, GET_QUEUE_NUM,         as far as offered
//               GET_CONFIG
//   setup       SET_FEATURES, memory, log, inflight, rings, status       acks, or a barrier
//   running     GET_CONFIG, each time that it has changed                the configuration
//
// The back end is hostile: an answer that was not asked for, of a wrong size, with descriptors that
// do not belong, or none at all within kAnswerMillisecondsMax, ends the session with a sentence.
// [vhost-user]
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "vhost/backend_session.h"
#include "vhost/connection.h"
#include "vhost/front_end_driver.h"

namespace sluice {

// How long a back end may take for one answer.
inline constexpr uint64_t kAnswerMillisecondsMax = 5000;

class FrontEndSession {
 public:
  // `now_ns`: the clock, replaced by tests.
  FrontEndSession(Fd socket, FrontEndDriver& driver, std::function<uint64_t()> now_ns);
  FrontEndSession(Fd socket, FrontEndDriver& driver);
  ~FrontEndSession();
  FrontEndSession(const FrontEndSession&) = delete;
  FrontEndSession& operator=(const FrontEndSession&) = delete;

  int fd() const { return connection_.fd(); }
  SessionState on_readable();
  // The back end's own channel; -1 while there is none. One that has ended stays open, so that it
  // can be unwatched, until the session is destroyed.
  int request_fd() const { return requests_ && !requests_ended_ ? requests_->fd() : -1; }
  SessionState on_request();
  // When on_deadline() has to be called; 0: nothing is waited for.
  uint64_t deadline_ns() const { return deadline_ns_; }
  SessionState on_deadline();
  void close();

  SessionState state() const { return state_; }
  bool is_ready() const { return step_ == Step::running; }
  const FrontEndAgreement& agreement() const { return agreement_; }
  const std::string& close_reason() const { return close_reason_; }

 private:
  enum class Step : uint8_t { features, protocol, capacity, setup, running };
  using Handler = std::function<Result<void>(ReceivedMessage&)>;
  struct Outgoing {
    Request request;
    std::vector<uint8_t> bytes;
    std::vector<Fd> fds;
    Handler handler;        // empty: nothing comes back
    bool holds_up = false;  // nothing follows before its answer
  };
  struct Expected {
    Request request;
    Handler handler;
  };

  // Asks, or tells; with REPLY_ACK every telling is answered.
  void ask(Request request, std::span<const uint8_t> payload, Handler handler);
  void tell(Request request, std::span<const uint8_t> payload, std::vector<Fd> fds = {});
  void tell_u64(Request request, uint64_t value);
  void tell_ring(Request request, uint32_t index, uint32_t value);
  void tell_ring_fd(Request request, uint32_t index, Fd fd);
  void barrier();
  Result<void> pump();
  Result<void> next_step();
  Result<void> handle(ReceivedMessage& message);
  SessionState finish(const Result<void>& result);
  void close_with(std::string reason);
  void end_requests();
  std::string while_unanswered() const;

  // The steps; in front_end_session_steps.cc.
  void ask_features();
  void ask_protocol_features();
  void ask_capacity();
  void ask_config();
  Result<void> agree();
  uint32_t device_queue_pairs() const;
  Result<void> set_up();
  Result<void> offer_request_channel();
  Result<void> share_log(const FrontEndLayout& layout);
  void ask_inflight(const FrontEndLayout& layout);
  void set_up_ring(FrontEndRing& ring);
  Result<void> take_config(std::span<const uint8_t> payload);
  void forget_what_features_do_not_cover();
  Result<void> take_inflight(ReceivedMessage& message);
  bool speaks(uint64_t feature) const { return (protocol_features_ & feature) != 0; }

  FrontEndDriver& driver_;
  Connection connection_;
  std::unique_ptr<Connection> requests_;
  bool requests_ended_ = false;
  std::function<uint64_t()> now_ns_;
  Step step_ = Step::features;
  SessionState state_ = SessionState::open;
  std::string close_reason_;
  std::deque<Outgoing> outgoing_;
  std::deque<Expected> expected_;
  bool held_up_ = false;  // the last message that went out holds up the next
  uint64_t deadline_ns_ = 0;

  uint64_t offered_ = 0;
  bool has_protocol_features_ = false;
  uint64_t protocol_features_ = 0;
  uint32_t queue_num_ = 1;
  uint32_t config_pairs_ = 0;     // 0: the configuration was not read
  bool config_is_stale_ = false;  // it has changed since it was asked for
  FrontEndAgreement agreement_;
};

}  // namespace sluice
