// What the device takes from a split ring, what it refuses, and what it writes.
#include "virtio/split_queue.h"

#include <gtest/gtest.h>

#include "testing/test_ring.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;

std::vector<uint8_t> numbered(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + 3);
  return bytes;
}

TEST(SplitQueue, GivesAChainsBytesAndReturnsItOnce) {
  TestRing ring;
  const auto sent = numbered(100);
  const auto head = ring.driver.offer(ChainBuilder{}.readable(sent).writable(50).writable(70));
  Chain chain;
  ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
  EXPECT_EQ(chain.head(), *head);
  EXPECT_EQ(chain.readable_bytes(), 100u);
  EXPECT_EQ(chain.writable_bytes(), 120u);
  EXPECT_EQ(chain.readable_count(), 1u);
  EXPECT_EQ(chain.writable_count(), 2u);
  EXPECT_EQ(ring.queue.in_flight(), 1u);
  const auto reply = numbered(60);
  copy_in(ring.spans.slice(1, 2), 0, reply.data(), reply.size());
  ring.queue.complete(std::move(chain), 60);
  EXPECT_EQ(ring.queue.in_flight(), 0u);
  EXPECT_FALSE(ring.driver.has_used()) << "not before it is published";
  EXPECT_EQ(ring.queue.publish(), 1u);
  const auto used = ring.driver.take_all_used();
  ASSERT_EQ(used.size(), 1u);
  EXPECT_EQ(used[0].head, *head);
  EXPECT_EQ(used[0].data, reply);
  EXPECT_EQ(ring.queue.publish(), 0u);
  EXPECT_EQ(ring.take(), Pop::empty);
}

TEST(SplitQueue, TakesAnyFramingOfTheSameBytes) {
  const auto sent = numbered(72);
  std::vector<std::vector<size_t>> framings = {{72}, {12, 60}, {1, 5, 6, 60}};
  for (size_t border = 1; border < 72; ++border) framings.push_back({border, 72 - border});
  framings.push_back(std::vector<size_t>(72, 1));
  for (const bool indirect : {false, true}) {
    TestRing ring;
    for (const auto& framing : framings) {
      ChainBuilder builder;
      size_t at = 0;
      for (const size_t bytes : framing) {
        builder.readable(std::span(sent).subspan(at, bytes));
        at += bytes;
      }
      if (indirect) builder.indirect();
      ring.driver.offer(builder);
      ASSERT_EQ(ring.take(), Pop::chain);
      ASSERT_EQ(ring.bytes, sent);
      ring.queue.publish();
      ring.driver.take_all_used();
    }
  }
}

TEST(SplitQueue, SkipsEmptyDescriptorsWhereverTheyAre) {
  const auto sent = numbered(10);
  const std::span<const uint8_t> a(sent.data(), 4), b(sent.data() + 4, 6);
  const struct {
    const char* what;
    ChainBuilder chain;
    size_t readable, writable;
  } rows[] = {
      {"first", ChainBuilder{}.readable(0).readable(a).readable(b), 10, 0},
      {"middle", ChainBuilder{}.readable(a).readable(0).readable(b), 10, 0},
      {"last", ChainBuilder{}.readable(a).readable(b).readable(0), 10, 0},
      {"all", ChainBuilder{}.readable(0).readable(0).readable(0), 0, 0},
      {"alone", ChainBuilder{}.readable(0), 0, 0},
      {"alone and writable", ChainBuilder{}.writable(0), 0, 0},
      {"writable first", ChainBuilder{}.writable(0).writable(9), 0, 9},
      {"between the directions", ChainBuilder{}.readable(a).readable(0).writable(0).writable(9), 4,
       9},
      {"at an address that is nowhere", ChainBuilder{}.readable_at(UINT64_MAX, 0).readable(a), 4,
       0},
  };
  for (const bool indirect : {false, true}) {
    for (const auto& row : rows) {
      SCOPED_TRACE(row.what);
      TestRing ring;
      ChainBuilder chain = row.chain;
      if (indirect) chain.indirect();
      ring.driver.offer(chain);
      ASSERT_EQ(ring.take(), Pop::chain);
      EXPECT_EQ(ring.bytes.size(), row.readable);
      EXPECT_EQ(ring.writable_bytes, row.writable);
      EXPECT_TRUE(std::equal(ring.bytes.begin(), ring.bytes.end(), sent.begin()));
    }
  }
}

