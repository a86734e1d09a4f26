// NicQueue: one queue pair of a nic, as a port's queue. Frames come from the device's transmission
// towards us (from_device) and go to it (to_device).
//
// What it adds to NicPair, which moves the frames: that there may be no back end, the eventfds, and
// who handles the interrupts: the worker's own epoll, or, for transmit, a thread of its own.
//
// All methods belong to the owning worker, except install/remove, which the control thread calls
// between breaths.
#pragma once

#include <atomic>
#include <memory>

#include "port/fault_bell.h"
#include "port/nic_pair.h"
#include "port/port.h"
#include "port/wake_set.h"

namespace sluice {

// The front end's ends of a ring's eventfds.
struct NicEvents {
  Fd kick;
  Fd call;
  Fd error;
};

class NicQueue final : public PortQueue {
 public:
  static Result<std::unique_ptr<NicQueue>> create(FaultBell* bell);

  bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept override;
  void transmit(FrameBatch& batch) noexcept override;
  void finish_breath() noexcept override;
  size_t transmit_room() noexcept override;
  bool arm(bool wants_frames, bool wants_room) noexcept override;
  void disarm() noexcept override;
  int wake_fd() const noexcept override { return wake_.fd(); }
  void on_wake() noexcept override;

  // Between breaths only. With `own_handler` the transmit ring's call is read by somebody else, who
  // then calls on_interrupt().
  Result<void> install(std::unique_ptr<NicPair> pair, NicEvents receive, NicEvents transmit,
                       bool own_handler);
  void remove();
  bool installed() const { return pair_ != nullptr; }
  const NicPair* pair() const { return pair_.get(); }
  // Whether frames are carried: the driver may use fewer pairs than are set up.
  void set_enabled(bool enabled) { enabled_ = enabled; }
  // Between breaths only: frames sent that the device has not used yet.
  size_t frames_with_device() { return pair_ == nullptr ? 0 : pair_->frames_with_device(); }
  bool carries() const { return pair_ != nullptr && enabled_ && !fault_reported_; }

  // By the thread that reads the transmit ring's call eventfd: counts, and wakes the worker if it
  // sleeps for want of room.
  void on_interrupt() noexcept;
  int transmit_call() const { return transmit_events_.call.get(); }

 private:
  NicQueue(WakeSet wake, Fd room_event, FaultBell* bell)
      : bell_(bell), wake_(std::move(wake)), room_event_(std::move(room_event)) {}
  void look_for_fault();

  FaultBell* bell_;
  WakeSet wake_;
  Fd room_event_;  // written by on_interrupt()
  std::unique_ptr<NicPair> pair_;
  NicEvents receive_events_;
  NicEvents transmit_events_;
  bool own_handler_ = false;
  bool enabled_ = true;
  bool fault_reported_ = false;
  std::atomic<bool> waits_for_room_{false};
};

}  // namespace sluice
