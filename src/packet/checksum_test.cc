#include "packet/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "memory/frame_pool.h"
#include "testing/allocation_guard.h"
#include "testing/packet_builder.h"

namespace sluice {
namespace {

std::vector<uint8_t> noise(size_t count, uint32_t seed) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(seed >> 24);
  }
  return bytes;
}

// The sum as two bytes in memory order, as both implementations would store it.
uint16_t in_memory_order(uint32_t big_endian_sum) {
  return static_cast<uint16_t>(big_endian_sum << 8 | big_endian_sum >> 8);
}

// Zero and 0xffff are the same number in ones' complement.
uint16_t canonical(uint16_t sum) { return sum == 0xffff ? 0 : sum; }

TEST(Checksum, AgreesWithTheReferenceForEveryLengthAndPlace) {
  const auto bytes = noise(300, 1);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t count = 0; count + begin <= bytes.size(); ++count) {
      const uint16_t got = checksum_fold(checksum_add(0, bytes.data() + begin, count));
      const uint16_t expected =
          in_memory_order(reference_sum(std::span(bytes).subspan(begin, count)));
      ASSERT_EQ(canonical(got), canonical(expected)) << begin << " " << count;
    }
  }
}

TEST(Checksum, AgreesWithTheReferenceAtTheExtremes) {
  for (const uint8_t value : {0x00, 0xff, 0x80, 0x01}) {
    for (const size_t count : {1, 2, 3, 4, 5, 1500, 65'535, 68 * 1024}) {
      const std::vector<uint8_t> bytes(count, value);
      EXPECT_EQ(canonical(checksum_fold(checksum_add(0, bytes.data(), count))),
                canonical(in_memory_order(reference_sum(bytes))));
    }
  }
}

TEST(Checksum, RunsOfEvenLengthAddUpInAnyOrder) {
  const auto bytes = noise(1000, 2);
  const uint16_t whole = checksum_fold(checksum_add(0, bytes.data(), 1000));
  for (size_t border = 0; border <= 1000; border += 2) {
    const uint64_t first = checksum_add(0, bytes.data(), border);
    EXPECT_EQ(checksum_fold(checksum_add(first, bytes.data() + border, 1000 - border)), whole);
    const uint64_t second = checksum_add(0, bytes.data() + border, 1000 - border);
    EXPECT_EQ(checksum_fold(checksum_add(second, bytes.data(), border)), whole);
  }
}

TEST(Checksum, FoldsLargeAccumulators) {
  for (const uint64_t sum : {uint64_t{0}, uint64_t{0xffff}, uint64_t{0x10000}, uint64_t{0xffffffff},
                             uint64_t{0x1ffffffff}, UINT64_MAX, UINT64_MAX - 1}) {
    EXPECT_EQ(canonical(checksum_fold(sum)), sum % 0xffff) << sum;
  }
}

class CompleteChecksum : public ::testing::Test {
 protected:
  CompleteChecksum()
      : pool_(std::move(*FramePool::create({.frame_count = 64, .slab_count = 2}))),
        cache_(*pool_) {}

  // Puts the packet into a frame, the first `head_bytes` in the chunk; completes; gives it back.
  std::vector<uint8_t> complete(const BuiltPacket& built, size_t head_bytes) {
    Frame* frame = cache_.take();
    head_bytes = std::min(head_bytes, built.bytes.size());
    const size_t tail_bytes = built.bytes.size() - head_bytes;
    std::memcpy(frame->data(), built.bytes.data(), head_bytes);
    frame->set_single(head_bytes);
    if (tail_bytes > 0) {
      Slab* slab = cache_.take_slab();
      std::memcpy(slab->data, built.bytes.data() + head_bytes, tail_bytes);
      frame->set_slab_tail(head_bytes, slab, tail_bytes);
    }
    frame->offload() = built.offload;
    complete_checksum(*frame);
    EXPECT_FALSE(frame->offload().needs_csum);
    EXPECT_EQ(frame->offload().csum_start, 0u);
    std::vector<uint8_t> got(frame->data(), frame->data() + head_bytes);
    if (tail_bytes > 0)
      got.insert(got.end(), frame->slab()->data, frame->slab()->data + tail_bytes);
    cache_.give(frame);
    return got;
  }

  std::unique_ptr<FramePool> pool_;
  FrameCache cache_;
};

TEST_F(CompleteChecksum, MakesThePacketThatTheSenderWouldHaveMade) {
  const struct {
    const char* what;
    PacketBuilder builder;
  } rows[] = {
      {"udp v4", packet().eth().ipv4().udp()},
      {"udp v6", packet().eth().ipv6().udp()},
      {"tcp v4", packet().eth().ipv4().tcp()},
      {"tcp v6", packet().eth().ipv6().tcp()},
      {"tcp v4, IP options", packet().eth().ipv4({.option_bytes = 40}).tcp()},
      {"tcp v4, TCP options", packet().eth().ipv4().tcp(80, 81, {.option_bytes = 12})},
      {"udp v6, extension headers", packet().eth().ipv6({.extension_count = 3}).udp()},
      {"udp v4, VLAN", packet().eth().vlan(5).ipv4().udp()},
      {"tcp v6, QinQ", packet().eth().vlan(5, 0x88a8).vlan(7).ipv6().tcp()},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    for (const size_t payload : {0, 1, 2, 3, 100, 1000, 1001}) {
      PacketBuilder builder = row.builder;
      builder.payload(noise(payload, 9));
      EXPECT_EQ(complete(builder.build_needing_csum(), SIZE_MAX), builder.build().bytes);
    }
  }
}

TEST_F(CompleteChecksum, ReachesIntoATailThatBeginsAnywhere) {
  for (const size_t payload : {200, 201, 3000, 60'001}) {
    PacketBuilder builder = packet().eth().ipv4().tcp();
    builder.payload(noise(payload, 11));
    const auto expected = builder.build().bytes;
    for (const size_t head_bytes : {54, 55, 56, 100, 101, 200}) {
      EXPECT_EQ(complete(builder.build_needing_csum(), head_bytes), expected) << head_bytes;
    }
  }
}

// A payload whose last two bytes make the transport checksum come out as zero.
PacketBuilder with_zero_sum(PacketBuilder builder) {
  std::vector<uint8_t> payload(10, 0);
  builder.payload(payload);
  const BuiltPacket built = builder.build();
  const size_t sum_at = builder.build_needing_csum().offload.csum_offset + built.l4_offset;
  // Adding the checksum that it has now to the data makes the new one zero.
  payload[8] = built.bytes[sum_at];
  payload[9] = built.bytes[sum_at + 1];
  return builder.payload(payload);
}

TEST_F(CompleteChecksum, AUdpSumOfZeroIsSentAsAllOnes) {
  for (const auto& base : {packet().eth().ipv4().udp(), packet().eth().ipv6().udp()}) {
    const auto builder = with_zero_sum(base);
    const auto built = builder.build_needing_csum();
    const auto got = complete(built, SIZE_MAX);
    EXPECT_EQ(got[built.l4_offset + 6], 0xff);
    EXPECT_EQ(got[built.l4_offset + 7], 0xff);
    EXPECT_EQ(got, builder.build().bytes);
  }
}

TEST_F(CompleteChecksum, ATcpSumOfZeroStaysZero) {
  const auto builder = with_zero_sum(packet().eth().ipv4().tcp());
  const auto built = builder.build_needing_csum();
  const auto got = complete(built, SIZE_MAX);
  EXPECT_EQ(got[built.l4_offset + 16], 0);
  EXPECT_EQ(got[built.l4_offset + 17], 0);
  EXPECT_EQ(got, builder.build().bytes);
}

TEST_F(CompleteChecksum, ObeysTheOffsetsAndDoesNotLookAtThePacket) {
  // As for an inner header of a tunnel: the outer UDP is left alone.
  const auto inner = packet().eth().ipv4().tcp().payload(100);
  const auto inner_built = inner.build_needing_csum();
  auto outer = packet().eth().ipv4().udp(4789).payload(inner_built.bytes).build();
  outer.offload = inner_built.offload;
  outer.offload.csum_start = static_cast<uint16_t>(outer.payload_offset + inner_built.l4_offset);
  const auto got = complete(outer, SIZE_MAX);
  const auto expected = inner.build().bytes;
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin() + outer.payload_offset));
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + outer.payload_offset, outer.bytes.begin()));
}

TEST_F(CompleteChecksum, TakesAnOddStart) {
  BuiltPacket built;
  built.bytes = noise(101, 4);
  built.bytes[41] = built.bytes[42] = 0;
  built.offload.needs_csum = true;
  built.offload.csum_start = 35;
  built.offload.csum_offset = 6;
  const auto got = complete(built, SIZE_MAX);
  const uint32_t expected = 0xffff & ~reference_sum(std::span(built.bytes).subspan(35));
  EXPECT_EQ(got[41] << 8 | got[42], expected);
}

TEST_F(CompleteChecksum, DoesNotAllocate) {
  Frame* frame = cache_.take();
  std::memset(frame->data(), 7, 1000);
  frame->set_single(1000);
  frame->offload() = {.needs_csum = true, .csum_start = 34, .csum_offset = 16};
  {
    const AllocationGuard guard;
    complete_checksum(*frame);
  }
  cache_.give(frame);
}

}  // namespace
}  // namespace sluice
