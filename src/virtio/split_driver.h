// SplitDriver: the driver side of one split virtqueue. Its manual is driver_ring.h.
//
// Without IN_ORDER, descriptors come from a private free list that is used from its warm end. With
// IN_ORDER they are used in ring order, as they come back. [virtio 2.7.5.2]
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/limits.h"
#include "virtio/driver_ring.h"
#include "virtio/split_layout.h"

namespace sluice {

class SplitDriver {
 public:
  static constexpr uint32_t kFreshBase = 0;
  static constexpr size_t descriptors_bytes(size_t size) { return split_descriptors_bytes(size); }
  static constexpr size_t driver_area_bytes(size_t size) { return split_available_bytes(size); }
  static constexpr size_t device_area_bytes(size_t size) { return split_used_bytes(size); }

  // The areas are our own; that they are as DriverRingSetup says is asserted.
  explicit SplitDriver(const DriverRingSetup& setup);

  bool add(std::span<const BufferPiece> readable, std::span<const BufferPiece> writable,
           uint16_t token) {
    SLUICE_ASSERT(token < size_);
    if (readable.size() + writable.size() != 1) return add_pieces(readable, writable, token);
    if (free_ == 0) return false;
    const bool is_writable = readable.empty();
    const BufferPiece& piece = is_writable ? writable[0] : readable[0];
    const uint16_t head = free_head_;
    store_descriptor(head, piece, is_writable ? kDescriptorWrite : uint16_t{0}, 0);
    post(head, head, 1, is_writable ? piece.bytes : 0, token);
    return true;
  }

  // Which descriptors come next is a list in our own memory, too long a way for a hint.
  void prefetch_free(size_t) const {}

  void publish() {
    if (published_avail_ == next_avail_) return;
    // Descriptors and entries are visible before the index is: pairs with the device's acquire load
    // of it. [virtio 2.7.13.3]
    avail_->index.store_release(next_avail_);
    published_avail_ = next_avail_;
  }
  bool device_wants_kick();

  Take take_used(UsedBuffer& out) {
    // A broken ring has nothing seen, so that this asks for no more than that.
    if (seen_used_ == next_used_ && !look_for_used())
      return fault_ == DriverFault::none ? Take::empty : Take::broken;
    if (in_order_) return take_in_order(out);
    const SplitUsedElement& element = used_->ring[next_used_ & mask_];
    const uint32_t id = element.id.load_relaxed();
    uint32_t bytes = element.bytes.load_relaxed();
    if (const DriverFault fault = check(id, bytes); fault != DriverFault::none) [[unlikely]]
      return break_with(fault);
    out = {posted_[id].token, bytes};
    release(static_cast<uint16_t>(id));
    return Take::used;
  }

  void disable_callbacks();
  bool enable_callbacks();
  bool enable_callbacks_delayed();

  uint32_t size() const { return size_; }
  size_t free_descriptors() const { return free_; }
  size_t descriptors_outstanding() const { return size_ - free_; }
  size_t outstanding() const { return static_cast<uint16_t>(next_avail_ - next_used_); }
  bool broken() const { return fault_ != DriverFault::none; }
  DriverFault fault() const { return fault_; }
  bool take_back(uint16_t& token);

 private:
  // What we know of a descriptor. The last four are of the chain that begins here.
  struct Posted {
    uint16_t next = 0;   // in the free list, or in its chain
    uint16_t last = 0;   // descriptor of the chain
    uint16_t count = 0;  // descriptors of the chain; 0: no outstanding chain begins here
    uint16_t token = 0;
    uint32_t room = 0;       // writable bytes
    uint16_t avail_at = 0;   // IN_ORDER: when it was added
    uint16_t reserved_ = 0;  // 16 bytes: an index is a shift
  };

  bool add_pieces(std::span<const BufferPiece> readable, std::span<const BufferPiece> writable,
                  uint16_t token);
  bool add_indirect(std::span<const BufferPiece> readable, std::span<const BufferPiece> writable,
                    uint16_t token);
  void store_descriptor(uint16_t index, BufferPiece piece, uint16_t flags, uint16_t next) {
    // Ours until the index is published, therefore plain stores.
    const SplitDescriptor descriptor{raw(piece.address), piece.bytes, flags, next};
    std::memcpy(descriptors_ + sizeof descriptor * index, &descriptor, sizeof descriptor);
  }
  // Takes head…last from the free list, and makes them an entry of the available ring.
  void post(uint16_t head, uint16_t last, uint16_t count, uint32_t room, uint16_t token) {
    free_head_ = posted_[last].next;
    free_ -= count;
    Posted& posted = posted_[head];
    posted.last = last;
    posted.count = count;
    posted.token = token;
    posted.room = room;
    posted.avail_at = next_avail_;
    avail_->ring[next_avail_ & mask_].store_relaxed(head);
    ++next_avail_;
  }
  // Whether the device may say this; what a length means nothing for becomes 0.
  DriverFault check(uint32_t id, uint32_t& bytes) const {
    if (id >= size_) return DriverFault::id_out_of_range;
    const Posted& posted = posted_[id];
    if (posted.count == 0) return DriverFault::id_not_outstanding;
    if (bytes > posted.room) {
      if (posted.room != 0) return DriverFault::too_many_bytes;
      bytes = 0;
    }
    return DriverFault::none;
  }
  void release(uint16_t head) {
    Posted& posted = posted_[head];
    free_ += posted.count;
    posted.count = 0;
    ++next_used_;
    // In order the free list is the ring itself: what comes back is where it was.
    if (in_order_) return;
    posted_[posted.last].next = free_head_;
    free_head_ = head;
  }
  bool look_for_used();
  Take take_in_order(UsedBuffer& out);
  Take break_with(DriverFault fault);
  SharedWord<uint16_t>& used_event() const { return avail_->ring[size_]; }

  uint32_t size_;
  uint16_t mask_;
  bool event_idx_;
  bool in_order_;
  bool callbacks_on_ = true;
  DriverFault fault_ = DriverFault::none;
  uint16_t free_head_ = 0;
  uint32_t free_;
  uint16_t next_avail_ = 0;       // where the next head goes
  uint16_t published_avail_ = 0;  // what the device can see
  uint16_t kicked_avail_ = 0;     // what it was asked about
  uint16_t next_used_ = 0;        // the next used entry to take, private
  uint16_t seen_used_ = 0;        // the device's index when it was last loaded, checked
  uint16_t batch_left_ = 0;       // IN_ORDER: buffers of an entry that are still to be given out
  uint32_t batch_bytes_ = 0;      // what the entry said of its last one
  uint16_t oldest_ = 0;           // IN_ORDER: the head that was added first
  uint32_t take_back_at_ = 0;
  uint8_t* descriptors_;
  SplitAvail* avail_;
  SplitUsed* used_;
  SharedWord<uint16_t>* avail_event_;  // behind the used ring's last element
  std::unique_ptr<Posted[]> posted_;
  GuestSpan tables_;
  uint64_t tables_address_;
  uint16_t table_entries_;  // 0: no indirect tables
  uint16_t direct_pieces_max_;
};

}  // namespace sluice
