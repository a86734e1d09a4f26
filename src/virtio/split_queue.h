// SplitQueue: the device side of one split virtqueue.
//
// What: takes chains (pop), gives them back (complete, unpop), publishes used entries in batches,
// and does notification suppression both ways. What not: packets, sockets, eventfds; the caller
// kicks and is kicked.
//
// Invariants: the used index and the position in the available ring are private; what the driver
// writes over them changes nothing. Each descriptor is copied out once, checked, and translated
// with its length. At most `size` chains are in flight. After a fault the queue is broken for good:
// pop() answers Pop::broken, and a new queue has to be started.
//
//   SpanList spans(kChainSpansMax);
//   while (queue.pop(spans, chain) == Pop::chain) {
//     …copy out of spans.slice(chain.span_first(), chain.readable_count())…
//     queue.complete(std::move(chain), 0);
//   }
//   queue.publish();
//   if (queue.driver_wants_notification()) …write the call eventfd…
//
// To sleep: if (queue.enable_kicks()) there is work after all, else wait for the kick eventfd.
#pragma once

#include <cstdint>
#include <memory>

#include "memory/guest_memory.h"
#include "virtio/chain.h"
#include "virtio/split_layout.h"

namespace sluice {

struct SplitQueueSetup {
  uint32_t size = 0;       // a power of two, at most kRingSizeMax
  uint16_t base = 0;       // the available index to go on from
  bool event_idx = false;  // VIRTIO_F_EVENT_IDX was negotiated
  bool indirect = false;   // VIRTIO_F_INDIRECT_DESC was negotiated
  bool in_order = false;   // VIRTIO_F_IN_ORDER was; each chain still gets an entry of its own
  GuestSpan descriptors;   // split_descriptors_bytes(size), aligned to 16
  GuestSpan available;     // split_available_bytes(size), aligned to 2
  GuestSpan used;          // split_used_bytes(size), aligned to 4
  std::shared_ptr<const GuestMemory> memory;
};

class SplitQueue {
 public:
  // The areas have been checked (see SplitQueueSetup); that they are is asserted.
  explicit SplitQueue(SplitQueueSetup setup);

  // Takes the next available chain. Its spans are appended to `spans`; on anything but Pop::chain
  // the list is as before.
  Pop pop(SpanList& spans, Chain& chain);
  // Up to `max` chains at once; returns how many. `end` says why there are no more: Pop::chain when
  // `max` was reached. The first bytes of each are asked for, so that they are near when they are
  // copied.
  uint16_t pop_batch(SpanList& spans, Chain* out, uint16_t max, Pop& end);
  // Gives the chain that was popped last back untouched: it will be popped again. Chains are
  // un-popped in the reverse order of their popping, and never after a later one was completed.
  void unpop(Chain&& chain);
  // The device is done with the chain and wrote `written_bytes` of its writable part. The driver
  // sees it at the next publish(). [virtio 2.7.8]
  void complete(Chain&& chain, uint32_t written_bytes);
  // Makes all completed chains visible with one release store. Returns how many there were.
  uint16_t publish();
  // After publish(): whether the driver wants to be notified of what was published since the last
  // time this was asked. Contains the full fence. [virtio 2.7.7.2], [virtio 2.7.10]
  bool driver_wants_notification();

  // Asks the driver for a kick once more than `known` chains are available, then looks again: true
  // when they are already. `known` is what a caller could not use: available_count() of a moment
  // ago.
  bool enable_kicks(uint16_t known = 0);
  // Tells the driver that we are looking ourselves. A kick may come all the same.
  void disable_kicks();

  // Chains available and not yet popped, as far as the driver has said, at most `limit`. A jump of
  // its index shows as more than size(), and pop() will answer broken.
  uint16_t available_count(uint16_t limit = UINT16_MAX) const {
    const auto count = static_cast<uint16_t>(avail_->index.load_acquire() - next_avail_);
    return count < limit ? count : limit;
  }
  bool has_available() const { return available_count() != 0; }

  uint32_t size() const { return size_; }
  uint16_t next_avail() const { return next_avail_; }
  uint32_t base() const { return next_avail_; }  // where to resume [vhost-user GET_VRING_BASE]
  uint16_t in_flight() const { return in_flight_; }
  // The caller found a fault that a ring alone cannot see: the queue is broken from now on.
  void mark_broken(RingFault fault) { fault_ = fault; }
  bool broken() const { return fault_ != RingFault::none; }
  RingFault fault() const { return fault_; }
  const GuestMemory& memory() const { return *memory_; }
  // Hints to the processor about the descriptors of the next chains.
  void prefetch_next(unsigned count) const;

 private:
  friend class ChainWalk;
  Pop break_with(RingFault fault) {
    fault_ = fault;
    return Pop::broken;
  }
  SplitDescriptor load_descriptor(uint16_t index) const;
  SharedWord<uint16_t>& used_event() const { return avail_->ring[size_]; }
  SharedWord<uint16_t>& avail_event() const { return *avail_event_; }

  uint32_t size_;
  uint16_t mask_;
  uint16_t next_avail_;      // position in the available ring, private
  uint16_t avail_seen_;      // the driver's index when it was last loaded
  uint16_t next_used_;       // where the next used entry goes; published ones end here or before
  uint16_t published_used_;  // what the driver can see
  uint16_t signalled_used_;  // what it has been notified of
  bool signalled_valid_ = false;
  bool event_idx_;
  bool indirect_;
  uint16_t in_flight_ = 0;
  RingFault fault_ = RingFault::none;
  const uint8_t* descriptors_;
  SplitAvail* avail_;
  SplitUsed* used_;
  SharedWord<uint16_t>* avail_event_;  // behind the used ring's last element
  std::shared_ptr<const GuestMemory> memory_;
};

}  // namespace sluice
