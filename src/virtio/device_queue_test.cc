// What the device takes from a ring of either format, and what it refuses.
#include <gtest/gtest.h>

#include <bit>

#include "testing/ring_formats.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;

template <typename Driver>
class DeviceQueue : public RingFormatTest<Driver> {};
TYPED_TEST_SUITE(DeviceQueue, RingFormats, RingFormatName);

ChainBuilder one_byte_pieces(uint32_t count) {
  ChainBuilder chain;
  for (uint32_t i = 0; i < count; ++i) chain.readable(1);
  return chain;
}

TYPED_TEST(DeviceQueue, GivesAChainsBytesAndReturnsItOnce) {
  typename TestFixture::Ring ring;
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

TYPED_TEST(DeviceQueue, TakesAnyFramingOfTheSameBytes) {
  const auto sent = numbered(72);
  std::vector<std::vector<size_t>> framings = {{72}, {12, 60}, {1, 5, 6, 60}};
  for (size_t border = 1; border < 72; ++border) framings.push_back({border, 72 - border});
  framings.push_back(std::vector<size_t>(72, 1));
  for (const bool indirect : {false, true}) {
    typename TestFixture::Ring ring;
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

TYPED_TEST(DeviceQueue, SkipsEmptyDescriptorsWhereverTheyAre) {
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
      typename TestFixture::Ring ring;
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

TYPED_TEST(DeviceQueue, StopsAtAReadableBufferBehindAWritableOne) {
  const ChainBuilder chains[] = {
      ChainBuilder{}.writable(10).readable(10), ChainBuilder{}.readable(1).writable(1).readable(1),
      ChainBuilder{}.writable(0).readable(10), ChainBuilder{}.writable(10).readable(0)};
  for (const bool indirect : {false, true}) {
    for (ChainBuilder chain : chains) {
      typename TestFixture::Ring ring;
      if (indirect) chain.indirect();
      ring.driver.offer(chain);
      EXPECT_EQ(ring.take(), Pop::broken);
      EXPECT_EQ(ring.queue.fault(), RingFault::readable_after_writable);
    }
  }
}

TYPED_TEST(DeviceQueue, TakesAChainOfExactlyTheRingsSizeAndNoLonger) {
  for (const uint32_t size : {1u, 2u, 16u, 256u, 3u, 5u, 7u}) {
    if (TestFixture::kIsSplit && !std::has_single_bit(size)) continue;
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
      typename TestFixture::Ring ring({.size = size});
      ASSERT_TRUE(ring.driver.offer(row.chain));
      EXPECT_EQ(ring.take(), row.pop);
    }
  }
}

TYPED_TEST(DeviceQueue, AddsLengthsWithoutOverflow) {
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
    typename TestFixture::Ring ring(
        {}, {FakeRegion{.bytes = 8 * kMiB}, {.guest_address = 8 * kMiB, .bytes = kBig}});
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

TYPED_TEST(DeviceQueue, TranslatesEachBufferWithItsLength) {
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
        typename TestFixture::Ring ring({}, with_neighbours());
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

TYPED_TEST(DeviceQueue, AnswersBrokenWhenAListHasNoRoom) {
  typename TestFixture::Ring ring;
  ring.driver.offer(ChainBuilder{}.readable(1).readable(1).readable(1));
  SpanList small(2);
  Chain chain;
  EXPECT_EQ(ring.queue.pop(small, chain), Pop::broken);
  EXPECT_EQ(ring.queue.fault(), RingFault::too_many_spans);
  EXPECT_EQ(small.size(), 0u);
}

TYPED_TEST(DeviceQueue, RefusesTablesThatWereNotAgreedOn) {
  typename TestFixture::Ring ring({.indirect = false});
  ring.driver.offer(ChainBuilder{}.readable(10).indirect());
  EXPECT_EQ(ring.take(), Pop::broken);
  EXPECT_EQ(ring.queue.fault(), RingFault::indirect_not_agreed);
}

TYPED_TEST(DeviceQueue, ReadsATableThatLiesInTwoRegionsAtEveryByte) {
  for (uint64_t before = 1; before < 48; ++before) {
    SCOPED_TRACE(before);
    typename TestFixture::Ring ring({}, with_neighbours());
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

}  // namespace
}  // namespace sluice
