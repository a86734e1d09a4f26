// Indices, heads and words that a driver should not write, and what stays private to the device.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "testing/descriptor_flipper.h"
#include "testing/ring_formats.h"

namespace sluice {
namespace {

// ---- The available ring ------------------------------------------------------------------------

TEST(SplitQueueHostile, AnIndexMayMoveByTheRingsSizeAndNoFurther) {
  for (const uint16_t start : {0, 1, 30'000, 65'530, 65'535}) {
    for (const uint32_t step : {1u, 15u, 16u, 17u, 0x7fffu, 0x8000u, 0xfff0u, 0xffffu}) {
      SCOPED_TRACE(step);
      TestRing ring({.size = 16, .start_index = start});
      const uint64_t buffer = ring.guest.allocate(16);
      ring.driver.raw_descriptor(0, {buffer, 16, 0, 0});
      ring.driver.raw_available_index(static_cast<uint16_t>(start + step));
      if (step > 16) {
        EXPECT_EQ(ring.take(), Pop::broken);
        EXPECT_EQ(ring.queue.fault(), RingFault::avail_index_jump);
        EXPECT_EQ(ring.take(), Pop::broken) << "for good";
        EXPECT_EQ(ring.queue.publish(), 0u);
        continue;
      }
      for (uint32_t i = 0; i < step; ++i) ASSERT_EQ(ring.take(), Pop::chain);
      EXPECT_EQ(ring.take(), Pop::empty);
      EXPECT_EQ(ring.queue.publish(), step);
      EXPECT_EQ(ring.driver.used_index(), static_cast<uint16_t>(start + step));
    }
  }
}

TEST(SplitQueueHostile, ABackwardStepIsSeenOnceTheRestIsTaken) {
  TestRing ring({.size = 16});
  for (int i = 0; i < 4; ++i) ring.driver.offer(ChainBuilder{}.readable(1));
  EXPECT_EQ(ring.take(), Pop::chain);
  ring.driver.raw_available_index(0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ring.take(), Pop::chain);
  EXPECT_EQ(ring.take(), Pop::broken);
}

TEST(SplitQueueHostile, StopsAtHeadsAndNextsThatAreNoDescriptors) {
  for (const uint16_t wrong : {16, 17, 255, 0x8000, 0xffff}) {
    TestRing ring({.size = 16});
    ring.driver.raw_offer(wrong);
    EXPECT_EQ(ring.take(), Pop::broken);
    EXPECT_EQ(ring.queue.fault(), RingFault::head_out_of_range);

    TestRing other({.size = 16});
    const uint64_t buffer = other.guest.allocate(16);
    other.driver.raw_descriptor(3, {buffer, 16, FakeDriver::kNext, wrong});
    other.driver.raw_offer(3);
    EXPECT_EQ(other.take(), Pop::broken);
    EXPECT_EQ(other.queue.fault(), RingFault::next_out_of_range);
  }
}

TEST(SplitQueueHostile, TheSameHeadManyTimesIsReturnedAsManyTimes) {
  TestRing ring({.size = 16});
  const uint64_t buffer = ring.guest.allocate(16);
  ring.driver.raw_descriptor(7, {buffer, 16, 0, 0});
  for (int i = 0; i < 16; ++i) ring.driver.raw_offer(7);
  std::vector<Chain> chains(16);
  for (Chain& chain : chains) ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
  for (Chain& chain : chains) ring.queue.complete(std::move(chain), 0);
  EXPECT_EQ(ring.queue.publish(), 16u);
  for (uint16_t i = 0; i < 16; ++i) EXPECT_EQ(ring.driver.used_entry(i).head, 7u);
}

TEST(SplitQueueHostile, NoMoreThanTheRingsSizeIsEverInFlight) {
  TestRing ring({.size = 16});
  const uint64_t buffer = ring.guest.allocate(16);
  for (uint16_t i = 0; i < 16; ++i) ring.driver.raw_descriptor(i, {buffer, 16, 0, 0});
  std::vector<Chain> chains;
  // The driver offers and offers and never waits for what it offered before.
  for (int i = 0; i < 16; ++i) {
    ring.driver.raw_offer(static_cast<uint16_t>(i % 3));
    ASSERT_EQ(ring.queue.pop(ring.spans, chains.emplace_back()), Pop::chain);
  }
  ring.driver.raw_offer(0);
  Chain one_more;
  EXPECT_EQ(ring.queue.pop(ring.spans, one_more), Pop::broken);
  EXPECT_EQ(ring.queue.fault(), RingFault::avail_index_jump);
  EXPECT_EQ(ring.queue.in_flight(), 16u);
  for (Chain& chain : chains) ring.queue.complete(std::move(chain), 0);
}

// ---- The used ring -----------------------------------------------------------------------------

TEST(SplitQueueHostile, WhatADriverScribblesOverTheUsedRingChangesNothing) {
  for (const bool event_idx : {false, true}) {
    TestRing ring({.size = 16, .start_index = 65'530, .event_idx = event_idx});
    uint16_t expected = 65'530;
    for (int round = 0; round < 40; ++round) {
      ring.driver.raw_available_entry(expected, static_cast<uint16_t>(round % 16));
      ring.driver.raw_descriptor(round % 16, {ring.driver.descriptors_address(), 16, 0, 0});
      ring.driver.scribble_used(static_cast<uint8_t>(round * 37));
      ring.driver.raw_available_index(static_cast<uint16_t>(expected + 1));
      ASSERT_EQ(ring.take(5), Pop::chain);
      ring.driver.scribble_used(static_cast<uint8_t>(round * 91));
      EXPECT_EQ(ring.queue.publish(), 1u);
      ++expected;
      EXPECT_EQ(ring.driver.used_index(), expected);
      // The entry was written before the scribble; the next is where it belongs all the same.
      (void)ring.queue.driver_wants_notification();
      (void)ring.queue.enable_kicks();
      ring.queue.disable_kicks();
    }
    EXPECT_EQ(ring.queue.in_flight(), 0u);
    EXPECT_FALSE(ring.queue.broken());
  }
}

TEST(SplitQueueHostile, RunsThroughAllIndicesAtTheSmallestAndTheLargestSize) {
  for (const uint32_t size : {1u, 2u, 32'768u}) {
    TestRing ring({.size = size, .start_index = 65'000});
    const uint64_t buffer = ring.guest.allocate(16);
    ring.driver.raw_descriptor(0, {buffer, 16, 0, 0});
    uint16_t index = 65'000;
    for (uint32_t done = 0; done < 140'000;) {
      const uint32_t step = std::min(size, 1000 + done % 1000);
      index = static_cast<uint16_t>(index + step);
      ring.driver.raw_available_index(index);
      for (uint32_t i = 0; i < step; ++i) ASSERT_EQ(ring.take(), Pop::chain);
      ASSERT_EQ(ring.take(), Pop::empty);
      ASSERT_EQ(ring.queue.publish(), step);
      ASSERT_EQ(ring.driver.used_index(), index);
      done += step;
    }
  }
}

// ---- A second thread writes while we read ------------------------------------------------------

TEST(SplitQueueHostile, DescriptorsThatChangeUnderTheWalkNeverLeadOutOfGuestMemory) {
  TestRing ring({.size = 16}, with_neighbours());
  const uint64_t table = ring.guest.allocate(kFlipTableBytes);
  uint64_t chains = 0, faults = 0;
  uint16_t index = 0;
  {
    const DescriptorFlipper flipper(
        ring, table,
        [&](Jitter& jitter) {
          RawDescriptor descriptor{some_address(jitter), some_length(jitter),
                                   jitter.next() % 2 ? FakeDriver::kNext : uint16_t{0},
                                   static_cast<uint16_t>(jitter.next() % 17)};
          if (jitter.next() % 4 == 0)
            descriptor = {table, kFlipTableBytes, FakeDriver::kIndirect, 0};
          return descriptor;
        },
        [&](Jitter& jitter) {
          const auto position = static_cast<uint16_t>(jitter.next() % 16);
          ring.driver.raw_available_entry(
              position, static_cast<uint16_t>(jitter.next() % 33 == 0 ? 40 : jitter.next() % 16));
        });
    auto queue = std::make_unique<SplitQueue>(ring.driver.setup());
    for (uint32_t i = 0; i < 200'000; ++i) {
      ring.driver.raw_available_index(++index);
      Chain chain;
      ring.spans.clear();
      if (queue->pop(ring.spans, chain) == Pop::chain) {
        check_chain(ring, chain);
        queue->complete(std::move(chain), 0);
        queue->publish();
        ++chains;
        if (HasFatalFailure()) return;
        continue;
      }
      ASSERT_TRUE(queue->broken());
      ++faults;
      SplitQueueSetup setup = ring.driver.setup();
      setup.base = index;
      queue = std::make_unique<SplitQueue>(std::move(setup));
    }
  }
  // Both outcomes were seen often, or nothing was tried.
  EXPECT_GT(chains, 1000u);
  EXPECT_GT(faults, 1000u);
}

}  // namespace
}  // namespace sluice
