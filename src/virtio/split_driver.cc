#include "virtio/split_driver.h"

#include <bit>
#include <cstring>
#include <limits>

namespace sluice {
namespace {

void clear(GuestSpan area) { std::memset(area.address_for_shared_words(), 0, area.size()); }

uint8_t* begin_of(GuestSpan area) { return static_cast<uint8_t*>(area.address_for_shared_words()); }

uint32_t writable_room(std::span<const BufferPiece> writable) {
  uint64_t room = 0;
  for (const BufferPiece& piece : writable) room += piece.bytes;
  SLUICE_ASSERT(room <= std::numeric_limits<uint32_t>::max());
  return static_cast<uint32_t>(room);
}

}  // namespace

SplitDriver::SplitDriver(const DriverRingSetup& setup)
    : size_(setup.size),
      mask_(static_cast<uint16_t>(setup.size - 1)),
      event_idx_(setup.event_idx),
      in_order_(setup.in_order),
      free_(setup.size),
      descriptors_(begin_of(setup.descriptors)),
      avail_(static_cast<SplitAvail*>(setup.driver_area.address_for_shared_words())),
      used_(static_cast<SplitUsed*>(setup.device_area.address_for_shared_words())),
      avail_event_(reinterpret_cast<SharedWord<uint16_t>*>(
          begin_of(setup.device_area) + split_used_bytes(setup.size) - sizeof(uint16_t))),
      posted_(std::make_unique<Posted[]>(setup.size)),
      tables_(setup.tables),
      tables_address_(raw(setup.tables_address)),
      table_entries_(setup.indirect ? setup.table_entries : uint16_t{0}),
      direct_pieces_max_(setup.direct_pieces_max) {
  SLUICE_ASSERT(std::has_single_bit(size_) && size_ <= kRingSizeMax);
  SLUICE_ASSERT(setup.descriptors.size() >= split_descriptors_bytes(size_));
  SLUICE_ASSERT(setup.driver_area.size() >= split_available_bytes(size_));
  SLUICE_ASSERT(setup.device_area.size() >= split_used_bytes(size_));
  SLUICE_ASSERT(tables_.size() >= sizeof(SplitDescriptor) * table_entries_ * size_);
  SLUICE_ASSERT(table_entries_ <= size_);  // a table is no longer than the ring [virtio 2.7.5.3.1]
  clear(setup.descriptors);
  clear(setup.driver_area);
  clear(setup.device_area);
  for (uint32_t i = 0; i < size_; ++i) posted_[i].next = static_cast<uint16_t>((i + 1) & mask_);
}

bool SplitDriver::add_pieces(std::span<const BufferPiece> readable,
                             std::span<const BufferPiece> writable, uint16_t token) {
  const size_t count = readable.size() + writable.size();
  SLUICE_ASSERT(count > 0);
  if (count > direct_pieces_max_ && count <= table_entries_)
    return add_indirect(readable, writable, token);
  if (count > free_) return false;
  const uint16_t head = free_head_;
  uint16_t at = head, last = head;
  for (size_t i = 0; i < count; ++i) {
    const bool is_writable = i >= readable.size();
    const BufferPiece& piece = is_writable ? writable[i - readable.size()] : readable[i];
    uint16_t flags = is_writable ? kDescriptorWrite : uint16_t{0};
    // Our private link, never the one in shared memory: that may say anything by now.
    const uint16_t next = posted_[at].next;
    if (i + 1 < count) flags |= kDescriptorNext;
    store_descriptor(at, piece, flags, i + 1 < count ? next : uint16_t{0});
    last = at;
    at = next;
  }
  post(head, last, static_cast<uint16_t>(count), writable_room(writable), token);
  return true;
}

// The chain goes into the token's table, and one descriptor names that. [virtio 2.7.5.3]
bool SplitDriver::add_indirect(std::span<const BufferPiece> readable,
                               std::span<const BufferPiece> writable, uint16_t token) {
  if (free_ == 0) return false;
  const size_t count = readable.size() + writable.size();
  const size_t table_at = sizeof(SplitDescriptor) * table_entries_ * token;
  for (size_t i = 0; i < count; ++i) {
    const bool is_writable = i >= readable.size();
    const BufferPiece& piece = is_writable ? writable[i - readable.size()] : readable[i];
    SplitDescriptor entry{raw(piece.address), piece.bytes, 0, 0};
    if (is_writable) entry.flags |= kDescriptorWrite;
    if (i + 1 < count) {
      entry.flags |= kDescriptorNext;
      entry.next = static_cast<uint16_t>(i + 1);
    }
    tables_.copy_in(table_at + sizeof entry * i, &entry, sizeof entry);
  }
  const uint16_t head = free_head_;
  const BufferPiece table{GuestAddr{tables_address_ + table_at},
                          static_cast<uint32_t>(sizeof(SplitDescriptor) * count)};
  store_descriptor(head, table, kDescriptorIndirect, 0);
  post(head, head, 1, writable_room(writable), token);
  return true;
}

bool SplitDriver::device_wants_kick() {
  if (published_avail_ == kicked_avail_) return false;
  // The index must be visible before the device's wish is read: pairs with the device's fence
  // between writing avail_event (or flags) and re-reading the index. Store, then load: a full
  // fence. [virtio 2.7.13.4.1]
  full_fence();
  const uint16_t old_index = kicked_avail_;
  kicked_avail_ = published_avail_;
  if (!event_idx_) return !(used_->flags.load_relaxed() & kUsedNoNotify);
  return event_is_due(avail_event_->load_relaxed(), published_avail_, old_index);
}

// Looks at the device's index; true when there is more to take than was known.
bool SplitDriver::look_for_used() {
  if (fault_ != DriverFault::none) return false;
  // Entries, and what was written to their buffers, are visible once the index is: pairs with the
  // device's release store of it. [virtio 2.7.14]
  const uint16_t index = used_->index.load_acquire();
  const auto count = static_cast<uint16_t>(index - next_used_);
  if (count == 0) return false;
  if (count > static_cast<uint16_t>(published_avail_ - next_used_)) {
    break_with(DriverFault::used_index_jump);
    return false;
  }
  seen_used_ = index;
  return true;
}

// One entry may stand for all buffers up to its own; those before it are used completely.
// [virtio 2.7.9]
Take SplitDriver::take_in_order(UsedBuffer& out) {
  if (batch_left_ == 0) {
    const SplitUsedElement& element = used_->ring[next_used_ & mask_];
    const uint32_t id = element.id.load_relaxed();
    uint32_t bytes = element.bytes.load_relaxed();
    if (const DriverFault fault = check(id, bytes); fault != DriverFault::none)
      return break_with(fault);
    // Both rings count alike, so an entry for a batch lies where the batch began.
    const auto count = static_cast<uint16_t>(posted_[id].avail_at - next_used_ + 1);
    if (count > static_cast<uint16_t>(seen_used_ - next_used_))
      return break_with(DriverFault::batch_too_long);
    batch_left_ = count;
    batch_bytes_ = bytes;
  }
  const uint16_t head = oldest_;
  const Posted& posted = posted_[head];
  oldest_ = static_cast<uint16_t>((oldest_ + posted.count) & mask_);
  --batch_left_;
  out = {posted.token, batch_left_ == 0 ? batch_bytes_ : posted.room};
  release(head);
  return Take::used;
}

Take SplitDriver::break_with(DriverFault fault) {
  fault_ = fault;
  seen_used_ = next_used_;
  return Take::broken;
}

void SplitDriver::disable_callbacks() {
  if (!callbacks_on_) return;
  callbacks_on_ = false;
  if (event_idx_) {
    // Behind everything that the device may still have to tell us of: not passed again for 2^15
    // buffers at least. Flags stay 0. [virtio 2.7.7.1]
    used_event().store_relaxed(static_cast<uint16_t>(next_used_ - size_ - 1));
  } else {
    avail_->flags.store_relaxed(kAvailNoInterrupt);
  }
}

bool SplitDriver::enable_callbacks() {
  if (event_idx_) {
    used_event().store_relaxed(next_used_);
  } else if (!callbacks_on_) {
    avail_->flags.store_relaxed(0);
  }
  callbacks_on_ = true;
  // Our wish must be visible before the index is read: pairs with the device's fence between
  // writing its index and reading used_event (or flags). Store, then load. [virtio 2.7.7.2]
  full_fence();
  return used_->index.load_relaxed() != next_used_;
}

bool SplitDriver::enable_callbacks_delayed() {
  if (!event_idx_) return enable_callbacks();
  const auto outstanding = static_cast<uint16_t>(published_avail_ - next_used_);
  const auto later = static_cast<uint16_t>(outstanding * 3u / 4);
  used_event().store_relaxed(static_cast<uint16_t>(next_used_ + later));
  callbacks_on_ = true;
  full_fence();  // as in enable_callbacks [virtio 2.7.7.2]
  return static_cast<uint16_t>(used_->index.load_relaxed() - next_used_) > later;
}

bool SplitDriver::take_back(uint16_t& token) {
  for (; take_back_at_ < size_; ++take_back_at_) {
    Posted& posted = posted_[take_back_at_];
    if (posted.count == 0) continue;
    free_ += posted.count;
    posted.count = 0;
    ++next_used_;
    token = posted.token;
    return true;
  }
  return false;
}

}  // namespace sluice
