// Descriptors, ids, owner bits and event words that a driver should not write, and what stays
// private to the device. What both formats have in common is in device_queue_hostile_test.cc.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "testing/ring_formats.h"

namespace sluice {
namespace {

using Driver = FakePackedDriver;
constexpr uint64_t kMiB = 1 << 20;
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

// Rewrites descriptors and a table as fast as it can, with values that are mostly legal, so that a
// word read twice would be read differently.
class PackedFlipper {
 public:
  PackedFlipper(PackedTestRing& ring, uint64_t table) : ring_(ring), table_(table) {
    thread_ = std::thread([this] { run(); });
  }
  ~PackedFlipper() {
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
  RawPackedDescriptor some_descriptor() {
    static constexpr uint64_t kAddresses[] = {16 * kMiB, 17 * kMiB - 8, 18 * kMiB - 64, 0x3000};
    static constexpr uint32_t kLengths[] = {0, 1, 16, 64, 64, 128, 1 << 20};
    RawPackedDescriptor descriptor;
    descriptor.address = kAddresses[next() % 4];
    descriptor.bytes = kLengths[next() % 7];
    descriptor.id = static_cast<uint16_t>(next());
    descriptor.flags = Driver::available_bits(next() % 2);
    if (next() % 4 == 0) descriptor.flags |= kNext;
    if (next() % 8 == 0) descriptor.flags |= kWrite;
    if (next() % 4 == 0)
      descriptor = {table_, 64, 1, static_cast<uint16_t>(kIndirect | (descriptor.flags & ~kNext))};
    return descriptor;
  }
  void run() {
    auto* table = reinterpret_cast<uint32_t*>(ring_.guest.at(table_, 64));
    while (!stop_.load(std::memory_order_relaxed)) {
      ring_.driver.raw_descriptor(next() % ring_.driver.size(), some_descriptor());
      uint8_t entry[16];
      Driver::encode(some_descriptor(), entry);
      for (uint32_t i = 0; i < 4; ++i) {
        uint32_t word = 0;
        std::memcpy(&word, entry + 4 * i, 4);
        std::atomic_ref<uint32_t>(table[(next() % 4) * 4 + i]).store(word);
      }
    }
  }

  PackedTestRing& ring_;
  uint64_t table_;
  uint32_t state_ = 2463534242;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Every span lies in memory that the guest has, and the sums are those of the spans.
void check_chain(PackedTestRing& ring, const Chain& chain) {
  const auto spans =
      ring.spans.slice(chain.span_first(), chain.readable_count() + chain.writable_count());
  ASSERT_EQ(total_bytes(spans), uint64_t{chain.readable_bytes()} + chain.writable_bytes());
  for (const GuestSpan& span : spans) {
    const auto* begin = static_cast<const uint8_t*>(span.address_for_shared_words());
    bool inside = false;
    for (size_t i = 0; i < ring.guest.region_count(); ++i) {
      const RegionDescription region = ring.guest.description(i);
      const auto whole = ring.guest.share()->translate(region.guest_address, region.bytes);
      const auto* host = static_cast<const uint8_t*>(whole->address_for_shared_words());
      inside = inside || (begin >= host && begin + span.size() <= host + region.bytes);
    }
    ASSERT_TRUE(inside);
  }
}

TEST(PackedQueueHostile, DescriptorsThatChangeUnderTheWalkNeverLeadOutOfGuestMemory) {
  PackedTestRing ring({.size = 13}, with_neighbours());
  const uint64_t table = ring.guest.allocate(64);
  uint64_t chains = 0, faults = 0;
  {
    const PackedFlipper flipper(ring, table);
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
