// Descriptors, ids, owner bits and event words that a driver should not write, and what stays
// private to the device. What both formats have in common is in device_queue_hostile_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "testing/descriptor_flipper.h"
#include "testing/ring_formats.h"

namespace sluice {
namespace {

using Driver = FakePackedDriver;
constexpr uint16_t kNext = Driver::kNext, kWrite = Driver::kWrite, kIndirect = Driver::kIndirect;

// ---- Chains that go too far --------------------------------------------------------------------

TEST(PackedQueueHostile, AChainThatNeverEndsEndsAtTheRingsSize) {
  for (const uint32_t size : {1u, 2u, 3u, 7u, 256u, 32'768u}) {
    for (const uint32_t bytes : {0u, 1u}) {
      PackedTestRing ring({.size = size, .start_index = static_cast<uint16_t>(size / 2)});
      const uint64_t buffer = ring.guest.allocate(16);
      for (uint32_t i = 0; i < size; ++i) ring.driver.raw_offer({buffer, bytes, 1, kNext});
      EXPECT_EQ(ring.take(), Pop::broken);
      EXPECT_EQ(ring.queue.fault(), RingFault::chain_too_long);
      EXPECT_EQ(ring.take(), Pop::broken) << "for good";
      EXPECT_EQ(ring.queue.publish(), 0u);
    }
  }
}

TEST(PackedQueueHostile, AChainMayNotReachIntoSlotsThatAreInFlight) {
  for (const uint32_t slots : {3u, 4u, 5u}) {  // 4 are not in flight
    for (uint16_t start = 0; start < 14; ++start) {
      PackedTestRing ring({.size = 7, .start_index = start});
      const uint64_t buffer = ring.guest.allocate(16);
      for (uint32_t i = 0; i < 3; ++i) ring.driver.raw_offer({buffer, 1, 1, 0});
      std::vector<Chain> held(3);
      for (Chain& chain : held) ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
      ring.spans.clear();
      for (uint32_t i = 0; i < slots; ++i)
        ring.driver.raw_offer({buffer, 1, 1, i + 1 < slots ? kNext : uint16_t{0}});
      EXPECT_EQ(ring.take(), slots <= 4 ? Pop::chain : Pop::broken) << slots;
      if (slots > 4) {
        EXPECT_EQ(ring.queue.fault(), RingFault::chain_too_long);
      }
      for (Chain& chain : held) ring.queue.complete(std::move(chain), 0);
    }
  }
}

TEST(PackedQueueHostile, NoMoreThanTheRingsSizeIsEverInFlight) {
  for (const uint32_t size : {1u, 2u, 3u, 16u}) {
    PackedTestRing ring({.size = size, .start_index = 1});
    const uint64_t buffer = ring.guest.allocate(16);
    std::vector<Chain> chains(size);
    // The driver offers and offers and never waits for what it offered before.
    for (Chain& chain : chains) {
      ring.driver.raw_offer({buffer, 1, 1, 0});
      ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
    }
    ring.spans.clear();
    EXPECT_EQ(ring.take(), Pop::empty);
    ring.driver.raw_offer({buffer, 1, 1, 0});
    EXPECT_EQ(ring.queue.available_count(100), 0u);
    EXPECT_EQ(ring.take(), Pop::broken);
    EXPECT_EQ(ring.queue.fault(), RingFault::avail_index_jump);
    EXPECT_EQ(ring.queue.in_flight(), size);
    for (Chain& chain : chains) ring.queue.complete(std::move(chain), 0);
    EXPECT_EQ(ring.queue.publish(), size) << "what was taken is given back all the same";
  }
}

TEST(PackedQueueHostile, WhatIsCompletedIsInFlightUntilItIsPublished) {
  // The slot still is ours: its used descriptor may be written already, its flags are not.
  PackedTestRing ring({.size = 2});
  const uint64_t buffer = ring.guest.allocate(16);
  for (int i = 0; i < 2; ++i) ring.driver.raw_offer({buffer, 1, 1, 0});
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ring.take(), Pop::chain);
  ring.driver.raw_offer({buffer, 1, 1, 0});
  EXPECT_EQ(ring.take(), Pop::broken);
}

// ---- Owner bits that lie -----------------------------------------------------------------------

TEST(PackedQueueHostile, SlotsThatAreMarkedForTheNextLapWaitForIt) {
  PackedTestRing ring({.size = 4});
  const uint64_t buffer = ring.guest.allocate(16);
  for (uint32_t i = 0; i < 4; ++i)
    ring.driver.raw_descriptor(i, {buffer, 1, 1, Driver::available_bits(false)});
  EXPECT_EQ(ring.take(), Pop::empty);
  EXPECT_FALSE(ring.queue.enable_kicks());
  for (uint32_t i = 0; i < 4; ++i) {
    ring.driver.raw_descriptor(i, {buffer, 1, 1, Driver::available_bits(true)});
    EXPECT_EQ(ring.take(), Pop::chain);
    ring.queue.publish();
    ring.driver.raw_descriptor(i, {buffer, 1, 1, Driver::available_bits(true)});
  }
  EXPECT_EQ(ring.take(), Pop::empty) << "marked for the lap before";
  EXPECT_FALSE(ring.queue.broken());
}

TEST(PackedQueueHostile, SlotsThatAreMarkedUsedBeforehandAreNotAvailable) {
  PackedTestRing ring({.size = 3});
  for (int round = 0; round < 12; ++round) {
    const auto place = ring.driver.next_available();
    for (const bool wrap : {false, true}) {
      ring.driver.raw_descriptor(place.index, {0x1000, 1, 1, Driver::used_bits(wrap)});
      ASSERT_EQ(ring.take(), Pop::empty);
    }
    ring.driver.raw_offer({0x1000, 1, 1, 0});
    ASSERT_EQ(ring.take(), Pop::chain);
    ring.queue.publish();
  }
}

TEST(PackedQueueHostile, WhatADriverScribblesOverItsDescriptorsChangesNothing) {
  for (const bool event_idx : {false, true}) {
    PackedTestRing ring({.size = 5, .start_index = 3, .event_idx = event_idx});
    const uint64_t buffer = ring.guest.allocate(16);
    auto place = ring.driver.next_available();
    for (int round = 0; round < 60; ++round) {
      ring.driver.raw_offer({buffer, 7, static_cast<uint16_t>(round), 0});
      ASSERT_EQ(ring.take(), Pop::chain);
      ASSERT_EQ(ring.bytes.size(), 7u);
      ring.driver.scribble(static_cast<uint8_t>(round * 37));
      ring.driver.raw_device_event(static_cast<uint16_t>(round * 991), 0xffff);
      EXPECT_EQ(ring.queue.publish(), 1u);
      // The flags are written last, and where they belong.
      const auto used = ring.driver.read_descriptor(place.index);
      EXPECT_EQ(used.flags, Driver::used_bits(place.wrap));
      ring.driver.step(place, 1);
      EXPECT_EQ(ring.queue.base(), Driver::event_word(place) * 0x10001u);
      (void)ring.queue.driver_wants_notification();
      (void)ring.queue.enable_kicks();
      ring.queue.disable_kicks();
    }
    EXPECT_EQ(ring.queue.in_flight(), 0u);
    EXPECT_FALSE(ring.queue.broken());
  }
}

TEST(PackedQueueHostile, DescriptorsThatChangeAfterTheyWereTakenAreAsTheyWere) {
  for (uint16_t start = 0; start < 12; ++start) {
    PackedTestRing ring({.size = 6, .start_index = start});
    auto place = ring.driver.next_available();
    const auto id = ring.driver.offer(ChainBuilder{}.readable(10).readable(20).writable(30));
    Chain chain;
    ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
    for (uint32_t i = 0; i < 6; ++i)
      ring.driver.raw_descriptor(i, {UINT64_MAX, UINT32_MAX, 0xffff, kIndirect | kNext | kWrite});
    EXPECT_EQ(chain.readable_bytes(), 30u);
    EXPECT_EQ(chain.writable_bytes(), 30u);
    EXPECT_EQ(total_bytes(ring.spans.all()), 60u);
    ring.queue.complete(std::move(chain), 30);
    ring.queue.publish();
    const auto used = ring.driver.read_descriptor(place.index);
    EXPECT_EQ(used.id, *id);
    EXPECT_EQ(used.bytes, 30u);
    EXPECT_EQ(used.flags, Driver::used_bits(place.wrap) | kWrite);
    ring.driver.step(place, 3);
    EXPECT_EQ(ring.queue.base(), Driver::event_word(place) * 0x10001u) << "three slots, as taken";
  }
}

// ---- Faults amid good chains -------------------------------------------------------------------

TEST(PackedQueueHostile, AFaultInTheMiddleOfABatchLeavesTheChainsBeforeIt) {
  for (const bool in_order : {false, true}) {
    PackedTestRing ring({.size = 64, .in_order = in_order});
    for (uint32_t i = 0; i < 10; ++i) ring.driver.offer(ChainBuilder{}.readable(i + 1));
    ring.driver.offer(ChainBuilder{}.readable(1).readable_at(1ull << 40, 1));
    for (uint32_t i = 0; i < 10; ++i) ring.driver.offer(ChainBuilder{}.readable(1));
    Chain chains[64];
    Pop end;
    ASSERT_EQ(ring.queue.pop_batch(ring.spans, chains, 64, end), 10u);
    EXPECT_EQ(end, Pop::broken);
    EXPECT_EQ(ring.queue.fault(), RingFault::address_not_mapped);
    EXPECT_EQ(ring.spans.size(), 10u) << "nothing of the bad one stays in the list";
    for (uint32_t i = 0; i < 10; ++i) {
      EXPECT_EQ(chains[i].readable_bytes(), i + 1);
      ring.queue.complete(std::move(chains[i]), 0);
    }
    EXPECT_EQ(ring.queue.publish(), 10u);
    EXPECT_EQ(ring.driver.take_all_used().size(), 10u);
  }
}

TEST(PackedQueueHostile, AFaultInAChainThatGoesOverTheEndOfTheRing) {
  PackedTestRing ring({.size = 5, .start_index = 3});
  const uint32_t base = ring.queue.base();
  ring.driver.offer(ChainBuilder{}.readable(1).readable(1).readable(1).readable_at(1ull << 40, 1));
  EXPECT_EQ(ring.take(), Pop::broken);
  EXPECT_EQ(ring.queue.base(), base) << "a chain that was not taken moves nothing";
}

// ---- A second thread writes while we read ------------------------------------------------------

TEST(PackedQueueHostile, DescriptorsThatChangeUnderTheWalkNeverLeadOutOfGuestMemory) {
  PackedTestRing ring({.size = 13}, with_neighbours());
  const uint64_t table = ring.guest.allocate(kFlipTableBytes);
  uint64_t chains = 0, faults = 0;
  {
    const DescriptorFlipper flipper(
        ring, table,
        [&](Jitter& jitter) {
          RawPackedDescriptor descriptor{some_address(jitter), some_length(jitter),
                                         static_cast<uint16_t>(jitter.next()),
                                         Driver::available_bits(jitter.next() % 2)};
          if (jitter.next() % 4 == 0) descriptor.flags |= kNext;
          if (jitter.next() % 8 == 0) descriptor.flags |= kWrite;
          if (jitter.next() % 4 == 0)
            descriptor = {table, kFlipTableBytes, 1,
                          static_cast<uint16_t>(kIndirect | (descriptor.flags & ~kNext))};
          return descriptor;
        },
        [](Jitter&) {});
    while (chains < 50'000 || faults < 1000) {
      Chain chain;
      ring.spans.clear();
      const Pop pop = ring.queue.pop(ring.spans, chain);
      if (pop == Pop::chain) {
        check_chain(ring, chain);
        ring.queue.complete(std::move(chain), 0);
        ring.queue.publish();
        ++chains;
        if (HasFatalFailure()) return;
      } else if (pop == Pop::broken) {
        ASSERT_TRUE(ring.queue.broken());
        ++faults;
        auto setup = ring.driver.setup();
        setup.base = ring.queue.base();
        ring.queue = PackedQueue(std::move(setup));
      }
    }
  }
  EXPECT_EQ(ring.queue.in_flight(), 0u);
}

}  // namespace
}  // namespace sluice
