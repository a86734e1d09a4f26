// Indices, heads and words that a driver should not write, and what stays private to the device.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "testing/allocation_guard.h"
#include "testing/test_ring.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;

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

TEST(SplitQueueHostile, OnlyWritableBuffersAndTheUsedRingAreWritten) {
  TestRing ring({.size = 64, .event_idx = true});
  const uint64_t target = ring.guest.allocate(100);
  for (int i = 0; i < 10; ++i) {
    ring.driver.offer(ChainBuilder{}.readable(300).writable_at(target, 100));
    ring.driver.offer(ChainBuilder{}.readable(30).writable_at(target, 100).indirect());
  }
  const auto before = ring.guest.read(0, 8 * kMiB);
  Chain chain;
  while (ring.queue.pop(ring.spans, chain) == Pop::chain) {
    const auto writable =
        ring.spans.slice(chain.span_first() + chain.readable_count(), chain.writable_count());
    const std::vector<uint8_t> reply(60, 0x77);
    copy_in(writable, 0, reply.data(), reply.size());
    ring.queue.complete(std::move(chain), 60);
  }
  ring.queue.publish();
  (void)ring.queue.driver_wants_notification();
  (void)ring.queue.enable_kicks();
  const auto after = ring.guest.read(0, 8 * kMiB);
  const uint64_t used_begin = ring.driver.used_address(), used_end = used_begin + 6 + 8 * 64;
  for (uint64_t at = 0; at < before.size(); ++at) {
    const bool may_change =
        (at >= used_begin && at < used_end) || (at >= target && at < target + 60);
    if (!may_change) {
      ASSERT_EQ(before[at], after[at]) << "at " << at;
    }
  }
}