TEST(SplitQueue, StopsAtAReadableBufferBehindAWritableOne) {
  const ChainBuilder chains[] = {
      ChainBuilder{}.writable(10).readable(10), ChainBuilder{}.readable(1).writable(1).readable(1),
      ChainBuilder{}.writable(0).readable(10), ChainBuilder{}.writable(10).readable(0)};
  for (const bool indirect : {false, true}) {
    for (ChainBuilder chain : chains) {
      TestRing ring;
      if (indirect) chain.indirect();
      ring.driver.offer(chain);
      EXPECT_EQ(ring.take(), Pop::broken);
      EXPECT_EQ(ring.queue.fault(), RingFault::readable_after_writable);
    }
  }
}

// ---- Lengths of chains -------------------------------------------------------------------------

ChainBuilder one_byte_pieces(uint32_t count) {
  ChainBuilder chain;
  for (uint32_t i = 0; i < count; ++i) chain.readable(1);
  return chain;
}

TEST(SplitQueue, TakesAChainOfExactlyTheRingsSizeAndNoLonger) {
  for (const uint32_t size : {1u, 2u, 16u, 256u}) {
    SCOPED_TRACE(size);
    const struct {
      const char* what;
      ChainBuilder chain;
      Pop pop;
    } rows[] = {
        {"direct, the size", one_byte_pieces(size), Pop::chain},
        {"indirect, the size", one_byte_pieces(size).indirect(), Pop::chain},
        {"indirect, one more", one_byte_pieces(size + 1).indirect(), Pop::broken},
    };
    for (const auto& row : rows) {
      SCOPED_TRACE(row.what);
      TestRing ring({.size = size});
      ASSERT_TRUE(ring.driver.offer(row.chain));
      EXPECT_EQ(ring.take(), row.pop);
    }
  }
}

TEST(SplitQueue, CountsDirectAndIndirectDescriptorsTogether) {
  for (const uint32_t direct : {1u, 7u, 15u}) {
    for (const uint32_t more : {0u, 1u}) {
      TestRing ring({.size = 16});
      ChainBuilder chain = one_byte_pieces(direct).indirect_from_here();
      for (uint32_t i = 0; i < 16 - direct + more; ++i) chain.readable(1);
      ASSERT_TRUE(ring.driver.offer(chain));
      EXPECT_EQ(ring.take(), more == 0 ? Pop::chain : Pop::broken);
    }
  }
}

TEST(SplitQueue, EndsAtALoopOfAnyLength) {
  for (const uint16_t cycle : {1, 2, 3, 15, 16}) {
    SCOPED_TRACE(cycle);
    TestRing ring({.size = 16});
    const uint64_t buffer = ring.guest.allocate(64);
    for (uint16_t i = 0; i < 16; ++i) {
      ring.driver.raw_descriptor(
          i, {buffer, 1, FakeDriver::kNext, static_cast<uint16_t>((i + 1) % cycle)});
    }
    ring.driver.raw_offer(0);
    EXPECT_EQ(ring.take(), Pop::broken);
    EXPECT_EQ(ring.queue.fault(), RingFault::chain_too_long);
  }
}

TEST(SplitQueue, ALoopOfEmptyDescriptorsEndsToo) {
  TestRing ring({.size = 32768}, {FakeRegion{.bytes = 8 * kMiB}});
  ring.driver.raw_descriptor(5, {0, 0, FakeDriver::kNext, 5});
  ring.driver.raw_offer(5);
  EXPECT_EQ(ring.take(), Pop::broken);
  EXPECT_EQ(ring.queue.fault(), RingFault::chain_too_long);
}

// ---- Sums --------------------------------------------------------------------------------------

