#include "virtio/net_header.h"

#include <gtest/gtest.h>

#include "virtio/features.h"

namespace sluice {
namespace {

TEST(NetHeader, IsTwelveBytesWithNumBuffersElseTen) {
  EXPECT_EQ(net_header_bytes(0), 10u);
  EXPECT_EQ(net_header_bytes(feature::csum | feature::host_tso4), 10u);
  EXPECT_EQ(net_header_bytes(feature::mrg_rxbuf), 12u);
  EXPECT_EQ(net_header_bytes(feature::version_1), 12u);
  EXPECT_EQ(net_header_bytes(feature::version_1 | feature::mrg_rxbuf), 12u);
}

bool same(const OffloadMeta& a, const OffloadMeta& b) {
  return a.needs_csum == b.needs_csum && a.data_valid == b.data_valid && a.gso_type == b.gso_type &&
         a.gso_ecn == b.gso_ecn && a.header_bytes == b.header_bytes && a.gso_size == b.gso_size &&
         a.csum_start == b.csum_start && a.csum_offset == b.csum_offset;
}

struct ParseRow {
  const char* what;
  NetHeaderBytes wire;
  std::optional<OffloadMeta> meta;
};

TEST(NetHeader, IsTakenApartByTheSpecification) {
  // flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, num_buffers; little-endian
  const ParseRow rows[] = {
      {"nothing asked", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, OffloadMeta{}},
      {"a checksum",
       {1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0},
       OffloadMeta{.needs_csum = true, .csum_start = 34, .csum_offset = 16}},
      {"both bytes of each field",
       {1, 1, 0x02, 0x01, 0x04, 0x03, 0x06, 0x05, 0x08, 0x07, 0, 0},
       OffloadMeta{.needs_csum = true,
                   .gso_type = GsoType::tcp4,
                   .header_bytes = 0x0102,
                   .gso_size = 0x0304,
                   .csum_start = 0x0506,
                   .csum_offset = 0x0708}},
      {"checksum fields without the flag are ignored",
       {0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0},
       OffloadMeta{}},
      {"a size without a type is ignored",
       {0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0},
       OffloadMeta{}},
      {"ECN without a type is ignored", {0, 0x80, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}, OffloadMeta{}},
      {"data valid", {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, OffloadMeta{.data_valid = true}},
      {"unknown flags are ignored", {0xfc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, OffloadMeta{}},
      {"num_buffers is ignored", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, OffloadMeta{}},
      {"tcp6 with ECN",
       {1, 0x84, 0, 0, 100, 0, 54, 0, 16, 0, 0, 0},
       OffloadMeta{.needs_csum = true,
                   .gso_type = GsoType::tcp6,
                   .gso_ecn = true,
                   .gso_size = 100,
                   .csum_start = 54,
                   .csum_offset = 16}},
      {"ufo",
       {0, 3, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0},
       OffloadMeta{.gso_type = GsoType::udp_fragment, .gso_size = 100}},
      {"uso",
       {0, 5, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0},
       OffloadMeta{.gso_type = GsoType::udp_l4, .gso_size = 100}},
      {"type 2", {0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, std::nullopt},
      {"type 6", {0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, std::nullopt},
      {"type 0x7f", {0, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, std::nullopt},
      {"a tunnel over IPv4", {1, 0x21, 0, 0, 100, 0, 34, 0, 16, 0, 0, 0}, std::nullopt},
      {"a tunnel over IPv6", {1, 0x41, 0, 0, 100, 0, 34, 0, 16, 0, 0, 0}, std::nullopt},
      {"both tunnels", {1, 0x61, 0, 0, 100, 0, 34, 0, 16, 0, 0, 0}, std::nullopt},
  };
  for (const ParseRow& row : rows) {
    SCOPED_TRACE(row.what);
    const auto meta = parse_net_header(row.wire);
    ASSERT_EQ(meta.has_value(), row.meta.has_value());
    if (meta) {
      EXPECT_TRUE(same(*meta, *row.meta));
    }
  }
}

TEST(NetHeader, EveryTypeByteIsKnownOrRefused) {
  for (unsigned type = 0; type < 256; ++type) {
    const unsigned plain = type & 0x7f;
    const bool known = plain == 0 || plain == 1 || plain == 3 || plain == 4 || plain == 5;
    NetHeaderBytes wire{};
    wire[1] = static_cast<uint8_t>(type);
    EXPECT_EQ(parse_net_header(wire).has_value(), known) << type;
  }
}

TEST(NetHeader, IsBuiltAsItIsTakenApart) {
  const OffloadMeta metas[] = {
      {},
      {.data_valid = true},
      {.needs_csum = true, .csum_start = 0x1234, .csum_offset = 0x5678},
      {.needs_csum = true,
       .gso_type = GsoType::tcp6,
       .gso_ecn = true,
       .header_bytes = 0xabcd,
       .gso_size = 0xef01,
       .csum_start = 54,
       .csum_offset = 16},
      {.needs_csum = true, .gso_type = GsoType::udp_l4, .gso_size = 1, .csum_start = 34},
  };
  for (const OffloadMeta& meta : metas) {
    const auto wire = build_net_header(meta, 0x0203);
    EXPECT_EQ(wire[10], 3);
    EXPECT_EQ(wire[11], 2);
    const auto again = parse_net_header(wire);
    ASSERT_TRUE(again);
    EXPECT_TRUE(same(*again, meta));
  }
  EXPECT_EQ(build_net_header({}, 1), (NetHeaderBytes{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}));
}

// ---- Features ----------------------------------------------------------------------------------

TEST(Features, KeepOnlyWhatWasOfferedAndHasItsPrerequisites) {
  using namespace feature;
  const struct {
    const char* what;
    uint64_t acked, left;
  } rows[] = {
      {"tso without csum", host_tso4 | host_tso6 | host_ecn | host_uso, 0},
      {"tso with csum", csum | host_tso4, csum | host_tso4},
      {"ecn needs one tso", csum | host_tso6 | host_ecn, csum | host_tso6 | host_ecn},
      {"ecn alone", csum | host_ecn, csum},
      {"guest tso without guest csum", guest_tso4 | guest_tso6 | guest_ecn | guest_uso4, 0},
      {"guest tso with guest csum", guest_csum | guest_tso4 | guest_ecn,
       guest_csum | guest_tso4 | guest_ecn},
      {"csum of the other direction", csum | guest_tso4, csum},
      {"mq without control queue", mq | ctrl_rx | ctrl_vlan | guest_announce | ctrl_mac_addr, 0},
      {"mq with control queue", mq | ctrl_vq, mq | ctrl_vq},
      {"packed without version 1", ring_packed | in_order, 0},
      {"packed with version 1", ring_packed | version_1, ring_packed | version_1},
      {"unknown bits", uint64_t{1} << 41 | uint64_t{1} << 62, 0},
  };
  const uint64_t offered = ~(uint64_t{1} << 41 | uint64_t{1} << 62);
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    EXPECT_EQ(sanitize_features(row.acked, offered), row.left);
    EXPECT_EQ(sanitize_features(row.acked, 0), 0u);
    EXPECT_EQ(sanitize_features(row.left, offered), row.left) << "nothing more to take away";
  }
}

TEST(Features, HaveNamesAndUnknownOnesNumbers) {
  EXPECT_EQ(feature_names(feature::mrg_rxbuf | feature::event_idx | uint64_t{1} << 62),
            (std::vector<std::string>{"mrg_rxbuf", "event_idx", "bit_62"}));
  EXPECT_TRUE(feature_names(0).empty());
}

}  // namespace
}  // namespace sluice
