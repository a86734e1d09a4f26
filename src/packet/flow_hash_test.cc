#include "packet/flow_hash.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing/packet_builder.h"

namespace sluice {
namespace {

const ToeplitzKey kKey{default_hash_key()};

using Ipv4Address = std::array<uint8_t, 4>;
using Ipv6Address = std::array<uint8_t, 16>;

// The verification suite that Microsoft publishes for receive-side scaling.
struct Ipv4Vector {
  Ipv4Address destination;
  uint16_t destination_port;
  Ipv4Address source;
  uint16_t source_port;
  uint32_t addresses_hash;
  uint32_t ports_hash;
};
constexpr Ipv4Vector kIpv4Vectors[] = {
    {{161, 142, 100, 80}, 1766, {66, 9, 149, 187}, 2794, 0x323e8fc2, 0x51ccc178},
    {{65, 69, 140, 83}, 4739, {199, 92, 111, 2}, 14230, 0xd718262a, 0xc626b0ea},
    {{12, 22, 207, 184}, 38024, {24, 19, 198, 95}, 12898, 0xd2d0a5de, 0x5c2b394a},
    {{209, 142, 163, 6}, 2217, {38, 27, 205, 30}, 48228, 0x82989176, 0xafc7327f},
    {{202, 188, 127, 2}, 1303, {153, 39, 163, 191}, 44251, 0x5d1809c5, 0x10e828a2},
};

struct Ipv6Vector {
  Ipv6Address destination;
  uint16_t destination_port;
  Ipv6Address source;
  uint16_t source_port;
  uint32_t addresses_hash;
  uint32_t ports_hash;
};
constexpr Ipv6Vector kIpv6Vectors[] = {
    {{0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1},
     1766,
     {0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7},
     2794,
     0x2cc18cd5,
     0x40207d3d},
    {{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
     4739,
     {0x3f, 0xfe, 0x05, 0x01, 0, 8, 0, 0, 0x02, 0x60, 0x97, 0xff, 0xfe, 0x40, 0xef, 0xab},
     14230,
     0x0f0c461c,
     0xdde51bbf},
    {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x00, 0xf8, 0xff, 0xfe, 0x21, 0x67, 0xcf},
     38024,
     {0x3f, 0xfe, 0x19, 0x00, 0x45, 0x45, 0, 3, 0x02, 0x00, 0xf8, 0xff, 0xfe, 0x21, 0x67, 0xcf},
     44251,
     0x4b61e985,
     0x02d1feef},
};

PacketBuilder ipv4_of(const Ipv4Vector& row) {
  return packet().eth().ipv4({.source = row.source, .destination = row.destination});
}
PacketBuilder ipv6_of(const Ipv6Vector& row) {
  return packet().eth().ipv6({.source = row.source, .destination = row.destination});
}

void expect_hash(PacketBuilder builder, uint32_t types, HashReport report, uint32_t value) {
  const FlowHash hash = hash_flow(builder.build().bytes, types, kKey);
  EXPECT_EQ(hash.report, report);
  EXPECT_EQ(hash.value, value);
}

TEST(FlowHash, AgreesWithThePublishedVectorsOverIpv4) {
  for (const Ipv4Vector& row : kIpv4Vectors) {
    const uint16_t to = row.destination_port, from = row.source_port;
    expect_hash(ipv4_of(row).tcp(to, from), flow_type::kAll, HashReport::tcpv4, row.ports_hash);
    expect_hash(ipv4_of(row).udp(to, from), flow_type::kAll, HashReport::udpv4, row.ports_hash);
    expect_hash(ipv4_of(row).tcp(to, from), flow_type::kIpv4, HashReport::ipv4, row.addresses_hash);
  }
}

TEST(FlowHash, AgreesWithThePublishedVectorsOverIpv6) {
  for (const Ipv6Vector& row : kIpv6Vectors) {
    const uint16_t to = row.destination_port, from = row.source_port;
    expect_hash(ipv6_of(row).tcp(to, from), flow_type::kAll, HashReport::tcpv6, row.ports_hash);
    expect_hash(ipv6_of(row).udp(to, from), flow_type::kAll, HashReport::udpv6, row.ports_hash);
    expect_hash(ipv6_of(row).udp(to, from), flow_type::kIpv6, HashReport::ipv6, row.addresses_hash);
  }
}

struct ChoiceRow {
  const char* what;
  PacketBuilder packet;
  uint32_t types;
  HashReport report;
};

TEST(FlowHash, TakesTheMostSpecificTypeThatIsEnabled) {
  const Ipv4Vector& four = kIpv4Vectors[0];
  const Ipv6Vector& six = kIpv6Vectors[0];
  const ChoiceRow rows[] = {
      {"nothing enabled", ipv4_of(four).tcp(), 0, HashReport::none},
      {"TCP only, and UDP comes", ipv4_of(four).udp(), flow_type::kTcpv4, HashReport::none},
      {"UDP only, and TCP comes", ipv4_of(four).tcp(), flow_type::kUdpv4, HashReport::none},
      {"the other family", ipv4_of(four).tcp(), flow_type::kTcpv6 | flow_type::kIpv6,
       HashReport::none},
      {"the other family", ipv6_of(six).tcp(), flow_type::kTcpv4 | flow_type::kIpv4,
       HashReport::none},
      {"addresses when ports are not enabled", ipv4_of(four).udp(),
       flow_type::kTcpv4 | flow_type::kIpv4, HashReport::ipv4},
      {"behind a VLAN tag", packet().eth().vlan(7).ipv4().udp(), flow_type::kAll,
       HashReport::udpv4},
      {"behind two", packet().eth().vlan(7, 0x88a8).vlan(8).ipv6().tcp(), flow_type::kAll,
       HashReport::tcpv6},
      {"a first fragment", packet().eth().ipv4({.fragment = 0x2000}).udp(), flow_type::kAll,
       HashReport::ipv4},
      {"a later fragment", packet().eth().ipv4({.fragment = 0x0003}).udp(), flow_type::kAll,
       HashReport::ipv4},
      {"IPv4 options", packet().eth().ipv4({.option_bytes = 8}).tcp(), flow_type::kAll,
       HashReport::tcpv4},
      {"IPv6 extension headers", packet().eth().ipv6({.extension_count = 1}).tcp(), flow_type::kAll,
       HashReport::ipv6},
  };
  for (const ChoiceRow& row : rows) {
    SCOPED_TRACE(row.what);
    EXPECT_EQ(hash_flow(row.packet.build().bytes, row.types, kKey).report, row.report);
  }
}

TEST(FlowHash, ReadsNothingBehindThePacketAtAnyLength) {
  const PacketBuilder packets[] = {packet().eth().vlan(1).ipv4({.option_bytes = 40}).tcp(),
                                   packet().eth().vlan(1).vlan(2).ipv6().udp(), packet().eth()};
  for (const PacketBuilder& builder : packets) {
    const std::vector<uint8_t> whole = builder.build().bytes;
    for (size_t bytes = 0; bytes <= whole.size(); ++bytes) {
      // Exactly that long on the heap, where address sanitizer sees a byte too many.
      const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
      hash_flow(cut, flow_type::kAll, kKey);
    }
  }
}

TEST(FlowHash, IsTheSameForEveryPacketOfAFlow) {
  const auto of = [](size_t payload, uint8_t ttl, uint32_t sequence) {
    return hash_flow(packet()
                         .eth()
                         .ipv4({.ttl = ttl, .id = static_cast<uint16_t>(sequence)})
                         .tcp(80, 1000, {.sequence = sequence})
                         .payload(payload)
                         .build()
                         .bytes,
                     flow_type::kAll, kKey)
        .value;
  };
  EXPECT_EQ(of(0, 64, 1), of(1400, 63, 77));
}

TEST(ToeplitzKey, FillsAShortKeyWithZeros) {
  const std::array<uint8_t, 4> one{0x80, 0, 0, 0};
  const ToeplitzKey key{one};
  EXPECT_EQ(key.hash(std::array<uint8_t, 4>{0x80, 0, 0, 0}), 0x80000000u);
  EXPECT_EQ(key.hash(std::array<uint8_t, 4>{0, 0, 0, 1}), 0u);
  EXPECT_EQ(ToeplitzKey{{}}.hash(std::array<uint8_t, 4>{1, 2, 3, 4}), 0u);
}

}  // namespace
}  // namespace sluice
