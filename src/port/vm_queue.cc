#include "port/vm_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/clock.h"
#include "memory/sigbus.h"

namespace sluice {
namespace {

// Keys in the wake set.
constexpr uint32_t kFromGuestKick = 0;
constexpr uint32_t kToGuestKick = 1;

}  // namespace

Result<std::unique_ptr<VmQueue>> VmQueue::create(FaultBell* bell) {
  auto wake = WakeSet::create();
  if (!wake) return fail(wake.error());
  return std::unique_ptr<VmQueue>(new VmQueue(std::move(*wake), bell));
}

VmQueue::VmQueue(WakeSet wake, FaultBell* bell) : bell_(bell), wake_(std::move(wake)) {}

// ---- Rings come and go ------------------------------------------------------------------------

Result<void> VmQueue::start(Side side, RingStart start) {
  const uint64_t features = start.features;
  DeviceRing& target = ring(side);
  SLUICE_ASSERT(!target.running());
  target.start(std::move(start), side == Side::from_guest);
  if (target.kick().valid()) {
    const uint32_t key = side == Side::from_guest ? kFromGuestKick : kToGuestKick;
    if (auto added = wake_.add(target.kick().get(), EPOLLIN, key); !added) {
      target.stop();
      return added;
    }
  }
  if (side == Side::from_guest) {
    from_guest_.started(features);
  } else {
    to_guest_.started(features);
    restart_until_ns_ = 0;
  }
  trips_seen_ = sigbus_trip_count();
  return {};
}

uint32_t VmQueue::stop(Side side) {
  SLUICE_ASSERT(!from_guest_.has_referenced());  // we are between breaths
  DeviceRing& target = ring(side);
  if (side == Side::to_guest && target.can_carry() && front_end_connected_)
    restart_until_ns_ = monotonic_ns() + kHeldMillisecondsMax * 1'000'000;
  if (target.running() && target.kick().valid()) wake_.remove(target.kick().get());
  return target.stop();
}

void VmQueue::steer(const VmSteering* steering, std::span<const std::unique_ptr<VmQueue>> queues,
                    uint16_t own_index) {
  steering_ = steering;
  siblings_ = queues;
  own_index_ = own_index;
}

void VmQueue::note_fault(DeviceRing& ring) {
  // Its kicks wake nobody any more: a broken queue costs no time.
  if (ring.kick().valid()) wake_.remove(ring.kick().get());
  bell_->ring();
}

// Whether a page behind the guest's memory went away since this was asked last.
bool VmQueue::memory_vanished(DeviceRing& ring) {
  return ring.running() && ring.memory().vanished();
}

// ---- Frames -----------------------------------------------------------------------------------

bool VmQueue::receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept {
  if (!from_guest_.ring().usable()) return false;
  // What was taken before has been transmitted: whoever receives twice a breath is through with it.
  from_guest_.complete_referenced();
  bool more = from_guest_.receive(batch, budget, cache, received_);
  if (!from_guest_.ring().usable()) {
    note_fault(from_guest_.ring());
    more = false;
  }
  drop_if_vanished(batch, cache);
  return more;
}

// If a page went away under the copies, what was copied is not what the guest sent.
void VmQueue::drop_if_vanished(FrameBatch& batch, FrameCache& cache) {
  const uint64_t trips = sigbus_trip_count();
  if (trips == trips_seen_) [[likely]]
    return;
  trips_seen_ = trips;
  if (!memory_vanished(from_guest_.ring())) return;
  for (Frame* frame : batch) {
    cache.give(frame);
    received_.count_drop(DropReason::guest_memory_gone);
  }
  batch.clear();
  for (DeviceRing* ring : {&from_guest_.ring(), &to_guest_.ring()}) {
    if (!ring->usable()) continue;
    ring->break_with(RingFault::memory_vanished);
    note_fault(*ring);
  }
}

void VmQueue::transmit(FrameBatch& batch) noexcept {
  if (is_steered()) [[unlikely]]
    return transmit_steered(batch);
  transmit_here(batch);
}

// One batch for each receive queue that a frame of this one belongs to. Frames of one flow go to
// one queue, so their order holds though queues fill up one by one.
void VmQueue::transmit_steered(FrameBatch& batch) {
  std::array<uint16_t, kBatchFramesMax> target{};
  for (size_t i = 0; i < batch.size(); ++i) target[i] = steering_->pick(*batch[i], own_index_);
  uint64_t left = batch.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << batch.size()) - 1;
  static_assert(kBatchFramesMax == 64, "one bit a frame");
  while (left != 0) {  // each round takes one frame away at least
    const uint16_t queue = target[static_cast<size_t>(std::countr_zero(left))];
    FrameBatch part;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!(left >> i & 1) || target[i] != queue) continue;
      part.push(batch[i]);
      left &= ~(uint64_t{1} << i);
    }
    SLUICE_ASSERT(queue < siblings_.size());  // tables were checked when they were set
    siblings_[queue]->transmit_here(part);
    if (queue != own_index_ && steered_count_ < steered_to_.size() &&
        std::find(steered_to_.begin(), steered_to_.begin() + steered_count_, queue) ==
            steered_to_.begin() + steered_count_)
      steered_to_[steered_count_++] = queue;
  }
}

