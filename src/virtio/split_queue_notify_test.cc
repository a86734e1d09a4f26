// Notification suppression of split rings: its words and what they mean. What both formats have in
// common is in device_queue_notify_test.cc.
#include <gtest/gtest.h>

#include "testing/ring_formats.h"

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

TEST(Kick, ALookThatFindsAnIndexJumpSaysThatThereIsWork) {
  TestRing ring({.size = 16, .event_idx = true});
  ring.driver.raw_available_index(1000);
  EXPECT_TRUE(ring.queue.enable_kicks());
  EXPECT_EQ(ring.take(), Pop::broken);
}

}  // namespace
}  // namespace sluice