TEST(SplitQueue, AddsLengthsWithoutOverflow) {
  constexpr uint64_t kBig = 64 * kMiB;
  const auto aliased = [](size_t pieces, uint32_t last_bytes) {
    ChainBuilder chain;
    for (size_t i = 0; i < pieces; ++i) chain.readable_at(8 * kMiB, kBig);
    return chain.readable_at(8 * kMiB, last_bytes);
  };
  const struct {
    const char* what;
    ChainBuilder chain;
    Pop pop;
  } rows[] = {
      {"2^32 - 1", aliased(63, kBig - 1), Pop::chain},
      {"2^32", aliased(63, kBig), Pop::broken},
      {"2^32 + 1", aliased(64, 1), Pop::broken},
      {"twice 2^32", aliased(128, 1), Pop::broken},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    TestRing ring({}, {FakeRegion{.bytes = 8 * kMiB}, {.guest_address = 8 * kMiB, .bytes = kBig}});
    ring.driver.offer(row.chain);
    Chain chain;
    ASSERT_EQ(ring.queue.pop(ring.spans, chain), row.pop);
    if (row.pop == Pop::broken) {
      EXPECT_EQ(ring.queue.fault(), RingFault::too_many_bytes);
      continue;
    }
    EXPECT_EQ(chain.readable_bytes(), UINT32_MAX);
    EXPECT_EQ(total_bytes(ring.spans.all()), UINT32_MAX);
    ring.queue.complete(std::move(chain), 0);
  }
}

// ---- Addresses ---------------------------------------------------------------------------------

// Ring and buffers in [0, 8) MiB, then [16, 17) and [17, 18) MiB side by side, and nothing else.
std::vector<FakeRegion> with_neighbours() {
  return {FakeRegion{.bytes = 8 * kMiB},
          {.guest_address = 16 * kMiB, .bytes = kMiB, .file_offset = 0x40},
          {.guest_address = 17 * kMiB, .bytes = kMiB}};
}

TEST(SplitQueue, TranslatesEachBufferWithItsLength) {
  const struct {
    const char* what;
    uint64_t address;
    uint32_t bytes;
    size_t spans;  // 0: broken
  } rows[] = {
      {"address 0 is memory here", 0, 1, 1},
      {"the last byte of a region", 18 * kMiB - 1, 1, 1},
      {"one byte past a region", 18 * kMiB - 1, 2, 0},
      {"over two regions", 17 * kMiB - 100, 200, 2},
      {"both whole", 16 * kMiB, 2 * kMiB, 2},
      {"both and one byte", 16 * kMiB, 2 * kMiB + 1, 0},
      {"a hole", 9 * kMiB, 10, 0},
      {"into a hole", 8 * kMiB - 5, 10, 0},
      {"past all memory", 1 * kMiB << 30, 10, 0},
      {"wrapping past 2^64", UINT64_MAX - 4, 10, 0},
      {"0xffffffff bytes", 16 * kMiB, UINT32_MAX, 0},
  };
  for (const bool indirect : {false, true}) {
    for (const bool writable : {false, true}) {
      for (const auto& row : rows) {
        SCOPED_TRACE(row.what);
        TestRing ring({}, with_neighbours());
        ChainBuilder chain;
        if (writable) chain.writable_at(row.address, row.bytes);
        if (!writable) chain.readable_at(row.address, row.bytes);
        if (indirect) chain.indirect();
        ring.driver.offer(chain);
        Chain popped;
        const Pop pop = ring.queue.pop(ring.spans, popped);
        ASSERT_EQ(pop, row.spans > 0 ? Pop::chain : Pop::broken);
        EXPECT_EQ(ring.spans.size(), row.spans);
        if (pop == Pop::broken) {
          EXPECT_EQ(ring.queue.fault(), RingFault::address_not_mapped);
          continue;
        }
        EXPECT_EQ(total_bytes(ring.spans.all()), row.bytes);
        ring.queue.complete(std::move(popped), 0);
      }
    }
  }
}

TEST(SplitQueue, AnswersBrokenWhenAListHasNoRoom) {
  TestRing ring;
  ring.driver.offer(ChainBuilder{}.readable(1).readable(1).readable(1));
  SpanList small(2);
  Chain chain;
  EXPECT_EQ(ring.queue.pop(small, chain), Pop::broken);
  EXPECT_EQ(ring.queue.fault(), RingFault::too_many_spans);
  EXPECT_EQ(small.size(), 0u);
}

// ---- Indirect tables ---------------------------------------------------------------------------

