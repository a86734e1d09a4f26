// DeviceRing: one running (or stopped) ring of a guest with its eventfds, as a VM port uses it.
//
// Owned by a worker once it runs; the control thread changes it between breaths only. What it adds
// to the queues of src/virtio: which format the ring has, whether it is there and enabled at all,
// the call and error eventfds, and the base that survives a stop.
//
// The format is asked once a burst, and everything below is compiled for it:
//
//   ring.visit([&](auto& queue) { while (queue.pop(spans, chain) == Pop::chain) … });
#pragma once

#include <cstdint>
#include <variant>

#include "base/fd.h"
#include "port/port.h"
#include "vhost/backend_device.h"
#include "virtio/packed_queue.h"
#include "virtio/split_queue.h"

namespace sluice {

class DeviceRing {
 public:
  // Installs the ring; kick notifications are suppressed until somebody arms it. `reads_only`: it
  // brings data from the guest, and nothing is ever written to its buffers.
  void start(RingStart start, bool reads_only = false);
  // Takes it away and returns the base to resume from.
  uint32_t stop();

  bool running() const { return queue_.index() != 0; }
  bool usable() const { return running() && !broken_; }
  bool enabled() const { return enabled_; }
  bool can_carry() const { return usable() && enabled_; }
  bool must_be_polled() const { return usable() && !kick_.valid(); }
  void set_enabled(bool enabled) { enabled_ = enabled; }
  void set_call(Fd call) { call_ = std::move(call); }
  void set_error(Fd error) { error_ = std::move(error); }
  const Fd& kick() const { return kick_; }
  uint64_t features() const { return features_; }

  // Calls `use` with the queue of a running ring, a SplitQueue& or a PackedQueue&.
  template <class Use>
  decltype(auto) visit(Use&& use) {
    if (auto* split = std::get_if<SplitQueue>(&queue_)) return use(*split);
    return use(std::get<PackedQueue>(queue_));
  }
  // The snapshot that the running ring lies in.
  const GuestMemory& memory();

  // Publishes what was completed and writes the call eventfd if the driver wants it.
  void publish_and_notify(QueueCounters& counters);
  // Reads the kick eventfd empty and counts.
  void drain_kick(QueueCounters& counters);
  // Makes the kick eventfd readable, as if the driver had kicked.
  void kick_ourselves();

  // The queue answered Pop::broken, or the caller found a fault that a ring alone cannot see
  // (`fault`): from now on the ring is not usable. Tells the front end. [vhost-user SET_VRING_ERR]
  void break_with(RingFault fault);
  void note_broken();
  // The fault, once: none when there is nothing new to report.
  RingFault take_new_fault();

 private:
  std::variant<std::monostate, SplitQueue, PackedQueue> queue_;
  Fd kick_;
  Fd call_;
  Fd error_;
  bool enabled_ = false;
  bool broken_ = false;
  bool fault_reported_ = false;
  uint32_t last_base_ = 0;
  uint64_t features_ = 0;
};

}  // namespace sluice
