// Notification suppression of packed rings: the event structures and what they mean. What both
// formats have in common is in device_queue_notify_test.cc.
#include <gtest/gtest.h>

#include "testing/ring_formats.h"

namespace sluice {
namespace {

using Driver = FakePackedDriver;
using Place = Driver::Place;

// Whether stepping on `slots` slots from `from` passes `event`.
bool passes(const Driver& driver, Place event, Place from, uint32_t slots) {
  for (uint32_t i = 0; i < slots; ++i) {
    if (from == event) return true;
    driver.step(from, 1);
  }
  return false;
}

// A chain of `slots` descriptors is offered, taken, published and taken back.
void serve_one(PackedTestRing& ring, uint32_t slots) {
  ChainBuilder chain;
  for (uint32_t i = 0; i < slots; ++i) chain.readable(1);
  ASSERT_TRUE(ring.driver.offer(chain));
  ASSERT_EQ(ring.take(), Pop::chain);
  ASSERT_EQ(ring.queue.publish(), 1u);
  ASSERT_EQ(ring.driver.take_all_used().size(), 1u);
}

// ---- The driver is told of used chains ---------------------------------------------------------

TEST(PackedNotification, WithAPlaceFollowsThatAndNothingElse) {
  for (const uint32_t size : {1u, 2u, 3u, 5u, 8u}) {
    for (uint32_t start = 0; start < 2 * size; ++start) {
      for (uint32_t slots = 1; slots <= size; ++slots) {
        for (uint32_t event = 0; event < 2 * size; ++event) {
          PackedTestRing ring(
              {.size = size, .start_index = static_cast<uint16_t>(start), .event_idx = true});
          serve_one(ring, 1);
          EXPECT_TRUE(ring.queue.driver_wants_notification()) << "the first after a start";
          const Place from = ring.driver.last_used();
          const Place place{event % size, event < size};
          ring.driver.raw_driver_event(Driver::event_word(place), Driver::kEventPlace);
          serve_one(ring, slots);
          ASSERT_EQ(ring.queue.driver_wants_notification(), passes(ring.driver, place, from, slots))
              << size << " from " << start << ", " << slots << " slots, event " << event;
        }
      }
    }
  }
}

TEST(PackedNotification, APlaceCountsOverSeveralPublishesUpToAFullRing) {
  for (uint16_t start = 0; start < 10; ++start) {
    for (uint32_t event = 0; event < 10; ++event) {
      PackedTestRing ring({.size = 5, .start_index = start, .event_idx = true});
      serve_one(ring, 1);
      (void)ring.queue.driver_wants_notification();
      const Place from = ring.driver.last_used();
      const Place place{event % 5, event < 5};
      ring.driver.raw_driver_event(Driver::event_word(place), Driver::kEventPlace);
      for (const uint32_t slots : {1u, 3u, 1u}) serve_one(ring, slots);
      ASSERT_EQ(ring.queue.driver_wants_notification(), passes(ring.driver, place, from, 5));
    }
  }
}

TEST(PackedNotification, WhoWasNotAskedForMoreThanARingIsTold) {
  // What place was meant can no longer be said: rather once too often than never.
  for (uint32_t event = 0; event < 10; ++event) {
    PackedTestRing ring({.size = 5, .event_idx = true});
    serve_one(ring, 1);
    (void)ring.queue.driver_wants_notification();
    for (int i = 0; i < 7; ++i) serve_one(ring, 1);
    ring.driver.raw_driver_event(Driver::event_word({event % 5, event < 5}), Driver::kEventPlace);
    EXPECT_TRUE(ring.queue.driver_wants_notification()) << event;
    EXPECT_FALSE(ring.queue.driver_wants_notification()) << "once";
  }
}

TEST(PackedNotification, APlaceInARunOfChainsIsPassedByTheRun) {
  for (uint32_t event = 0; event < 8; ++event) {
    PackedTestRing ring({.size = 8, .event_idx = true, .in_order = true});
    serve_one(ring, 1);
    (void)ring.queue.driver_wants_notification();
    ring.driver.raw_driver_event(Driver::event_word({event, true}), Driver::kEventPlace);
    for (int i = 0; i < 5; ++i) {
      ring.driver.offer(ChainBuilder{}.readable(1));
      ASSERT_EQ(ring.take(), Pop::chain);
    }
    ring.queue.publish();
    EXPECT_EQ(ring.queue.driver_wants_notification(), event >= 1 && event <= 5) << event;
    EXPECT_EQ(ring.driver.take_all_used().size(), 5u);
  }
}

TEST(PackedNotification, APlaceOutsideTheRingIsAWishAllTheSame) {
  for (const uint16_t word : {5, 6, 0x7fff, 0x8005, 0xffff}) {
    PackedTestRing ring({.size = 5, .event_idx = true});
    for (int round = 0; round < 20; ++round) {
      ring.driver.raw_driver_event(word, Driver::kEventPlace);
      serve_one(ring, 1);
      EXPECT_TRUE(ring.queue.driver_wants_notification());
    }
  }
}

TEST(PackedNotification, FollowsTheLowerTwoFlags) {
  for (const bool event_idx : {false, true}) {
    for (const uint16_t more : {0, 4, 0x8000, 0xfffc}) {
      for (const uint16_t flags : {0, 1, 2, 3}) {
        SCOPED_TRACE(testing::Message() << (flags | more) << (event_idx ? ", event_idx" : ""));
        PackedTestRing ring({.size = 16, .event_idx = event_idx});
        serve_one(ring, 1);
        (void)ring.queue.driver_wants_notification();
        // A place far ahead, in case that it is looked at.
        ring.driver.raw_driver_event(0x8000 | 14, static_cast<uint16_t>(flags | more));
        serve_one(ring, 1);
        // 3 is reserved: rather once too often than never. So is a place that was not agreed on.
        const bool is_wanted = flags == 0 || flags == 3 || (flags == 2 && !event_idx);
        EXPECT_EQ(ring.queue.driver_wants_notification(), is_wanted);
      }
    }
  }
}

TEST(PackedNotification, IsGivenOnceAfterAStartUnlessTheDriverPolls) {
  for (const uint16_t flags : {0, 1, 2, 3}) {
    PackedTestRing ring({.size = 16, .start_index = 5, .event_idx = true});
    ring.driver.raw_driver_event(3, flags);
    serve_one(ring, 1);
    EXPECT_EQ(ring.queue.driver_wants_notification(), flags != 1);
  }
}

TEST(PackedNotification, WhatTheDriverExpectsIsWhatItGets) {
  // The driver's own idea of its wish, chain by chain, over many laps.
  for (const bool event_idx : {false, true}) {
    for (const bool in_order : {false, true}) {
      PackedTestRing ring({.size = 7, .event_idx = event_idx, .in_order = in_order});
      serve_one(ring, 1);
      (void)ring.queue.driver_wants_notification();
      for (uint32_t round = 0; round < 500; ++round) {
        if (round % 5 == 0) ring.driver.disable_interrupts();
        if (round % 3 == 0) ring.driver.enable_interrupts();
        ring.driver.offer(ChainBuilder{}.readable(1).readable(1));
        if (round % 2 == 0) ring.driver.offer(ChainBuilder{}.writable(1));
        while (ring.take() == Pop::chain) continue;
        ring.queue.publish();
        ASSERT_EQ(ring.queue.driver_wants_notification(), ring.driver.interrupt_expected())
            << round;
        ring.driver.take_all_used();
      }
    }
  }
}

// ---- The device is told of available chains ----------------------------------------------------

TEST(PackedKick, WithFlagsIsWantedOrNot) {
  PackedTestRing ring({.size = 16, .event_idx = false});
  ring.driver.raw_device_event(77, 0);
  ring.queue.disable_kicks();
  EXPECT_EQ(ring.driver.device_event_flags(), Driver::kEventOff);
  ring.driver.offer(ChainBuilder{}.readable(1));
  EXPECT_FALSE(ring.driver.kick_wanted());
  EXPECT_TRUE(ring.queue.enable_kicks()) << "there is work already";
  EXPECT_EQ(ring.driver.device_event_flags(), Driver::kEventOn);
  EXPECT_EQ(ring.take(), Pop::chain);
  EXPECT_FALSE(ring.queue.enable_kicks());
  ring.driver.offer(ChainBuilder{}.readable(1));
  EXPECT_TRUE(ring.driver.kick_wanted());
  EXPECT_EQ(ring.driver.device_event_place(), 77u) << "not ours without the feature";
}

TEST(PackedKick, WithAPlaceIsWantedWhenThatIsReached) {
  for (const uint32_t size : {1u, 2u, 3u, 7u, 8u}) {
    for (uint32_t start = 0; start < 2 * size; ++start) {
      for (uint32_t known = 0; known < size; ++known) {
        SCOPED_TRACE(testing::Message() << size << " from " << start << " behind " << known);
        PackedTestRing ring(
            {.size = size, .start_index = static_cast<uint16_t>(start), .event_idx = true});
        for (uint32_t i = 0; i < known; ++i) ring.driver.offer(ChainBuilder{}.writable(1));
        (void)ring.driver.kick_wanted();
        ASSERT_FALSE(ring.queue.enable_kicks(static_cast<uint16_t>(known)));
        EXPECT_EQ(ring.driver.device_event_flags(), Driver::kEventPlace);
        EXPECT_EQ(ring.driver.device_event_place(),
                  Driver::event_word(ring.driver.next_available()));
        ring.driver.offer(ChainBuilder{}.writable(1));
        EXPECT_TRUE(ring.driver.kick_wanted());
        EXPECT_TRUE(ring.queue.enable_kicks(static_cast<uint16_t>(known)));
        ring.queue.disable_kicks();
        EXPECT_EQ(ring.driver.device_event_flags(), Driver::kEventOff);
      }
    }
  }
}

TEST(PackedKick, ARingThatIsFullCannotBecomeFuller) {
  for (const bool event_idx : {false, true}) {
    PackedTestRing ring({.size = 5, .start_index = 2, .event_idx = event_idx});
    while (ring.driver.offer(ChainBuilder{}.writable(1))) continue;
    for (const uint16_t known : {5, 6, 0x7fff, 0xffff}) {
      EXPECT_FALSE(ring.queue.enable_kicks(known)) << known;
    }
    EXPECT_TRUE(ring.queue.enable_kicks(4));
  }
}

TEST(PackedKick, AChainOfManySlotsReachesAPlaceInItsMiddle) {
  PackedTestRing ring({.size = 8, .start_index = 6, .event_idx = true});
  ASSERT_FALSE(ring.queue.enable_kicks(2));
  ring.driver.offer(ChainBuilder{}.writable(1).writable(1));
  EXPECT_FALSE(ring.driver.kick_wanted());
  ASSERT_FALSE(ring.queue.enable_kicks(3));
  ring.driver.offer(ChainBuilder{}.writable(1).writable(1).writable(1));
  EXPECT_TRUE(ring.driver.kick_wanted());
  EXPECT_TRUE(ring.queue.enable_kicks(3));
}

}  // namespace
}  // namespace sluice
