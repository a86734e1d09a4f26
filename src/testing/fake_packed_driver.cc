#include "testing/fake_packed_driver.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "testing/atomic_words.h"

namespace sluice {
namespace {

// [virtio 2.8.13], [virtio 2.8.14]
constexpr size_t kDescriptorBytes = 16;
constexpr size_t kBytesOffset = 8, kIdOffset = 12, kFlagsOffset = 14;
constexpr size_t kEventBytes = 4, kEventFlagsOffset = 2;

// The i-th buffer id: each another one, a slot's number only by chance. And back.
constexpr uint32_t kIdFactor = 40503, kIdFactorInverse = 30599, kIdOffsetOfFirst = 0x9e37;
static_assert(static_cast<uint16_t>(kIdFactor * kIdFactorInverse) == 1);
uint16_t nth_id(uint32_t i) { return static_cast<uint16_t>(i * kIdFactor + kIdOffsetOfFirst); }
uint16_t number_of(uint16_t id) {
  return static_cast<uint16_t>((id - kIdOffsetOfFirst) * kIdFactorInverse);
}

}  // namespace

FakePackedDriver::FakePackedDriver(FakeGuestMemory& guest, const FakeDriverOptions& options)
    : guest_(guest),
      size_(options.size),
      event_idx_(options.event_idx),
      indirect_(options.indirect),
      in_order_(options.in_order),
      posted_(options.size),
      free_slots_(options.size) {
  const uint64_t descriptors_bytes = kDescriptorBytes * size_;
  descriptors_ = options.ring_address ? *options.ring_address
                                      : guest_.allocate(descriptors_bytes + 2 * kEventBytes, 4096);
  driver_event_ = descriptors_ + descriptors_bytes;
  device_event_ = driver_event_ + kEventBytes;
  descriptors_host_ = guest_.at(descriptors_, descriptors_bytes);
  driver_event_host_ = guest_.at(driver_event_, kEventBytes);
  device_event_host_ = guest_.at(device_event_, kEventBytes);
  step(next_, options.start_index);
  last_used_ = kicked_ = wished_ = next_;
  // What lies before here was used in this lap, the rest in the lap before. A fresh ring is zero.
  for (uint32_t i = 0; i < size_; ++i)
    raw_descriptor(i, {0, 0, 0, used_bits(i < next_.index ? next_.wrap : !next_.wrap)});
  raw_device_event(0, kEventOn);
  raw_driver_event(event_word(next_), event_idx_ ? kEventPlace : kEventOn);
  free_ids_.reserve(size_);
  for (uint32_t i = size_; i-- > 0;) free_ids_.push_back(nth_id(i));
}

PackedQueueSetup FakePackedDriver::setup() const {
  const auto memory = guest_.share();
  PackedQueueSetup setup;
  setup.size = size_;
  setup.base = event_word(last_used_) * 0x10001u;
  setup.event_idx = event_idx_;
  setup.indirect = indirect_;
  setup.in_order = in_order_;
  setup.descriptors = *memory->translate(GuestAddr{descriptors_}, kDescriptorBytes * size_);
  setup.driver_event = *memory->translate(GuestAddr{driver_event_}, kEventBytes);
  setup.device_event = *memory->translate(GuestAddr{device_event_}, kEventBytes);
  setup.memory = memory;
  return setup;
}

// ---- Places
// --------------------------------------------------------------------------------------

void FakePackedDriver::step(Place& place, uint64_t slots) const {
  for (uint64_t i = 0; i < slots; ++i) {
    if (++place.index < size_) continue;
    place.index = 0;
    place.wrap = !place.wrap;
  }
}

uint16_t FakePackedDriver::event_word(Place place) {
  return static_cast<uint16_t>(place.index | (place.wrap ? 0x8000 : 0));
}

// AVAIL like the wrap counter, USED unlike it; used when both are like it. [virtio 2.8.1]
uint16_t FakePackedDriver::available_bits(bool wrap) { return wrap ? kAvail : kUsed; }
uint16_t FakePackedDriver::used_bits(bool wrap) {
  return wrap ? uint16_t{kAvail | kUsed} : uint16_t{0};
}

bool FakePackedDriver::is_used(Place place) const {
  const uint16_t flags = word16(descriptors_host_ + kDescriptorBytes * place.index + kFlagsOffset)
                             .load(std::memory_order_acquire);
  const bool avail = flags & kAvail, used = flags & kUsed;
  return avail == place.wrap && used == place.wrap;
}

// ---- Available
// -----------------------------------------------------------------------------------

// Entry behind entry; WRITE is the only flag that may be set. [virtio 2.8.7], [virtio 2.8.19]
void FakePackedDriver::write_table(const ChainBuilder& chain, PlacedChain& placed) {
  const size_t first = chain.indirect_from();
  const size_t count = chain.pieces().size() - first;
  std::vector<uint8_t> table(kDescriptorBytes * count);
  for (size_t i = 0; i < count; ++i) {
    const PlacedChain::Buffer& buffer = placed.buffers[first + i];
    encode({buffer.address, buffer.bytes, 0, buffer.is_writable ? kWrite : uint16_t{0}},
           &table[kDescriptorBytes * i]);
  }
  placed.place_table(guest_, chain, table);
}

// The chain's descriptors at the next places. The first of all that are staged keeps the flags that
// it had until make_available(). [virtio 2.8.21]
void FakePackedDriver::write_chain(uint16_t id) {
  const Posted& chain = posted(id);
  for (uint32_t i = 0; i < chain.slots; ++i) {
    const bool is_last = i + 1 == chain.slots;
    const bool is_table = chain.has_table && is_last;
    const PlacedChain::Buffer& buffer =
        is_table ? chain.placed.buffers.back() : chain.placed.buffers[i];
    uint16_t flags = available_bits(next_.wrap);
    if (buffer.is_writable) flags |= kWrite;
    if (is_table) flags |= kIndirect;
    if (!is_last) flags |= kNext;
    uint8_t* at = descriptors_host_ + kDescriptorBytes * next_.index;
    word64(at).store(buffer.address, std::memory_order_relaxed);
    word32(at + kBytesOffset).store(buffer.bytes, std::memory_order_relaxed);
    // Only the last one's id counts. [virtio 2.8.6]
    word16(at + kIdOffset)
        .store(is_last ? id : static_cast<uint16_t>(~id), std::memory_order_relaxed);
    if (staged_slots_ == 0) {
      held_flags_at_ = at + kFlagsOffset;
      held_flags_ = flags;
    } else {
      word16(at + kFlagsOffset).store(flags, std::memory_order_release);
    }
    ++staged_slots_;
    step(next_, 1);
  }
  free_slots_ -= chain.slots;
  ++outstanding_;
  if (in_order_) order_.push_back(id);
}

std::optional<uint16_t> FakePackedDriver::stage(const ChainBuilder& chain) {
  const size_t count = chain.descriptor_count();
  SLUICE_ASSERT(count > 0);
  if (free_slots_ < count || free_ids_.empty()) return std::nullopt;
  const uint16_t id = free_ids_.back();
  free_ids_.pop_back();
  posted(id) = {PlacedChain::place(guest_, chain), static_cast<uint32_t>(count), chain.has_table()};
  if (chain.has_table()) write_table(chain, posted(id).placed);
  write_chain(id);
  return id;
}

void FakePackedDriver::make_available() {
  if (staged_slots_ == 0) return;
  // All other descriptors are visible before the first one's flags are. [virtio 2.8.21.1]
  word16(held_flags_at_).store(held_flags_, std::memory_order_release);
  shown_slots_ += staged_slots_;
  staged_slots_ = 0;
}

std::optional<uint16_t> FakePackedDriver::offer(const ChainBuilder& chain) {
  const auto id = stage(chain);
  if (id) make_available();
  return id;
}

void FakePackedDriver::offer_again(uint16_t id) {
  SLUICE_ASSERT(slots_of(id) > 0 && slots_of(id) <= free_slots_);
  write_chain(id);
  make_available();
}

// ---- Used
// ----------------------------------------------------------------------------------------

FakePackedDriver::Posted& FakePackedDriver::posted(uint16_t id) {
  SLUICE_ASSERT(number_of(id) < size_);
  return posted_[number_of(id)];
}

uint32_t FakePackedDriver::slots_of(uint16_t id) const {
  return number_of(id) < size_ ? posted_[number_of(id)].slots : 0;
}

FakePackedDriver::UsedEntry FakePackedDriver::take_of_run() {
  SLUICE_ASSERT(!order_.empty());  // a run reaches beyond what is available
  const uint16_t id = order_.front();
  order_.pop_front();
  run_is_open_ = id != run_id_;
  const auto all = static_cast<uint32_t>(posted(id).placed.writable_bytes());
  return {id, run_is_open_ ? all : run_bytes_};
}

std::optional<FakePackedDriver::UsedEntry> FakePackedDriver::take_used_entry() {
  UsedEntry entry{};
  if (!run_is_open_) {
    if (!is_used(last_used_)) return std::nullopt;
    const RawPackedDescriptor used = read_descriptor(last_used_.index);
    // Without WRITE the length says nothing. [virtio 2.8.4]
    entry = {used.id, used.flags & kWrite ? used.bytes : 0};
    if (in_order_) {
      run_is_open_ = true;
      run_id_ = used.id;
      run_bytes_ = entry.bytes;
    }
  }
  if (in_order_) entry = take_of_run();
  const uint32_t slots = slots_of(static_cast<uint16_t>(entry.head));
  step(last_used_, std::max(slots, 1u));  // one that was never offered has none
  free_slots_ += slots;
  --outstanding_;
  return entry;
}

std::optional<FakePackedDriver::Used> FakePackedDriver::take_used() {
  const auto entry = take_used_entry();
  if (!entry) return std::nullopt;
  Used used{static_cast<uint16_t>(entry->head), entry->bytes, {}};
  Posted& chain = posted(used.head);
  SLUICE_ASSERT(chain.slots > 0);  // given back twice, or never offered
  used.data = chain.placed.written(guest_, used.bytes);
  chain.placed.give_back(guest_);
  chain = Posted{};
  free_ids_.push_back(used.head);
  return used;
}

std::vector<FakePackedDriver::Used> FakePackedDriver::take_all_used() {
  std::vector<Used> all;
  while (auto used = take_used()) all.push_back(std::move(*used));
  return all;
}

// ---- Suppression
// ---------------------------------------------------------------------------------

bool FakePackedDriver::kick_wanted() {
  // The descriptors are visible before the device's wish is read. [virtio 2.8.21.3.1]
  fake_fence();
  Place at = kicked_;
  const uint64_t slots = shown_slots_;
  step(kicked_, slots);
  shown_slots_ = 0;
  if (slots == 0) return false;
  const uint16_t flags = device_event_flags();
  SLUICE_ASSERT(flags <= kEventPlace);  // 3 is reserved [virtio 2.8.10]
  SLUICE_ASSERT(flags != kEventPlace || event_idx_);
  if (flags != kEventPlace) return flags == kEventOn;
  const uint16_t word = device_event_place();
  const Place event{word & 0x7fffu, (word & 0x8000) != 0};
  SLUICE_ASSERT(event.index < size_);
  for (uint64_t i = 0; i < slots; ++i) {  // slot by slot: is it the one?
    if (at == event) return true;
    step(at, 1);
  }
  return false;
}

bool FakePackedDriver::enable_interrupts() {
  interrupts_on_ = true;
  wished_ = last_used_;
  raw_driver_event(event_word(wished_), event_idx_ ? kEventPlace : kEventOn);
  // The wish is visible before the next descriptor is read. [virtio 2.8.22]
  fake_fence();
  return has_used();
}

void FakePackedDriver::disable_interrupts() {
  interrupts_on_ = false;
  word16(driver_event_host_ + kEventFlagsOffset).store(kEventOff, std::memory_order_relaxed);
}

bool FakePackedDriver::interrupt_expected() const {
  if (!interrupts_on_ || !has_used()) return false;
  if (!event_idx_) return true;
  Place at = last_used_;
  auto next_of_run = order_.begin();
  for (uint32_t passed = 0; passed < size_ && is_used(at);) {
    const uint16_t id = read_descriptor(at.index).id;
    uint32_t slots = slots_of(id);
    // A run has the slots of all its chains.
    for (; in_order_ && next_of_run != order_.end() && *next_of_run != id; ++next_of_run)
      slots += slots_of(*next_of_run);
    if (in_order_ && next_of_run != order_.end()) ++next_of_run;
    for (uint32_t i = 0; i < slots; ++i) {
      if (at == wished_) return true;
      step(at, 1);
    }
    passed += std::max(slots, 1u);
  }
  return false;
}

// ---- Raw
// -----------------------------------------------------------------------------------------

void FakePackedDriver::encode(const RawPackedDescriptor& descriptor, uint8_t* out) {
  std::memcpy(out, &descriptor.address, 8);
  std::memcpy(out + kBytesOffset, &descriptor.bytes, 4);
  std::memcpy(out + kIdOffset, &descriptor.id, 2);
  std::memcpy(out + kFlagsOffset, &descriptor.flags, 2);
}

void FakePackedDriver::raw_descriptor(uint32_t index, const RawPackedDescriptor& descriptor) {
  SLUICE_ASSERT(index < size_);
  uint8_t* at = descriptors_host_ + kDescriptorBytes * index;
  word64(at).store(descriptor.address, std::memory_order_relaxed);
  word32(at + kBytesOffset).store(descriptor.bytes, std::memory_order_relaxed);
  word16(at + kIdOffset).store(descriptor.id, std::memory_order_relaxed);
  word16(at + kFlagsOffset).store(descriptor.flags, std::memory_order_release);
}

RawPackedDescriptor FakePackedDriver::read_descriptor(uint32_t index) const {
  SLUICE_ASSERT(index < size_);
  uint8_t* at = descriptors_host_ + kDescriptorBytes * index;
  return {word64(at).load(std::memory_order_relaxed),
          word32(at + kBytesOffset).load(std::memory_order_relaxed),
          word16(at + kIdOffset).load(std::memory_order_relaxed),
          word16(at + kFlagsOffset).load(std::memory_order_relaxed)};
}

void FakePackedDriver::raw_offer(const RawPackedDescriptor& descriptor) {
  RawPackedDescriptor available = descriptor;
  available.flags =
      static_cast<uint16_t>((descriptor.flags & (kAvail - 1)) | available_bits(next_.wrap));
  raw_descriptor(next_.index, available);
  step(next_, 1);
  ++shown_slots_;
}

void FakePackedDriver::raw_driver_event(uint16_t offset_wrap, uint16_t flags) {
  word16(driver_event_host_).store(offset_wrap, std::memory_order_relaxed);
  // Who sees the flags sees the place. [virtio 2.8.14]
  word16(driver_event_host_ + kEventFlagsOffset).store(flags, std::memory_order_release);
}

void FakePackedDriver::raw_device_event(uint16_t offset_wrap, uint16_t flags) {
  word16(device_event_host_).store(offset_wrap, std::memory_order_relaxed);
  word16(device_event_host_ + kEventFlagsOffset).store(flags, std::memory_order_release);
}

void FakePackedDriver::scribble(uint8_t value) {
  const auto word = static_cast<uint16_t>(value << 8 | value);
  for (size_t i = 0; i < kDescriptorBytes * size_; i += 2)
    word16(descriptors_host_ + i).store(word, std::memory_order_relaxed);
}

uint16_t FakePackedDriver::device_event_flags() const {
  return word16(device_event_host_ + kEventFlagsOffset).load(std::memory_order_acquire);
}
uint16_t FakePackedDriver::device_event_place() const {
  return word16(device_event_host_).load(std::memory_order_relaxed);
}

}  // namespace sluice
