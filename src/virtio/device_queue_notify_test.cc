// Notification suppression, both ways, of either format: who is told, who is not.
#include <gtest/gtest.h>

#include "testing/ring_formats.h"

namespace sluice {
namespace {

template <typename Driver>
class DeviceQueueNotify : public RingFormatTest<Driver> {};
TYPED_TEST_SUITE(DeviceQueueNotify, RingFormats, RingFormatName);

// The place or index at which the device asked for a kick.
uint16_t kick_event(const TestRing& ring) { return ring.driver.avail_event(); }
uint16_t kick_event(const PackedTestRing& ring) {
  EXPECT_EQ(ring.driver.device_event_flags(), FakePackedDriver::kEventPlace);
  return ring.driver.device_event_place();
}

TYPED_TEST(DeviceQueueNotify, IsNotGivenTwiceForTheSameChains) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Ring ring({.size = 16, .event_idx = event_idx});
    EXPECT_TRUE(serve(ring, 1));
    EXPECT_FALSE(ring.queue.driver_wants_notification());
    EXPECT_FALSE(ring.driver.enable_interrupts());
    EXPECT_TRUE(serve(ring, 1));
    EXPECT_FALSE(ring.queue.driver_wants_notification());
  }
}

TYPED_TEST(DeviceQueueNotify, IsOneForABurst) {
  typename TestFixture::Ring ring({.size = 64, .event_idx = true});
  EXPECT_TRUE(serve(ring, 1));
  EXPECT_FALSE(serve(ring, 10)) << "the driver has not asked again";
  ASSERT_FALSE(ring.driver.enable_interrupts());
  for (int i = 0; i < 30; ++i) {
    ring.driver.offer(ChainBuilder{}.writable(1));
    ASSERT_EQ(ring.take(), Pop::chain);
  }
  EXPECT_EQ(ring.queue.publish(), 30u);
  EXPECT_TRUE(ring.driver.interrupt_expected());
  EXPECT_TRUE(ring.queue.driver_wants_notification());
  EXPECT_FALSE(ring.queue.driver_wants_notification());
}

TYPED_TEST(DeviceQueueNotify, ADriverThatPollsIsLeftInPeace) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Ring ring({.size = 16, .start_index = 0xfff8, .event_idx = event_idx});
    (void)serve(ring, 1);
    ring.driver.disable_interrupts();
    for (int round = 0; round < 50; ++round) {
      ASSERT_FALSE(serve(ring, 3));
      ring.driver.disable_interrupts();
    }
    ASSERT_FALSE(ring.driver.enable_interrupts());
    EXPECT_TRUE(serve(ring, 1));
  }
}

TYPED_TEST(DeviceQueueNotify, WithEventIdxIsWantedForTheNextChainAfterItWasAskedFor) {
  for (const uint16_t start : {0, 1, 0x7fff, 0xfffe, 0xffff}) {
    typename TestFixture::Ring ring({.size = 16, .start_index = start, .event_idx = true});
    for (int round = 0; round < 20; ++round) {
      ASSERT_FALSE(ring.queue.enable_kicks());
      EXPECT_EQ(kick_event(ring), static_cast<uint16_t>(ring.queue.base()));
      ring.driver.offer(ChainBuilder{}.readable(1));
      EXPECT_TRUE(ring.driver.kick_wanted());
      ring.queue.disable_kicks();
      ring.driver.offer(ChainBuilder{}.readable(1));
      EXPECT_FALSE(ring.driver.kick_wanted()) << "we are awake";
      EXPECT_TRUE(ring.queue.enable_kicks()) << "the second look finds them";
      while (ring.take() == Pop::chain) continue;
      ring.queue.publish();
      ring.driver.take_all_used();
    }
  }
}

TYPED_TEST(DeviceQueueNotify, CanBeAskedForWhenMoreThanSomeAreThere) {
  for (const bool event_idx : {false, true}) {
    for (const uint16_t start : {0, 0xfffd}) {
      for (const uint16_t known : {0, 1, 3, 7}) {
        SCOPED_TRACE(known);
        typename TestFixture::Ring ring({.size = 16, .start_index = start, .event_idx = event_idx});
        for (int i = 0; i < known; ++i) ring.driver.offer(ChainBuilder{}.writable(1));
        (void)ring.driver.kick_wanted();
        EXPECT_EQ(ring.queue.available_count(UINT16_MAX), known);
        EXPECT_FALSE(ring.queue.enable_kicks(known)) << "those were known";
        if (known > 0) {
          EXPECT_TRUE(ring.queue.enable_kicks(static_cast<uint16_t>(known - 1)));
        }
        EXPECT_FALSE(ring.queue.enable_kicks(known));
        ring.driver.offer(ChainBuilder{}.writable(1));
        EXPECT_TRUE(ring.driver.kick_wanted());
        EXPECT_TRUE(ring.queue.enable_kicks(known));
      }
    }
  }
}

TYPED_TEST(DeviceQueueNotify, SpuriousLooksAtAnEmptyRingCostNothing) {
  typename TestFixture::Ring ring({.size = 16, .event_idx = true});
  const uint32_t base = ring.queue.base();
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(ring.take(), Pop::empty);
    ASSERT_FALSE(ring.queue.enable_kicks());
    ASSERT_EQ(ring.queue.publish(), 0u);
  }
  EXPECT_EQ(ring.queue.base(), base);
}

}  // namespace
}  // namespace sluice
