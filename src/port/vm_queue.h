// VmQueue: one queue pair of a VM, device side. Frames come from the guest's transmit ring and go
// to its receive ring; here the rings are called from_guest and to_guest.
//
// From the guest: chains are copied into frames once and completed at once; a packet too big for a
// frame keeps its payload in guest memory by reference, and its chain completes in finish_breath().
// To the guest: as many writable chains as the packet needs are taken (mergeable buffers), filled
// and completed; all of a breath's used entries are published together. [virtio 5.1.6.4]
//
// All methods belong to the owning worker, except install/remove and the setters below, which the
// control thread calls between breaths.
#pragma once

#include <array>
#include <atomic>

#include "packet/offload_check.h"
#include "port/device_ring.h"
#include "port/port.h"
#include "port/wake_set.h"
#include "virtio/net_header.h"

namespace sluice {

// What the owner of several queues hears from a worker: written by workers, read by the control
// thread after its eventfd fired.
class FaultBell {
 public:
  static Result<FaultBell> create();
  FaultBell() = default;
  int fd() const { return event_.get(); }
  void ring();
  void silence();

 private:
  Fd event_;
};

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

  // Between breaths only.
  enum class Side : uint8_t { from_guest, to_guest };
  Result<void> start(Side side, RingStart start);
  uint32_t stop(Side side);
  DeviceRing& ring(Side side) { return side == Side::from_guest ? from_guest_ : to_guest_; }
  // What the guest takes, which can change at run time (control queue).
  void set_guest_takes(const OffloadSet& takes) { guest_takes_ = takes; }
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

  // One chain into one frame. Returns false when the frame is not to be passed on.
  enum class TakeIn : uint8_t { frame, dropped, broken };
  TakeIn take_in(Chain& chain, Frame& frame, FrameCache& cache, bool& by_reference);
  std::optional<DropReason> copy_head(Chain& chain, Frame& frame);
  std::optional<DropReason> attach_tail(Chain& chain, Frame& frame, FrameCache& cache,
                                        bool& by_reference);
  void finish_chain(Chain&& chain, bool by_reference);
  bool receive_one(FrameBatch& batch, FrameCache& cache, size_t& bytes, bool& more);
  void drop_if_vanished(FrameBatch& batch, FrameCache& cache);
  bool discard_burst();
  void break_ring(DeviceRing& ring, RingFault fault);
  void note_fault(DeviceRing& ring);

  FrameResult send_one(Frame& frame);
  std::optional<DropReason> prepare_for_guest(Frame& frame) const;
  enum class Gather : uint8_t { ok, no_room, too_small, broken };
  Gather gather(size_t need_bytes, size_t& chain_count);
  void ungather(size_t chain_count);
  void fill(Frame& frame, size_t chain_count);

  FaultBell* bell_;
  WakeSet wake_;
  DeviceRing from_guest_;
  DeviceRing to_guest_;
  bool front_end_connected_ = false;
  OffloadSet guest_takes_;
  AllowedOffloads guest_may_ask_;
  size_t from_header_bytes_ = kNetHeaderBytes;
  size_t to_header_bytes_ = kNetHeaderBytes;
  bool merges_buffers_ = false;
  bool in_order_ = false;

  SpanList from_spans_;  // of chains whose frames still refer to guest memory
  std::array<Chain, kBatchFramesMax> pending_;
  size_t pending_count_ = 0;
  SpanList to_spans_;
  // A packet may be spread over this many of the guest's buffers at most: 64 KiB in buffers of
  // 64 bytes and more. Smaller buffers are counted as guest_buffer_too_small.
  static constexpr size_t kMergedBuffersMax = 1088;
  std::array<Chain, kMergedBuffersMax> gathered_;
  uint16_t blocked_at_available_ = 0;
  uint64_t restart_until_ns_ = 0;  // 0: nothing is waited for
  uint64_t trips_seen_ = 0;
};

}  // namespace sluice
