#include "packet/flow_hash.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace sluice {
namespace {

constexpr size_t kEthernetBytes = 14;
constexpr size_t kVlanBytes = 4;
constexpr unsigned kVlanTagsMax = 2;
constexpr size_t kIpv4BytesMin = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kPortsBytes = 4;
constexpr uint8_t kTcp = 6;
constexpr uint8_t kUdp = 17;

uint16_t load_be16(const uint8_t* at) { return static_cast<uint16_t>(at[0] << 8 | at[1]); }

// The fields of a packet that can be hashed, as they lie in it.
struct Fields {
  std::span<const uint8_t> addresses;  // source, then destination; empty: no IP packet
  std::span<const uint8_t> ports;      // empty: none, or not to be relied on
  uint8_t protocol = 0;
  bool is_ipv6 = false;
};

Fields find_ipv4(std::span<const uint8_t> packet) {
  if (packet.size() < kIpv4BytesMin || packet[0] >> 4 != 4) return {};
  Fields fields{.addresses = packet.subspan(12, 8), .ports = {}, .protocol = packet[9]};
  const size_t header_bytes = size_t{4} * (packet[0] & 0x0f);
  const bool is_fragment = (load_be16(&packet[6]) & 0x3fff) != 0;  // MF, or an offset
  if (!is_fragment && header_bytes >= kIpv4BytesMin && packet.size() >= header_bytes + kPortsBytes)
    fields.ports = packet.subspan(header_bytes, kPortsBytes);
  return fields;
}

Fields find_ipv6(std::span<const uint8_t> packet) {
  if (packet.size() < kIpv6Bytes || packet[0] >> 4 != 6) return {};
  Fields fields{
      .addresses = packet.subspan(8, 32), .ports = {}, .protocol = packet[6], .is_ipv6 = true};
  if (packet.size() >= kIpv6Bytes + kPortsBytes)
    fields.ports = packet.subspan(kIpv6Bytes, kPortsBytes);
  return fields;
}

Fields find_fields(std::span<const uint8_t> packet) {
  size_t at = kEthernetBytes;
  if (packet.size() < at) return {};
  uint16_t type = load_be16(&packet[at - 2]);
  for (unsigned tags = 0; tags < kVlanTagsMax && (type == 0x8100 || type == 0x88a8); ++tags) {
    at += kVlanBytes;
    if (packet.size() < at) return {};
    type = load_be16(&packet[at - 2]);
  }
  if (type == 0x0800) return find_ipv4(packet.subspan(at));
  if (type == 0x86dd) return find_ipv6(packet.subspan(at));
  return {};
}

// The most specific enabled type that fits. [virtio 5.1.6.4.3.1], [virtio 5.1.6.4.3.2]
HashReport choose(const Fields& fields, uint32_t enabled) {
  if (fields.addresses.empty()) return HashReport::none;
  const bool has_ports = !fields.ports.empty();
  const uint32_t family = fields.is_ipv6 ? enabled >> 3 : enabled;
  unsigned found = 0;
  if ((family & flow_type::kTcpv4) && fields.protocol == kTcp && has_ports)
    found = 2;
  else if ((family & flow_type::kUdpv4) && fields.protocol == kUdp && has_ports)
    found = 3;
  else if (family & flow_type::kIpv4)
    found = 1;
  if (found == 0) return HashReport::none;
  return static_cast<HashReport>(found + (fields.is_ipv6 ? 3 : 0));
}

bool uses_ports(HashReport report) {
  return report != HashReport::ipv4 && report != HashReport::ipv6;
}

}  // namespace

// Bit i of the input, counted from its first byte's highest, adds the 32 bits of the key that begin
// at bit i. A table entry holds the sum for four bits.
ToeplitzKey::ToeplitzKey(std::span<const uint8_t> key) {
  SLUICE_ASSERT(key.size() <= kHashKeyBytes);
  std::array<uint8_t, kHashKeyBytes + 1> bytes{};
  std::copy(key.begin(), key.end(), bytes.begin());  // which may be none at all
  const auto window = [&](size_t bit) {
    uint64_t value = 0;
    for (size_t i = 0; i < 5; ++i) value = value << 8 | bytes[bit / 8 + i];
    return static_cast<uint32_t>(value >> (8 - bit % 8));
  };
  for (size_t nibble = 0; nibble < tables_.size(); ++nibble) {
    for (uint32_t input = 0; input < 16; ++input) {
      uint32_t sum = 0;
      for (size_t bit = 0; bit < 4; ++bit) {
        if (input & (8u >> bit)) sum ^= window(4 * nibble + bit);
      }
      tables_[nibble][input] = sum;
    }
  }
}

uint32_t ToeplitzKey::hash(std::span<const uint8_t> input) const {
  SLUICE_ASSERT(input.size() <= kHashInputBytesMax);
  uint32_t sum = 0;
  for (size_t i = 0; i < input.size(); ++i)
    sum ^= tables_[2 * i][input[i] >> 4] ^ tables_[2 * i + 1][input[i] & 0x0f];
  return sum;
}

const std::array<uint8_t, kHashKeyBytes>& default_hash_key() {
  static constexpr std::array<uint8_t, kHashKeyBytes> kKey = {
      0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
      0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
      0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
  return kKey;
}

FlowHash hash_flow(std::span<const uint8_t> packet, uint32_t enabled_types,
                   const ToeplitzKey& key) {
  const Fields fields = find_fields(packet);
  const HashReport report = choose(fields, enabled_types);
  if (report == HashReport::none) return {};
  std::array<uint8_t, kHashInputBytesMax> input;
  size_t bytes = fields.addresses.size();
  std::memcpy(input.data(), fields.addresses.data(), bytes);
  if (uses_ports(report)) {
    std::memcpy(input.data() + bytes, fields.ports.data(), kPortsBytes);
    bytes += kPortsBytes;
  }
  return {key.hash({input.data(), bytes}), report};
}

}  // namespace sluice
