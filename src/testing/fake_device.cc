#include "testing/fake_device.h"

#include "base/assert.h"
#include "testing/atomic_words.h"

namespace sluice {
namespace {

// [virtio 2.7.5], [virtio 2.7.6], [virtio 2.7.8], [virtio 2.8.13], [virtio 2.8.14]
constexpr size_t kIndexOffset = 2;
constexpr size_t kEntriesOffset = 4;
constexpr uint16_t kNext = 1, kWrite = 2, kIndirect = 4;
constexpr uint16_t kAvailBit = 0x80, kUsedBit = 0x8000;
constexpr size_t kBytesOffset = 8, kIdOffset = 12, kPackedFlagsOffset = 14;
constexpr size_t kSplitFlagsOffset = 12, kNextOffset = 14;

}  // namespace

void FakeDevice::raw_store(uint64_t address, uint16_t value) {
  word16(guest_.at(address, 2)).store(value);
}

// Writable pieces come behind readable ones. [virtio 2.7.4.2]
void FakeDevice::check_order(const Taken& taken) {
  bool writable_seen = false;
  for (const Piece& piece : taken.pieces) {
    if (writable_seen && !piece.is_writable) complain("a readable piece behind a writable one");
    writable_seen |= piece.is_writable;
  }
  if (taken.pieces.empty()) complain("a chain of nothing");
}

FakeSplitDevice::FakeSplitDevice(FakeGuestMemory& guest, const FakeRingAreas& areas,
                                 const DriverRingOptions& options)
    : FakeDevice(guest, areas, options),
      available_(guest.at(areas.driver_area, 6 + 2 * uint64_t{options.size})),
      used_(guest.at(areas.device_area, 6 + 8 * uint64_t{options.size})) {}

std::optional<FakeDevice::Taken> FakeSplitDevice::take() {
  const uint16_t index = word16(available_ + kIndexOffset).load(std::memory_order_acquire);
  const auto count = static_cast<uint16_t>(index - next_available_);
  if (count > options_.size) complain("the available index jumped");
  if (count == 0) return std::nullopt;
  if (options_.event_idx && word16(available_).load() != 0)
    complain("flags of the available ring with EVENT_IDX");  // [virtio 2.7.7.1]
  Taken taken;
  const size_t entry = next_available_ % options_.size;
  taken.id = word16(available_ + kEntriesOffset + 2 * entry).load();
  if (taken.id >= options_.size) {
    complain("a head outside the ring");
    return std::nullopt;
  }
  ++next_available_;
  walk(taken);
  check_order(taken);
  return taken;
}

void FakeSplitDevice::walk(Taken& taken) {
  uint8_t* table = guest_.at(areas_.descriptors, 16 * uint64_t{options_.size});
  uint64_t entries = options_.size;
  uint64_t at = taken.id;
  bool inside_table = false;
  for (uint32_t hops = 0; hops <= options_.size;
       ++hops) {  // the table's own descriptor is one more
    uint8_t* descriptor = table + 16 * at;
    const uint64_t address = word64(descriptor).load();
    const uint32_t bytes = word32(descriptor + kBytesOffset).load();
    const uint16_t flags = word16(descriptor + kSplitFlagsOffset).load();
    const uint16_t next = word16(descriptor + kNextOffset).load();
    if (flags & kIndirect) {
      if (options_.table_entries == 0) complain("an indirect table that was not agreed on");
      if (inside_table || (flags & kNext)) complain("an indirect table nested or chained on");
      entries = bytes / 16;
      table = guest_.at(address, bytes);
      at = 0;
      inside_table = true;
      continue;
    }
    taken.pieces.push_back({address, bytes, (flags & kWrite) != 0});
    if (!(flags & kNext)) return;
    if (next >= entries) return complain("next outside its table");
    // [virtio 2.7.5.2]
    if (options_.in_order && !inside_table && next != (at + 1) % options_.size)
      complain("IN_ORDER, and descriptors that are not");
    at = next;
  }
  complain("a loop");
}

void FakeSplitDevice::raw_used_entry(uint16_t position, uint32_t id, uint32_t bytes) {
  uint8_t* entry = used_ + kEntriesOffset + 8 * (size_t{position} % options_.size);
  word32(entry).store(id, std::memory_order_relaxed);
  word32(entry + 4).store(bytes, std::memory_order_relaxed);
}

void FakeSplitDevice::raw_used_index(uint16_t index) { word16(used_ + kIndexOffset).store(index); }

void FakeSplitDevice::use(const Taken& taken, uint32_t bytes) {
  raw_used_entry(used_index_++, taken.id, bytes);
}

// The entry lies where the batch's first would. [virtio 2.7.9]
void FakeSplitDevice::use_batch(std::span<const Taken> batch, uint32_t bytes_of_last) {
  raw_used_entry(used_index_, batch.back().id, bytes_of_last);
  used_index_ = static_cast<uint16_t>(used_index_ + batch.size());
}

void FakeSplitDevice::publish() {
  word16(used_ + kIndexOffset).store(used_index_, std::memory_order_release);
}

bool FakeSplitDevice::interrupt_wanted() {
  if (used_index_ == signalled_) return false;
  fake_fence();
  const uint16_t from = signalled_;
  signalled_ = used_index_;
  if (!options_.event_idx) return (word16(available_).load() & 1) == 0;
  const uint16_t event = word16(available_ + kEntriesOffset + 2 * size_t{options_.size}).load();
  for (uint16_t at = from; at != used_index_; ++at) {  // entry by entry: is it the one?
    if (at == event) return true;
  }
  return false;
}

bool FakeSplitDevice::ask_for_kick(uint16_t known) {
  if (options_.event_idx) {
    word16(used_ + kEntriesOffset + 8 * size_t{options_.size})
        .store(static_cast<uint16_t>(next_available_ + known));
  } else {
    word16(used_).store(0);
  }
  fake_fence();
  return word16(available_ + kIndexOffset).load() != next_available_;
}

void FakeSplitDevice::refuse_kicks() {
  if (options_.event_idx) {
    word16(used_ + kEntriesOffset + 8 * size_t{options_.size})
        .store(static_cast<uint16_t>(next_available_ - 1));
  } else {
    word16(used_).store(1);
  }
}

void FakeSplitDevice::raw_use(uint32_t id, uint32_t bytes) {
  raw_used_entry(used_index_++, id, bytes);
  publish();
}

void FakeSplitDevice::raw_wish(uint16_t event, uint16_t flags) {
  word16(used_ + kEntriesOffset + 8 * size_t{options_.size}).store(event);
  word16(used_).store(flags);
}

FakePackedDevice::FakePackedDevice(FakeGuestMemory& guest, const FakeRingAreas& areas,
                                   const DriverRingOptions& options)
    : FakeDevice(guest, areas, options),
      descriptors_(guest.at(areas.descriptors, 16 * uint64_t{options.size})),
      driver_event_(guest.at(areas.driver_area, 4)),
      device_event_(guest.at(areas.device_area, 4)) {}

uint8_t* FakePackedDevice::descriptor(uint32_t index) const {
  SLUICE_ASSERT(index < options_.size);
  return descriptors_ + 16 * size_t{index};
}

void FakePackedDevice::step(Place& place, uint32_t slots) const {
  for (uint32_t i = 0; i < slots; ++i) {
    if (++place.index < options_.size) continue;
    place.index = 0;
    place.wrap = !place.wrap;
  }
}

uint16_t FakePackedDevice::used_bits(bool wrap) {
  return wrap ? uint16_t{kAvailBit | kUsedBit} : uint16_t{0};
}

bool FakePackedDevice::is_available(Place place) const {
  const uint16_t flags =
      word16(descriptor(place.index) + kPackedFlagsOffset).load(std::memory_order_acquire);
  const bool avail = flags & kAvailBit, used = flags & kUsedBit;
  return avail == place.wrap && used != place.wrap;
}

void FakePackedDevice::read_piece(uint8_t* at, Taken& taken) {
  const uint16_t flags = word16(at + kPackedFlagsOffset).load();
  const uint64_t address = word64(at).load();
  const uint32_t bytes = word32(at + kBytesOffset).load();
  if (!(flags & kIndirect)) {
    taken.pieces.push_back({address, bytes, (flags & kWrite) != 0});
    return;
  }
  if (options_.table_entries == 0) complain("an indirect table that was not agreed on");
  if (flags & kNext) complain("an indirect table that is chained on");
  uint8_t* table = guest_.at(address, bytes);
  for (uint32_t i = 0; i < bytes / 16; ++i) {
    uint8_t* entry = table + 16 * size_t{i};
    const uint16_t entry_flags = word16(entry + kPackedFlagsOffset).load();
    if (entry_flags & ~kWrite) complain("flags in an indirect table");  // [virtio 2.8.19]
    taken.pieces.push_back(
        {word64(entry).load(), word32(entry + kBytesOffset).load(), (entry_flags & kWrite) != 0});
  }
}

std::optional<FakeDevice::Taken> FakePackedDevice::take() {
  if (!is_available(next_)) return std::nullopt;
  Taken taken;
  taken.slots = 0;
  for (uint32_t hops = 0; hops < options_.size; ++hops) {
    uint8_t* at = descriptor(next_.index);
    if (!is_available(next_)) complain("a chain whose tail is not available");
    read_piece(at, taken);
    taken.id = word16(at + kIdOffset).load();
    ++taken.slots;
    const bool more = word16(at + kPackedFlagsOffset).load() & kNext;
    step(next_, 1);
    if (!more) {
      check_order(taken);
      return taken;
    }
  }
  complain("a chain longer than the ring");
  return std::nullopt;
}

void FakePackedDevice::use(const Taken& taken, uint32_t bytes) {
  staged_.push_back({used_, taken.id, bytes, bytes > 0});
  step(used_, taken.slots);
  signal_slots_ += taken.slots;
}

// [virtio 2.8.8]
void FakePackedDevice::use_batch(std::span<const Taken> batch, uint32_t bytes_of_last) {
  staged_.push_back({used_, batch.back().id, bytes_of_last, bytes_of_last > 0});
  for (const Taken& taken : batch) {
    step(used_, taken.slots);
    signal_slots_ += taken.slots;
  }
}

// The first of them last, so that all appear at once.
void FakePackedDevice::publish() {
  for (size_t i = staged_.size(); i-- > 0;) {
    const Staged& entry = staged_[i];
    uint8_t* at = descriptor(entry.place.index);
    word16(at + kIdOffset).store(entry.id, std::memory_order_relaxed);
    // Without WRITE the length is reserved: some devices leave there what they found.
    if (entry.is_written) word32(at + kBytesOffset).store(entry.bytes, std::memory_order_relaxed);
    const uint16_t flags = used_bits(entry.place.wrap) | (entry.is_written ? kWrite : 0);
    word16(at + kPackedFlagsOffset).store(flags, std::memory_order_release);
  }
  staged_.clear();
}

bool FakePackedDevice::interrupt_wanted() {
  if (signal_slots_ == 0) return false;
  fake_fence();
  Place at = signalled_;
  const uint32_t slots = signal_slots_;
  signalled_ = used_;
  signal_slots_ = 0;
  const uint16_t flags = word16(driver_event_ + 2).load(std::memory_order_acquire);
  const uint16_t word = word16(driver_event_).load();
  if (flags > 2) complain("a reserved value of the driver's event flags");
  if (flags == 2 && !options_.event_idx) complain("an event place without EVENT_IDX");
  if (flags != 2) return flags == 0;
  const Place event{word & 0x7fffu, (word & 0x8000) != 0};
  if (event.index >= options_.size) complain("an event place outside the ring");
  for (uint32_t i = 0; i < slots; ++i) {  // slot by slot: is it the one?
    if (at == event) return true;
    step(at, 1);
  }
  return false;
}

bool FakePackedDevice::ask_for_kick(uint16_t known) {
  if (options_.event_idx) {
    Place event = next_;
    step(event, known);
    word16(device_event_).store(static_cast<uint16_t>(event.index | (event.wrap ? 0x8000 : 0)));
    word16(device_event_ + 2).store(2, std::memory_order_release);
  } else {
    word16(device_event_ + 2).store(0);
  }
  fake_fence();
  return is_available(next_);
}

void FakePackedDevice::refuse_kicks() { word16(device_event_ + 2).store(1); }

void FakePackedDevice::raw_descriptor(uint32_t index, uint16_t id, uint32_t bytes, uint16_t flags) {
  uint8_t* at = descriptor(index);
  word16(at + kIdOffset).store(id);
  word32(at + kBytesOffset).store(bytes);
  word16(at + kPackedFlagsOffset).store(flags);
}

void FakePackedDevice::raw_use(uint32_t id, uint32_t bytes) {
  raw_descriptor(used_.index, static_cast<uint16_t>(id), bytes,
                 static_cast<uint16_t>(used_bits(used_.wrap) | kWrite));
  step(used_, 1);
  ++signal_slots_;
}

void FakePackedDevice::raw_wish(uint16_t event, uint16_t flags) {
  word16(device_event_).store(event);
  word16(device_event_ + 2).store(flags);
}

}  // namespace sluice
