// PackedDriver: the driver side of one packed virtqueue. Its manual is driver_ring.h.
//
// The ring may have any size from 1 on. A batch becomes available at once: the flags of its first
// descriptor are written last. A token is the buffer id. [virtio 2.8.21]
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "base/limits.h"
#include "base/prefetch.h"
#include "virtio/driver_ring.h"
#include "virtio/packed_layout.h"
#include "virtio/split_layout.h"

namespace sluice {

class PackedDriver {
 public:
  // Index 0 and wrap counter 1, for either side. [vhost-user SET_VRING_BASE]
  static constexpr uint32_t kFreshBase = 0x8000'8000;
  static constexpr size_t descriptors_bytes(size_t size) { return packed_descriptors_bytes(size); }
  static constexpr size_t driver_area_bytes(size_t) { return kPackedEventBytes; }
  static constexpr size_t device_area_bytes(size_t) { return kPackedEventBytes; }

  // The areas are our own; that they are as DriverRingSetup says is asserted.
  explicit PackedDriver(const DriverRingSetup& setup);

  bool add(std::span<const BufferPiece> readable, std::span<const BufferPiece> writable,
           uint16_t token) {
    SLUICE_ASSERT(token < size_ && chains_[token].slots == 0);
    if (readable.size() + writable.size() != 1) return add_pieces(readable, writable, token);
    if (free_ == 0) return false;
    const bool is_writable = readable.empty();
    const BufferPiece& piece = is_writable ? writable[0] : readable[0];
    store_head(piece, token, is_writable ? kDescriptorWrite : uint16_t{0});
    post(token, 1, is_writable ? piece.bytes : 0, behind_one());
    return true;
  }

  // The device has written or read these lines last: asked for all at once, before the first of
  // them is written.
  void prefetch_free(size_t descriptors) const {
    constexpr uint32_t kLineDescriptors = 64 / sizeof(PackedDescriptor);
    const auto count = static_cast<uint32_t>(std::min<size_t>(descriptors, free_));
    for (uint32_t i = 0; i < count; i += kLineDescriptors) {
      const uint32_t index = next_.index() + i;
      prefetch_for_writing(
          descriptor_at(static_cast<uint16_t>(index < size_ ? index : index - size_)));
    }
  }

  void publish() {
    if (pending_slots_ == 0) return;
    // Everything else of the batch is visible before its first descriptor is available: pairs with
    // the device's acquire load of these flags. [virtio 2.8.21.1]
#if defined(__SANITIZE_THREAD__)
    // Thread sanitizer pairs accesses to one address only, and a device may look at the flags
    // alone. Before the store: behind it they may be the device's already.
    reinterpret_cast<SharedWord<uint16_t>*>(first_)[3].release_unchanged();
#endif
    first_->store_release(first_word_);
    kick_slots_ += pending_slots_;
    published_ += pending_chains_;
    pending_slots_ = pending_chains_ = 0;
  }
  bool device_wants_kick();

  Take take_used(UsedBuffer& out) {
    if (fault_ != DriverFault::none) [[unlikely]]
      return Take::broken;
    if (in_order_) return take_in_order(out);
    uint16_t id = 0;
    uint32_t bytes = 0;
    if (!load_used(used_, id, bytes)) return Take::empty;
    if (const DriverFault fault = check(id, bytes); fault != DriverFault::none) [[unlikely]]
      return break_with(fault);
    out = {id, bytes};
    release(id);
    return Take::used;
  }

  void disable_callbacks();
  bool enable_callbacks();
  bool enable_callbacks_delayed();

  uint32_t size() const { return size_; }
  size_t free_descriptors() const { return free_; }
  size_t descriptors_outstanding() const { return size_ - free_; }
  size_t outstanding() const { return published_ + pending_chains_; }
  bool broken() const { return fault_ != DriverFault::none; }
  DriverFault fault() const { return fault_; }
  bool take_back(uint16_t& token);

 private:
  // What we know of a buffer id.
  struct Posted {
    uint32_t room = 0;   // writable bytes
    uint16_t slots = 0;  // descriptors of the ring; 0: not outstanding
    uint16_t reserved_ = 0;
  };

