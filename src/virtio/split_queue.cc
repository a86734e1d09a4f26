#include "virtio/split_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "virtio/chain_walk.h"

namespace sluice {

const char* ring_fault_sentence(RingFault fault) {
  switch (fault) {
    case RingFault::none:
      return "no fault";
    case RingFault::avail_index_jump:
      return "the available index moved by more than the ring size";
    case RingFault::head_out_of_range:
      return "an available entry is outside the descriptor table";
    case RingFault::next_out_of_range:
      return "a descriptor's next is outside its table";
    case RingFault::chain_too_long:
      return "a chain has more descriptors than the ring (a loop)";
    case RingFault::nested_indirect:
      return "an indirect table is nested or chained on";
    case RingFault::indirect_not_agreed:
      return "an indirect descriptor without the feature";
    case RingFault::indirect_table_size:
      return "an indirect table of a wrong size";
    case RingFault::readable_after_writable:
      return "a readable descriptor follows a writable one";
    case RingFault::address_not_mapped:
      return "a buffer lies outside guest memory";
    case RingFault::wrong_direction:
      return "a chain has buffers of the wrong direction";
    case RingFault::memory_vanished:
      return "the memory behind the guest was truncated";
    case RingFault::too_many_spans:
      return "a chain is in too many pieces";
    case RingFault::too_many_bytes:
      return "a chain is longer than 4 GiB";
  }
  return "?";
}

SplitQueue::SplitQueue(SplitQueueSetup setup)
    : size_(setup.size),
      mask_(static_cast<uint16_t>(setup.size - 1)),
      next_avail_(setup.base),
      avail_seen_(setup.base),
      event_idx_(setup.event_idx),
      indirect_(setup.indirect),
      descriptors_(static_cast<const uint8_t*>(setup.descriptors.address_for_shared_words())),
      avail_(static_cast<SplitAvail*>(setup.available.address_for_shared_words())),
      used_(static_cast<SplitUsed*>(setup.used.address_for_shared_words())),
      avail_event_(reinterpret_cast<SharedWord<uint16_t>*>(
          static_cast<uint8_t*>(setup.used.address_for_shared_words()) +
          split_used_bytes(setup.size) - sizeof(uint16_t))),
      memory_(std::move(setup.memory)) {
  SLUICE_ASSERT(std::has_single_bit(size_) && size_ <= kRingSizeMax);
  SLUICE_ASSERT(setup.descriptors.size() >= split_descriptors_bytes(size_));
  SLUICE_ASSERT(setup.available.size() >= split_available_bytes(size_));
  SLUICE_ASSERT(setup.used.size() >= split_used_bytes(size_));
  // The used index continues where the driver saw it last: it is the only word of the used ring
  // that is ever read, and only here. A driver that lies about it harms its own ring alone.
  next_used_ = used_->index.load_relaxed();
  published_used_ = next_used_;
  signalled_used_ = next_used_;
}

SplitDescriptor SplitQueue::load_descriptor(uint16_t index) const {
  SLUICE_ASSERT(index < size_);
  SplitDescriptor descriptor;
  // One copy of foreign memory; what is checked and used is the copy (two 8-byte loads here).
  const auto* words = reinterpret_cast<const SharedWord<uint64_t>*>(descriptors_ + 16 * index);
  const uint64_t copy[2] = {words[0].load_relaxed(), words[1].load_relaxed()};
  std::memcpy(&descriptor, copy, sizeof descriptor);
  return descriptor;
}

// The walk over one chain's descriptors: everything that a pop checks.
class ChainWalk {
 public:
  ChainWalk(const SplitQueue& queue, ChainBytes& bytes) : queue_(queue), bytes_(bytes) {}

  RingFault run(uint16_t head) {
    uint16_t at = head;
    // A chain has at most as many descriptors as the ring. [virtio 2.7.5.3.1]
    for (uint32_t hops = 0; hops < queue_.size_; ++hops) {
      const SplitDescriptor descriptor = queue_.load_descriptor(at);
      if (descriptor.flags & kDescriptorIndirect) return run_indirect(descriptor, hops);
      if (const RingFault fault = add(descriptor); fault != RingFault::none) [[unlikely]]
        return fault;
      if (!(descriptor.flags & kDescriptorNext)) return RingFault::none;
      if (descriptor.next >= queue_.size_) return RingFault::next_out_of_range;
      at = descriptor.next;
    }
    return RingFault::chain_too_long;
  }

 private:
  // An indirect table ends the chain, whatever came before it. [virtio 2.7.5.3.2]
  RingFault run_indirect(const SplitDescriptor& table, uint32_t hops) {
    if (!queue_.indirect_) return RingFault::indirect_not_agreed;
    if (table.flags & kDescriptorNext) return RingFault::nested_indirect;
    // WRITE on the table's descriptor is ignored. [virtio 2.7.5.3.2]
    const uint32_t entries = table.bytes / sizeof(SplitDescriptor);
    if (table.bytes == 0 || table.bytes % sizeof(SplitDescriptor) != 0 || entries > queue_.size_)
      return RingFault::indirect_table_size;
    if (!bytes_.find_table(table.address, table.bytes)) return RingFault::address_not_mapped;
    uint32_t at = 0;
    for (uint32_t i = 0; i < entries; ++i) {
      if (hops + i >= queue_.size_) return RingFault::chain_too_long;
      SplitDescriptor descriptor;
      if (!bytes_.load_entry(at, descriptor)) return RingFault::too_many_spans;
      if (descriptor.flags & kDescriptorIndirect) return RingFault::nested_indirect;
      if (const RingFault fault = add(descriptor); fault != RingFault::none) return fault;
      if (!(descriptor.flags & kDescriptorNext)) return RingFault::none;
      if (descriptor.next >= entries) return RingFault::next_out_of_range;
      at = descriptor.next;
    }
    return RingFault::chain_too_long;
  }

