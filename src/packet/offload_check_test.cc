#include "packet/offload_check.h"

#include <gtest/gtest.h>

#include "testing/packet_builder.h"

namespace sluice {
namespace {

constexpr OffloadSet kAll = {
    .csum = true, .tso4 = true, .tso6 = true, .tso_ecn = true, .uso = true};
constexpr OffloadSet kNone = {};

std::string name_of(const std::optional<DropReason>& reason) {
  return reason ? std::string(kDropReasonNames[static_cast<size_t>(*reason)]) : "agrees";
}

TEST(OffloadCheck, KnowsTheLengthsThatAPacketCanHave) {
  const struct {
    size_t bytes;
    const char* answer;
  } rows[] = {{0, "runt"},          {1, "runt"},
              {13, "runt"},         {14, "agrees"},
              {59, "agrees"},       {60, "agrees"},
              {1514, "agrees"},     {1518, "agrees"},
              {65'535, "agrees"},   {65'549, "agrees"},
              {65'550, "agrees"},   {65'557, "agrees"},
              {65'558, "oversize"}, {uint64_t{1} << 32, "oversize"}};
  for (const auto& row : rows) {
    OffloadMeta offload;
    EXPECT_EQ(name_of(check_offload(offload, row.bytes, kAll)), row.answer) << row.bytes;
  }
}

struct CsumRow {
  const char* what;
  uint16_t start, offset;
  size_t packet_bytes;
  const char* answer;
};

TEST(OffloadCheck, AChecksumFieldLiesBehindTheEthernetHeaderAndInTheFrame) {
  const CsumRow rows[] = {
      {"tcp v4", 34, 16, 100, "agrees"},
      {"ends with the packet", 34, 16, 52, "agrees"},
      {"one byte beyond", 34, 16, 51, "bad_net_header"},
      {"start at the end", 100, 0, 100, "bad_net_header"},
      {"start beyond", 101, 6, 100, "bad_net_header"},
      {"start far beyond", 0xffff, 0, 100, "bad_net_header"},
      {"both as large as can be", 0xffff, 0xffff, 65'549, "bad_net_header"},
      {"offset beyond", 34, 0xffff, 100, "bad_net_header"},
      {"in the Ethernet header", 0, 6, 100, "bad_net_header"},
      {"on the Ethernet type", 12, 0, 100, "bad_net_header"},
      {"one byte before layer 3", 13, 10, 100, "bad_net_header"},
      {"just behind Ethernet", 14, 10, 100, "agrees"},
      {"odd start", 35, 16, 100, "agrees"},
      {"odd offset", 34, 7, 100, "agrees"},
      {"in the part that stays in guest memory", 300, 16, 9000, "agrees"},
  };
  for (const CsumRow& row : rows) {
    SCOPED_TRACE(row.what);
    OffloadMeta offload{.needs_csum = true, .csum_start = row.start, .csum_offset = row.offset};
    EXPECT_EQ(name_of(check_offload(offload, row.packet_bytes, kAll)), row.answer);
    // Without the wish the fields mean nothing.
    offload = {.csum_start = row.start, .csum_offset = row.offset};
    EXPECT_EQ(name_of(check_offload(offload, row.packet_bytes, kAll)), "agrees");
  }
}

TEST(OffloadCheck, WhatWasNotNegotiatedIsRefusedAndNothingElseIs) {
  struct Row {
    const char* what;
    OffloadMeta offload;
    OffloadSet enough;
  };
  const auto asks = [](GsoType type, bool ecn = false) {
    return OffloadMeta{.needs_csum = true,
                       .gso_type = type,
                       .gso_ecn = ecn,
                       .gso_size = 1000,
                       .csum_start = 34,
                       .csum_offset = 16};
  };
  const Row rows[] = {
      {"csum", asks(GsoType::none), {.csum = true}},
      {"tso4", asks(GsoType::tcp4), {.csum = true, .tso4 = true}},
      {"tso6", asks(GsoType::tcp6), {.csum = true, .tso6 = true}},
      {"tso4 ecn", asks(GsoType::tcp4, true), {.csum = true, .tso4 = true, .tso_ecn = true}},
      {"uso", asks(GsoType::udp_l4), {.csum = true, .uso = true}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    for (unsigned bits = 0; bits < 32; ++bits) {
      const OffloadSet allowed{.csum = (bits & 1) != 0,
                               .tso4 = (bits & 2) != 0,
                               .tso6 = (bits & 4) != 0,
                               .tso_ecn = (bits & 8) != 0,
                               .uso = (bits & 16) != 0};
      const bool is_enough = allowed.csum >= row.enough.csum && allowed.tso4 >= row.enough.tso4 &&
                             allowed.tso6 >= row.enough.tso6 &&
                             allowed.tso_ecn >= row.enough.tso_ecn && allowed.uso >= row.enough.uso;
      OffloadMeta offload = row.offload;
      EXPECT_EQ(name_of(check_offload(offload, 9000, allowed)),
                is_enough ? "agrees" : "offload_not_negotiated")
          << bits;
    }
  }
  OffloadMeta ufo = asks(GsoType::udp_fragment);
  EXPECT_EQ(name_of(check_offload(ufo, 9000, kAll)), "offload_not_negotiated");
  OffloadMeta verified{.data_valid = true};
  EXPECT_EQ(name_of(check_offload(verified, 100, kNone)), "agrees");
}

TEST(OffloadCheck, SegmentationNeedsAChecksumAndASize) {
  for (const GsoType type : {GsoType::tcp4, GsoType::tcp6, GsoType::udp_l4}) {
    OffloadMeta no_csum{.gso_type = type, .gso_size = 1000};
    EXPECT_EQ(name_of(check_offload(no_csum, 9000, kAll)), "bad_net_header");
    OffloadMeta no_size{.needs_csum = true, .gso_type = type, .csum_start = 34, .csum_offset = 16};
    EXPECT_EQ(name_of(check_offload(no_size, 9000, kAll)), "bad_net_header");
    OffloadMeta larger_than_the_packet = no_size;
    larger_than_the_packet.gso_size = 0xffff;
    EXPECT_EQ(name_of(check_offload(larger_than_the_packet, 100, kAll)), "agrees");
  }
}

TEST(OffloadCheck, TheHeaderLengthIsAHintThatIsMended) {
  const struct {
    const char* what;
    uint16_t hint;
    bool needs_csum;
    size_t packet_bytes;
    uint16_t mended;
  } rows[] = {
      {"none", 0, false, 100, 0},
      {"a good one", 54, true, 100, 54},
      {"too short for the checksum", 10, true, 100, 52},
      {"none with a checksum", 0, true, 100, 52},
      {"longer than the packet", 0xffff, true, 100, 100},
      {"longer than the packet, no checksum", 101, false, 100, 100},
      {"the longest packet", 0xffff, true, kPacketBytesMax, 0xffff},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    OffloadMeta offload{.needs_csum = row.needs_csum, .header_bytes = row.hint};
    if (row.needs_csum) {
      offload.csum_start = 34;
      offload.csum_offset = 16;
    }
    EXPECT_EQ(name_of(check_offload(offload, row.packet_bytes, kAll)), "agrees");
    EXPECT_EQ(offload.header_bytes, row.mended);
  }
}

TEST(OffloadCheck, AgreesWithWhatAnHonestGuestSends) {
  for (const PacketBuilder& builder :
       {packet().eth().ipv4().udp().payload(10), packet().eth().ipv6().tcp().payload(1000),
        packet().eth().vlan(5, 0x88a8).vlan(6).ipv6({.extension_count = 10}).udp().payload(3),
        packet().eth().ipv4({.option_bytes = 40}).tcp(1, 2, {.option_bytes = 40})}) {
    BuiltPacket built = builder.build_needing_csum();
    EXPECT_EQ(name_of(check_offload(built.offload, built.bytes.size(), kAll)), "agrees");
    EXPECT_GE(built.offload.header_bytes, built.offload.csum_start);
  }
}

}  // namespace
}  // namespace sluice
