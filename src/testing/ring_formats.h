// For tests of the device side that are about both ring formats:
//
//   template <typename Driver>
//   class Something : public RingFormatTest<Driver> {};
//   TYPED_TEST_SUITE(Something, RingFormats, RingFormatName);
//   TYPED_TEST(Something, Works) { typename TestFixture::Ring ring({.size = 16}); … }
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "testing/test_ring.h"

namespace sluice {

template <typename Driver>
class RingFormatTest : public ::testing::Test {
 protected:
  using Ring = BasicTestRing<Driver>;
  using Setup = decltype(std::declval<const Driver&>().setup());
  static constexpr bool kIsSplit = std::is_same_v<Driver, FakeDriver>;
};

using RingFormats = ::testing::Types<FakeDriver, FakePackedDriver>;
struct RingFormatName {
  template <typename Driver>
  static std::string GetName(int) {
    return std::is_same_v<Driver, FakeDriver> ? "Split" : "Packed";
  }
};

inline std::vector<uint8_t> numbered(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + 3);
  return bytes;
}

// Ring and buffers in [0, 8) MiB, then [16, 17) and [17, 18) MiB side by side, and nothing else.
inline std::vector<FakeRegion> with_neighbours() {
  constexpr uint64_t kMiB = 1 << 20;
  return {FakeRegion{.bytes = 8 * kMiB},
          {.guest_address = 16 * kMiB, .bytes = kMiB, .file_offset = 0x40},
          {.guest_address = 17 * kMiB, .bytes = kMiB}};
}

// Takes and publishes `count` chains one by one; whether the queue then wants to tell the driver.
template <class Ring>
bool serve(Ring& ring, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT_TRUE(ring.driver.offer(ChainBuilder{}.readable(1)));
    EXPECT_EQ(ring.take(), Pop::chain);
    EXPECT_EQ(ring.queue.publish(), 1u);
    ring.driver.take_all_used();
  }
  return ring.queue.driver_wants_notification();
}

}  // namespace sluice
