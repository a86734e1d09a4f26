// What only a packed ring has: owner bits and wrap counters, slots, ids that are the driver's own,
// batches that appear at once, runs. What both formats have in common is in device_queue_test.cc.
#include "virtio/packed_queue.h"

#include <gtest/gtest.h>

#include "testing/ring_formats.h"

namespace sluice {
namespace {

using Driver = FakePackedDriver;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint16_t kNext = Driver::kNext, kWrite = Driver::kWrite, kIndirect = Driver::kIndirect;
constexpr uint16_t kAvail = Driver::kAvail, kUsed = Driver::kUsed;
constexpr uint16_t kOwner = kAvail | kUsed;

ChainBuilder pieces(uint32_t count) {
  ChainBuilder chain;
  for (uint32_t i = 0; i < count; ++i) chain.readable(1);
  return chain;
}

// The owner bits that the device left at a slot.
uint16_t owner_bits(const PackedTestRing& ring, uint32_t index) {
  return ring.driver.read_descriptor(index).flags & kOwner;
}

// Chains of `slots` descriptors each go around the ring `laps` times, one at a time.
void go_around(PackedTestRing& ring, uint32_t slots, uint32_t laps) {
  const ChainBuilder chain = pieces(slots);
  Driver::Place place = ring.driver.next_available();
  for (uint64_t passed = 0; passed < uint64_t{laps} * ring.driver.size(); passed += slots) {
    const auto id = ring.driver.offer(chain);
    ASSERT_TRUE(id);
    ASSERT_EQ(ring.take(), Pop::chain);
    ASSERT_EQ(ring.head, *id);
    ASSERT_EQ(ring.bytes.size(), slots);
    ASSERT_EQ(ring.take(), Pop::empty);
    ASSERT_EQ(ring.queue.publish(), 1u);
    ASSERT_EQ(owner_bits(ring, place.index), Driver::used_bits(place.wrap));
    const auto used = ring.driver.take_all_used();
    ASSERT_EQ(used.size(), 1u);
    ASSERT_EQ(used[0].head, *id);
    ring.driver.step(place, slots);
    ASSERT_EQ(ring.queue.base(), Driver::event_word(place) * 0x10001u);
  }
}

// ---- Owner bits and wrap counters --------------------------------------------------------------

TEST(PackedQueue, TakesADescriptorByBothOwnerBitsAndTheWrapCounter) {
  for (const bool event_idx : {false, true}) {
    for (const uint16_t start : {0, 3, 6, 7, 10, 13}) {
      for (const uint16_t bits : {0, int{kAvail}, int{kUsed}, int{kOwner}}) {
        SCOPED_TRACE(testing::Message() << "start " << start << ", bits " << bits);
        PackedTestRing ring({.size = 7, .start_index = start, .event_idx = event_idx});
        const auto place = ring.driver.next_available();
        ring.driver.raw_descriptor(place.index, {ring.guest.allocate(16), 16, 9, bits});
        const bool is_available = bits == (place.wrap ? kAvail : kUsed);
        EXPECT_EQ(ring.queue.has_available(), is_available);
        EXPECT_EQ(ring.queue.available_count(100), is_available ? 1 : 0);
        EXPECT_EQ(ring.queue.enable_kicks(), is_available);
        EXPECT_EQ(ring.take(), is_available ? Pop::chain : Pop::empty);
        EXPECT_FALSE(ring.queue.broken());
      }
    }
  }
}

TEST(PackedQueue, AHeadPromisesItsWholeChainWhateverTheRestOfItSays) {
  for (const uint16_t bits : {0, int{kAvail}, int{kUsed}, int{kOwner}}) {
    PackedTestRing ring({.size = 5, .start_index = 3});
    const uint64_t buffer = ring.guest.allocate(16);
    ring.driver.raw_descriptor(4, {buffer, 2, 1, static_cast<uint16_t>(bits | kNext)});
    ring.driver.raw_descriptor(0, {buffer, 4, 2, bits});
    ring.driver.raw_offer({buffer, 1, 3, kNext});
    ASSERT_EQ(ring.take(), Pop::chain);
    EXPECT_EQ(ring.bytes.size(), 7u);
    EXPECT_EQ(ring.head, 2u) << "the last one's id";
  }
}

TEST(PackedQueue, WhatLiesBehindAPlaceThatIsNotAvailableWaits) {
  PackedTestRing ring({.size = 4});
  const uint64_t buffer = ring.guest.allocate(16);
  for (uint32_t i = 1; i < 4; ++i) ring.driver.raw_descriptor(i, {buffer, 1, 7, kAvail});
  EXPECT_EQ(ring.take(), Pop::empty);
  EXPECT_EQ(ring.queue.available_count(4), 0u);
  ring.driver.raw_descriptor(0, {buffer, 1, 7, kAvail});
  EXPECT_EQ(ring.queue.available_count(4), 4u);
  EXPECT_EQ(ring.queue.available_count(3), 3u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(ring.take(), Pop::chain);
  EXPECT_EQ(ring.take(), Pop::empty);
}

TEST(PackedQueue, GoesAroundRingsOfAnySizeWithChainsOfAnyLength) {
  for (const uint32_t size : {1u, 2u, 3u, 5u, 7u, 256u}) {
    for (uint32_t slots = 1; slots <= size; slots = slots < 8 ? slots + 1 : 2 * slots) {
      for (const uint32_t start : {0u, 1u, size - 1, size, 2 * size - 1}) {
        SCOPED_TRACE(testing::Message() << size << ", chains of " << slots << " from " << start);
        PackedTestRing ring({.size = size, .start_index = static_cast<uint16_t>(start)});
        go_around(ring, slots, 4);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(PackedQueue, GoesAroundTheLargestRing) {
  for (const uint32_t slots : {1u, 3u, 32'767u, 32'768u}) {
    PackedTestRing ring({.size = 32'768, .start_index = 32'760});
    go_around(ring, slots, slots < 10 ? 1 : 4);
    if (HasFatalFailure()) return;
  }
}

TEST(PackedQueue, TakesARingThatIsFull) {
  for (const uint32_t size : {1u, 2u, 3u, 5u, 7u, 256u, 32'768u}) {
    SCOPED_TRACE(size);
    PackedTestRing ring({.size = size, .start_index = static_cast<uint16_t>(size / 2)});
    for (int lap = 0; lap < 3; ++lap) {
      std::vector<uint16_t> ids;
      while (const auto id = ring.driver.stage(ChainBuilder{}.writable(1))) ids.push_back(*id);
      ASSERT_EQ(ids.size(), size);
      ring.driver.make_available();
      EXPECT_EQ(ring.queue.available_count(UINT16_MAX), size);
      for (const uint16_t id : ids) {
        ASSERT_EQ(ring.take(1), Pop::chain);
        ASSERT_EQ(ring.head, id);
      }
      ASSERT_EQ(ring.take(), Pop::empty);
      ASSERT_EQ(ring.queue.publish(), size);
      ASSERT_EQ(ring.driver.take_all_used().size(), size);
    }
  }
}

// ---- Where to go on ----------------------------------------------------------------------------

TEST(PackedQueue, GoesOnFromEveryPlaceWithEitherWrapCounter) {
  for (const uint32_t size : {1u, 2u, 5u, 8u}) {
    for (uint32_t start = 0; start < 2 * size; ++start) {
      for (const bool upper_half : {false, true}) {
        SCOPED_TRACE(testing::Message() << size << " from " << start);
        PackedTestRing ring({.size = size, .start_index = static_cast<uint16_t>(start)});
        for (uint32_t round = 0; round < 3 * size; ++round) {
          ASSERT_TRUE(ring.driver.offer(pieces(1 + round % size)));
          ASSERT_EQ(ring.take(), Pop::chain);
          ring.queue.publish();
          ASSERT_EQ(ring.driver.take_all_used().size(), 1u);
          auto setup = ring.driver.setup();
          EXPECT_EQ(setup.base, ring.queue.base());
          if (!upper_half) setup.base &= 0xffff;  // some front ends say no more
          ring.queue = PackedQueue(std::move(setup));
        }
      }
    }
  }
}

TEST(PackedQueue, ARingThatIsNewBeginsAtZeroWithEitherWordForThat) {
  for (const uint32_t size : {1u, 2u, 256u}) {
    for (const uint32_t base : {0u, 0x8000u, 0x8000'8000u, 0x8000'0000u}) {
      PackedTestRing ring({.size = size});
      auto setup = ring.driver.setup();
      setup.base = base;
      ring.queue = PackedQueue(std::move(setup));
      EXPECT_EQ(ring.queue.base(), 0x8000'8000u);
      go_around(ring, 1, 3);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PackedQueue, BaseZeroIsTakenAtItsWordOfARingThatWasUsed) {
  for (const uint32_t size : {1u, 2u, 3u, 256u}) {
    for (const uint32_t slots : {1u, size}) {
      for (const bool in_order : {false, true}) {
        for (const bool already_offered : {false, true}) {
          PackedTestRing ring({.size = size, .in_order = in_order});
          go_around(ring, slots, 1);
          if (HasFatalFailure()) return;
          if (already_offered) ring.driver.offer(pieces(slots));
          auto setup = ring.driver.setup();
          ASSERT_EQ(setup.base, 0u);
          ring.queue = PackedQueue(std::move(setup));
          EXPECT_EQ(ring.queue.base(), 0u);
          EXPECT_EQ(ring.queue.has_available(), already_offered);
          if (already_offered) {
            EXPECT_EQ(ring.take(), Pop::chain);
          }
        }
      }
    }
  }
}

TEST(PackedQueue, UnpoppedChainsTakeTheirSlotsBackOverTheEndOfTheRing) {
  for (uint16_t start = 0; start < 14; ++start) {
    PackedTestRing ring({.size = 7, .start_index = start});
    const uint32_t base = ring.queue.base();
    for (const uint32_t slots : {2u, 1u, 3u, 1u}) ring.driver.stage(pieces(slots));
    ring.driver.make_available();
    std::vector<Chain> chains(4);
    for (Chain& chain : chains) ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
    EXPECT_EQ(ring.queue.available_count(100), 0u);
    while (!chains.empty()) {
      ring.queue.unpop(std::move(chains.back()));
      chains.pop_back();
    }
    EXPECT_EQ(ring.queue.base(), base);
    EXPECT_EQ(ring.queue.available_count(100), 7u);
    for (const size_t slots : {2u, 1u, 3u, 1u}) {
      ASSERT_EQ(ring.take(), Pop::chain);
      EXPECT_EQ(ring.bytes.size(), slots);
    }
  }
}

// ---- Used descriptors --------------------------------------------------------------------------

TEST(PackedQueue, HandsBackWhateverIdTheDriverChose) {
  PackedTestRing ring({.size = 8});
  const uint64_t buffer = ring.guest.allocate(16);
  const std::vector<uint16_t> ids = {0, 7, 8, 0x7fff, 0x8000, 0xffff, 7, 7};  // some twice
  for (const uint16_t id : ids) ring.driver.raw_offer({buffer, 1, id, 0});
  for (const uint16_t id : ids) {
    ASSERT_EQ(ring.take(), Pop::chain);
    EXPECT_EQ(ring.head, id);
  }
  ring.queue.publish();
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(ring.driver.read_descriptor(i).id, ids[i]);
}

TEST(PackedQueue, AUsedDescriptorSaysWhatWasWrittenAndOnlyThen) {
  const struct {
    const char* what;
    ChainBuilder chain;
    uint32_t written;
    uint16_t flags;
  } rows[] = {
      {"read only", ChainBuilder{}.readable(5), 0, 0},
      {"write only", ChainBuilder{}.writable(5), 5, kWrite},
      {"both", ChainBuilder{}.readable(5).writable(9), 3, kWrite},
      {"nothing was written", ChainBuilder{}.writable(5), 0, kWrite},
      {"a table of both", ChainBuilder{}.readable(5).writable(9).indirect(), 3, kWrite},
      {"a table to read", ChainBuilder{}.readable(5).readable(5).indirect(), 0, 0},
  };
  for (const auto& row : rows) {
    for (const uint16_t start : {0, 4, 8, 15}) {
      for (const bool is_first : {true, false}) {  // of a batch
        SCOPED_TRACE(row.what);
        PackedTestRing ring({.size = 8, .start_index = start});
        auto place = ring.driver.next_available();
        if (!is_first) {
          ring.driver.offer(ChainBuilder{}.readable(1));
          ASSERT_EQ(ring.take(), Pop::chain);
          ring.driver.step(place, 1);
        }
        const auto id = ring.driver.offer(row.chain);
        ASSERT_EQ(ring.take(row.written), Pop::chain);
        ring.queue.publish();
        const auto used = ring.driver.read_descriptor(place.index);
        EXPECT_EQ(used.id, *id);
        EXPECT_EQ(used.bytes, row.written);
        EXPECT_EQ(used.flags, Driver::used_bits(place.wrap) | row.flags);
      }
    }
  }
}

TEST(PackedQueue, ABatchAppearsByItsFirstDescriptorsFlags) {
  for (uint16_t start = 0; start < 14; ++start) {
    PackedTestRing ring({.size = 7, .start_index = start});
    std::vector<Driver::Place> places{ring.driver.next_available()};
    for (const uint32_t slots : {2u, 1u, 3u}) {
      ring.driver.offer(pieces(slots).writable(4));
      places.push_back(places.back());
      ring.driver.step(places.back(), slots + 1);
      if (places.size() == 3) break;  // 3 + 2 slots, the third does not fit
    }
    const auto before = ring.driver.read_descriptor(places[0].index);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(ring.take(4), Pop::chain);
    EXPECT_EQ(ring.driver.read_descriptor(places[0].index).flags, before.flags);
    EXPECT_EQ(owner_bits(ring, places[1].index), Driver::used_bits(places[1].wrap))
        << "the rest is there already, and the driver does not look there yet";
    EXPECT_FALSE(ring.driver.has_used());
    ring.queue.publish();
    EXPECT_EQ(ring.driver.take_all_used().size(), 2u);
  }
}

TEST(PackedQueue, AUsedDescriptorSkipsTheSlotsOfItsChain) {
  PackedTestRing ring({.size = 8, .start_index = 5});
  ring.driver.offer(pieces(4));
  ring.driver.offer(pieces(3));
  std::vector<Driver::Place> places{ring.driver.last_used()};
  std::vector<RawPackedDescriptor> before;
  for (uint32_t i = 0; i < 8; ++i) before.push_back(ring.driver.read_descriptor(i));
  while (ring.take() == Pop::chain) continue;
  ring.queue.publish();
  // Used ones at 5 and 1; all others are as the driver left them.
  for (uint32_t i = 0; i < 8; ++i) {
    const bool is_used = i == 5 || i == 1;
    EXPECT_EQ(ring.driver.read_descriptor(i).flags != before[i].flags, is_used) << i;
    EXPECT_EQ(ring.driver.read_descriptor(i).address, before[i].address) << i;
  }
  EXPECT_EQ(ring.driver.take_all_used().size(), 2u);
}

TEST(PackedQueue, ChainsMayBeGivenBackInAnotherOrder) {
  PackedTestRing ring({.size = 7, .start_index = 3});
  for (int round = 0; round < 10; ++round) {
    std::vector<uint16_t> ids;
    for (const uint32_t slots : {1u, 3u, 2u}) ids.push_back(*ring.driver.offer(pieces(slots)));
    Chain chains[3];
    for (Chain& chain : chains) ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
    for (const int i : {1, 2, 0}) ring.queue.complete(std::move(chains[i]), 0);
    ring.spans.clear();
    EXPECT_EQ(ring.queue.publish(), 3u);
    const auto used = ring.driver.take_all_used();
    ASSERT_EQ(used.size(), 3u);
    EXPECT_EQ(used[0].head, ids[1]);
    EXPECT_EQ(used[1].head, ids[2]);
    EXPECT_EQ(used[2].head, ids[0]);
    EXPECT_EQ(ring.driver.free_descriptors(), 7u);
  }
}

// ---- IN_ORDER ----------------------------------------------------------------------------------

TEST(PackedQueue, OneUsedDescriptorStandsForARunOfReadChains) {
  for (uint16_t start = 0; start < 32; ++start) {
    PackedTestRing ring({.size = 16, .start_index = start, .in_order = true});
    const auto place = ring.driver.next_available();
    std::vector<uint16_t> ids;
    for (const uint32_t slots : {1u, 4u, 2u, 1u}) ids.push_back(*ring.driver.offer(pieces(slots)));
    std::vector<RawPackedDescriptor> before;
    for (uint32_t i = 0; i < 16; ++i) before.push_back(ring.driver.read_descriptor(i));
    while (ring.take() == Pop::chain) continue;
    EXPECT_EQ(ring.queue.publish(), 4u);
    const auto used = ring.driver.read_descriptor(place.index);
    EXPECT_EQ(used.id, ids.back());
    EXPECT_EQ(used.flags, Driver::used_bits(place.wrap));
    EXPECT_EQ(used.bytes, 0u);
    for (uint32_t i = 0; i < 16; ++i) {
      if (i != place.index) {
        EXPECT_EQ(ring.driver.read_descriptor(i).flags, before[i].flags) << i;
      }
    }
    for (const auto& entry : ring.driver.take_all_used()) {
      EXPECT_EQ(entry.head, ids.front());
      ids.erase(ids.begin());
    }
    EXPECT_TRUE(ids.empty());
    EXPECT_EQ(ring.driver.free_descriptors(), 16u);
  }
}

TEST(PackedQueue, AChainThatWasWrittenToEndsARunAndHasItsOwnLength) {
  PackedTestRing ring({.size = 16, .start_index = 12, .in_order = true});
  std::vector<uint16_t> ids;
  for (uint32_t round = 0; round < 20; ++round) {
    ids.clear();
    for (const bool writable : {false, false, true, true, false, false}) {
      ChainBuilder chain = pieces(1 + round % 2);
      if (writable) chain.writable(64);
      ids.push_back(*ring.driver.offer(chain));
    }
    for (uint32_t i = 0; i < 6; ++i)
      ASSERT_EQ(ring.take(i == 2 || i == 3 ? 10 + i : 0), Pop::chain);
    EXPECT_EQ(ring.queue.publish(), 6u);
    const auto used = ring.driver.take_all_used();
    ASSERT_EQ(used.size(), 6u);
    for (uint32_t i = 0; i < 6; ++i) {
      EXPECT_EQ(used[i].head, ids[i]);
      EXPECT_EQ(used[i].bytes, i == 2 || i == 3 ? 10 + i : 0);
    }
  }
}

TEST(PackedQueue, ABatchIsLargerThanASmallRing) {
  for (const uint32_t size : {1u, 2u, 3u, 4u, 8u, 16u, 32u}) {
    for (const bool in_order : {false, true}) {
      SCOPED_TRACE(testing::Message() << size << (in_order ? ", in order" : ""));
      PackedTestRing ring({.size = size, .in_order = in_order});
      for (uint32_t round = 0; round < 20; ++round) {
        const uint32_t slots = 1 + round % std::min(size, 3u);
        uint32_t offered = 0;
        while (ring.driver.stage(pieces(slots))) ++offered;
        ring.driver.make_available();
        Chain chains[64];
        Pop end;
        ASSERT_EQ(ring.queue.pop_batch(ring.spans, chains, 64, end), offered);
        ASSERT_EQ(end, Pop::empty);
        for (uint32_t i = 0; i < offered; ++i) ring.queue.complete(std::move(chains[i]), 0);
        ring.spans.clear();
        ASSERT_EQ(ring.queue.publish(), offered);
        ASSERT_EQ(ring.driver.take_all_used().size(), offered);
        ASSERT_EQ(ring.driver.free_descriptors(), size);
      }
    }
  }
}

TEST(PackedQueue, EveryPublishEndsARun) {
  PackedTestRing ring({.size = 8, .in_order = true});
  std::vector<uint16_t> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(*ring.driver.offer(pieces(1)));
  for (const int chains : {1, 3, 2}) {
    for (int i = 0; i < chains; ++i) ASSERT_EQ(ring.take(), Pop::chain);
    ring.queue.publish();
    EXPECT_EQ(ring.driver.take_all_used().size(), static_cast<size_t>(chains));
  }
}

// ---- Indirect tables ---------------------------------------------------------------------------

constexpr uint64_t kBuffer = 16 * kMiB;
const std::vector<RawPackedDescriptor> kTwoEntries = {{kBuffer, 5, 0, 0}, {kBuffer, 7, 0, 0}};

struct TableRow {
  const char* what;
  std::vector<RawPackedDescriptor> table;
  RawPackedDescriptor pointer;  // address 0 and 0 bytes: filled in
  RingFault fault;
  uint32_t readable_bytes;
};

const TableRow kTableRows[] = {
    {"two entries", kTwoEntries, {0, 0, 1, kIndirect}, RingFault::none, 12},
    {"WRITE on the table is ignored", kTwoEntries, {0, 0, 1, kIndirect | kWrite}, {}, 12},
    {"only WRITE counts in a table, and ids do not",
     {{kBuffer, 1, 9, kNext}, {kBuffer, 2, 0xffff, kIndirect}, {kBuffer, 4, 3, 0xfffd}},
     {0, 0, 1, kIndirect},
     RingFault::none,
     7},
    {"unknown flags on the table are ignored", kTwoEntries, {0, 0, 1, kIndirect | 0x78}, {}, 12},
    {"NEXT beside INDIRECT",
     kTwoEntries,
     {0, 0, 1, kIndirect | kNext},
     RingFault::nested_indirect,
     0},
    {"a writable entry before a readable one",
     {{kBuffer, 1, 0, kWrite}, {kBuffer, 1, 0, 0}},
     {0, 0, 1, kIndirect},
     RingFault::readable_after_writable,
     0},
    {"no bytes", {}, {kBuffer, 0, 1, kIndirect}, RingFault::indirect_table_size, 0},
    {"half an entry", {}, {kBuffer, 8, 1, kIndirect}, RingFault::indirect_table_size, 0},
    {"an entry and a byte", {}, {kBuffer, 17, 1, kIndirect}, RingFault::indirect_table_size, 0},
    {"more entries than the ring",
     {},
     {kBuffer, 257 * 16, 1, kIndirect},
     RingFault::indirect_table_size,
     0},
    {"0xffffffff bytes",
     {},
     {kBuffer, UINT32_MAX, 1, kIndirect},
     RingFault::indirect_table_size,
     0},
    {"a table in a hole", {}, {9 * kMiB, 32, 1, kIndirect}, RingFault::address_not_mapped, 0},
    {"a table whose end is in a hole",
     {},
     {8 * kMiB - 16, 32, 1, kIndirect},
     RingFault::address_not_mapped,
     0},
    {"a table that wraps past 2^64",
     {},
     {UINT64_MAX - 15, 32, 1, kIndirect},
     RingFault::address_not_mapped,
     0},
    {"an entry in a hole",
     {{kBuffer, 1, 0, 0}, {9 * kMiB, 1, 0, 0}},
     {0, 0, 1, kIndirect},
     RingFault::address_not_mapped,
     0},
    {"entries that are empty",
     {{kBuffer, 0, 0, 0}, {UINT64_MAX, 0, 0, 0}, {kBuffer, 3, 0, 0}},
     {0, 0, 1, kIndirect},
     RingFault::none,
     3},
};

TEST(PackedQueue, TakesIndirectTablesByTheirRulesOnly) {
  for (const TableRow& row : kTableRows) {
    SCOPED_TRACE(row.what);
    PackedTestRing ring({}, with_neighbours());
    std::vector<uint8_t> bytes(16 * row.table.size());
    for (size_t i = 0; i < row.table.size(); ++i)
      Driver::encode(row.table[i], bytes.data() + 16 * i);
    RawPackedDescriptor pointer = row.pointer;
    if (pointer.address == 0) {
      pointer.address = ring.guest.allocate(bytes.size());
      pointer.bytes = static_cast<uint32_t>(bytes.size());
      ring.guest.write(pointer.address, bytes);
    }
    ring.driver.raw_offer(pointer);
    EXPECT_EQ(ring.take(), row.fault == RingFault::none ? Pop::chain : Pop::broken);
    EXPECT_EQ(ring.queue.fault(), row.fault);
    if (row.fault == RingFault::none) {
      EXPECT_EQ(ring.bytes.size(), row.readable_bytes);
      EXPECT_EQ(ring.head, 1u);
    }
  }
}

TEST(PackedQueue, ATableIsAChainOfItsOwn) {
  PackedTestRing ring({.size = 8, .start_index = 7});
  ring.driver.offer(ChainBuilder{}.readable(12).indirect_from_here().readable(60));
  EXPECT_EQ(ring.take(), Pop::broken);
  EXPECT_EQ(ring.queue.fault(), RingFault::nested_indirect);
}

TEST(PackedQueue, ATableTakesOneSlotHoweverLongItIs) {
  PackedTestRing ring({.size = 7, .start_index = 5});
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 7; ++i) ASSERT_TRUE(ring.driver.stage(pieces(7).indirect()));
    ring.driver.make_available();
    for (int i = 0; i < 7; ++i) {
      ASSERT_EQ(ring.take(), Pop::chain);
      ASSERT_EQ(ring.bytes.size(), 7u);
    }
    ring.queue.publish();
    ASSERT_EQ(ring.driver.take_all_used().size(), 7u);
  }
}

TEST(PackedQueue, ATableMayLieInTheRingItself) {
  PackedTestRing ring({.size = 16});
  const uint64_t table = ring.driver.descriptors_address() + 8 * 16;
  ring.driver.raw_descriptor(8, {table, 16, 0, 0});
  ring.driver.raw_descriptor(9, {ring.driver.device_event_address(), 4, 0, 0});
  ring.driver.raw_offer({table, 32, 5, kIndirect});
  ASSERT_EQ(ring.take(), Pop::chain);
  EXPECT_EQ(ring.bytes.size(), 20u);
}

TEST(PackedQueue, WhereNothingIsWrittenATableMaySayWritable) {
  // DPDK's driver does, of a packet's net header.
  PackedTestRing ring({.size = 16});
  auto setup = ring.driver.setup();
  setup.reads_only = true;
  ring.queue = PackedQueue(std::move(setup));
  ring.driver.offer(ChainBuilder{}.writable(12).readable(60).indirect());
  ASSERT_EQ(ring.take(), Pop::chain);
  EXPECT_EQ(ring.bytes.size(), 72u);
  EXPECT_EQ(ring.writable_bytes, 0u);
  ring.driver.offer(ChainBuilder{}.writable(12).readable(60));
  EXPECT_EQ(ring.take(), Pop::broken) << "in tables only";
}

}  // namespace
}  // namespace sluice
