#include "testing/packet_builder.h"

#include <numeric>

#include "base/assert.h"

namespace sluice {
namespace {

void put8(std::vector<uint8_t>& out, size_t value) { out.push_back(static_cast<uint8_t>(value)); }
void put16(std::vector<uint8_t>& out, size_t value) {
  put8(out, value >> 8);
  put8(out, value);
}
void put32(std::vector<uint8_t>& out, size_t value) {
  put16(out, value >> 16);
  put16(out, value);
}
template <typename Bytes>
void put_bytes(std::vector<uint8_t>& out, const Bytes& bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}
void store16(std::vector<uint8_t>& out, size_t at, uint32_t value) {
  out[at] = static_cast<uint8_t>(value >> 8);
  out[at + 1] = static_cast<uint8_t>(value);
}

uint32_t fold(uint32_t sum) {
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

constexpr uint8_t kProtocolTcp = 6, kProtocolUdp = 17, kProtocolNone = 59, kDestinationOptions = 60;

}  // namespace

uint32_t reference_sum(std::span<const uint8_t> bytes, uint32_t sum) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    sum += i % 2 == 0 ? uint32_t{bytes[i]} << 8 : bytes[i];
    sum = fold(sum);
  }
  return sum;
}

PacketBuilder& PacketBuilder::eth() {
  link_ = {0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01};
  return *this;
}

PacketBuilder& PacketBuilder::vlan(uint16_t id, uint16_t tag_type) {
  put16(link_, tag_type);
  put16(link_, id);
  return *this;
}

PacketBuilder& PacketBuilder::ipv4(const Ipv4Fields& fields) {
  SLUICE_ASSERT(fields.option_bytes % 4 == 0 && fields.option_bytes <= 40);
  network_ = Network::ipv4;
  ipv4_ = fields;
  return *this;
}

PacketBuilder& PacketBuilder::ipv6(const Ipv6Fields& fields) {
  network_ = Network::ipv6;
  ipv6_ = fields;
  return *this;
}

PacketBuilder& PacketBuilder::udp(uint16_t destination_port, uint16_t source_port) {
  transport_ = Transport::udp;
  destination_port_ = destination_port;
  source_port_ = source_port;
  return *this;
}

PacketBuilder& PacketBuilder::tcp(uint16_t destination_port, uint16_t source_port,
                                  const TcpFields& fields) {
  SLUICE_ASSERT(fields.option_bytes % 4 == 0 && fields.option_bytes <= 40);
  transport_ = Transport::tcp;
  destination_port_ = destination_port;
  source_port_ = source_port;
  tcp_ = fields;
  return *this;
}

PacketBuilder& PacketBuilder::payload(size_t bytes) {
  payload_.resize(bytes);
  std::iota(payload_.begin(), payload_.end(), uint8_t{0});
  return *this;
}

PacketBuilder& PacketBuilder::payload(std::span<const uint8_t> bytes) {
  payload_.assign(bytes.begin(), bytes.end());
  return *this;
}

uint8_t PacketBuilder::protocol() const {
  switch (transport_) {
    case Transport::none:
      return kProtocolNone;
    case Transport::udp:
      return kProtocolUdp;
    case Transport::tcp:
      return kProtocolTcp;
  }
  return kProtocolNone;
}