struct TableRow {
  const char* what;
  std::vector<RawDescriptor> table;
  RawDescriptor pointer;  // address 0 and 0 bytes: filled in
  Pop pop;
  RingFault fault;
  uint32_t readable_bytes;
};

constexpr uint16_t kNext = FakeDriver::kNext;
constexpr uint16_t kWrite = FakeDriver::kWrite;
constexpr uint16_t kIndirect = FakeDriver::kIndirect;
constexpr uint64_t kBuffer = 16 * kMiB;
const std::vector<RawDescriptor> kTwoEntries = {{kBuffer, 5, kNext, 1}, {kBuffer, 7, 0, 0}};
const TableRow kTableRows[] = {
    {"two entries", kTwoEntries, {0, 0, kIndirect, 0}, Pop::chain, RingFault::none, 12},
    {"WRITE on the table is ignored",
     kTwoEntries,
     {0, 0, kIndirect | kWrite, 0},
     Pop::chain,
     RingFault::none,
     12},
    {"entries in another order",
     {{kBuffer, 1, kNext, 2}, {kBuffer, 2, 0, 0}, {kBuffer, 4, kNext, 1}},
     {0, 0, kIndirect, 0},
     Pop::chain,
     RingFault::none,
     7},
    {"entries that are not reached",
     {{kBuffer, 1, 0, 0}, {UINT64_MAX, UINT32_MAX, kIndirect, 9}},
     {0, 0, kIndirect, 0},
     Pop::chain,
     RingFault::none,
     1},
    {"unknown flags are ignored",
     {{kBuffer, 1, 0xfff8, 0}},
     {0, 0, kIndirect | 0xfff8, 0},
     Pop::chain,
     RingFault::none,
     1},
    {"NEXT beside INDIRECT",
     kTwoEntries,
     {0, 0, kIndirect | kNext, 1},
     Pop::broken,
     RingFault::nested_indirect,
     0},
    {"a table in a table",
     {{kBuffer, 16, kIndirect, 0}},
     {0, 0, kIndirect, 0},
     Pop::broken,
     RingFault::nested_indirect,
     0},
    {"a table in a table, behind a buffer",
     {{kBuffer, 16, kNext, 1}, {kBuffer, 16, kIndirect, 0}},
     {0, 0, kIndirect, 0},
     Pop::broken,
     RingFault::nested_indirect,
     0},
    {"next past the table",
     {{kBuffer, 1, kNext, 2}, {kBuffer, 1, 0, 0}},
     {0, 0, kIndirect, 0},
     Pop::broken,
     RingFault::next_out_of_range,
     0},
    {"a loop",
     {{kBuffer, 1, kNext, 1}, {kBuffer, 1, kNext, 0}},
     {0, 0, kIndirect, 0},
     Pop::broken,
     RingFault::chain_too_long,
     0},
    {"no bytes",
     kTwoEntries,
     {kBuffer, 0, kIndirect, 0},
     Pop::broken,
     RingFault::indirect_table_size,
     0},
    {"half an entry",
     kTwoEntries,
     {kBuffer, 8, kIndirect, 0},
     Pop::broken,
     RingFault::indirect_table_size,
     0},
    {"an entry and a byte",
     kTwoEntries,
     {kBuffer, 17, kIndirect, 0},
     Pop::broken,
     RingFault::indirect_table_size,
     0},
    {"more entries than the ring",
     kTwoEntries,
     {kBuffer, 257 * 16, kIndirect, 0},
     Pop::broken,
     RingFault::indirect_table_size,
     0},
    {"0xffffffff bytes",
     kTwoEntries,
     {kBuffer, UINT32_MAX, kIndirect, 0},
     Pop::broken,
     RingFault::indirect_table_size,
     0},
    {"a table in a hole",
     kTwoEntries,
     {9 * kMiB, 32, kIndirect, 0},
     Pop::broken,
     RingFault::address_not_mapped,
     0},
    {"a table whose end is in a hole",
     kTwoEntries,
     {8 * kMiB - 16, 32, kIndirect, 0},
     Pop::broken,
     RingFault::address_not_mapped,
     0},
    {"a table that wraps past 2^64",
     kTwoEntries,
     {UINT64_MAX - 15, 32, kIndirect, 0},
     Pop::broken,
     RingFault::address_not_mapped,
     0},
};

