#include "memory/guest_span.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "memory/guest_memory.h"

namespace sluice {
namespace {

// 100 bytes in pieces of these sizes, empty ones among them.
constexpr size_t kPieces[] = {0, 1, 30, 0, 2, 60, 7, 0};

struct Pieces {
  Pieces() {
    std::iota(memory.begin(), memory.end(), uint8_t{0});
    uint8_t* at = memory.data();
    for (const size_t bytes : kPieces) {
      spans.emplace_back(at, bytes);
      at += bytes;
    }
  }
  std::array<uint8_t, 100> memory;
  std::vector<GuestSpan> spans;
};

TEST(GuestSpan, CopiesOutOfPiecesFromAnyOffset) {
  const Pieces pieces;
  EXPECT_EQ(total_bytes(pieces.spans), 100u);
  for (size_t offset = 0; offset <= 101; ++offset) {
    for (const size_t bytes : {0, 1, 2, 31, 33, 99, 100, 101}) {
      std::vector<uint8_t> got(bytes, 0xee);
      const size_t there = offset >= 100 ? 0 : std::min(bytes, 100 - offset);
      ASSERT_EQ(copy_out(pieces.spans, offset, got.data(), bytes), there);
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(got[i], i < there ? offset + i : 0xee);
    }
  }
}

TEST(GuestSpan, CopiesIntoPiecesAndNowhereElse) {
  for (size_t offset = 0; offset <= 101; ++offset) {
    for (const size_t bytes : {0, 1, 2, 31, 33, 99, 100, 101}) {
      Pieces pieces;
      const std::vector<uint8_t> source(bytes, 0xee);
      const size_t fits = offset >= 100 ? 0 : std::min(bytes, 100 - offset);
      ASSERT_EQ(copy_in(pieces.spans, offset, source.data(), bytes), fits);
      for (size_t i = 0; i < 100; ++i)
        ASSERT_EQ(pieces.memory[i], i >= offset && i < offset + fits ? 0xee : i);
    }
  }
}

TEST(GuestSpan, AListOfSpansHasACapacityAndKeepsIt) {
  SpanList list(2);
  uint8_t byte = 0;
  EXPECT_EQ(list.room(), 2u);
  EXPECT_TRUE(list.push({&byte, 1}));
  EXPECT_TRUE(list.push({&byte, 1}));
  EXPECT_FALSE(list.push({&byte, 1}));
  EXPECT_EQ(list.size(), 2u);
  list.truncate(1);
  EXPECT_EQ(list.room(), 1u);
  EXPECT_EQ(list.slice(1, 0).size(), 0u);
}

TEST(GuestSpanDeathTest, OurOwnMistakesAbort) {
  uint8_t bytes[8] = {};
  GuestSpan span(bytes, 8);
  uint8_t out[16];
  EXPECT_DEATH(span.copy_out(0, out, 9), "internal error");
  EXPECT_DEATH(span.copy_out(9, out, 0), "internal error");
  EXPECT_DEATH(span.copy_out(1, out, SIZE_MAX), "internal error");
  EXPECT_DEATH(span.copy_in(8, out, 1), "internal error");
  EXPECT_DEATH((void)span.subspan(4, 5), "internal error");
}

}  // namespace
}  // namespace sluice