  RingFault add(const SplitDescriptor& descriptor) {
    return bytes_.add(descriptor.address, descriptor.bytes, descriptor.flags & kDescriptorWrite);
  }

  const SplitQueue& queue_;
  ChainBytes& bytes_;
};

Pop SplitQueue::pop(SpanList& spans, Chain& chain) {
  SLUICE_ASSERT(!chain.live_);
  if (broken()) return Pop::broken;
  if (avail_seen_ == next_avail_) {
    // Entries up to the index are visible once it is: pairs with the driver's write barrier
    // between the entries and the index. [virtio 2.7.13.3]
    avail_seen_ = avail_->index.load_acquire();
    const auto count = static_cast<uint16_t>(avail_seen_ - next_avail_);
    if (count == 0) return Pop::empty;
    // Chains in flight are not available: both together cannot exceed the ring.
    if (count > size_) return break_with(RingFault::avail_index_jump);
  }
  if (in_flight_ >= size_) return break_with(RingFault::avail_index_jump);
  const uint16_t head = avail_->ring[next_avail_ & mask_].load_relaxed();
  if (head >= size_) return break_with(RingFault::head_out_of_range);

  const size_t spans_before = spans.size();
  ChainBytes bytes(*memory_, spans);
  const RingFault fault = ChainWalk(*this, bytes).run(head);
  if (fault != RingFault::none) [[unlikely]] {
    spans.truncate(spans_before);
    return break_with(fault);
  }
  chain.head_ = head;
  chain.span_first_ = static_cast<uint32_t>(spans_before);
  chain.readable_count_ = bytes.readable().spans;
  chain.writable_count_ = bytes.writable().spans;
  chain.readable_bytes_ = bytes.readable().bytes;
  chain.writable_bytes_ = bytes.writable().bytes;
  ++next_avail_;
  ++in_flight_;
  chain.live_ = true;
  return Pop::chain;
}

uint16_t SplitQueue::pop_batch(SpanList& spans, Chain* out, uint16_t max, Pop& end) {
  prefetch_next(std::min<uint16_t>(max, available_count(max)));
  uint16_t count = 0;
  for (end = Pop::chain; count < max; ++count) {
    end = pop(spans, out[count]);
    if (end != Pop::chain) break;
    if (out[count].readable_count_ + out[count].writable_count_ > 0)
      spans.slice(out[count].span_first_, 1)[0].prefetch();
  }
  return count;
}

void SplitQueue::unpop(Chain&& chain) {
  chain.consume();
  SLUICE_ASSERT(in_flight_ > 0);
  --in_flight_;
  --next_avail_;
}

void SplitQueue::complete(Chain&& chain, uint32_t written_bytes) {
  chain.consume();
  SLUICE_ASSERT(in_flight_ > 0);
  --in_flight_;
  SplitUsedElement& element = used_->ring[next_used_ & mask_];
  element.id.store_relaxed(chain.head_);
  element.bytes.store_relaxed(written_bytes);
  ++next_used_;
}

uint16_t SplitQueue::publish() {
  const auto count = static_cast<uint16_t>(next_used_ - published_used_);
  if (count == 0) return 0;
  // The entries, and what was written to their buffers, are visible before the index is: pairs with
  // the driver's read barrier after it saw the index. [virtio 2.7.8.2]
  used_->index.store_release(next_used_);
  published_used_ = next_used_;
  return count;
}

bool SplitQueue::driver_wants_notification() {
  if (signalled_valid_ && published_used_ == signalled_used_) return false;
  // used->index must be visible before the driver's wish is read: pairs with the driver's fence
  // between writing used_event (or flags) and re-reading used->index. Store, then load: a full
  // fence. [virtio 2.7.7.2]
  full_fence();
  const uint16_t old_index = signalled_used_;
  const bool first = !signalled_valid_;
  signalled_used_ = published_used_;
  signalled_valid_ = true;
  if (!event_idx_) return !(avail_->flags.load_relaxed() & kAvailNoInterrupt);
  // After a (re)start we do not know what the driver has been told.
  return first || event_is_due(used_event().load_relaxed(), published_used_, old_index);
}

bool SplitQueue::enable_kicks(uint16_t known) {
  if (event_idx_) {
    avail_event().store_relaxed(static_cast<uint16_t>(next_avail_ + known));
  } else {
    used_->flags.store_relaxed(0);
  }
  // Our wish must be visible before the index is read: pairs with the driver's fence between
  // writing avail->index and reading avail_event (or flags). Store, then load. [virtio 2.7.10]
  full_fence();
  return available_count() > known;
}

void SplitQueue::disable_kicks() {
  // With EVENT_IDX nothing is written: avail_event stays behind and is not passed again for 2^16
  // chains; flags stay 0. [virtio 2.7.10.2]
  if (!event_idx_) used_->flags.store_relaxed(kUsedNoNotify);
}

void SplitQueue::prefetch_next(unsigned count) const {
  for (unsigned i = 0; i < count; ++i) {  // bounded by the caller's batch
    const uint16_t head = avail_->ring[(next_avail_ + i) & mask_].load_relaxed() & mask_;
    __builtin_prefetch(descriptors_ + 16 * head);
  }
}

}  // namespace sluice
