#include "testing/fake_driver.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "testing/atomic_words.h"

namespace sluice {
namespace {

// Where things lie within the three areas. [virtio 2.7.5], [virtio 2.7.6], [virtio 2.7.8]
constexpr size_t kFlagsOffset = 0;
constexpr size_t kIndexOffset = 2;
constexpr size_t kEntriesOffset = 4;
constexpr size_t kDescriptorBytes = 16;
constexpr size_t kUsedEntryBytes = 8;

// Whether counting on from `from` to `to` steps over `event`, that is reaches event + 1: by
// counting, not by the formula that the device uses.
bool steps_over(uint16_t event, uint16_t from, uint16_t to) {
  const uint32_t steps = static_cast<uint16_t>(to - from);
  const uint32_t wanted = static_cast<uint32_t>(static_cast<uint16_t>(event - from)) + 1;
  return wanted <= steps;
}

}  // namespace

FakeDriver::FakeDriver(FakeGuestMemory& guest, const FakeDriverOptions& options)
    : guest_(guest),
      size_(options.size),
      event_idx_(options.event_idx),
      indirect_(options.indirect),
      in_order_(options.in_order),
      posted_(options.size),
      next_available_(options.start_index),
      shown_available_(options.start_index),
      kicked_available_(options.start_index),
      last_used_(options.start_index) {
  const uint64_t descriptors_bytes = kDescriptorBytes * size_;
  const uint64_t available_bytes = 6 + 2 * uint64_t{size_};
  const uint64_t used_bytes = 6 + kUsedEntryBytes * size_;
  const uint64_t available_offset = descriptors_bytes;
  const uint64_t used_offset = (available_offset + available_bytes + 3) / 4 * 4;
  const uint64_t all_bytes = used_offset + used_bytes;
  descriptors_ = options.ring_address ? *options.ring_address : guest_.allocate(all_bytes, 4096);
  available_ = descriptors_ + available_offset;
  used_ = descriptors_ + used_offset;
  descriptors_host_ = guest_.at(descriptors_, descriptors_bytes);
  available_host_ = guest_.at(available_, available_bytes);
  used_host_ = guest_.at(used_, used_bytes);
  std::memset(descriptors_host_, 0, descriptors_bytes);
  std::memset(available_host_, 0, available_bytes);
  std::memset(used_host_, 0, used_bytes);
  word16(available_host_ + kIndexOffset).store(options.start_index);
  word16(used_host_ + kIndexOffset).store(options.start_index);
  raw_used_event(options.start_index);
  wished_used_event_ = options.start_index;
  free_.reserve(size_);
  for (uint32_t i = size_; i-- > 0;) free_.push_back(static_cast<uint16_t>(i));
}

SplitQueueSetup FakeDriver::setup() const {
  const auto memory = guest_.share();
  SplitQueueSetup setup;
  setup.size = size_;
  setup.base = last_used_;
  setup.event_idx = event_idx_;
  setup.indirect = indirect_;
  setup.in_order = in_order_;
  setup.descriptors = *memory->translate(GuestAddr{descriptors_}, kDescriptorBytes * size_);
  setup.available = *memory->translate(GuestAddr{available_}, 6 + 2 * uint64_t{size_});
  setup.used = *memory->translate(GuestAddr{used_}, 6 + kUsedEntryBytes * size_);
  setup.memory = memory;
  return setup;
}

// The part of the chain that lies in an indirect table.
void FakeDriver::write_table(const ChainBuilder& chain, PlacedChain& placed) {
  const size_t first = chain.indirect_from();
  const size_t count = chain.pieces().size() - first;
  std::vector<uint8_t> table(kDescriptorBytes * count);
  for (size_t i = 0; i < count; ++i) {
    const PlacedChain::Buffer& buffer = placed.buffers[first + i];
    RawDescriptor descriptor{buffer.address, buffer.bytes, 0, 0};
    descriptor.flags =
        static_cast<uint16_t>((buffer.is_writable ? kWrite : 0) | (i + 1 < count ? kNext : 0));
    descriptor.next = static_cast<uint16_t>(i + 1 < count ? i + 1 : 0);
    encode(descriptor, &table[kDescriptorBytes * i]);
  }
  placed.place_table(guest_, chain, table);
}

std::optional<uint16_t> FakeDriver::stage(const ChainBuilder& chain) {
  const size_t count = chain.descriptor_count();
  SLUICE_ASSERT(count > 0);
  if (free_.size() < count) return std::nullopt;
  Posted posted{{}, PlacedChain::place(guest_, chain)};
  if (chain.has_table()) write_table(chain, posted.chain);
  for (size_t i = 0; i < count; ++i) {
    posted.descriptors.push_back(free_.back());
    free_.pop_back();
  }
  for (size_t i = 0; i < count; ++i) {
    const bool is_table = chain.has_table() && i + 1 == count;
    const PlacedChain::Buffer& buffer =
        is_table ? posted.chain.buffers.back() : posted.chain.buffers[i];
    RawDescriptor descriptor{buffer.address, buffer.bytes, 0, 0};
    if (buffer.is_writable) descriptor.flags |= kWrite;
    if (is_table) descriptor.flags |= kIndirect;
    if (i + 1 < count) {
      descriptor.flags |= kNext;
      descriptor.next = posted.descriptors[i + 1];
    }
    raw_descriptor(posted.descriptors[i], descriptor);
  }
  const uint16_t head = posted.descriptors[0];
  posted_[head] = std::move(posted);
  enqueue(head);
  return head;
}

void FakeDriver::enqueue(uint16_t head) {
  raw_available_entry(next_available_, head);
  ++next_available_;
  ++outstanding_;
}

void FakeDriver::make_available() {
  // The descriptors and entries are visible before the index is. [virtio 2.7.13.3.1]
  word16(available_host_ + kIndexOffset).store(next_available_, std::memory_order_release);
  shown_available_ = next_available_;
}

std::optional<uint16_t> FakeDriver::offer(const ChainBuilder& chain) {
  const auto head = stage(chain);
  if (head) make_available();
  return head;
}

void FakeDriver::offer_again(uint16_t head) {
  enqueue(head);
  make_available();
}

std::optional<FakeDriver::UsedEntry> FakeDriver::take_used_entry() {
  if (word16(used_host_ + kIndexOffset).load(std::memory_order_acquire) == last_used_)
    return std::nullopt;
  const UsedEntry entry = used_entry(last_used_);
  ++last_used_;
  --outstanding_;
  return entry;
}

std::optional<FakeDriver::Used> FakeDriver::take_used() {
  const auto entry = take_used_entry();
  if (!entry) return std::nullopt;
  SLUICE_ASSERT(entry->head < size_);
  Used used{static_cast<uint16_t>(entry->head), entry->bytes, {}};
  Posted& posted = posted_[used.head];
  SLUICE_ASSERT(!posted.descriptors.empty());  // given back twice, or never offered
  used.data = posted.chain.written(guest_, used.bytes);
  posted.chain.give_back(guest_);
  free_.insert(free_.end(), posted.descriptors.rbegin(), posted.descriptors.rend());
  posted = Posted{};
  return used;
}

std::vector<FakeDriver::Used> FakeDriver::take_all_used() {
  std::vector<Used> all;
  while (auto used = take_used()) all.push_back(std::move(*used));
  return all;
}

bool FakeDriver::kick_wanted() {
  // The index is visible before the device's wish is read. [virtio 2.7.13.4.1]
  fake_fence();
  const uint16_t before = kicked_available_;
  kicked_available_ = shown_available_;
  if (before == shown_available_) return false;
  if (event_idx_) return steps_over(avail_event(), before, shown_available_);
  return (used_flags() & 1) == 0;
}

bool FakeDriver::enable_interrupts() {
  interrupts_on_ = true;
  if (event_idx_) {
    raw_used_event(last_used_);
    wished_used_event_ = last_used_;
  } else {
    raw_available_flags(0);
  }
  // The wish is visible before the used index is read. [virtio 2.7.14]
  fake_fence();
  return has_used();
}

void FakeDriver::disable_interrupts() {
  interrupts_on_ = false;
  // With EVENT_IDX the wish is left where it is not reached soon.
  if (event_idx_) {
    wished_used_event_ = static_cast<uint16_t>(last_used_ - 1);
    raw_used_event(wished_used_event_);
  } else {
    raw_available_flags(1);
  }
}

bool FakeDriver::interrupt_expected() const {
  if (!interrupts_on_ || !has_used()) return false;
  return !event_idx_ || steps_over(wished_used_event_, last_used_, used_index());
}

void FakeDriver::encode(const RawDescriptor& descriptor, uint8_t* out) {
  std::memcpy(out, &descriptor.address, 8);
  std::memcpy(out + 8, &descriptor.bytes, 4);
  std::memcpy(out + 12, &descriptor.flags, 2);
  std::memcpy(out + 14, &descriptor.next, 2);
}

void FakeDriver::raw_descriptor(uint32_t index, const RawDescriptor& descriptor) {
  SLUICE_ASSERT(index < size_);
  uint8_t bytes[kDescriptorBytes];
  encode(descriptor, bytes);
  for (size_t i = 0; i < sizeof bytes; i += 4) {
    uint32_t word = 0;
    std::memcpy(&word, bytes + i, sizeof word);
    word32(descriptors_host_ + kDescriptorBytes * index + i).store(word, std::memory_order_relaxed);
  }
}

RawDescriptor FakeDriver::read_descriptor(uint32_t index) const {
  SLUICE_ASSERT(index < size_);
  const uint8_t* at = descriptors_host_ + kDescriptorBytes * index;
  RawDescriptor descriptor;
  std::memcpy(&descriptor.address, at, 8);
  std::memcpy(&descriptor.bytes, at + 8, 4);
  std::memcpy(&descriptor.flags, at + 12, 2);
  std::memcpy(&descriptor.next, at + 14, 2);
  return descriptor;
}

void FakeDriver::raw_available_entry(uint16_t position, uint16_t head) {
  word16(available_host_ + kEntriesOffset + 2 * (position % size_))
      .store(head, std::memory_order_relaxed);
}

void FakeDriver::raw_available_index(uint16_t index) {
  next_available_ = shown_available_ = index;
  word16(available_host_ + kIndexOffset).store(index, std::memory_order_release);
}

void FakeDriver::raw_offer(uint16_t head) {
  raw_available_entry(next_available_, head);
  raw_available_index(static_cast<uint16_t>(next_available_ + 1));
}

void FakeDriver::raw_available_flags(uint16_t flags) {
  word16(available_host_ + kFlagsOffset).store(flags, std::memory_order_relaxed);
}

void FakeDriver::raw_used_event(uint16_t event) {
  word16(available_host_ + kEntriesOffset + 2 * size_).store(event, std::memory_order_relaxed);
}

void FakeDriver::raw_avail_event(uint16_t event) {
  word16(used_host_ + kEntriesOffset + kUsedEntryBytes * size_)
      .store(event, std::memory_order_relaxed);
}

void FakeDriver::scribble_used(uint8_t value) {
  const size_t bytes = 6 + kUsedEntryBytes * size_;
  const auto word = static_cast<uint16_t>(value << 8 | value);
  for (size_t i = 0; i < bytes; i += 2) word16(used_host_ + i).store(word);
}

uint16_t FakeDriver::used_index() const {
  return word16(used_host_ + kIndexOffset).load(std::memory_order_acquire);
}
uint16_t FakeDriver::used_flags() const {
  return word16(used_host_ + kFlagsOffset).load(std::memory_order_relaxed);
}
uint16_t FakeDriver::avail_event() const {
  return word16(used_host_ + kEntriesOffset + kUsedEntryBytes * size_)
      .load(std::memory_order_relaxed);
}
FakeDriver::UsedEntry FakeDriver::used_entry(uint16_t position) const {
  uint8_t* at = used_host_ + kEntriesOffset + kUsedEntryBytes * (position % size_);
  return {word32(at).load(std::memory_order_relaxed),
          word32(at + 4).load(std::memory_order_relaxed)};
}

}  // namespace sluice
