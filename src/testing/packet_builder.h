// PacketBuilder: Ethernet frames for tests, layer by layer, with right lengths and checksums.
//
// What: Ethernet, VLAN tags, IPv4 (with options), IPv6 (with extension headers), UDP, TCP, payload.
// The checksums come from a plain reference implementation of its own, so that packet/checksum.h
// can be tested with it. What not: a check; wrong packets are made by writing over what build()
// gave, whose offsets are known.
//
//   packet().eth().ipv4().udp(53).payload(100).build().bytes
//   packet().eth().vlan(5).ipv6().tcp(80, 1234, {.flags = 0x18}).payload(1400).build_needing_csum()
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/frame.h"

namespace sluice {

// The Internet checksum as RFC 1071 words it: big-endian 16-bit words, not inverted. An odd last
// byte counts as the upper half of a word.
uint32_t reference_sum(std::span<const uint8_t> bytes, uint32_t sum = 0);

struct BuiltPacket {
  std::vector<uint8_t> bytes;
  size_t l3_offset = 0;
  size_t l4_offset = 0;
  size_t payload_offset = 0;
  OffloadMeta offload;
};

struct Ipv4Fields {
  std::array<uint8_t, 4> source{192, 0, 2, 1};
  std::array<uint8_t, 4> destination{192, 0, 2, 2};
  uint8_t tos = 0;
  uint8_t ttl = 64;
  uint16_t id = 1;
  uint16_t fragment = 0x4000;  // flags and offset as they lie: "do not fragment"
  uint8_t option_bytes = 0;    // a multiple of 4, filled with no-operations
};

struct Ipv6Fields {
  std::array<uint8_t, 16> source{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  std::array<uint8_t, 16> destination{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint8_t extension_count = 0;  // destination option headers of 8 bytes
};

struct TcpFields {
  uint32_t sequence = 1;
  uint32_t acknowledgement = 1;
  uint8_t flags = 0x10;      // ACK
  uint8_t option_bytes = 0;  // a multiple of 4, filled with no-operations
};

class PacketBuilder {
 public:
  PacketBuilder& eth();
  PacketBuilder& vlan(uint16_t id, uint16_t tag_type = 0x8100);
  PacketBuilder& ipv4(const Ipv4Fields& fields = {});
  PacketBuilder& ipv6(const Ipv6Fields& fields = {});
  PacketBuilder& udp(uint16_t destination_port = 9, uint16_t source_port = 1000);
  PacketBuilder& tcp(uint16_t destination_port = 80, uint16_t source_port = 1000,
                     const TcpFields& fields = {});
  // `bytes` bytes counting up, or these bytes.
  PacketBuilder& payload(size_t bytes);
  PacketBuilder& payload(std::span<const uint8_t> bytes);

  // Every checksum is in place.
  BuiltPacket build() const;
  // The transport checksum is left to do: its field holds the pseudo-header's sum, and the offload
  // says where. [virtio 5.1.6.2]
  BuiltPacket build_needing_csum() const;

 private:
  enum class Network : uint8_t { none, ipv4, ipv6 };
  enum class Transport : uint8_t { none, udp, tcp };
  uint8_t protocol() const;
  void put_network(std::vector<uint8_t>& out, size_t transport_bytes) const;
  void put_transport(std::vector<uint8_t>& out) const;
  uint32_t pseudo_sum(size_t transport_bytes) const;
  size_t checksum_offset() const { return transport_ == Transport::udp ? 6 : 16; }
  BuiltPacket lay_out() const;

  std::vector<uint8_t> link_;  // addresses and tags, without the last type
  Network network_ = Network::none;
  Transport transport_ = Transport::none;
  Ipv4Fields ipv4_;
  Ipv6Fields ipv6_;
  TcpFields tcp_;
  uint16_t source_port_ = 0;
  uint16_t destination_port_ = 0;
  std::vector<uint8_t> payload_;
};

inline PacketBuilder packet() { return {}; }

}  // namespace sluice
