#include "packet/numbered_frame.h"

#include <gtest/gtest.h>

#include <cstring>

namespace sluice {
namespace {

// The checksums once more, by words, as the RFCs have them.
uint16_t plain_sum(const uint8_t* data, size_t bytes, uint32_t sum) {
  for (size_t i = 0; i < bytes; i += 2)
    sum += static_cast<uint32_t>(data[i]) << 8 | (i + 1 < bytes ? data[i + 1] : 0u);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

bool checksums_are_right(const std::vector<uint8_t>& frame) {
  const uint8_t* ip = &frame[14];
  if (plain_sum(ip, 20, 0) != 0xffff) return false;
  const size_t transport_bytes = frame.size() - 34;
  uint32_t pseudo = ip[9] + static_cast<uint32_t>(transport_bytes);
  for (size_t i = 12; i < 20; i += 2) pseudo += static_cast<uint32_t>(ip[i]) << 8 | ip[i + 1];
  return plain_sum(&frame[34], transport_bytes, pseudo) == 0xffff;
}

TEST(NumberedFrame, IsValidInEverySizeAndCarriesItsTag) {
  for (const bool tcp : {false, true}) {
    const size_t smallest = tcp ? kNumberedTcpBytesMin : kNumberedUdpBytesMin;
    for (const size_t bytes : {smallest, smallest + 1, size_t{128}, size_t{1514}, size_t{9014}}) {
      SCOPED_TRACE(testing::Message() << (tcp ? "tcp " : "udp ") << bytes);
      const NumberedFrames frames({.frame_bytes = bytes, .tcp = tcp});
      for (const FrameTag tag : {FrameTag{0, 0, 0}, FrameTag{64511, 0xffff'ffff'ffff, ~uint64_t{0}},
                                 FrameTag{7, 123'456'789, 1'700'000'000'123'456'789}}) {
        std::vector<uint8_t> frame(bytes, 0xee);
        frames.write(frame.data(), tag);
        EXPECT_TRUE(checksums_are_right(frame));
        EXPECT_TRUE(has_right_checksum(frame));
        const auto read = read_tag(frame);
        ASSERT_TRUE(read);
        EXPECT_EQ(*read, tag);
        EXPECT_EQ(frame[34] << 8 | frame[35], 1024 + tag.flow);
        EXPECT_EQ(frame[16] << 8 | frame[17], static_cast<int>(bytes - 14));
      }
    }
  }
}

TEST(NumberedFrame, AnUdpSumIsNeverZero) {
  // One of any 65535 times in a row has the sum zero.
  const NumberedFrames frames({.frame_bytes = 60});
  std::vector<uint8_t> frame(60);
  bool has_been_ffff = false;
  for (uint64_t time = 0; time < 65536; ++time) {
    frames.write(frame.data(), {.flow = 0, .number = 0, .time_ns = time});
    ASSERT_FALSE(frame[40] == 0 && frame[41] == 0);
    has_been_ffff |= frame[40] == 0xff && frame[41] == 0xff;
  }
  EXPECT_TRUE(has_been_ffff);
}

TEST(NumberedFrame, AChangedByteIsSeen) {
  for (const bool tcp : {false, true}) {
    const NumberedFrames frames({.frame_bytes = 90, .tcp = tcp});
    std::vector<uint8_t> frame(90);
    frames.write(frame.data(), {.flow = 1, .number = 2, .time_ns = 3});
    for (size_t i = 34; i < frame.size(); ++i) {
      frame[i] ^= 0x10;
      EXPECT_FALSE(has_right_checksum(frame)) << i;
      frame[i] ^= 0x10;
    }
    EXPECT_TRUE(has_right_checksum(frame));
  }
}

TEST(NumberedFrame, OthersFramesAreNotTakenForOurs) {
  const NumberedFrames frames({.frame_bytes = 64});
  std::vector<uint8_t> good(64);
  frames.write(good.data(), {.flow = 1, .number = 2, .time_ns = 3});
  for (size_t bytes = 0; bytes < kNumberedUdpBytesMin; ++bytes)
    EXPECT_FALSE(read_tag({good.data(), bytes})) << bytes;
  for (const size_t offset : {12u, 14u, 23u, 42u}) {  // type, version, protocol, magic
    std::vector<uint8_t> other = good;
    other[offset] ^= 0x55;
    EXPECT_FALSE(read_tag(other)) << offset;
    EXPECT_FALSE(offset != 42 && has_right_checksum(other)) << offset;
  }
  std::vector<uint8_t> tcp_too_short = good;
  tcp_too_short[23] = 6;
  EXPECT_FALSE(read_tag(tcp_too_short));
}

TEST(NumberedFrame, AChecksumIsNotReadBehindTheFrame) {
  const NumberedFrames frames({.frame_bytes = 64});
  std::vector<uint8_t> frame(64);
  frames.write(frame.data(), {});
  for (const int bytes : {51, 65535, 27, 0}) {  // more than there is; less than the headers
    frame[16] = static_cast<uint8_t>(bytes >> 8);
    frame[17] = static_cast<uint8_t>(bytes);
    EXPECT_FALSE(has_right_checksum(frame)) << bytes;
  }
}

TEST(NumberedFrame, GoesBackToItsSender) {
  const NumberedFrames frames({.frame_bytes = 64});
  std::vector<uint8_t> frame(64);
  frames.write(frame.data(), {.flow = 9, .number = 1, .time_ns = 2});
  const std::vector<uint8_t> before = frame;
  swap_link_addresses(frame);
  EXPECT_EQ(std::memcmp(&frame[0], &before[6], 6), 0);
  EXPECT_EQ(std::memcmp(&frame[6], &before[0], 6), 0);
  EXPECT_EQ(std::memcmp(&frame[12], &before[12], 52), 0);
  EXPECT_TRUE(read_tag(frame));
  EXPECT_TRUE(has_right_checksum(frame));
  std::vector<uint8_t> tiny(13, 1);
  swap_link_addresses(tiny);  // left alone
}

}  // namespace
}  // namespace sluice