  bool add_pieces(std::span<const BufferPiece> readable, std::span<const BufferPiece> writable,
                  uint16_t token);
  bool add_indirect(std::span<const BufferPiece> readable, std::span<const BufferPiece> writable,
                    uint16_t token);
  uint8_t* descriptor_at(uint16_t index) const {
    return descriptors_ + sizeof(PackedDescriptor) * index;
  }
  // Length, id and flags of a descriptor.
  SharedWord<uint64_t>& second_at(uint16_t index) const {
    return *reinterpret_cast<SharedWord<uint64_t>*>(descriptor_at(index) +
                                                    offsetof(PackedDescriptor, bytes));
  }
  // The first descriptor of a chain, at next_. Its flags wait if it is the first of a batch.
  void store_head(BufferPiece piece, uint16_t token, uint16_t flags) {
    flags |= next_.available_flags();
    if (pending_slots_ != 0) [[likely]]
      return store_descriptor(next_, piece, token, flags);
    // The device may look here at any moment: publish() writes what it looks at, as one word.
    first_ = &second_at(next_.index());
    first_word_ = PackedSecond(piece.bytes, token, flags).word();
    reinterpret_cast<SharedWord<uint64_t>*>(descriptor_at(next_.index()))
        ->store_relaxed(raw(piece.address));
  }
  void store_descriptor(RingPosition at, BufferPiece piece, uint16_t token, uint16_t flags) {
    // The device does not look here before the batch's first flags are written. In the words that
    // it is read in: a processor passes on a store to a load of the same width at once.
    reinterpret_cast<SharedWord<uint64_t>*>(descriptor_at(at.index()))
        ->store_relaxed(raw(piece.address));
    second_at(at.index()).store_relaxed(PackedSecond(piece.bytes, token, flags).word());
  }
  // Accounts for the chain whose descriptors were written at next_ on, and goes on behind it.
  void post(uint16_t token, uint16_t slots, uint32_t room, RingPosition behind) {
    chains_[token].room = room;
    chains_[token].slots = slots;
    if (in_order_) token_at_[next_.index()] = token;
    next_ = behind;
    free_ -= slots;
    pending_slots_ += slots;
    ++pending_chains_;
  }
  RingPosition behind_one() const {
    RingPosition behind = next_;
    behind.advance_one(size_);
    return behind;
  }
  // Whether there is a used descriptor at `at`, and what it says. Nothing that has not been
  // published can be used, whatever the flags say.
  bool load_used(RingPosition at, uint16_t& id, uint32_t& bytes) const {
    if (published_ == 0) return false;
    // Id, length and buffer are visible once the flags are: pairs with the device's release store
    // of them. All three are one word. [virtio 2.8.22]
    const PackedSecond second(second_at(at.index()).load_acquire());
    if (!at.shows_used(second.flags())) return false;
#if defined(__SANITIZE_THREAD__)
    // Thread sanitizer pairs accesses to one address only, and a device of a test releases the
    // flags alone. What this reads is not used.
    (void)reinterpret_cast<SharedWord<uint16_t>*>(&second_at(at.index()))[3].load_acquire();
#endif
    id = second.id();
    // Without WRITE the length is reserved, and may be what we wrote ourselves. [virtio 2.8.4]
    bytes = second.flags() & kDescriptorWrite ? second.bytes() : 0;
    return true;
  }
  // Whether the device may say this; what a length means nothing for becomes 0.
  DriverFault check(uint16_t id, uint32_t& bytes) const {
    if (id >= size_) return DriverFault::id_out_of_range;
    const Posted& posted = chains_[id];
    if (posted.slots == 0) return DriverFault::id_not_outstanding;
    if (bytes > posted.room) {
      if (posted.room != 0) return DriverFault::too_many_bytes;
      bytes = 0;
    }
    return DriverFault::none;
  }
  void release(uint16_t token) {
    Posted& posted = chains_[token];
    if (posted.slots == 1) [[likely]]
      used_.advance_one(size_);
    else
      used_.advance(posted.slots, size_);
    free_ += posted.slots;
    posted.slots = 0;
    --published_;
  }
  Take take_in_order(UsedBuffer& out);
  Take break_with(DriverFault fault);
  void ask_at(RingPosition event);
  bool is_used_beyond(uint32_t slots) const;

  uint32_t size_;
  bool event_idx_;
  bool in_order_;
  DriverFault fault_ = DriverFault::none;
  bool batch_open_ = false;  // IN_ORDER: an entry stands for buffers that are still to be given out
  RingPosition next_;        // where the next chain goes
  RingPosition used_;        // where the next used descriptor is expected
  uint32_t free_;            // descriptors
  uint32_t published_ = 0;   // chains that the device can see and has not given back
  uint32_t pending_slots_ = 0;  // added, not published
  uint32_t pending_chains_ = 0;
  SharedWord<uint64_t>* first_ = nullptr;  // the batch's first descriptor, and what goes there
  uint64_t first_word_ = 0;
  uint16_t event_flags_ = kPackedEventEnable;  // what we last wrote
  uint8_t* descriptors_;
  std::unique_ptr<Posted[]> chains_;      // by token
  std::unique_ptr<uint16_t[]> token_at_;  // IN_ORDER: by a chain's first position
  RingPosition kicked_;                   // up to here the device was asked about
  uint32_t kick_slots_ = 0;               // published since
  uint16_t batch_last_ = 0;  // IN_ORDER: the entry's id, and what it said of that buffer
  uint32_t batch_bytes_ = 0;
  uint32_t take_back_at_ = 0;
  PackedEvent* driver_event_;
  PackedEvent* device_event_;
  GuestSpan tables_;
  uint64_t tables_address_;
  uint16_t table_entries_;  // 0: no indirect tables
  uint16_t direct_pieces_max_;
};

}  // namespace sluice