TEST(SplitQueueHostile, CountsThroughTheWrapFromEveryBase) {
  for (const uint16_t start : {0, 1, 65'500, 65'530, 65'535, 32'760}) {
    SCOPED_TRACE(start);
    TestRing ring({.size = 8, .start_index = start, .event_idx = true});
    for (uint32_t i = 0; i < 300; ++i) {
      const auto head = ring.driver.offer(ChainBuilder{}.readable(10 + i % 5).writable(8));
      ASSERT_TRUE(head);
      ASSERT_EQ(ring.take(i % 9), Pop::chain);
      ASSERT_EQ(ring.head, *head);
      ASSERT_EQ(ring.take(), Pop::empty);
      ASSERT_EQ(ring.queue.publish(), 1u);
      const auto used = ring.driver.take_used();
      ASSERT_TRUE(used);
      ASSERT_EQ(used->head, *head);
      ASSERT_EQ(used->bytes, i % 9);
    }
    EXPECT_EQ(ring.queue.next_avail(), static_cast<uint16_t>(start + 300));
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

// ---- Giving back and going on ------------------------------------------------------------------

TEST(SplitQueueHostile, UnpoppedChainsComeAgainInTheirOrder) {
  TestRing ring({.size = 16, .start_index = 65'534});
  std::vector<uint16_t> heads;
  for (uint32_t i = 1; i <= 5; ++i) heads.push_back(*ring.driver.offer(ChainBuilder{}.readable(i)));
  EXPECT_EQ(ring.take(), Pop::chain);
  std::vector<Chain> chains(3);
  for (Chain& chain : chains) ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
  EXPECT_EQ(ring.queue.available_count(), 1u);
  for (size_t i = chains.size(); i-- > 0;) ring.queue.unpop(std::move(chains[i]));
  ring.spans.clear();
  EXPECT_EQ(ring.queue.available_count(), 4u);
  EXPECT_EQ(ring.queue.in_flight(), 0u);
  for (uint32_t i = 2; i <= 5; ++i) {
    ASSERT_EQ(ring.take(), Pop::chain);
    EXPECT_EQ(ring.bytes.size(), i);
    EXPECT_EQ(ring.head, heads[i - 1]);
  }
  EXPECT_EQ(ring.take(), Pop::empty);
  EXPECT_EQ(ring.queue.publish(), 5u);
}

TEST(SplitQueueHostile, AnotherQueueGoesOnWhereOneWasStopped) {
  TestRing ring({.size = 16, .start_index = 65'533});
  for (uint32_t i = 1; i <= 6; ++i) ring.driver.offer(ChainBuilder{}.readable(i));
  for (int i = 0; i < 4; ++i) ASSERT_EQ(ring.take(), Pop::chain);
  Chain chain;
  ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
  ring.queue.unpop(std::move(chain));
  ring.queue.publish();
  SplitQueueSetup setup = ring.driver.setup();
  setup.base = ring.queue.next_avail();
  SplitQueue next(std::move(setup));
  SpanList spans(16);
  for (uint32_t i = 5; i <= 6; ++i) {
    ASSERT_EQ(next.pop(spans, chain), Pop::chain);
    EXPECT_EQ(chain.readable_bytes(), i);
    next.complete(std::move(chain), 0);
  }
  EXPECT_EQ(next.pop(spans, chain), Pop::empty);
  next.publish();
  EXPECT_EQ(ring.driver.take_all_used().size(), 6u);
}

TEST(SplitQueueHostile, ManyChainsAreShownWithOneIndex) {
  TestRing ring({.size = 256});
  for (int i = 0; i < 200; ++i) ring.driver.stage(ChainBuilder{}.writable(10));
  ring.driver.make_available();
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(ring.take(3), Pop::chain);
    ASSERT_EQ(ring.driver.used_index(), 0u);
  }
  EXPECT_EQ(ring.queue.publish(), 200u);
  EXPECT_EQ(ring.driver.take_all_used().size(), 200u);
  EXPECT_EQ(ring.driver.free_descriptors(), 256u);
}

TEST(SplitQueueHostile, AFaultThatTheCallerFoundBreaksTheQueue) {
  TestRing ring;
  ring.driver.offer(ChainBuilder{}.readable(10));
  ring.queue.mark_broken(RingFault::wrong_direction);
  EXPECT_EQ(ring.take(), Pop::broken);
  EXPECT_STRNE(ring_fault_sentence(ring.queue.fault()), "?");
}

TEST(SplitQueueHostile, WorksWithoutAllocating) {
  TestRing ring({.size = 256, .event_idx = true});
  for (int i = 0; i < 100; ++i) {
    ring.driver.offer(ChainBuilder{}.readable(10).writable(10));
    ring.driver.offer(ChainBuilder{}.readable(10).writable(10).indirect());
  }
  ring.driver.raw_offer(0x7fff);
  const AllocationGuard guard;
  Chain chain;
  while (ring.queue.pop(ring.spans, chain) == Pop::chain) ring.queue.complete(std::move(chain), 10);
  ring.queue.publish();
  (void)ring.queue.driver_wants_notification();
  (void)ring.queue.enable_kicks();
}

TEST(SplitQueueDeathTest, AChainThatIsForgottenAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child has no guest memory
  TestRing ring;
  ring.driver.offer(ChainBuilder{}.readable(10));
  ring.driver.offer(ChainBuilder{}.readable(10));
  EXPECT_DEATH(
      {
        Chain chain;
        (void)ring.queue.pop(ring.spans, chain);
      },
      "internal error");
  EXPECT_DEATH(
      {
        Chain chain;
        (void)ring.queue.pop(ring.spans, chain);
        (void)ring.queue.pop(ring.spans, chain);
      },
      "internal error");
  Chain none;
  EXPECT_DEATH(ring.queue.complete(std::move(none), 0), "internal error");
}

// ---- A second thread writes while we read ------------------------------------------------------

// Rewrites descriptors, a table and the available ring as fast as it can, with values that are
// mostly legal, so that a word read twice would be read differently.
class Flipper {
 public:
  Flipper(TestRing& ring, uint64_t table) : ring_(ring), table_(table) {
    thread_ = std::thread([this] { run(); });
  }
  ~Flipper() {
    stop_.store(true);
    thread_.join();
  }

 private:
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return state_;
  }
  RawDescriptor some_descriptor() {
    static constexpr uint64_t kAddresses[] = {16 * kMiB, 17 * kMiB - 8, 18 * kMiB - 64, 0x3000};
    static constexpr uint32_t kLengths[] = {0, 1, 16, 64, 64, 128, 1 << 20};
    RawDescriptor descriptor;
    descriptor.address = kAddresses[next() % 4];
    descriptor.bytes = kLengths[next() % 7];
    descriptor.flags = static_cast<uint16_t>(next() % 2 ? FakeDriver::kNext : 0);
    descriptor.next = static_cast<uint16_t>(next() % 17);
    if (next() % 4 == 0) descriptor = {table_, 64, FakeDriver::kIndirect, 0};
    return descriptor;
  }
  void run() {
    auto* table = reinterpret_cast<uint32_t*>(ring_.guest.at(table_, 64));
    while (!stop_.load(std::memory_order_relaxed)) {
      ring_.driver.raw_descriptor(next() % 16, some_descriptor());
      uint8_t entry[16];
      FakeDriver::encode(some_descriptor(), entry);
      for (uint32_t i = 0; i < 4; ++i) {
        uint32_t word = 0;
        std::memcpy(&word, entry + 4 * i, 4);
        std::atomic_ref<uint32_t>(table[(next() % 4) * 4 + i]).store(word);
      }
      ring_.driver.raw_available_entry(static_cast<uint16_t>(next() % 16),
                                       static_cast<uint16_t>(next() % 33 == 0 ? 40 : next() % 16));
    }
  }

  TestRing& ring_;
  uint64_t table_;
  uint32_t state_ = 2463534242;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Every span lies in memory that the guest has, and the sums are those of the spans.
void check_chain(TestRing& ring, const Chain& chain) {
  ASSERT_LE(chain.readable_count() + chain.writable_count(), ring.spans.size());
  uint64_t sum = 0;
  for (GuestSpan& span :
       ring.spans.slice(chain.span_first(), chain.readable_count() + chain.writable_count())) {
    const auto* begin = static_cast<const uint8_t*>(span.address_for_shared_words());
    bool inside = false;
    for (size_t i = 0; i < ring.guest.region_count(); ++i) {
      const RegionDescription region = ring.guest.description(i);
      const auto whole = ring.guest.share()->translate(region.guest_address, region.bytes);
      const auto* host = static_cast<const uint8_t*>(whole->address_for_shared_words());
      inside = inside || (begin >= host && begin + span.size() <= host + region.bytes);
    }
    ASSERT_TRUE(inside);
    sum += span.size();
  }
  ASSERT_EQ(sum, uint64_t{chain.readable_bytes()} + chain.writable_bytes());
}

TEST(SplitQueueHostile, DescriptorsThatChangeUnderTheWalkNeverLeadOutOfGuestMemory) {
  TestRing ring({.size = 16}, {FakeRegion{.bytes = 8 * kMiB},
                               {.guest_address = 16 * kMiB, .bytes = kMiB},
                               {.guest_address = 17 * kMiB, .bytes = kMiB}});
  const uint64_t table = ring.guest.allocate(64);
  uint64_t chains = 0, faults = 0;
  uint16_t index = 0;
  {
    const Flipper flipper(ring, table);
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
