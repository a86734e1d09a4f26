#include "packet/number_check.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using Begin = NumberCheck::Begin;

struct Row {
  const char* name;
  std::vector<uint64_t> numbers;
  Begin begin;
  uint64_t lost, reordered, duplicates, too_late;
};

TEST(NumberCheck, SaysWhatBecameOfAFlow) {
  const Row rows[] = {
      {"nothing", {}, Begin::at_zero, 0, 0, 0, 0},
      {"all in order", {0, 1, 2, 3}, Begin::at_zero, 0, 0, 0, 0},
      {"the first two missing", {2, 3}, Begin::at_zero, 2, 0, 0, 0},
      {"joined later", {7, 8, 9}, Begin::at_first_seen, 0, 0, 0, 0},
      {"joined later, one from before", {7, 6, 8}, Begin::at_first_seen, 0, 1, 0, 0},
      {"joined later, one from before, one missing", {7, 9, 6}, Begin::at_first_seen, 1, 1, 0, 0},
      {"one missing", {0, 2}, Begin::at_zero, 1, 0, 0, 0},
      {"two exchanged", {0, 2, 1, 3}, Begin::at_zero, 0, 1, 0, 0},
      {"one twice", {0, 1, 1, 2}, Begin::at_zero, 0, 0, 1, 0},
      {"one late and then twice", {0, 2, 1, 1}, Begin::at_zero, 0, 1, 1, 0},
      {"a jump over the window", {0, 5000}, Begin::at_zero, 4999, 0, 0, 0},
      {"the window's last", {0, 1024, 1}, Begin::at_zero, 1022, 1, 0, 0},
      {"one behind the window", {0, 1025, 1}, Begin::at_zero, 1024, 0, 0, 1},
      {"far behind", {0, 5000, 1}, Begin::at_zero, 4999, 0, 0, 1},
      {"a jump that leaves old marks", {0, 1, 2, 1026, 1025}, Begin::at_zero, 1022, 1, 0, 0},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    NumberCheck check(1, row.begin);
    for (const uint64_t number : row.numbers) check.saw(0, number);
    EXPECT_EQ(check.counts().received, row.numbers.size());
    EXPECT_EQ(check.counts().lost, row.lost);
    EXPECT_EQ(check.counts().reordered, row.reordered);
    EXPECT_EQ(check.counts().duplicates, row.duplicates);
    EXPECT_EQ(check.counts().too_late, row.too_late);
  }
}

TEST(NumberCheck, FlowsDoNotMix) {
  NumberCheck check(2, Begin::at_zero);
  for (const uint64_t number : {0, 1, 2}) {
    check.saw(0, number);
    check.saw(1, number);
  }
  EXPECT_EQ(check.counts().received, 6u);
  EXPECT_EQ(check.counts().lost + check.counts().reordered + check.counts().duplicates, 0u);
}

TEST(NumberCheck, SaysWhetherANumberCameForTheFirstTime) {
  NumberCheck check(1, Begin::at_zero);
  const std::pair<uint64_t, bool> seen[] = {{0, true},  {2, true},    {1, true},    {1, false},
                                            {2, false}, {5000, true}, {4999, true}, {4999, false}};
  for (const auto& [number, is_first] : seen) EXPECT_EQ(check.saw(0, number), is_first) << number;
  EXPECT_FALSE(check.saw(1, 0)) << "a flow that is not ours";
}

TEST(NumberCheck, CountsAFlowThatIsNotOurs) {
  NumberCheck check(2, Begin::at_zero);
  check.saw(2, 0);
  check.saw(65535, 0);
  EXPECT_EQ(check.counts().bad_flow, 2u);
  EXPECT_EQ(check.counts().lost, 0u);
}

TEST(NumberCheck, EveryNumberOfALongRunEndsInExactlyOneFigure) {
  // Every 7th is missing, every 11th comes 20 later, every 13th comes twice.
  NumberCheck check(1, Begin::at_zero);
  uint64_t lost = 0, late = 0, twice = 0;
  constexpr uint64_t kLast = 100'000;
  for (uint64_t i = 0; i < kLast + 20; ++i) {
    if (i >= 20 && (i - 20) % 11 == 0 && (i - 20) % 7 != 0) {
      check.saw(0, i - 20);
      ++late;
    }
    if (i >= kLast) continue;
    if (i % 7 == 0) {
      ++lost;
      continue;
    }
    if (i % 11 == 0) continue;
    check.saw(0, i);
    if (i % 13 == 0) {
      check.saw(0, i);
      ++twice;
    }
  }
  EXPECT_EQ(check.counts().lost, lost);
  EXPECT_EQ(check.counts().reordered, late);
  EXPECT_EQ(check.counts().duplicates, twice);
}

}  // namespace
}  // namespace sluice
