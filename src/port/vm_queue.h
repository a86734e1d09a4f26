// VmQueue: one queue pair of a VM, device side. Frames come from the guest's transmit ring and go
// to its receive ring; here the rings are called from_guest and to_guest.
//
// What it adds to VmFromGuest and VmToGuest, which move the frames: that a ring may be missing,
// disabled, broken or about to come back, and what wakes the worker.
//
// All methods belong to the owning worker, except start/stop and the setters below, which the
// control thread calls between breaths.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "port/fault_bell.h"
#include "port/port.h"
#include "port/vm_from_guest.h"
#include "port/vm_steering.h"
#include "port/vm_to_guest.h"
#include "port/wake_set.h"

namespace sluice {

class VmQueue final : public PortQueue {
 public:
  static Result<std::unique_ptr<VmQueue>> create(FaultBell* bell);

  bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept override;
  void transmit(FrameBatch& batch) noexcept override;
  void finish_breath() noexcept override;
  size_t transmit_room() noexcept override;
  bool arm(bool wants_frames, bool wants_room) noexcept override;
  void disarm() noexcept override;
  int wake_fd() const noexcept override { return wake_.fd(); }
  void on_wake() noexcept override;
  bool must_be_polled() const noexcept override;
  DropReason full_reason() const noexcept override { return DropReason::no_guest_buffer; }

  // Where frames towards the guest go when they may go to any of the port's queues: `queues` are
  // all of them, breathed by one worker, and `steering` says which. Before the worker starts.
  void steer(const VmSteering* steering, std::span<const std::unique_ptr<VmQueue>> queues,
             uint16_t own_index);

  // Between breaths only.
  enum class Side : uint8_t { from_guest, to_guest };
  Result<void> start(Side side, RingStart start);
  uint32_t stop(Side side);
  DeviceRing& ring(Side side) {
    return side == Side::from_guest ? from_guest_.ring() : to_guest_.ring();
  }
  // What the guest takes, which can change at run time (control queue).
  void set_guest_takes(const OffloadSet& takes) { to_guest_.set_guest_takes(takes); }
  void set_front_end_connected(bool connected) {
    front_end_connected_ = connected;
    if (!connected) restart_until_ns_ = 0;
  }
  // The to_guest ring was stopped while it carried, a moment ago: its memory table may be about to
  // be replaced, so its frames wait as they do for room, and only then are dropped. The bell rings
  // when the wait was in vain.
  bool awaits_restart() const { return restart_until_ns_ != 0; }

 private:
  explicit VmQueue(WakeSet wake, FaultBell* bell);

  bool is_steered() const { return steering_ != nullptr && steering_->is_needed(); }
  void transmit_steered(FrameBatch& batch);
  void transmit_here(FrameBatch& batch);
  size_t room_here();
  void drop_if_vanished(FrameBatch& batch, FrameCache& cache);
  bool memory_vanished(DeviceRing& ring);
  void note_fault(DeviceRing& ring);

  FaultBell* bell_;
  WakeSet wake_;
  VmFromGuest from_guest_;
  VmToGuest to_guest_;
  bool front_end_connected_ = false;
  uint64_t restart_until_ns_ = 0;  // 0: nothing is waited for
  uint64_t trips_seen_ = 0;

  const VmSteering* steering_ = nullptr;
  std::span<const std::unique_ptr<VmQueue>> siblings_;
  uint16_t own_index_ = 0;
  bool waits_for_siblings_ = false;
  std::array<uint16_t, kBatchFramesMax> steered_to_{};  // siblings with frames of this breath
  size_t steered_count_ = 0;
};

}  // namespace sluice
