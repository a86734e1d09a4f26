// Connection: one vhost-user stream socket, cut into messages.
//
// What: non-blocking reads that assemble one message at a time, with the file descriptors that came
// with it, and non-blocking writes. What not: what the messages mean, or when to read (an epoll
// loop calls receive() while fd() is readable; level-triggered, since a call takes one message
// only).
//
// Invariants: at most kPayloadBytesMax bytes and kMessageFdsMax descriptors are held; a surplus
// descriptor is closed on arrival and the message is marked. Descriptors are close-on-exec. After
// Receive::closed or Receive::error nothing more is read.
//
//   ReceivedMessage message;
//   switch (connection.receive(message)) {
//     case Receive::message: …
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "vhost/message.h"

namespace sluice {

enum class Receive : uint8_t {
  message,    // one whole message is there
  need_more,  // the rest has not arrived yet
  closed,     // the peer closed the connection between two messages
  error,      // the stream cannot be read on; error() says why
};

struct ReceivedMessage {
  MessageHeader header;
  std::vector<uint8_t> payload;
  std::vector<Fd> fds;
  bool fds_lost = false;  // more descriptors were sent than a message may have or we could take
};

// What comes in: a back end gets requests, a front end the replies to its own.
enum class Expects : uint8_t { requests, replies };

class Connection {
 public:
  explicit Connection(Fd socket, Expects expects = Expects::requests);

  int fd() const { return socket_.get(); }
  // Reads on. `message` is filled only when the answer is Receive::message.
  Receive receive(ReceivedMessage& message);
  const std::string& error() const { return error_; }
  // Sends a whole message at once. Replies are small and read one by one: a peer that leaves so
  // many unread that the socket is full does not get to make us wait, or to fill our memory.
  // `fds` go along with the first byte; they stay the caller's.
  Result<void> send(std::span<const uint8_t> message, std::span<const int> fds = {});
  // Whether a send() found that the peer will read nothing more. What it sent before may still be
  // there to be received.
  bool peer_has_gone() const { return peer_has_gone_; }
  // Nothing more goes either way; the descriptor stays open for whoever watches it.
  void end();

 private:
  enum class Fill : uint8_t { full, partial, end, failed };
  Fill fill(std::span<uint8_t> buffer, size_t& have_bytes);
  void take_descriptors(msghdr& received);
  Receive stop(std::string reason);
  Receive ended(Fill fill);

  Fd socket_;
  Expects expects_;
  std::array<uint8_t, kHeaderBytes> header_bytes_{};
  size_t header_have_bytes_ = 0;
  size_t payload_have_bytes_ = 0;
  bool header_parsed_ = false;
  bool stopped_ = false;
  bool peer_has_gone_ = false;
  ReceivedMessage partial_;
  std::string error_;
};

}  // namespace sluice