void VmQueue::transmit_here(FrameBatch& batch) {
  if (!to_guest_.ring().can_carry() || awaits_restart()) [[unlikely]] {
    for (Frame* frame : batch) {
      if (awaits_restart())
        frame->set_result(FrameResult::blocked);
      else
        frame->set_dropped(front_end_connected_ ? DropReason::ring_disabled
                                                : DropReason::no_front_end);
    }
    return;
  }
  to_guest_.transmit(batch, transmitted_);
  if (sigbus_trip_count() != trips_seen_ && to_guest_.ring().usable() &&
      memory_vanished(to_guest_.ring()))
    to_guest_.ring().break_with(RingFault::memory_vanished);
  if (!to_guest_.ring().usable()) note_fault(to_guest_.ring());
}

size_t VmQueue::transmit_room() noexcept {
  if (!is_steered() || !steering_->spreads()) [[likely]]
    return room_here();
  // Room in any of them: what belongs to a full one waits in its link.
  for (const auto& queue : siblings_) {  // at most kQueuePairsMax
    if (queue->to_guest_.ring().can_carry() && queue->room_here() > 0) return kBatchFramesMax;
  }
  return room_here();
}

size_t VmQueue::room_here() {
  // A ring that cannot carry takes everything, to drop it by name; one that may come back nothing.
  if (!to_guest_.ring().can_carry()) return awaits_restart() ? 0 : kBatchFramesMax;
  return to_guest_.room();
}

// ---- Breath and sleep -------------------------------------------------------------------------

void VmQueue::finish_breath() noexcept {
  from_guest_.complete_referenced();
  if (from_guest_.ring().running()) from_guest_.ring().publish_and_notify(received_);
  if (to_guest_.ring().running()) to_guest_.ring().publish_and_notify(transmitted_);
  // Their own breath may be far away: their link can be asleep.
  for (; steered_count_ > 0; --steered_count_) {
    VmQueue& other = *siblings_[steered_to_[steered_count_ - 1]];
    if (other.to_guest_.ring().running())
      other.to_guest_.ring().publish_and_notify(other.transmitted_);
  }
  if (restart_until_ns_ != 0 && monotonic_ns() >= restart_until_ns_) [[unlikely]] {
    restart_until_ns_ = 0;
    bell_->ring();
  }
}

bool VmQueue::arm(bool wants_frames, bool wants_room) noexcept {
  bool late_find = false;
  // The kick for a sibling's buffers wakes the sibling's link, so this one looks by itself.
  waits_for_siblings_ = wants_room && is_steered() && steering_->spreads();
  if (wants_frames && from_guest_.ring().usable())
    late_find |= from_guest_.ring().visit([](auto& queue) { return queue.enable_kicks(); });
  if (wants_room && !waits_for_siblings_ && to_guest_.ring().can_carry())
    late_find |= to_guest_.arm();
  return late_find;
}

void VmQueue::disarm() noexcept {
  for (DeviceRing* ring : {&from_guest_.ring(), &to_guest_.ring()}) {
    if (ring->usable()) ring->visit([](auto& queue) { queue.disable_kicks(); });
  }
}

void VmQueue::on_wake() noexcept {
  uint32_t key = 0;
  uint32_t events = 0;
  for (int i = 0; i < 2 && wake_.next(key, events); ++i) {  // two descriptors at most
    if (key == kFromGuestKick) from_guest_.ring().drain_kick(received_);
    if (key == kToGuestKick) to_guest_.ring().drain_kick(transmitted_);
  }
}

bool VmQueue::must_be_polled() const noexcept {
  return from_guest_.ring().must_be_polled() || to_guest_.ring().must_be_polled() ||
         awaits_restart() || waits_for_siblings_;
}

}  // namespace sluice
