#include "port/device_ring.h"

#include <sys/uio.h>
#include <unistd.h>

#include "virtio/features.h"

namespace sluice {
namespace {

// Eventfds and pipes have been made non-blocking by the session. A full one already means "look".
void write_event(const Fd& fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), &one, sizeof one);
}

}  // namespace

void DeviceRing::start(RingStart start) {
  SplitQueueSetup setup;
  setup.size = start.size;
  setup.base = static_cast<uint16_t>(start.base);
  setup.event_idx = start.features & feature::event_idx;
  setup.indirect = start.features & feature::indirect_desc;
  setup.descriptors = start.descriptors;
  setup.available = start.available;
  setup.used = start.used;
  setup.memory = std::move(start.memory);
  queue_.emplace(std::move(setup));
  queue_->disable_kicks();
  features_ = start.features;
  kick_ = std::move(start.kick);
  call_ = std::move(start.call);
  error_ = std::move(start.error);
  enabled_ = start.enabled;
  fault_reported_ = false;
}

uint32_t DeviceRing::stop() {
  if (queue_) {
    SLUICE_ASSERT(queue_->in_flight() == 0);
    queue_->publish();
    // Whoever takes over may rely on kicks until it says otherwise.
    if (!queue_->broken()) queue_->enable_kicks();
    last_base_ = queue_->next_avail();
    queue_.reset();
  }
  kick_.reset();
  return last_base_;
}

void DeviceRing::publish_and_notify(QueueCounters& counters) {
  if (queue_->publish() == 0) return;
  if (!queue_->driver_wants_notification()) {
    counters.notifications_suppressed.add(1);
    return;
  }
  if (!call_.valid()) return;  // the front end polls
  write_event(call_);
  counters.notifications.add(1);
}

void DeviceRing::drain_kick(QueueCounters& counters) {
  // O_NONBLOCK is a flag that the front end shares with us and can take away: ask for no waiting in
  // the call itself.
  uint64_t value = 0;
  iovec part{&value, sizeof value};
  if (kick_.valid() && ::preadv2(kick_.get(), &part, 1, -1, RWF_NOWAIT) > 0) counters.kicks.add(1);
}

void DeviceRing::kick_ourselves() {
  if (kick_.valid()) write_event(kick_);
}

void DeviceRing::signal_error() {
  if (error_.valid()) write_event(error_);
}

RingFault DeviceRing::take_new_fault() {
  if (!queue_ || !queue_->broken() || fault_reported_) return RingFault::none;
  fault_reported_ = true;
  return queue_->fault();
}

}  // namespace sluice
