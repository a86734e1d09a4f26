#include "port/device_ring.h"

#include <unistd.h>

#include "port/foreign_event.h"
#include "virtio/features.h"

namespace sluice {
namespace {

// Eventfds and pipes have been made non-blocking by the session. A full one already means "look".
void write_event(const Fd& fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), &one, sizeof one);
}

SplitQueueSetup split_setup(RingStart& start) {
  SplitQueueSetup setup;
  setup.size = start.size;
  setup.base = static_cast<uint16_t>(start.base);
  setup.event_idx = start.features & feature::event_idx;
  setup.indirect = start.features & feature::indirect_desc;
  setup.in_order = start.features & feature::in_order;
  setup.descriptors = start.descriptors;
  setup.available = start.available;
  setup.used = start.used;
  setup.memory = std::move(start.memory);
  return setup;
}

PackedQueueSetup packed_setup(RingStart& start) {
  PackedQueueSetup setup;
  setup.size = start.size;
  setup.base = start.base;
  setup.event_idx = start.features & feature::event_idx;
  setup.indirect = start.features & feature::indirect_desc;
  setup.in_order = start.features & feature::in_order;
  setup.descriptors = start.descriptors;
  setup.driver_event = start.available;
  setup.device_event = start.used;
  setup.memory = std::move(start.memory);
  return setup;
}

}  // namespace

void DeviceRing::start(RingStart start, bool reads_only) {
  if (start.features & feature::ring_packed) {
    PackedQueueSetup setup = packed_setup(start);
    setup.reads_only = reads_only;
    queue_.emplace<PackedQueue>(std::move(setup));
  } else {
    queue_.emplace<SplitQueue>(split_setup(start));
  }
  visit([](auto& queue) { queue.disable_kicks(); });
  features_ = start.features;
  kick_ = std::move(start.kick);
  call_ = std::move(start.call);
  error_ = std::move(start.error);
  enabled_ = start.enabled;
  broken_ = false;
  fault_reported_ = false;
}

uint32_t DeviceRing::stop() {
  if (running()) {
    visit([this](auto& queue) {
      SLUICE_ASSERT(queue.in_flight() == 0);
      queue.publish();
      // Whoever takes over may rely on kicks until it says otherwise.
      if (!queue.broken()) queue.enable_kicks();
      last_base_ = queue.base();
    });
    queue_.emplace<std::monostate>();
  }
  kick_.reset();
  return last_base_;
}

const GuestMemory& DeviceRing::memory() {
  return visit([](auto& queue) -> const GuestMemory& { return queue.memory(); });
}

void DeviceRing::publish_and_notify(QueueCounters& counters) {
  const bool notify = visit([&](auto& queue) {
    if (queue.publish() == 0) return false;
    const bool wanted = queue.driver_wants_notification();
    if (!wanted) counters.notifications_suppressed.add(1);
    return wanted;
  });
  if (!notify || !call_.valid()) return;  // without a call the front end polls
  write_event(call_);
  counters.notifications.add(1);
}

void DeviceRing::drain_kick(QueueCounters& counters) {
  if (kick_.valid() && take_foreign_event(kick_.get())) counters.kicks.add(1);
}

void DeviceRing::kick_ourselves() {
  if (kick_.valid()) write_event(kick_);
}

void DeviceRing::break_with(RingFault fault) {
  visit([&](auto& queue) { queue.mark_broken(fault); });
  note_broken();
}

void DeviceRing::note_broken() {
  broken_ = true;
  // A ring that lies in memory which is gone reads as zeros: that is the fault, not what zeros say.
  if (memory().vanished())
    visit([](auto& queue) { queue.mark_broken(RingFault::memory_vanished); });
  if (error_.valid()) write_event(error_);
}

RingFault DeviceRing::take_new_fault() {
  if (!running() || !broken_ || fault_reported_) return RingFault::none;
  fault_reported_ = true;
  return visit([](auto& queue) { return queue.fault(); });
}

}  // namespace sluice
