// The virtio-net header between its wire form and OffloadMeta. [virtio 5.1.6]
//
// Pure: bytes in, values out. Whether the values agree with the frame is packet/offload_check.h's
// question. The same 10 bytes are TAP's vnet header.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "memory/frame.h"

namespace sluice {

inline constexpr size_t kNetHeaderBytesLegacy = 10;
inline constexpr size_t kNetHeaderBytes = 12;      // with num_buffers: MRG_RXBUF or VERSION_1
inline constexpr size_t kNetHeaderBytesHash = 20;  // with a hash behind that: HASH_REPORT
inline constexpr size_t kNumBuffersOffset = 10;

static_assert(std::endian::native == std::endian::little, "words are stored as they lie");
using NetHeaderBytes = std::array<uint8_t, kNetHeaderBytes>;

// How long the header is for these features. [virtio 5.1.6.1]
size_t net_header_bytes(uint64_t features);

// Takes the header apart. Unknown flag bits are ignored; checksum fields are zeroed when NEEDS_CSUM
// is clear. nullopt: a gso_type that the specification does not know.
std::optional<OffloadMeta> parse_net_header(const NetHeaderBytes& wire);
// Whether the header leaves nothing to do: no checksum, no segmentation. The usual small packet.
inline bool asks_for_nothing(const NetHeaderBytes& wire) {
  return ((wire[0] & 1 /* NEEDS_CSUM */) | wire[1]) == 0;
}
// The wire form; num_buffers is stored as given. Built in two words, since it is stored for every
// packet: what is written in bytes and read back in words costs a stall.
inline NetHeaderBytes build_net_header(const OffloadMeta& meta, uint16_t num_buffers) {
  const uint64_t flags = (meta.needs_csum ? 1u : 0u) | (meta.data_valid ? 2u : 0u);
  const uint64_t type = static_cast<uint64_t>(meta.gso_type) | (meta.gso_ecn ? 0x80u : 0u);
  const uint64_t first = flags | type << 8 | uint64_t{meta.header_bytes} << 16 |
                         uint64_t{meta.gso_size} << 32 | uint64_t{meta.csum_start} << 48;
  const uint32_t second = meta.csum_offset | uint32_t{num_buffers} << 16;
  NetHeaderBytes wire;
  std::memcpy(wire.data(), &first, sizeof first);
  std::memcpy(wire.data() + sizeof first, &second, sizeof second);
  return wire;
}
// What follows the first 12 bytes with HASH_REPORT. [virtio 5.1.6]
using HashReportBytes = std::array<uint8_t, kNetHeaderBytesHash - kNetHeaderBytes>;
HashReportBytes build_hash_report(uint32_t hash, uint16_t kind);

}  // namespace sluice
