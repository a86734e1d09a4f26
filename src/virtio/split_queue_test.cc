// What only a split ring has: next pointers, and tables that are chains of their own. The rest is
// in device_queue_test.cc.
#include "virtio/split_queue.h"

#include <gtest/gtest.h>

#include "testing/ring_formats.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// ---- Lengths of chains -------------------------------------------------------------------------

ChainBuilder one_byte_pieces(uint32_t count) {
  ChainBuilder chain;
  for (uint32_t i = 0; i < count; ++i) chain.readable(1);
  return chain;
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
