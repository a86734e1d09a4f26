// The layout of a packed virtqueue in guest memory, shared by the device and the driver side.
// Little-endian, as are the machines that we run on. [virtio 2.8]
//
// One ring of descriptors that both sides write, and one event suppression structure a side. Who
// owns a descriptor is said by two bits of its flags, read against a wrap counter that each side
// keeps to itself and turns over whenever it passes the end of the ring.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "base/shared_word.h"

namespace sluice {

// [virtio 2.8.13]
struct PackedDescriptor {
  uint64_t address;
  uint32_t bytes;
  uint16_t id;
  uint16_t flags;
};
static_assert(sizeof(PackedDescriptor) == 16);

// NEXT, WRITE and INDIRECT are as in split rings (split_layout.h). [virtio 2.8.1]
inline constexpr uint16_t kPackedAvail = 1 << 7;
inline constexpr uint16_t kPackedUsed = 1 << 15;

// The two bits that ownership is read from, for a wrap counter. [virtio 2.8.1]
inline constexpr uint16_t packed_available_flags(bool wrap) {
  return wrap ? kPackedAvail : kPackedUsed;
}
inline constexpr uint16_t packed_used_flags(bool wrap) {
  return wrap ? uint16_t{kPackedAvail | kPackedUsed} : uint16_t{0};
}
inline constexpr uint16_t kPackedOwnerMask = kPackedAvail | kPackedUsed;

// What one side wishes to hear: written by that side, read by the other. Both halves lie in one
// aligned word, but may be written one after the other. [virtio 2.8.14]
struct PackedEvent {
  SharedWord<uint16_t> offset_wrap;  // bits 0-14 descriptor offset, bit 15 wrap counter
  SharedWord<uint16_t> flags;        // kPackedEvent…
};
static_assert(sizeof(PackedEvent) == 4);
inline constexpr uint16_t kPackedEventEnable = 0;
inline constexpr uint16_t kPackedEventDisable = 1;
inline constexpr uint16_t kPackedEventDescriptor = 2;  // only with EVENT_IDX; 3 is reserved

inline constexpr size_t packed_descriptors_bytes(size_t size) { return 16 * size; }
inline constexpr size_t kPackedEventBytes = sizeof(PackedEvent);

// The second half of a descriptor as one word, so that whoever looks meanwhile sees all of it or
// nothing: the flags, in the uppermost bits, say whether the rest counts. It stays one word also
// with us: a processor passes a store on to a load of the same width at once, to a wider one late.
class PackedSecond {
 public:
  PackedSecond() = default;
  explicit PackedSecond(uint64_t word) : word_(word) {}
  PackedSecond(uint32_t bytes, uint16_t id, uint16_t flags)
      : word_(bytes | uint64_t{id} << 32 | uint64_t{flags} << 48) {}
  uint64_t word() const { return word_; }
  uint32_t bytes() const { return static_cast<uint32_t>(word_); }
  uint16_t id() const { return static_cast<uint16_t>(word_ >> 32); }
  uint16_t flags() const { return static_cast<uint16_t>(word_ >> 48); }

 private:
  uint64_t word_ = 0;
};

// A place in a packed ring of any size, with the wrap counter that goes with it. A fresh ring is at
// 0 with the counter at 1. The counter is kept as the ownership bits that follow from it.
// [virtio 2.8.1]
class RingPosition {
 public:
  RingPosition() = default;
  RingPosition(uint16_t index, bool wrap) : index_(index), owner_(packed_available_flags(wrap)) {}
  // Bits 0-14 and 15, as event words and resume bases carry it.
  static RingPosition from_word(uint16_t word) {
    return {static_cast<uint16_t>(word & 0x7fff), (word & 0x8000) != 0};
  }
  uint16_t word() const { return static_cast<uint16_t>(index_ | (wrap() ? 0x8000 : 0)); }

  uint16_t index() const { return index_; }
  bool wrap() const { return owner_ == kPackedAvail; }
  // What packed_available_flags() and packed_used_flags() say of wrap().
  uint16_t available_flags() const { return owner_; }
  uint16_t used_flags() const {
    return static_cast<uint16_t>((owner_ & kPackedAvail) * (1 + kPackedUsed / kPackedAvail));
  }
  bool shows_available(uint16_t flags) const { return (flags & kPackedOwnerMask) == owner_; }
  bool shows_used(uint16_t flags) const { return (flags & kPackedOwnerMask) == used_flags(); }

  void advance_one(uint32_t size) {
    if (++index_ < size) [[likely]]
      return;
    index_ = 0;
    owner_ ^= kPackedOwnerMask;
  }
  // `count` slots on, at most once around: a chain may cover the whole ring. [virtio 2.8.17]
  void advance(uint32_t count, uint32_t size) {
    const uint32_t next = index_ + count;
    index_ = static_cast<uint16_t>(next);
    if (next < size) [[likely]]
      return;
    SLUICE_ASSERT(count <= size);
    index_ = static_cast<uint16_t>(next - size);
    owner_ ^= kPackedOwnerMask;
  }
  void retreat(uint32_t count, uint32_t size) {
    SLUICE_ASSERT(count <= size);
    owner_ ^= count > index_ ? kPackedOwnerMask : 0;
    index_ = static_cast<uint16_t>(count > index_ ? index_ + size - count : index_ - count);
  }
  bool operator==(const RingPosition&) const = default;

 private:
  uint16_t index_ = 0;
  uint16_t owner_ = kPackedAvail;
};

}  // namespace sluice
