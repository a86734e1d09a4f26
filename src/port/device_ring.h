// DeviceRing: one running (or stopped) ring of a guest with its eventfds, as a VM port uses it.
//
// Owned by a worker once it runs; the control thread changes it between breaths only. What it adds
// to SplitQueue: whether the ring is there and enabled at all, the call and error eventfds, and the
// base that survives a stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/fd.h"
#include "port/port.h"
#include "vhost/backend_device.h"
#include "virtio/split_queue.h"

namespace sluice {

class DeviceRing {
 public:
  // Installs the ring; kick notifications are suppressed until somebody arms it.
  void start(RingStart start);
  // Takes it away and returns the base to resume from.
  uint32_t stop();

  bool running() const { return queue_.has_value(); }
  bool usable() const { return queue_.has_value() && !queue_->broken(); }
  bool enabled() const { return enabled_; }
  bool can_carry() const { return usable() && enabled_; }
  bool must_be_polled() const { return usable() && !kick_.valid(); }
  void set_enabled(bool enabled) { enabled_ = enabled; }
  void set_call(Fd call) { call_ = std::move(call); }
  void set_error(Fd error) { error_ = std::move(error); }
  SplitQueue& queue() { return *queue_; }
  const SplitQueue& queue() const { return *queue_; }
  const Fd& kick() const { return kick_; }
  uint64_t features() const { return features_; }

  // Publishes what was completed and writes the call eventfd if the driver wants it.
  void publish_and_notify(QueueCounters& counters);
  // Reads the kick eventfd empty and counts.
  void drain_kick(QueueCounters& counters);
  // Makes the kick eventfd readable, as if the driver had kicked.
  void kick_ourselves();
  // Tells the front end that the ring is broken. [vhost-user SET_VRING_ERR]
  void signal_error();
  // The fault, once: none when there is nothing new to report.
  RingFault take_new_fault();

 private:
  std::optional<SplitQueue> queue_;
  Fd kick_;
  Fd call_;
  Fd error_;
  bool enabled_ = false;
  bool fault_reported_ = false;
  uint32_t last_base_ = 0;
  uint64_t features_ = 0;
};

}  // namespace sluice
