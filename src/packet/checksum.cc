#include "packet/checksum.h"

#include <cstring>

namespace sluice {
namespace {

// Byte offset of the checksum field in a UDP header, by which UDP is told from TCP (16): a UDP sum
// of zero would mean "no checksum". [RFC 768]
constexpr uint16_t kUdpChecksumOffset = 6;

uint16_t swap_bytes(uint16_t value) { return static_cast<uint16_t>(value << 8 | value >> 8); }

}  // namespace

uint64_t checksum_add(uint64_t sum, const uint8_t* data, size_t bytes) {
  // 32-bit words into a 64-bit accumulator: cannot overflow below 2^32 words.
  while (bytes >= 4) {
    uint32_t word;
    std::memcpy(&word, data, sizeof word);
    sum += word;
    data += 4;
    bytes -= 4;
  }
  if (bytes >= 2) {
    uint16_t word;
    std::memcpy(&word, data, sizeof word);
    sum += word;
    data += 2;
    bytes -= 2;
  }
  if (bytes == 1) {
    uint16_t word = 0;
    std::memcpy(&word, data, 1);
    sum += word;
  }
  return sum;
}

void complete_checksum(Frame& frame) {
  OffloadMeta& offload = frame.offload();
  const size_t start = offload.csum_start;
  const size_t field = start + offload.csum_offset;
  SLUICE_ASSERT(offload.needs_csum && frame.tail_kind() != TailKind::spans);
  SLUICE_ASSERT(field + 2 <= frame.head_bytes());
  const size_t head_run = frame.head_bytes() - start;
  uint64_t sum = checksum_add(0, frame.data() + start, head_run);
  if (frame.tail_kind() == TailKind::slab) {
    const uint16_t tail = checksum_fold(checksum_add(0, frame.slab()->data, frame.tail_bytes()));
    // A tail that begins at an odd place has its bytes in the other half of each word.
    sum = checksum_fold(sum) + uint64_t{head_run % 2 != 0 ? swap_bytes(tail) : tail};
  }
  uint16_t result = static_cast<uint16_t>(~checksum_fold(sum));
  if (result == 0 && offload.csum_offset == kUdpChecksumOffset) result = 0xffff;
  std::memcpy(frame.data() + field, &result, sizeof result);
  offload.needs_csum = false;
  offload.csum_start = offload.csum_offset = 0;
}

}  // namespace sluice
