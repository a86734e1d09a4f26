// PackedQueue: the device side of one packed virtqueue. It has the methods of SplitQueue, so that
// one template drives either; their manual is there.
//
// What differs: the ring may have any size; a chain takes as many slots of the ring as it has
// descriptors; the buffer id is the driver's own and is only handed back; a batch appears at once
// because the flags of its first used descriptor are written last. How much is available a packed
// ring does not say, so available_count() has to look, and counts slots.
//
// A reset of the ring (VIRTIO_F_RING_RESET) needs nothing here: a new queue is started.
// NOTIFICATION_DATA is not offered: where the ring goes on we see on the ring itself.
//
// Invariants: positions and wrap counters are private; what the driver writes over descriptors that
// are ours changes nothing but what it reads itself. At most `size` slots are in flight. After a
// fault the queue is broken for good. [virtio 2.8]
#pragma once

#include <cstdint>
#include <memory>

#include "memory/guest_memory.h"
#include "virtio/chain.h"
#include "virtio/chain_walk.h"
#include "virtio/packed_layout.h"
#include "virtio/split_layout.h"

namespace sluice {

struct PackedQueueSetup {
  uint32_t size = 0;  // 1 to kRingSizeMax
  // Where to go on: bits 0-14 the next available slot, which is less than `size`, and bit 15 its
  // wrap counter. The upper half (the same for used) is not looked at: whoever stopped the ring,
  // all that was taken had been used, and some front ends leave it zero.
  uint32_t base = 0x8000;
  bool event_idx = false;  // VIRTIO_F_EVENT_IDX was negotiated
  bool indirect = false;   // VIRTIO_F_INDIRECT_DESC was negotiated
  bool in_order = false;   // VIRTIO_F_IN_ORDER was negotiated
  // The ring brings data to the device only. DPDK's driver leaves WRITE set on the table entry of a
  // packet's net header, so in tables the flag is not looked at then.
  bool reads_only = false;
  GuestSpan descriptors;   // packed_descriptors_bytes(size), aligned to 16
  GuestSpan driver_event;  // kPackedEventBytes, aligned to 4; written by the driver
  GuestSpan device_event;  // kPackedEventBytes, aligned to 4; written by us
  std::shared_ptr<const GuestMemory> memory;
};

class PackedQueue {
 public:
  explicit PackedQueue(PackedQueueSetup setup);

  Pop pop(SpanList& spans, Chain& chain);
  uint16_t pop_batch(SpanList& spans, Chain* out, uint16_t max, Pop& end);
  void unpop(Chain&& chain);
  void complete(Chain&& chain, uint32_t written_bytes);
  uint16_t publish();
  bool driver_wants_notification();

  // Asks for a kick once more than `known` slots are available, then looks again.
  bool enable_kicks(uint16_t known = 0);
  void disable_kicks();

  // Slots that are available from the next one on, at most `limit`: a walk of that many.
  uint16_t available_count(uint16_t limit) const;
  bool has_available() const { return is_available(next_); }

  uint32_t size() const { return size_; }
  uint32_t base() const;
  uint16_t in_flight() const { return in_flight_; }
  void mark_broken(RingFault fault) { fault_ = fault; }
  bool broken() const { return fault_ != RingFault::none; }
  RingFault fault() const { return fault_; }
  const GuestMemory& memory() const { return *memory_; }
  void prefetch_next(unsigned count) const;

