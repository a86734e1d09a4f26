// Notification suppression, both ways and in both modes: who is told, who is not.
#include <gtest/gtest.h>

#include <optional>

#include "testing/test_ring.h"

namespace sluice {
namespace {

// Whether counting up from `old_index` to `new_index`, one at a time, passes `event`.
bool passes(uint16_t event, uint16_t new_index, uint16_t old_index) {
  for (uint16_t at = old_index; at != new_index; ++at) {
    if (at == event) return true;
  }
  return false;
}

TEST(EventIdx, IsDueWhenCountingPassesIt) {
  for (const uint16_t old_index : {0, 1, 5, 0x7fff, 0x8000, 0xfff0, 0xffff}) {
    for (const uint16_t step : {0, 1, 2, 16, 255, 0x7fff, 0x8000, 0xffff}) {
      const auto new_index = static_cast<uint16_t>(old_index + step);
      for (const int offset : {-2, -1, 0, 1, 2, 15, 16, 17, 254, 255, 0x7ffe, 0x7fff, 0x8000}) {
        for (const uint16_t base : {old_index, new_index}) {
          const auto event = static_cast<uint16_t>(base + offset);
          ASSERT_EQ(event_is_due(event, new_index, old_index), passes(event, new_index, old_index))
              << event << " " << new_index << " " << old_index;
        }
      }
    }
  }
}

// ---- The driver is told of used chains ---------------------------------------------------------

// Takes and publishes `count` chains; what the queue then says.
bool serve(TestRing& ring, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT_TRUE(ring.driver.offer(ChainBuilder{}.readable(1)));
    EXPECT_EQ(ring.take(), Pop::chain);
    EXPECT_EQ(ring.queue.publish(), 1u);
  }
  const bool told = ring.queue.driver_wants_notification();
  ring.driver.take_all_used();
  return told;
}

TEST(Notification, WithEventIdxFollowsUsedEventAndNothingElse) {
  for (const uint16_t start : {0, 100, 0xffff, 0xfff0, 0x7ff8}) {
    for (const int offset : {-0x7fff, -100, -1, 0, 1, 4, 5, 6, 100, 0x7fff}) {
      for (const uint16_t flags : {0, 1, 0xffff}) {
        SCOPED_TRACE(offset);
        TestRing ring({.size = 16, .start_index = start, .event_idx = true});
        (void)serve(ring, 1);  // the first answer after a start is always yes
        const auto from = static_cast<uint16_t>(start + 1);
        const auto event = static_cast<uint16_t>(from + offset);
        ring.driver.raw_used_event(event);
        ring.driver.raw_available_flags(flags);
        const auto to = static_cast<uint16_t>(from + 5);
        EXPECT_EQ(serve(ring, 5), passes(event, to, from));
      }
    }
  }
}

TEST(Notification, WithFlagsFollowsBitZeroAndNothingElse) {
  for (const uint16_t flags : {0, 1, 2, 3, 0xfffe, 0xffff}) {
    for (const uint16_t event : {0, 1, 2, 0xffff}) {
      TestRing ring({.size = 16, .event_idx = false});
      ring.driver.raw_available_flags(flags);
      ring.driver.raw_used_event(event);
      for (int round = 0; round < 3; ++round) EXPECT_EQ(serve(ring, 2), (flags & 1) == 0);
    }
  }
}

TEST(Notification, IsAlwaysGivenOnceAfterAStart) {
  // Nobody knows what a driver has been told by whoever served the ring before.
  TestRing ring({.size = 16, .start_index = 500, .event_idx = true});
  ring.driver.raw_used_event(20'000);
  EXPECT_TRUE(serve(ring, 1));
  EXPECT_FALSE(serve(ring, 1));
}

TEST(Notification, IsNotGivenTwiceForTheSameChains) {
  for (const bool event_idx : {false, true}) {
    TestRing ring({.size = 16, .event_idx = event_idx});
    EXPECT_TRUE(serve(ring, 1));
    EXPECT_FALSE(ring.queue.driver_wants_notification());
    EXPECT_FALSE(ring.driver.enable_interrupts());
    EXPECT_TRUE(serve(ring, 1));
    EXPECT_FALSE(ring.queue.driver_wants_notification());
  }
}

TEST(Notification, IsOneForABurst) {
  TestRing ring({.size = 64, .event_idx = true});
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

TEST(Notification, ADriverThatPollsIsLeftInPeace) {
  for (const bool event_idx : {false, true}) {
    TestRing ring({.size = 16, .start_index = 0xfff8, .event_idx = event_idx});
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

// ---- The device is told of available chains ----------------------------------------------------

TEST(Kick, WithFlagsIsWantedOrNot) {
  TestRing ring({.size = 16, .event_idx = false});
  ring.driver.raw_avail_event(77);
  ring.queue.disable_kicks();
  EXPECT_EQ(ring.driver.used_flags(), 1u);
  ring.driver.offer(ChainBuilder{}.readable(1));
  EXPECT_FALSE(ring.driver.kick_wanted());
  EXPECT_TRUE(ring.queue.enable_kicks()) << "there is work already";
  EXPECT_EQ(ring.driver.used_flags(), 0u);
  EXPECT_EQ(ring.take(), Pop::chain);
  EXPECT_FALSE(ring.queue.enable_kicks());
  ring.driver.offer(ChainBuilder{}.readable(1));
  EXPECT_TRUE(ring.driver.kick_wanted());
  EXPECT_EQ(ring.driver.avail_event(), 77u) << "not ours without the feature";
}

TEST(Kick, WithEventIdxFlagsStayZero) {
  TestRing ring({.size = 16, .event_idx = true});
  ring.queue.disable_kicks();
  EXPECT_EQ(ring.driver.used_flags(), 0u);
  (void)ring.queue.enable_kicks();
  EXPECT_EQ(ring.driver.used_flags(), 0u);
}

TEST(Kick, WithEventIdxIsWantedForTheNextChainAfterItWasAskedFor) {
  for (const uint16_t start : {0, 1, 0x7fff, 0xfffe, 0xffff}) {
    TestRing ring({.size = 16, .start_index = start, .event_idx = true});
    for (int round = 0; round < 20; ++round) {
      ASSERT_FALSE(ring.queue.enable_kicks());
      EXPECT_EQ(ring.driver.avail_event(), ring.queue.next_avail());
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

TEST(Kick, CanBeAskedForWhenMoreThanSomeAreThere) {
  for (const bool event_idx : {false, true}) {
    for (const uint16_t start : {0, 0xfffd}) {
      for (const uint16_t known : {0, 1, 3, 7}) {
        SCOPED_TRACE(known);
        TestRing ring({.size = 16, .start_index = start, .event_idx = event_idx});
        for (int i = 0; i < known; ++i) ring.driver.offer(ChainBuilder{}.writable(1));
        (void)ring.driver.kick_wanted();
        EXPECT_EQ(ring.queue.available_count(), known);
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

TEST(Kick, ALookThatFindsAnIndexJumpSaysThatThereIsWork) {
  TestRing ring({.size = 16, .event_idx = true});
  ring.driver.raw_available_index(1000);
  EXPECT_TRUE(ring.queue.enable_kicks());
  EXPECT_EQ(ring.take(), Pop::broken);
}

TEST(Kick, SpuriousLooksAtAnEmptyRingCostNothing) {
  TestRing ring({.size = 16, .event_idx = true});
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(ring.take(), Pop::empty);
    ASSERT_FALSE(ring.queue.enable_kicks());
    ASSERT_EQ(ring.queue.publish(), 0u);
  }
  EXPECT_EQ(ring.queue.next_avail(), 0u);
}

}  // namespace
}  // namespace sluice
