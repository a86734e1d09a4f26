// Any net header on any packet: taken apart, checked, built again, and its checksum completed.
//
// The input is a net header, what was negotiated, a length, where the frame's chunk ends, and bytes
// of the packet (repeated as often as needed). What agrees must be safe to act on, and the checksum
// must be the one that a plain implementation finds.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory/frame_pool.h"
#include "packet/checksum.h"
#include "packet/offload_check.h"
#include "testing/packet_builder.h"
#include "virtio/net_header.h"

namespace sluice {
namespace {

struct Case {
  NetHeaderBytes wire{};
  OffloadSet allowed;
  size_t head_bytes = 0;
  std::vector<uint8_t> packet;
};

constexpr size_t kFixedBytes = kNetHeaderBytes + 6;

Case read_case(const uint8_t* data, size_t bytes) {
  Case out;
  std::memcpy(out.wire.data(), data, kNetHeaderBytes);
  data += kNetHeaderBytes;
  out.allowed = {.csum = (data[0] & 1) == 0,  // zeros in the input allow everything
                 .tso4 = (data[0] & 2) == 0,
                 .tso6 = (data[0] & 4) == 0,
                 .tso_ecn = (data[0] & 8) == 0,
                 .uso = (data[0] & 16) == 0};
  const size_t packet_bytes = data[1] | size_t{data[2]} << 8 | size_t{data[3] & 1u} << 16;
  out.head_bytes = data[4] | size_t{data[5]} << 8;
  out.packet.resize(packet_bytes);
  const size_t given = bytes - kFixedBytes;
  for (size_t i = 0; i < packet_bytes && given > 0; ++i) out.packet[i] = data[6 + i % given];
  return out;
}

void check_round_trip(const OffloadMeta& meta) {
  const auto again = parse_net_header(build_net_header(meta, 3));
  SLUICE_ASSERT(again.has_value());
  SLUICE_ASSERT(again->needs_csum == meta.needs_csum && again->data_valid == meta.data_valid);
  SLUICE_ASSERT(again->gso_type == meta.gso_type && again->gso_ecn == meta.gso_ecn);
  SLUICE_ASSERT(again->gso_size == meta.gso_size && again->header_bytes == meta.header_bytes);
  SLUICE_ASSERT(again->csum_start == meta.csum_start && again->csum_offset == meta.csum_offset);
}

void check_agreed(const Case& given, const OffloadMeta& meta) {
  const size_t bytes = given.packet.size();
  SLUICE_ASSERT(bytes >= kPacketBytesMin && bytes <= kPacketBytesMax);
  SLUICE_ASSERT(meta.header_bytes <= bytes);
  const size_t field_end = size_t{meta.csum_start} + meta.csum_offset + 2;
  if (meta.needs_csum) {
    SLUICE_ASSERT(given.allowed.csum);
    SLUICE_ASSERT(meta.csum_start >= kPacketBytesMin && field_end <= bytes);
    SLUICE_ASSERT(meta.header_bytes >= std::min<size_t>(field_end, UINT16_MAX));
  }
  if (meta.gso_type != GsoType::none) SLUICE_ASSERT(meta.needs_csum && meta.gso_size > 0);
  SLUICE_ASSERT(meta.gso_type != GsoType::udp_fragment);
}

// Does the checksum in a frame whose tail lies in a slab, and compares.
void check_completion(const Case& given, const OffloadMeta& meta) {
  static auto pool = std::move(*FramePool::create({.frame_count = 64, .slab_count = 1}));
  static FrameCache cache(*pool);
  const size_t bytes = given.packet.size();
  const size_t field = size_t{meta.csum_start} + meta.csum_offset;
  const size_t head_bytes = std::min({given.head_bytes, bytes, kFrameDataBytesMax});
  if (field + 2 > head_bytes || bytes - head_bytes > kSlabBytes) return;
  Frame* frame = cache.take();
  std::memcpy(frame->data(), given.packet.data(), head_bytes);
  frame->set_single(head_bytes);
  if (bytes > head_bytes) {
    Slab* slab = cache.take_slab();
    std::memcpy(slab->data, given.packet.data() + head_bytes, bytes - head_bytes);
    frame->set_slab_tail(head_bytes, slab, bytes - head_bytes);
  }
  frame->offload() = meta;
  complete_checksum(*frame);
  uint32_t expected = 0xffff & ~reference_sum(std::span(given.packet).subspan(meta.csum_start));
  if (expected == 0 && meta.csum_offset == 6) expected = 0xffff;
  const uint32_t got = static_cast<uint32_t>(frame->data()[field] << 8 | frame->data()[field + 1]);
  SLUICE_ASSERT(got == expected);
  SLUICE_ASSERT(std::equal(given.packet.begin(),
                           given.packet.begin() + static_cast<std::ptrdiff_t>(field),
                           frame->data()));
  cache.give(frame);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace sluice;
  if (bytes < kFixedBytes) return -1;
  const Case given = read_case(data, bytes);
  auto meta = parse_net_header(given.wire);
  if (!meta) return 0;
  check_round_trip(*meta);
  if (check_offload(*meta, given.packet.size(), given.allowed)) return 0;
  check_agreed(given, *meta);
  check_round_trip(*meta);
  if (meta->needs_csum) check_completion(given, *meta);
  return 0;
}
