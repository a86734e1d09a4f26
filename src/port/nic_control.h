// NicControl: the control queue of a nic, driver side: one command at a time, driven by the control
// thread. [virtio 5.1.6.5]
#pragma once

#include <memory>
#include <optional>
#include <variant>

#include "port/nic_memory.h"
#include "port/nic_queue.h"
#include "virtio/packed_driver.h"
#include "virtio/split_driver.h"

namespace sluice {

class NicControl {
 public:
  static constexpr uint32_t kRingSize = 16;
  static uint64_t memory_bytes(uint64_t features);
  NicControl(uint64_t features, NicMemory& memory);

  FrontEndRing describe() const;
  void set_events(NicEvents events) { events_ = std::move(events); }
  int call_fd() const { return events_.call.get(); }

  // Asks the device to use that many queue pairs. False: a command is under way still, or the
  // device has broken the ring.
  bool set_queue_pairs(uint16_t pairs);
  // After the call fired: what the device answered; nullopt: nothing new. Broken is said once: the
  // device can fire the call as often as it likes.
  enum class Answer : uint8_t { ok, refused, broken };
  std::optional<Answer> take_answer();

 private:
  template <typename Ring>
  struct Place {
    Place(uint64_t features, NicMemory& memory);
    GuestAddr descriptors, driver_area, device_area;
    Ring ring;
  };
  NicMemory& memory_;
  std::variant<std::monostate, Place<SplitDriver>, Place<PackedDriver>> place_;
  GuestAddr command_;
  GuestAddr answer_;
  NicEvents events_;
  bool waits_ = false;
  bool broken_ = false;
};

}  // namespace sluice
