#include "virtio/packed_driver.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace sluice {
namespace {

void clear(GuestSpan area) { std::memset(area.address_for_shared_words(), 0, area.size()); }

uint32_t writable_room(std::span<const BufferPiece> writable) {
  uint64_t room = 0;
  for (const BufferPiece& piece : writable) room += piece.bytes;
  SLUICE_ASSERT(room <= std::numeric_limits<uint32_t>::max());
  return static_cast<uint32_t>(room);
}

}  // namespace

PackedDriver::PackedDriver(const DriverRingSetup& setup)
    : size_(setup.size),
      event_idx_(setup.event_idx),
      in_order_(setup.in_order),
      free_(setup.size),
      descriptors_(static_cast<uint8_t*>(setup.descriptors.address_for_shared_words())),
      chains_(std::make_unique<Posted[]>(setup.size)),
      token_at_(std::make_unique<uint16_t[]>(setup.size)),
      driver_event_(static_cast<PackedEvent*>(setup.driver_area.address_for_shared_words())),
      device_event_(static_cast<PackedEvent*>(setup.device_area.address_for_shared_words())),
      tables_(setup.tables),
      tables_address_(raw(setup.tables_address)),
      table_entries_(setup.indirect ? setup.table_entries : uint16_t{0}),
      direct_pieces_max_(setup.direct_pieces_max) {
  SLUICE_ASSERT(size_ > 0 && size_ <= kRingSizeMax);
  SLUICE_ASSERT(setup.descriptors.size() >= packed_descriptors_bytes(size_));
  SLUICE_ASSERT(setup.driver_area.size() >= kPackedEventBytes);
  SLUICE_ASSERT(setup.device_area.size() >= kPackedEventBytes);
  SLUICE_ASSERT(tables_.size() >= sizeof(PackedDescriptor) * table_entries_ * size_);
  SLUICE_ASSERT(table_entries_ <= size_);  // a table is no longer than the ring [virtio 2.8.19]
  clear(setup.descriptors);
  clear(setup.driver_area);
  clear(setup.device_area);
}

bool PackedDriver::add_pieces(std::span<const BufferPiece> readable,
                              std::span<const BufferPiece> writable, uint16_t token) {
  const size_t count = readable.size() + writable.size();
  SLUICE_ASSERT(count > 0);
  if (count > direct_pieces_max_ && count <= table_entries_)
    return add_indirect(readable, writable, token);
  if (count > free_) return false;
  const bool reads = !readable.empty();
  const uint16_t more = count > 1 ? kDescriptorNext : 0;
  store_head(reads ? readable[0] : writable[0], token, more | (reads ? 0 : kDescriptorWrite));
  RingPosition at = next_;
  at.advance_one(size_);
  size_t left = count - 1;
  // The id counts in the last descriptor only; it may be in all of them. [virtio 2.8.6]
  const auto store_rest = [&](std::span<const BufferPiece> pieces, uint16_t flags) {
    for (const BufferPiece& piece : pieces) {
      const uint16_t next = --left > 0 ? kDescriptorNext : 0;
      store_descriptor(at, piece, token, flags | next | at.available_flags());
      at.advance_one(size_);
    }
  };
  if (reads) store_rest(readable.subspan(1), 0);
  store_rest(writable.subspan(reads ? 0 : 1), kDescriptorWrite);
  post(token, static_cast<uint16_t>(count), writable_room(writable), at);
  return true;
}

// The chain goes into the token's table, entry behind entry, and one descriptor names that.
// [virtio 2.8.7]
bool PackedDriver::add_indirect(std::span<const BufferPiece> readable,
                                std::span<const BufferPiece> writable, uint16_t token) {
  if (free_ == 0) return false;
  const size_t count = readable.size() + writable.size();
  const size_t table_at = sizeof(PackedDescriptor) * table_entries_ * token;
  for (size_t i = 0; i < count; ++i) {
    const bool is_writable = i >= readable.size();
    const BufferPiece& piece = is_writable ? writable[i - readable.size()] : readable[i];
    const PackedDescriptor entry{raw(piece.address), piece.bytes, 0,
                                 is_writable ? kDescriptorWrite : uint16_t{0}};
    tables_.copy_in(table_at + sizeof entry * i, &entry, sizeof entry);
  }
  const BufferPiece table{GuestAddr{tables_address_ + table_at},
                          static_cast<uint32_t>(sizeof(PackedDescriptor) * count)};
  store_head(table, token, kDescriptorIndirect);
  post(token, 1, writable_room(writable), behind_one());
  return true;
}

