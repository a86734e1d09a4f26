#include "virtio/net_header.h"

#include <cstring>

#include "virtio/features.h"

namespace sluice {
namespace {

constexpr uint8_t kFlagNeedsCsum = 1;
constexpr uint8_t kFlagDataValid = 2;
constexpr uint8_t kGsoEcn = 0x80;

uint16_t load_le16(const uint8_t* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }

void store_le16(uint8_t* at, uint16_t value) {
  at[0] = static_cast<uint8_t>(value);
  at[1] = static_cast<uint8_t>(value >> 8);
}

}  // namespace

size_t net_header_bytes(uint64_t features) {
  if (features & feature::hash_report) return kNetHeaderBytesHash;
  return (features & (feature::mrg_rxbuf | feature::version_1)) ? kNetHeaderBytes
                                                                : kNetHeaderBytesLegacy;
}

std::optional<OffloadMeta> parse_net_header(const NetHeaderBytes& wire) {
  OffloadMeta meta;
  meta.needs_csum = wire[0] & kFlagNeedsCsum;
  meta.data_valid = wire[0] & kFlagDataValid;
  switch (wire[1] & ~kGsoEcn) {
    case 0:
      meta.gso_type = GsoType::none;
      break;
    case 1:
      meta.gso_type = GsoType::tcp4;
      break;
    case 3:
      meta.gso_type = GsoType::udp_fragment;
      break;
    case 4:
      meta.gso_type = GsoType::tcp6;
      break;
    case 5:
      meta.gso_type = GsoType::udp_l4;
      break;
    default:
      return std::nullopt;
  }
  if (meta.gso_type != GsoType::none) {
    meta.gso_ecn = wire[1] & kGsoEcn;
    meta.gso_size = load_le16(&wire[4]);
  }
  meta.header_bytes = load_le16(&wire[2]);
  if (meta.needs_csum) {
    meta.csum_start = load_le16(&wire[6]);
    meta.csum_offset = load_le16(&wire[8]);
  }
  return meta;
}

HashReportBytes build_hash_report(uint32_t hash, uint16_t kind) {
  HashReportBytes wire{};
  store_le16(&wire[0], static_cast<uint16_t>(hash));
  store_le16(&wire[2], static_cast<uint16_t>(hash >> 16));
  store_le16(&wire[4], kind);
  return wire;
}

}  // namespace sluice