void PacketBuilder::put_network(std::vector<uint8_t>& out, size_t transport_bytes) const {
  const size_t begin = out.size();
  if (network_ == Network::ipv4) {
    const size_t header_bytes = 20 + size_t{ipv4_.option_bytes};
    put8(out, 0x40 | header_bytes / 4);
    put8(out, ipv4_.tos);
    put16(out, header_bytes + transport_bytes);
    put16(out, ipv4_.id);
    put16(out, ipv4_.fragment);
    put8(out, ipv4_.ttl);
    put8(out, protocol());
    put16(out, 0);
    put_bytes(out, ipv4_.source);
    put_bytes(out, ipv4_.destination);
    out.insert(out.end(), ipv4_.option_bytes, 1);
    store16(out, begin + 10, 0xffff & ~reference_sum(std::span(out).subspan(begin)));
  } else if (network_ == Network::ipv6) {
    const size_t extension_bytes = size_t{8} * ipv6_.extension_count;
    put32(out, 0x60000000 | uint32_t{ipv6_.traffic_class} << 20);
    put16(out, extension_bytes + transport_bytes);
    put8(out, ipv6_.extension_count > 0 ? kDestinationOptions : protocol());
    put8(out, ipv6_.hop_limit);
    put_bytes(out, ipv6_.source);
    put_bytes(out, ipv6_.destination);
    for (size_t i = 0; i < ipv6_.extension_count; ++i) {
      put8(out, i + 1 < ipv6_.extension_count ? kDestinationOptions : protocol());
      put8(out, 0);            // 8 bytes
      put32(out, 0x01040000);  // PadN
      put16(out, 0);
    }
  }
}

void PacketBuilder::put_transport(std::vector<uint8_t>& out) const {
  if (transport_ == Transport::udp) {
    put16(out, source_port_);
    put16(out, destination_port_);
    put16(out, 8 + payload_.size());
    put16(out, 0);
  } else if (transport_ == Transport::tcp) {
    put16(out, source_port_);
    put16(out, destination_port_);
    put32(out, tcp_.sequence);
    put32(out, tcp_.acknowledgement);
    put8(out, (20 + size_t{tcp_.option_bytes}) / 4 << 4);
    put8(out, tcp_.flags);
    put16(out, 65535);  // window
    put32(out, 0);      // checksum, urgent pointer
    out.insert(out.end(), tcp_.option_bytes, 1);
  }
}

uint32_t PacketBuilder::pseudo_sum(size_t transport_bytes) const {
  std::vector<uint8_t> header;
  if (network_ == Network::ipv4) {
    put_bytes(header, ipv4_.source);
    put_bytes(header, ipv4_.destination);
  } else {
    put_bytes(header, ipv6_.source);
    put_bytes(header, ipv6_.destination);
  }
  put32(header, transport_bytes);
  put32(header, protocol());
  return reference_sum(header);
}

BuiltPacket PacketBuilder::lay_out() const {
  BuiltPacket built;
  built.bytes = link_;
  if (network_ == Network::ipv4) put16(built.bytes, 0x0800);
  if (network_ == Network::ipv6) put16(built.bytes, 0x86dd);
  if (network_ == Network::none) put16(built.bytes, 0x88b5);  // for experiments
  built.l3_offset = built.bytes.size();
  std::vector<uint8_t> transport;
  put_transport(transport);
  const size_t transport_header_bytes = transport.size();
  put_bytes(transport, payload_);
  put_network(built.bytes, transport.size());
  built.l4_offset = built.bytes.size();
  built.payload_offset = built.l4_offset + transport_header_bytes;
  put_bytes(built.bytes, transport);
  return built;
}

BuiltPacket PacketBuilder::build() const {
  BuiltPacket built = lay_out();
  if (transport_ == Transport::none || network_ == Network::none) return built;
  const auto transport = std::span(built.bytes).subspan(built.l4_offset);
  uint32_t sum = 0xffff & ~reference_sum(transport, pseudo_sum(transport.size()));
  if (sum == 0 && transport_ == Transport::udp) sum = 0xffff;  // zero means "no checksum"
  store16(built.bytes, built.l4_offset + checksum_offset(), sum);
  return built;
}

BuiltPacket PacketBuilder::build_needing_csum() const {
  SLUICE_ASSERT(transport_ != Transport::none && network_ != Network::none);
  BuiltPacket built = lay_out();
  const size_t field = built.l4_offset + checksum_offset();
  store16(built.bytes, field, pseudo_sum(built.bytes.size() - built.l4_offset));
  built.offload.needs_csum = true;
  built.offload.csum_start = static_cast<uint16_t>(built.l4_offset);
  built.offload.csum_offset = static_cast<uint16_t>(checksum_offset());
  return built;
}

}  // namespace sluice
