// BackendSession: the life of one vhost-user front end, from its connection to its end.
//
// What: answers the messages of one socket, owns what they negotiate (features, memory, rings,
// descriptors), and drives a BackendDevice with it. What not: listening, reconnecting, an event
// loop, or the rings at work.
//
// Every message is answered as the front end asked for it: with REPLY_ACK a refused message gets a
// non-zero answer and the connection lives on, else a refused message ends the connection. Either
// way there is one log line with the reason, and its descriptors are closed. When a session ends,
// all its rings have been stopped and the device has been told by session_closed().
//
//   BackendSession session(std::move(accepted_socket), device);
//   …on EPOLLIN or EPOLLHUP (level-triggered) of session.fd():
//   if (session.on_readable() == SessionState::closed) …destroy the session…
//
// All calls come from the control thread. The process ignores SIGPIPE, since call descriptors may
// be pipes or sockets. Not offered yet, and therefore refused: LOG_SHMFD, RARP, INFLIGHT_SHMFD;
// each has its rows in message.cc and its case in backend_session.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/result.h"
#include "memory/guest_memory.h"
#include "vhost/backend_device.h"
#include "vhost/connection.h"
#include "vhost/message.h"
#include "vhost/ring_table.h"

namespace sluice {

enum class SessionState : uint8_t { open, closed };

// What every session offers.
inline constexpr uint64_t kOfferedProtocolFeatures =
    protocol_feature::mq | protocol_feature::reply_ack | protocol_feature::mtu |
    protocol_feature::backend_req | protocol_feature::config | protocol_feature::reset_device |
    protocol_feature::configure_mem_slots | protocol_feature::status;

// Messages that one on_readable() handles at most: a front end that floods us does not keep the
// control thread from the others.
inline constexpr int kMessagesPerCallMax = 64;

class BackendSession {
 public:
  // Tells the device session_opened(). The device must outlive the session.
  BackendSession(Fd socket, BackendDevice& device);
  ~BackendSession();
  BackendSession(const BackendSession&) = delete;
  BackendSession& operator=(const BackendSession&) = delete;

  // The socket to wait on, also valid after the end, until the session is destroyed.
  int fd() const { return connection_.fd(); }
  SessionState state() const { return state_; }
  // Handles what has arrived. After SessionState::closed nothing more happens.
  SessionState on_readable();
  // Ends the session: the rings stop, guest memory and all descriptors but the socket are let go.
  void close();

  // Tells the front end to read the configuration again. False when it cannot be told: it has given
  // no channel, did not negotiate CONFIG, or does not read. [vhost-user CONFIG_CHANGE_MSG]
  bool notify_config_change();

  uint64_t features() const { return features_; }  // negotiated, sanitized
  uint64_t protocol_features() const { return protocol_features_; }
  // The front end's memory table, or nullptr before there is one.
  const GuestMemory* memory() const { return memory_.get(); }
  uint32_t rings_running() const { return rings_.running_count(); }
  // Why the session ended: a sentence, empty when the front end just went away.
  const std::string& close_reason() const { return close_reason_; }

 private:
  void handle(ReceivedMessage& message);
  Result<void> check_and_dispatch(ReceivedMessage& message);
  Result<void> dispatch(Request request, ReceivedMessage& message);
  Result<void> reset(Request request);
  Result<void> dispatch_ring(Request request, ReceivedMessage& message);
  uint64_t number_asked_for(Request request) const;
  void refuse(const ReceivedMessage& message, const std::string& reason);
  bool wants_ack(const ReceivedMessage& message) const;
  // Never fails: a front end that takes no replies has its session closed.
  Result<void> reply(const std::vector<uint8_t>& message);
  void close_with(std::string reason);
  void log_negotiation_once();

  // One function a message; in backend_session_requests.cc.
  Result<void> set_features(std::span<const uint8_t> payload);
  Result<void> set_protocol_features(std::span<const uint8_t> payload);
  Result<void> set_mem_table(ReceivedMessage& message);
  Result<void> add_mem_reg(ReceivedMessage& message);
  Result<void> rem_mem_reg(std::span<const uint8_t> payload);
  Result<void> set_vring_addr(std::span<const uint8_t> payload);
  Result<void> set_vring_file(Request request, ReceivedMessage& message);
  Result<void> set_vring_enable(std::span<const uint8_t> payload);
  Result<void> get_vring_base(std::span<const uint8_t> payload);
  Result<void> net_set_mtu(std::span<const uint8_t> payload);
  Result<void> set_backend_req_fd(ReceivedMessage& message);
  Result<void> get_config(std::span<const uint8_t> payload);
  Result<void> set_config(std::span<const uint8_t> payload);
  Result<void> set_status(std::span<const uint8_t> payload);

  BackendDevice& device_;
  Connection connection_;
  RingTable rings_;
  SessionState state_ = SessionState::open;
  std::string close_reason_;
  uint64_t features_ = 0;
  uint64_t protocol_features_ = 0;
  uint64_t status_ = 0;
  std::shared_ptr<const GuestMemory> memory_;
  Fd backend_channel_;
  bool negotiation_logged_ = false;
  RateLimit refusal_limit_;
};

}  // namespace sluice
