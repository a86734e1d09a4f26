// FakeFrontEnd: a whole VM for tests, as a back end sees it: socket, memory, rings and a driver.
//
// It connects to a vhost-user back end, sets up every queue pair (and, if asked, the control queue)
// in the way QEMU does, keeps its receive rings filled, and sends and receives packets. A new
// connect() is a new VM: fresh memory, fresh rings. close() is what a crash looks like. For
// misbehaviour there are the parts: channel(), guest(), driver().
//
//   FakeFrontEnd vm({.queue_pairs = 2});
//   ASSERT_TRUE(vm.connect(path));
//   vm.send(0, packet);
//   while (auto got = vm.receive(0)) …
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/frame.h"
#include "testing/fake_driver.h"
#include "testing/fake_guest_memory.h"
#include "testing/front_end_channel.h"

namespace sluice {

struct FakeFrontEndOptions {
  uint32_t queue_pairs = 1;
  bool control_queue = false;  // set up as well, behind the queue pairs
  uint64_t wanted_features = ~uint64_t{0};
  uint32_t ring_size = 256;
  uint32_t buffer_bytes = 2048;
  bool kicks = true;  // false: NOFD, the back end has to look by itself
  bool calls = true;
  uint64_t memory_bytes = 16 << 20;
};

class FakeFrontEnd {
 public:
  struct Packet {
    std::vector<uint8_t> bytes;
    OffloadMeta offload;
    uint16_t buffers = 1;
  };

  explicit FakeFrontEnd(const FakeFrontEndOptions& options) : options_(options) {}

  // Everything up to running rings. False: nobody listens, or something was refused.
  bool connect(const std::string& path);
  // Ends the connection without a word, as a killed front end does.
  void close();
  uint64_t features() const { return features_; }

  // False: the ring is full.
  bool send(uint32_t pair, std::span<const uint8_t> packet, const OffloadMeta& offload = {});
  // The next packet that has arrived; the ring is filled up again as it empties.
  std::optional<Packet> receive(uint32_t pair);
  // Fills the receive ring with empty buffers, and kicks if that is wanted.
  void refill(uint32_t pair);
  // What a command was answered by the control queue; nullopt: nothing within `milliseconds`.
  std::optional<uint8_t> command(std::span<const uint8_t> words, int milliseconds = 5000);

  // The state machine, piece by piece. Rings go on where they stopped.
  bool start_ring(uint32_t index);
  bool stop_ring(uint32_t index);
  bool enable_ring(uint32_t index, bool enabled);
  bool share_memory();

  uint32_t ring_count() const { return static_cast<uint32_t>(rings_.size()); }
  FakeDriver& driver(uint32_t index) { return *rings_[index].driver; }
  FakeGuestMemory& guest() { return *guest_; }
  FrontEndChannel& channel() { return *channel_; }
  const Fd& call(uint32_t index) const { return rings_[index].call; }
  const Fd& error(uint32_t index) const { return rings_[index].error; }
  void kick(uint32_t index);
  void kick_if_wanted(uint32_t index);

 private:
  struct Ring {
    std::unique_ptr<FakeDriver> driver;
    Fd kick;
    Fd call;
    Fd error;
    uint32_t base = 0;
  };

  FakeFrontEndOptions options_;
  uint64_t features_ = 0;
  size_t header_bytes_ = 12;
  std::unique_ptr<FakeGuestMemory> guest_;
  std::unique_ptr<FrontEndChannel> channel_;
  std::vector<Ring> rings_;
};

}  // namespace sluice
