// Internet checksums over bytes in our memory. [RFC 1071]
//
// Sums are kept as 64-bit ones' complement accumulators in memory byte order, so that runs of even
// length can be added in any order and the result is stored as it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/frame.h"

namespace sluice {

// Adds `bytes` of `data` to the accumulator. Only the last run of a sum may have an odd length.
uint64_t checksum_add(uint64_t sum, const uint8_t* data, size_t bytes);
// Folds an accumulator to 16 bits, not inverted, in memory byte order.
inline uint16_t checksum_fold(uint64_t sum) {
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

// Does what offload().needs_csum asks for: sums from csum_start to the end and stores the inverse
// at csum_start + csum_offset. For a destination that cannot do it itself. The field already holds
// the pseudo-header's sum. A UDP sum of zero becomes 0xffff. [virtio 5.1.6.2]
// The offload has been checked against the frame, and the field lies in the frame's chunk.
void complete_checksum(Frame& frame);

}  // namespace sluice