bool PackedDriver::device_wants_kick() {
  if (kick_slots_ == 0) return false;
  // The descriptors must be visible before the device's wish is read: pairs with the device's fence
  // between writing its event structure and re-reading the descriptor. Store, then load: a full
  // fence. [virtio 2.8.21.3.1]
  full_fence();
  const RingPosition from = kicked_;
  const uint32_t slots = kick_slots_;
  kick_slots_ = 0;
  if (slots <= size_) kicked_.advance(slots, size_);
  const uint16_t flags = device_event_->flags.load_acquire() & 3;
  if (slots > size_) {  // more than a lap: nobody asked us for so long
    kicked_ = next_;
    return flags != kPackedEventDisable;
  }
  if (flags == kPackedEventDisable) return false;
  if (flags != kPackedEventDescriptor || !event_idx_) return true;
  const auto event = RingPosition::from_word(device_event_->offset_wrap.load_relaxed());
  if (event.index() >= size_) return true;  // no place of this ring: rather one kick too many
  // How many slots from `from` on the event lies, in this lap or the next.
  const uint32_t distance =
      event.index() + (event.wrap() == from.wrap() ? 0 : size_) - from.index();
  return distance < slots;  // one that lies behind is a huge number
}

// One entry may stand for all buffers up to its own; those before it are used completely.
// [virtio 2.8.8]
Take PackedDriver::take_in_order(UsedBuffer& out) {
  if (!batch_open_) {
    uint16_t id = 0;
    uint32_t bytes = 0;
    if (!load_used(used_, id, bytes)) return Take::empty;
    if (const DriverFault fault = check(id, bytes); fault != DriverFault::none)
      return break_with(fault);
    batch_open_ = true;
    batch_last_ = id;
    batch_bytes_ = bytes;
  }
  // The id was outstanding, but perhaps not published.
  if (published_ == 0) return break_with(DriverFault::batch_too_long);
  const uint16_t token = token_at_[used_.index()];
  const bool is_last = token == batch_last_;
  batch_open_ = !is_last;
  out = {token, is_last ? batch_bytes_ : chains_[token].room};
  release(token);
  return Take::used;
}

Take PackedDriver::break_with(DriverFault fault) {
  fault_ = fault;
  return Take::broken;
}

void PackedDriver::disable_callbacks() {
  if (event_flags_ == kPackedEventDisable) return;
  event_flags_ = kPackedEventDisable;
  driver_event_->flags.store_relaxed(event_flags_);
}

// Asks for a callback once the used position has passed `event`.
void PackedDriver::ask_at(RingPosition event) {
  const uint16_t flags = event_idx_ ? kPackedEventDescriptor : kPackedEventEnable;
  if (event_idx_) driver_event_->offset_wrap.store_relaxed(event.word());
  if (flags == event_flags_) return;
  event_flags_ = flags;
  // A device that sees the flags sees the place: pairs with its acquire load. [virtio 2.8.14]
  driver_event_->flags.store_release(flags);
}

bool PackedDriver::enable_callbacks() {
  ask_at(used_);
  // Our wish must be visible before the descriptor is read: pairs with the device's fence between
  // writing used descriptors and reading this structure. Store, then load. [virtio 2.8.22]
  full_fence();
  return is_used_beyond(0);
}

bool PackedDriver::enable_callbacks_delayed() {
  if (!event_idx_) return enable_callbacks();
  // A device can give back what it was not shown: then less is outstanding than is pending.
  const size_t outstanding_slots = descriptors_outstanding();
  const size_t shown_slots =
      outstanding_slots - std::min<size_t>(outstanding_slots, pending_slots_);
  const auto later = static_cast<uint32_t>(shown_slots * 3 / 4);
  RingPosition event = used_;
  event.advance(later, size_);
  ask_at(event);
  full_fence();  // as in enable_callbacks [virtio 2.8.22]
  return is_used_beyond(later);
}

// Whether the device is done with more than `slots` descriptors from used_ on. What it says wrongly
// counts as done: take_used() then gives it a name.
bool PackedDriver::is_used_beyond(uint32_t slots) const {
  if (batch_open_ || broken()) return true;
  RingPosition at = used_;
  uint32_t passed = 0;
  uint16_t id = 0;
  bool inside_batch = false;
  for (uint32_t i = 0; i < published_; ++i) {  // what it reports is bounded by what is published
    uint32_t bytes = 0;
    if (!inside_batch && !load_used(at, id, bytes)) return false;
    if (check(id, bytes) != DriverFault::none) return true;
    const uint16_t token = in_order_ ? token_at_[at.index()] : id;
    inside_batch = token != id;
    passed += chains_[token].slots;
    if (passed > slots) return true;
    at.advance(chains_[token].slots, size_);
  }
  return false;
}

bool PackedDriver::take_back(uint16_t& token) {
  for (; take_back_at_ < size_; ++take_back_at_) {
    Posted& posted = chains_[take_back_at_];
    if (posted.slots == 0) continue;
    free_ += posted.slots;
    posted.slots = 0;
    token = static_cast<uint16_t>(take_back_at_);
    return true;
  }
  published_ = pending_chains_ = pending_slots_ = 0;
  return false;
}

}  // namespace sluice
