// FrontEndChannel: the front end's side of a vhost-user socket, for tests that bring their own VM.
//
// Each call sends one message and, where the protocol has a reply or REPLY_ACK is on, waits for it
// (at most ten seconds). What cannot be sent or is refused shows as false or nullopt: a test
// decides what that means. Nothing stops a test from sending nonsense with send().
//
//   FrontEndChannel channel(FrontEndChannel::connect(path));
//   channel.negotiate(wanted_features);
//   channel.set_memory(ram);
//   channel.start_ring(0, driver_addresses, kick, call);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "memory/guest_memory.h"
#include "vhost/message.h"

namespace sluice {

class FrontEndChannel {
 public:
  // An invalid descriptor when nobody listens.
  static Fd connect(const std::string& path);
  explicit FrontEndChannel(Fd socket) : socket_(std::move(socket)) {}

  // Any message at all.
  bool send(uint32_t request, uint32_t flags, std::span<const uint8_t> payload,
            std::span<const int> fds = {});
  // The payload of the next reply; nullopt: the back end has closed, or does not answer.
  std::optional<std::vector<uint8_t>> receive_reply();

  std::optional<uint64_t> get_u64(Request request);
  // Sends, and asks for an answer when REPLY_ACK is on. False: refused, or closed.
  bool request(Request request, std::span<const uint8_t> payload, std::span<const int> fds = {});
  bool set_u64(Request request, uint64_t value) { return this->request(request, bytes_of(value)); }

  // Features of both kinds, as a front end negotiates them. Returns what was acknowledged.
  std::optional<uint64_t> negotiate(uint64_t wanted, bool protocol_features = true);
  bool set_memory(std::span<const RegionDescription> regions, std::span<const int> fds);
  bool set_ring_state(Request request, uint32_t index, uint32_t value);
  bool set_ring_addresses(const VringAddresses& addresses);
  bool set_ring_file(Request request, uint32_t index, int fd);  // fd -1: NOFD
  std::optional<uint32_t> get_ring_base(uint32_t index);        // stops the ring

  int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }

  template <typename T>
  static std::span<const uint8_t> bytes_of(const T& value) {
    return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
  }

 private:
  Fd socket_;
  bool reply_ack_ = false;
};

}  // namespace sluice
