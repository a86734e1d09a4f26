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
  const uint8_t* at(uint16_t index) const {
    return descriptors_ + sizeof(PackedDescriptor) * index;
  }
  SharedWord<uint16_t>& flags_at(uint16_t index) const {
    return *reinterpret_cast<SharedWord<uint16_t>*>(const_cast<uint8_t*>(at(index)) +
                                                    offsetof(PackedDescriptor, flags));
  }
  bool is_available(RingPosition position) const {
    return is_packed_available(flags_at(position.index()).load_acquire(), position.wrap());
  }
  // Whether the slot is available, and what it said. One look: the copy is what counts.
  bool load_head(PackedDescriptor& descriptor) const;
  PackedDescriptor load_descriptor(uint16_t index) const;
  RingFault walk(PackedDescriptor descriptor, ChainBytes& bytes, Chain& chain) const;
  RingFault walk_indirect(const PackedDescriptor& table, ChainBytes& bytes) const;
  void store_used(uint16_t id, uint32_t written_bytes, bool has_written, uint32_t slots);
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

  // The batch that is completed and not published: its first descriptor lacks its flags.
  uint16_t batch_chains_ = 0;
  uint32_t batch_slots_ = 0;
  bool first_pending_ = true;  // no used descriptor of it has been stored
  uint16_t first_index_ = 0;
  uint16_t first_flags_ = 0;
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

}  // namespace sluice