TEST(SplitQueue, FollowsIndirectTablesByTheirRulesOnly) {
  for (const TableRow& row : kTableRows) {
    SCOPED_TRACE(row.what);
    TestRing ring({}, with_neighbours());
    std::vector<uint8_t> bytes(16 * row.table.size());
    for (size_t i = 0; i < row.table.size(); ++i)
      FakeDriver::encode(row.table[i], bytes.data() + 16 * i);
    RawDescriptor pointer = row.pointer;
    if (pointer.address == 0) {
      pointer.address = ring.guest.allocate(bytes.size());
      pointer.bytes = static_cast<uint32_t>(bytes.size());
      ring.guest.write(pointer.address, bytes);
    }
    ring.driver.raw_descriptor(0, pointer);
    ring.driver.raw_offer(0);
    EXPECT_EQ(ring.take(), row.pop);
    EXPECT_EQ(ring.queue.fault(), row.fault);
    if (row.pop == Pop::chain) {
      EXPECT_EQ(ring.bytes.size(), row.readable_bytes);
    }
  }
}

TEST(SplitQueue, RefusesATableWhoseUnusedEndIsNoGuestMemory) {
  TestRing ring({}, with_neighbours());
  uint8_t entry[16];
  FakeDriver::encode({16 * kMiB, 1, 0, 0}, entry);  // the chain ends here, the table does not
  ring.guest.write(8 * kMiB - 16, entry);
  ring.driver.raw_descriptor(0, {8 * kMiB - 16, 64, FakeDriver::kIndirect, 0});
  ring.driver.raw_offer(0);
  EXPECT_EQ(ring.take(), Pop::broken);
  EXPECT_EQ(ring.queue.fault(), RingFault::address_not_mapped);
}

TEST(SplitQueue, RefusesTablesThatWereNotAgreedOn) {
  TestRing ring({.indirect = false});
  ring.driver.offer(ChainBuilder{}.readable(10).indirect());
  EXPECT_EQ(ring.take(), Pop::broken);
  EXPECT_EQ(ring.queue.fault(), RingFault::indirect_not_agreed);
}

TEST(SplitQueue, TakesBuffersFollowedByATable) {
  TestRing ring;
  const auto sent = numbered(100);
  const std::span<const uint8_t> all(sent);
  ring.driver.offer(ChainBuilder{}
                        .readable(all.first(12))
                        .readable(all.subspan(12, 20))
                        .indirect_from_here()
                        .readable(all.subspan(32))
                        .writable(40));
  ASSERT_EQ(ring.take(), Pop::chain);
  EXPECT_EQ(ring.bytes, sent);
  EXPECT_EQ(ring.writable_bytes, 40u);
}

TEST(SplitQueue, ReadsATableThatLiesInTwoRegionsAtEveryByte) {
  for (uint64_t before = 1; before < 48; ++before) {
    SCOPED_TRACE(before);
    TestRing ring({}, with_neighbours());
    const auto sent = numbered(30);
    const std::span<const uint8_t> all(sent);
    ring.driver.offer(ChainBuilder{}
                          .readable(all.first(10))
                          .readable(all.subspan(10, 10))
                          .readable(all.subspan(20))
                          .indirect()
                          .table_at(17 * kMiB - before));
    ASSERT_EQ(ring.take(), Pop::chain);
    EXPECT_EQ(ring.bytes, sent);
  }
}

TEST(SplitQueue, ATableMayLieInTheRingItself) {
  TestRing ring;
  // Descriptors 8 to 11 are the table; the first of them is used as a buffer, too.
  const uint64_t table = ring.driver.descriptors_address() + 8 * 16;
  ring.driver.raw_descriptor(0, {table, 64, FakeDriver::kIndirect, 0});
  ring.driver.raw_descriptor(8, {table, 16, FakeDriver::kNext, 1});
  ring.driver.raw_descriptor(9, {ring.driver.used_address(), 6, 0, 0});
  ring.driver.raw_offer(0);
  ASSERT_EQ(ring.take(), Pop::chain);
  EXPECT_EQ(ring.bytes.size(), 22u);
}

}  // namespace
}  // namespace sluice
