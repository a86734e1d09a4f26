#include "port/nic_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "port/foreign_event.h"

namespace sluice {
namespace {

// Keys in the wake set.
constexpr uint32_t kReceiveCall = 0;
constexpr uint32_t kTransmitCall = 1;
constexpr uint32_t kRoom = 2;

void write_event(const Fd& fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), &one, sizeof one);
}

}  // namespace

Result<std::unique_ptr<NicQueue>> NicQueue::create(FaultBell* bell) {
  auto wake = WakeSet::create();
  if (!wake) return fail(wake.error());
  Fd room_event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!room_event) return fail("eventfd: {}", errno_text(errno));
  if (auto added = wake->add(room_event.get(), EPOLLIN, kRoom); !added) return fail(added.error());
  return std::unique_ptr<NicQueue>(new NicQueue(std::move(*wake), std::move(room_event), bell));
}

Result<void> NicQueue::install(std::unique_ptr<NicPair> pair, NicEvents receive, NicEvents transmit,
                               bool own_handler) {
  SLUICE_ASSERT(pair_ == nullptr);
  if (auto added = wake_.add(receive.call.get(), EPOLLIN, kReceiveCall); !added) return added;
  if (!own_handler) {
    if (auto added = wake_.add(transmit.call.get(), EPOLLIN, kTransmitCall); !added) {
      wake_.remove(receive.call.get());
      return added;
    }
  }
  pair_ = std::move(pair);
  receive_events_ = std::move(receive);
  transmit_events_ = std::move(transmit);
  own_handler_ = own_handler;
  fault_reported_ = false;
  pair_->disarm();
  pair_->fill();
  return {};
}

void NicQueue::remove() {
  if (pair_ == nullptr) return;
  wake_.remove(receive_events_.call.get());
  if (!own_handler_) wake_.remove(transmit_events_.call.get());
  pair_.reset();
  receive_events_ = {};
  transmit_events_ = {};
  waits_for_room_.store(false);
}

bool NicQueue::receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept {
  if (!carries()) return false;
  return pair_->receive(batch, budget, cache, received_);
}

void NicQueue::transmit(FrameBatch& batch) noexcept {
  if (carries()) [[likely]]
    return pair_->transmit(batch, transmitted_);
  const DropReason reason = pair_ == nullptr ? DropReason::no_back_end : DropReason::ring_disabled;
  for (Frame* frame : batch) frame->set_dropped(reason);
}

size_t NicQueue::transmit_room() noexcept {
  // Without a back end everything is taken, to be dropped by name.
  return carries() ? pair_->room() : kBatchFramesMax;
}

void NicQueue::finish_breath() noexcept {
  if (pair_ == nullptr) return;
  const TransmitCounters& sent = pair_->transmit_counters();
  const uint64_t suppressed_before = sent.kicks_suppressed.get();
  const NicPair::Kicks kicks = pair_->finish();
  if (kicks.receive) {
    write_event(receive_events_.kick);
    received_.notifications.add(1);
  }
  if (kicks.transmit) {
    write_event(transmit_events_.kick);
    transmitted_.notifications.add(1);
  }
  transmitted_.notifications_suppressed.add(sent.kicks_suppressed.get() - suppressed_before);
  if (!fault_reported_ && pair_->fault() != nullptr) [[unlikely]]
    look_for_fault();
}

void NicQueue::look_for_fault() {
  fault_reported_ = true;
  bell_->ring();
}

bool NicQueue::arm(bool wants_frames, bool wants_room) noexcept {
  if (!carries()) return false;
  // Before the ring is asked: whoever uses a buffer from now on either is seen by the second look,
  // or interrupts, and the handler then sees that we wait.
  waits_for_room_.store(wants_room);
  return pair_->arm(wants_frames, wants_room);
}

void NicQueue::disarm() noexcept {
  waits_for_room_.store(false);
  if (pair_ != nullptr) pair_->disarm();
}

void NicQueue::on_wake() noexcept {
  uint32_t key = 0;
  uint32_t events = 0;
  for (int i = 0; i < 3 && wake_.next(key, events); ++i) {  // three descriptors at most
    if (key == kReceiveCall && take_foreign_event(receive_events_.call.get()))
      received_.kicks.add(1);
    if (key == kTransmitCall && take_foreign_event(transmit_events_.call.get()))
      transmitted_.kicks.add(1);
    if (key == kRoom) take_foreign_event(room_event_.get());
  }
}

void NicQueue::on_interrupt() noexcept {
  transmitted_.kicks.add(1);
  if (waits_for_room_.load()) write_event(room_event_);
}

}  // namespace sluice
