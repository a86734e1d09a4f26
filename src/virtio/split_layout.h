// The layout of a split virtqueue in guest memory, shared by the device and the driver side.
// Little-endian, as are the machines that we run on. [virtio 2.7]
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/shared_word.h"

namespace sluice {

static_assert(std::endian::native == std::endian::little, "ring words are used as they lie");

// [virtio 2.7.5]
struct SplitDescriptor {
  uint64_t address;
  uint32_t bytes;
  uint16_t flags;
  uint16_t next;
};
static_assert(sizeof(SplitDescriptor) == 16);

inline constexpr uint16_t kDescriptorNext = 1;
inline constexpr uint16_t kDescriptorWrite = 2;
inline constexpr uint16_t kDescriptorIndirect = 4;

// [virtio 2.7.6], [virtio 2.7.8]
inline constexpr uint16_t kAvailNoInterrupt = 1;
inline constexpr uint16_t kUsedNoNotify = 1;

// The available ring: written by the driver. ring[size] is used_event.
struct SplitAvail {
  SharedWord<uint16_t> flags;
  SharedWord<uint16_t> index;
  SharedWord<uint16_t> ring[];
};

struct SplitUsedElement {
  SharedWord<uint32_t> id;
  SharedWord<uint32_t> bytes;
};

// The used ring: written by the device. Behind ring[size] lies avail_event.
struct SplitUsed {
  SharedWord<uint16_t> flags;
  SharedWord<uint16_t> index;
  SplitUsedElement ring[];
};

inline constexpr size_t split_descriptors_bytes(size_t size) { return 16 * size; }
inline constexpr size_t split_available_bytes(size_t size) { return 6 + 2 * size; }
inline constexpr size_t split_used_bytes(size_t size) { return 6 + 8 * size; }

// Whether an index that moved from `old_index` to `new_index` passed `event`, that is whether the
// other side asked to be told. All modulo 2^16. [virtio 2.7.10]
inline constexpr bool event_is_due(uint16_t event, uint16_t new_index, uint16_t old_index) {
  return static_cast<uint16_t>(new_index - event - 1) <
         static_cast<uint16_t>(new_index - old_index);
}

}  // namespace sluice