 private:
  // A descriptor as it was when it was looked at.
  struct Copy {
    uint64_t address;
    PackedSecond second;
  };
  const uint8_t* at(uint16_t index) const {
    return descriptors_ + sizeof(PackedDescriptor) * index;
  }
  // Length, id and flags of a descriptor.
  SharedWord<uint64_t>& second_at(uint16_t index) const {
    return *reinterpret_cast<SharedWord<uint64_t>*>(const_cast<uint8_t*>(at(index)) +
                                                    offsetof(PackedDescriptor, bytes));
  }
  SharedWord<uint16_t>& flags_at(uint16_t index) const {
    return *reinterpret_cast<SharedWord<uint16_t>*>(const_cast<uint8_t*>(at(index)) +
                                                    offsetof(PackedDescriptor, flags));
  }
  bool is_available(RingPosition position) const {
    return position.shows_available(flags_at(position.index()).load_acquire());
  }
  // Whether the slot is available, and what it said. One look: the copy is what counts.
  [[gnu::always_inline]] bool load_head(Copy& copy) const;
  Copy load_descriptor(uint16_t index) const;
  [[gnu::always_inline]] bool pop_single(const Copy& copy, SpanList& spans, Chain& chain);
  RingFault walk(Copy copy, ChainBytes& bytes, Chain& chain) const;
  RingFault walk_indirect(uint64_t address, uint32_t table_bytes, ChainBytes& bytes) const;
  [[gnu::always_inline]] void store_used(uint16_t id, uint32_t written_bytes, bool has_written,
                                         uint32_t slots);
  void flush_run();
  bool passed(RingPosition event) const;
  Pop break_with(RingFault fault) {
    fault_ = fault;
    return Pop::broken;
  }

  uint32_t size_;
  bool event_idx_;
  bool indirect_;
  bool in_order_;
  bool reads_only_;
  RingFault fault_ = RingFault::none;
  RingPosition next_;         // the next chain is expected here
  RingPosition used_;         // the next used descriptor goes here
  uint16_t in_flight_ = 0;    // chains that were popped and not completed
  uint32_t slots_taken_ = 0;  // slots that were popped and not published
  uint8_t* descriptors_;
  PackedEvent* driver_event_;
  PackedEvent* device_event_;

  // The batch that is completed and not published: its first descriptor is not written.
  uint16_t batch_chains_ = 0;
  uint32_t batch_slots_ = 0;
  SharedWord<uint64_t>* first_ = nullptr;  // where that goes; nullptr: the batch has none yet
  uint64_t first_word_ = 0;
  // IN_ORDER: the chains at its end that one used descriptor will stand for. [virtio 2.8.8]
  uint16_t run_chains_ = 0;
  uint16_t run_id_ = 0;
  uint32_t run_slots_ = 0;
  // What the driver has not been asked about: slots published from here on. One more than the ring
  // has stands for any more.
  RingPosition signalled_;
  uint32_t signal_slots_ = 0;
  bool signalled_valid_ = false;
  std::shared_ptr<const GuestMemory> memory_;
};

// One used descriptor, which stands for `slots` of the ring. [virtio 2.8.22]
inline void PackedQueue::store_used(uint16_t id, uint32_t written_bytes, bool has_written,
                                    uint32_t slots) {
  const auto flags =
      static_cast<uint16_t>(used_.used_flags() | (has_written ? kDescriptorWrite : 0));
  const uint64_t word = PackedSecond(written_bytes, id, flags).word();
  SharedWord<uint64_t>& place = second_at(used_.index());
  if (first_ != nullptr) [[likely]] {
    place.store_release(word);
  } else {
    // Nothing of a batch may be seen before its first descriptor, which publish() writes.
    first_ = &place;
    first_word_ = word;
  }
  if (slots == 1) [[likely]]
    return used_.advance_one(size_);
  used_.advance(slots, size_);
}

inline void PackedQueue::complete(Chain&& chain, uint32_t written_bytes) {
  chain.consume();
  SLUICE_ASSERT(in_flight_ > 0);
  --in_flight_;
  ++batch_chains_;
  batch_slots_ += chain.slots_;
  const bool has_written = chain.writable_count_ > 0;
  if (in_order_) {
    if (!has_written) {
      // What was read completely needs no entry of its own. [virtio 2.8.8]
      ++run_chains_;
      run_id_ = chain.head_;
      run_slots_ += chain.slots_;
      return;
    }
    flush_run();
  }
  store_used(chain.head_, written_bytes, has_written, chain.slots_);
}

}  // namespace sluice
