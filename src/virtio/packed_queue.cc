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

inline bool PackedQueue::load_head(Copy& copy) const {
  // The whole chain is visible once its first flags are: pairs with the driver's write barrier
  // before it writes them. Length, id and flags are one word. [virtio 2.8.21.1]
  const PackedSecond second(second_at(next_.index()).load_acquire());
  if (!next_.shows_available(second.flags())) return false;
#if defined(__SANITIZE_THREAD__)
  // Thread sanitizer pairs accesses to one address only, and a driver of a test releases the flags
  // alone. What this reads is not used.
  (void)flags_at(next_.index()).load_acquire();
#endif
  const auto* first = reinterpret_cast<const SharedWord<uint64_t>*>(at(next_.index()));
  copy = {first->load_relaxed(), second};
  return true;
}

PackedQueue::Copy PackedQueue::load_descriptor(uint16_t index) const {
  const auto* first = reinterpret_cast<const SharedWord<uint64_t>*>(at(index));
  return {first->load_relaxed(), PackedSecond(second_at(index).load_relaxed())};
}

// The rest of a chain. Its later descriptors are promised by the first one's flags, so their own
// ownership bits say nothing. [virtio 2.8.6]
RingFault PackedQueue::walk(Copy copy, ChainBytes& bytes, Chain& chain) const {
  uint32_t index = next_.index();
  const uint32_t slots_max = size_ - slots_taken_;
  for (uint32_t slots = 1;; ++slots) {  // bounded by the ring
    const uint16_t flags = copy.second.flags();
    if (flags & kDescriptorIndirect) {
      // A table is a chain of its own here, and nothing comes before or behind it. [virtio 2.8.19]
      if (slots > 1 || (flags & kDescriptorNext)) return RingFault::nested_indirect;
      chain.head_ = copy.second.id();
      chain.slots_ = 1;
      return walk_indirect(copy.address, copy.second.bytes(), bytes);
    }
    const RingFault fault = bytes.add(copy.address, copy.second.bytes(), flags & kDescriptorWrite);
    if (fault != RingFault::none) [[unlikely]]
      return fault;
    if (!(flags & kDescriptorNext)) {
      // The id counts in the last one only. [virtio 2.8.6]
      chain.head_ = copy.second.id();
      chain.slots_ = static_cast<uint16_t>(slots);
      return RingFault::none;
    }
    if (slots == slots_max) return RingFault::chain_too_long;
    if (++index == size_) index = 0;
    copy = load_descriptor(static_cast<uint16_t>(index));
  }
}

// All entries in their order; of their flags only WRITE means something. [virtio 2.8.7]
RingFault PackedQueue::walk_indirect(uint64_t address, uint32_t table_bytes,
                                     ChainBytes& bytes) const {
  if (!indirect_) return RingFault::indirect_not_agreed;
  const uint32_t entries = table_bytes / sizeof(PackedDescriptor);
  if (table_bytes == 0 || table_bytes % sizeof(PackedDescriptor) != 0 || entries > size_)
    return RingFault::indirect_table_size;
  if (!bytes.find_table(address, table_bytes)) return RingFault::address_not_mapped;
  for (uint32_t i = 0; i < entries; ++i) {
    PackedDescriptor entry;
    if (!bytes.load_entry(i, entry)) return RingFault::too_many_spans;
    const bool is_writable = !reads_only_ && (entry.flags & kDescriptorWrite);
    const RingFault fault = bytes.add(entry.address, entry.bytes, is_writable);
    if (fault != RingFault::none) return fault;
  }
  return RingFault::none;
}

// The usual chain, one buffer in one region, without the walk. False: it is another, and nothing
// has been done.
inline bool PackedQueue::pop_single(const Copy& copy, SpanList& spans, Chain& chain) {
  const uint16_t flags = copy.second.flags();
  const uint32_t bytes = copy.second.bytes();
  if (flags & (kDescriptorNext | kDescriptorIndirect) || bytes == 0) return false;
  const auto span = memory_->translate(GuestAddr{copy.address}, bytes);
  if (!span || !spans.push(*span)) return false;
  const bool is_writable = flags & kDescriptorWrite;
  chain.head_ = copy.second.id();
  chain.slots_ = 1;
  chain.span_first_ = static_cast<uint32_t>(spans.size() - 1);
  chain.readable_count_ = is_writable ? 0 : 1;
  chain.writable_count_ = is_writable ? 1 : 0;
  chain.readable_bytes_ = is_writable ? 0 : bytes;
  chain.writable_bytes_ = is_writable ? bytes : 0;
  chain.live_ = true;
  next_.advance_one(size_);
  ++slots_taken_;
  ++in_flight_;
  return true;
}

Pop PackedQueue::pop(SpanList& spans, Chain& chain) {
  SLUICE_ASSERT(!chain.live_);
  if (broken()) [[unlikely]]
    return Pop::broken;
  Copy head;
  if (!load_head(head)) return Pop::empty;
  // Slots that we hold are not the driver's to make available.
  if (slots_taken_ >= size_) [[unlikely]]
    return break_with(RingFault::avail_index_jump);
  if (pop_single(head, spans, chain)) [[likely]]
    return Pop::chain;
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
    place.advance_one(size_);
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

void PackedQueue::flush_run() {
  if (run_chains_ == 0) return;
  store_used(run_id_, 0, false, run_slots_);
  run_chains_ = 0;
  run_slots_ = 0;
}

uint16_t PackedQueue::publish() {
  if (batch_chains_ == 0) return 0;
  flush_run();
  // The whole batch, and what was written to its buffers, is visible before its first flags are:
  // pairs with the driver's read barrier behind them. [virtio 2.8.22]
#if defined(__SANITIZE_THREAD__)
  // Thread sanitizer pairs accesses to one address only, and a driver of a test looks at the flags
  // alone. Before the store: behind it they may be the driver's already.
  reinterpret_cast<SharedWord<uint16_t>*>(first_)[3].release_unchanged();
#endif
  first_->store_release(first_word_);
  first_ = nullptr;
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
