#include "virtio/packed_queue.h"

#include <algorithm>
#include <cstring>

#include "virtio/split_layout.h"

namespace sluice {
namespace {

// Whether a ring was ever used: a lap around it leaves at least one descriptor whose USED bit is
// set, since a used one of the first lap has it, and so has an available one of the second.
bool was_used(const uint8_t* descriptors, uint32_t size) {
  for (uint32_t i = 0; i < size; ++i) {
    const auto& flags = *reinterpret_cast<const SharedWord<uint16_t>*>(
        descriptors + sizeof(PackedDescriptor) * i + offsetof(PackedDescriptor, flags));
    if (flags.load_relaxed() & kPackedUsed) return true;
  }
  return false;
}

}  // namespace

PackedQueue::PackedQueue(PackedQueueSetup setup)
    : size_(setup.size),
      event_idx_(setup.event_idx),
      indirect_(setup.indirect),
      in_order_(setup.in_order),
      reads_only_(setup.reads_only),
      next_(RingPosition::from_word(static_cast<uint16_t>(setup.base))),
      descriptors_(static_cast<uint8_t*>(setup.descriptors.address_for_shared_words())),
      driver_event_(static_cast<PackedEvent*>(setup.driver_event.address_for_shared_words())),
      device_event_(static_cast<PackedEvent*>(setup.device_event.address_for_shared_words())),
      memory_(std::move(setup.memory)) {
  SLUICE_ASSERT(size_ > 0 && size_ <= kRingSizeMax);
  SLUICE_ASSERT(next_.index() < size_);
  SLUICE_ASSERT(setup.descriptors.size() >= packed_descriptors_bytes(size_));
  SLUICE_ASSERT(setup.driver_event.size() >= kPackedEventBytes);
  SLUICE_ASSERT(setup.device_event.size() >= kPackedEventBytes);
  // User-Mode Linux says 0 of a fresh ring, that is the wrong wrap counter. A ring that did stop
  // there has been around once and shows it.
  if (next_.word() == 0 && !was_used(descriptors_, size_)) next_ = RingPosition(0, true);
  used_ = next_;
  signalled_ = next_;
}

uint32_t PackedQueue::base() const {
  return next_.word() | static_cast<uint32_t>(used_.word()) << 16;
}

// ---- Available --------------------------------------------------------------------------------

bool PackedQueue::load_head(PackedDescriptor& descriptor) const {
  const uint8_t* place = at(next_.index());
  // The whole chain is visible once its first flags are: pairs with the driver's write barrier
  // before it writes them. Length, id and flags are one word. [virtio 2.8.21.1]
  const uint64_t second =
      reinterpret_cast<const SharedWord<uint64_t>*>(place + sizeof(uint64_t))->load_acquire();
  std::memcpy(reinterpret_cast<uint8_t*>(&descriptor) + sizeof(uint64_t), &second, sizeof second);
  if (!is_packed_available(descriptor.flags, next_.wrap())) return false;
#if defined(__SANITIZE_THREAD__)
  // Thread sanitizer pairs accesses to one address only, and a driver in this process releases the
  // flags alone. What this reads is not used.
  (void)flags_at(next_.index()).load_acquire();
#endif
  descriptor.address = reinterpret_cast<const SharedWord<uint64_t>*>(place)->load_relaxed();
  return true;
}

PackedDescriptor PackedQueue::load_descriptor(uint16_t index) const {
  const auto* words = reinterpret_cast<const SharedWord<uint64_t>*>(at(index));
  const uint64_t copy[2] = {words[0].load_relaxed(), words[1].load_relaxed()};
  PackedDescriptor descriptor;
  std::memcpy(&descriptor, copy, sizeof descriptor);
  return descriptor;
}

// The rest of a chain. Its later descriptors are promised by the first one's flags, so their own
// ownership bits say nothing. [virtio 2.8.6]
RingFault PackedQueue::walk(PackedDescriptor descriptor, ChainBytes& bytes, Chain& chain) const {
  RingPosition place = next_;
  const uint32_t slots_max = size_ - slots_taken_;
  for (uint32_t slots = 1;; ++slots) {  // bounded by the ring
    if (descriptor.flags & kDescriptorIndirect) {
      // A table is a chain of its own here, and nothing comes before or behind it. [virtio 2.8.19]
      if (slots > 1 || (descriptor.flags & kDescriptorNext)) return RingFault::nested_indirect;
      chain.head_ = descriptor.id;
      chain.slots_ = 1;
      return walk_indirect(descriptor, bytes);
    }
    const RingFault fault =
        bytes.add(descriptor.address, descriptor.bytes, descriptor.flags & kDescriptorWrite);
    if (fault != RingFault::none) [[unlikely]]
      return fault;
    if (!(descriptor.flags & kDescriptorNext)) {
      // The id counts in the last one only. [virtio 2.8.6]
      chain.head_ = descriptor.id;
      chain.slots_ = static_cast<uint16_t>(slots);
      return RingFault::none;
    }
    if (slots == slots_max) return RingFault::chain_too_long;
    place.advance(1, size_);
    descriptor = load_descriptor(place.index());
  }
}

// All entries in their order; of their flags only WRITE means something. [virtio 2.8.7]
RingFault PackedQueue::walk_indirect(const PackedDescriptor& table, ChainBytes& bytes) const {
  if (!indirect_) return RingFault::indirect_not_agreed;
  const uint32_t entries = table.bytes / sizeof(PackedDescriptor);
  if (table.bytes == 0 || table.bytes % sizeof(PackedDescriptor) != 0 || entries > size_)
    return RingFault::indirect_table_size;
  if (!bytes.find_table(table.address, table.bytes)) return RingFault::address_not_mapped;
  for (uint32_t i = 0; i < entries; ++i) {
    PackedDescriptor entry;
    if (!bytes.load_entry(i, entry)) return RingFault::too_many_spans;
    const bool is_writable = !reads_only_ && (entry.flags & kDescriptorWrite);
    const RingFault fault = bytes.add(entry.address, entry.bytes, is_writable);
    if (fault != RingFault::none) return fault;
  }
  return RingFault::none;
}

Pop PackedQueue::pop(SpanList& spans, Chain& chain) {
  SLUICE_ASSERT(!chain.live_);
  if (broken()) [[unlikely]]
    return Pop::broken;
  PackedDescriptor head;
  if (!load_head(head)) return Pop::empty;
  // Slots that we hold are not the driver's to make available.
  if (slots_taken_ >= size_) [[unlikely]]
    return break_with(RingFault::avail_index_jump);
  const size_t spans_before = spans.size();
  ChainBytes bytes(*memory_, spans);
  const RingFault fault = walk(head, bytes, chain);
  if (fault != RingFault::none) [[unlikely]] {
    spans.truncate(spans_before);
    return break_with(fault);
  }
  chain.span_first_ = static_cast<uint32_t>(spans_before);
  chain.readable_count_ = bytes.readable().spans;
  chain.writable_count_ = bytes.writable().spans;
  chain.readable_bytes_ = bytes.readable().bytes;
  chain.writable_bytes_ = bytes.writable().bytes;
  chain.live_ = true;
  next_.advance(chain.slots_, size_);
  slots_taken_ += chain.slots_;
  ++in_flight_;
  return Pop::chain;
}

uint16_t PackedQueue::pop_batch(SpanList& spans, Chain* out, uint16_t max, Pop& end) {
  uint16_t count = 0;
  for (end = Pop::chain; count < max; ++count) {
    end = pop(spans, out[count]);
    if (end != Pop::chain) break;
    if (out[count].readable_count_ + out[count].writable_count_ > 0)
      spans.slice(out[count].span_first_, 1)[0].prefetch();
  }
  return count;
}

void PackedQueue::unpop(Chain&& chain) {
  chain.consume();
  SLUICE_ASSERT(in_flight_ > 0 && slots_taken_ >= chain.slots_);
  --in_flight_;
  slots_taken_ -= chain.slots_;
  next_.retreat(chain.slots_, size_);
}

uint16_t PackedQueue::available_count(uint16_t limit) const {
  RingPosition place = next_;
  const uint32_t slots_max = std::min<uint32_t>(limit, size_ - std::min(slots_taken_, size_));
  uint16_t count = 0;
  while (count < slots_max && is_available(place)) {
    place.advance(1, size_);
    ++count;
  }
  return count;
}

void PackedQueue::prefetch_next(unsigned count) const {
  // Four descriptors a cache line.
  for (unsigned i = 0; i < count; i += 4) {  // bounded by the caller's batch
    const uint32_t index = next_.index() + i;
    __builtin_prefetch(at(static_cast<uint16_t>(index < size_ ? index : next_.index())));
  }
}

// ---- Used -------------------------------------------------------------------------------------

void PackedQueue::complete(Chain&& chain, uint32_t written_bytes) {
  chain.consume();
  SLUICE_ASSERT(in_flight_ > 0);
  --in_flight_;
  ++batch_chains_;
  batch_slots_ += chain.slots_;
  const bool has_written = chain.writable_count_ > 0;
  if (in_order_ && !has_written) {
    // What was read completely needs no entry of its own. [virtio 2.8.8]
    ++run_chains_;
    run_id_ = chain.head_;
    run_slots_ += chain.slots_;
    return;
  }
  flush_run();
  store_used(chain.head_, written_bytes, has_written, chain.slots_);
}

void PackedQueue::flush_run() {
  if (run_chains_ == 0) return;
  store_used(run_id_, 0, false, run_slots_);
  run_chains_ = 0;
  run_slots_ = 0;
}

// One used descriptor, which stands for `slots` of the ring. [virtio 2.8.22]
void PackedQueue::store_used(uint16_t id, uint32_t written_bytes, bool has_written,
                             uint32_t slots) {
  const uint16_t index = used_.index();
  const auto flags =
      static_cast<uint16_t>(packed_used_flags(used_.wrap()) | (has_written ? kDescriptorWrite : 0));
  auto* place = const_cast<uint8_t*>(at(index));
  if (first_pending_) {
    // Nothing of a batch may be seen before its first descriptor, whose flags publish() writes.
    first_pending_ = false;
    first_index_ = index;
    first_flags_ = flags;
    reinterpret_cast<SharedWord<uint32_t>*>(place + offsetof(PackedDescriptor, bytes))
        ->store_relaxed(written_bytes);
    reinterpret_cast<SharedWord<uint16_t>*>(place + offsetof(PackedDescriptor, id))
        ->store_relaxed(id);
  } else {
    const uint64_t word = written_bytes | uint64_t{id} << 32 | uint64_t{flags} << 48;
    reinterpret_cast<SharedWord<uint64_t>*>(place + sizeof(uint64_t))->store_release(word);
  }
  used_.advance(slots, size_);
}

uint16_t PackedQueue::publish() {
  if (batch_chains_ == 0) return 0;
  flush_run();
  // The whole batch, and what was written to its buffers, is visible before its first flags are:
  // pairs with the driver's read barrier behind them. [virtio 2.8.22]
  flags_at(first_index_).store_release(first_flags_);
  first_pending_ = true;
  slots_taken_ -= batch_slots_;
  signal_slots_ = std::min(signal_slots_ + batch_slots_, size_ + 1);
  batch_slots_ = 0;
  return std::exchange(batch_chains_, uint16_t{0});
}

// Whether the driver's event is one of the slots that were used since it was asked last.
bool PackedQueue::passed(RingPosition event) const {
  // A place that is none, or of nobody knows which lap: rather once too often than never.
  if (event.index() >= size_ || signal_slots_ > size_) return true;
  // Both wraps laid out one behind the other, so that places can be subtracted.
  const auto linear = [this](RingPosition place) {
    return place.index() + (place.wrap() ? 0 : size_);
  };
  const uint32_t distance = (linear(event) + 2 * size_ - linear(signalled_)) % (2 * size_);
  return distance < signal_slots_;
}

bool PackedQueue::driver_wants_notification() {
  if (signalled_valid_ && signal_slots_ == 0) return false;
  // The used flags must be visible before the driver's wish is read: pairs with the driver's fence
  // between writing its event structure and looking at the ring again. [virtio 2.8.22]
  full_fence();
  // Flags, then place: the driver writes them the other way around.
  const uint16_t flags = driver_event_->flags.load_acquire() & 3;
  bool wanted = flags != kPackedEventDisable;
  if (flags == kPackedEventDescriptor && event_idx_ && signalled_valid_)
    wanted = passed(RingPosition::from_word(driver_event_->offset_wrap.load_relaxed()));
  signalled_ = used_;
  signal_slots_ = 0;
  signalled_valid_ = true;  // after a (re)start we do not know what the driver has been told
  return wanted;
}

// ---- Kicks ------------------------------------------------------------------------------------

bool PackedQueue::enable_kicks(uint16_t known) {
  RingPosition wanted = next_;
  wanted.advance(std::min<uint32_t>(known, size_), size_);
  if (event_idx_) {
    device_event_->offset_wrap.store_relaxed(wanted.word());
    // The place before the flags that give it a meaning.
    device_event_->flags.store_release(kPackedEventDescriptor);
  } else {
    device_event_->flags.store_relaxed(kPackedEventEnable);
  }
  // Our wish must be visible before the ring is read: pairs with the driver's fence between making
  // descriptors available and reading our event structure. Store, then load. [virtio 2.8.21.3.1]
  full_fence();
  return is_available(wanted);
}

void PackedQueue::disable_kicks() { device_event_->flags.store_relaxed(kPackedEventDisable); }

}  // namespace sluice
