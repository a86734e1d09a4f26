#include "base/histogram.h"

#include <gtest/gtest.h>

#include <limits>

namespace sluice {
namespace {

TEST(Histogram, EmptyIsZero) {
  const Histogram none;
  EXPECT_EQ(none.count(), 0u);
  EXPECT_EQ(none.percentile(0.5), 0u);
  EXPECT_EQ(none.min(), 0u);
  EXPECT_EQ(none.max(), 0u);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t value = 1; value <= 100; ++value) histogram.record(value);
  EXPECT_EQ(histogram.percentile(0.5), 50u);
  EXPECT_EQ(histogram.percentile(0.99), 99u);
  EXPECT_EQ(histogram.percentile(1.0), 100u);
  EXPECT_EQ(histogram.percentile(0.0), 1u);
  EXPECT_EQ(histogram.min(), 1u);
  EXPECT_EQ(histogram.max(), 100u);
}

TEST(Histogram, LargeValuesAreWithinAHundredth) {
  for (unsigned shift = 0; shift < 64; ++shift) {
    for (const uint64_t value : {uint64_t{1} << shift, (uint64_t{1} << shift) + (1u << shift / 2),
                                 (uint64_t{2} << shift) - 1}) {
      Histogram histogram;
      histogram.record(value);
      histogram.record(std::numeric_limits<uint64_t>::max());
      const uint64_t found = histogram.percentile(0.5);
      EXPECT_GE(found, value);
      EXPECT_LE(static_cast<double>(found), static_cast<double>(value) * 1.01);
    }
  }
}

TEST(Histogram, ASingleLargeOneIsTheMaximumAndNotMore) {
  Histogram histogram;
  histogram.record(1'000'003);
  EXPECT_EQ(histogram.percentile(0.5), 1'000'003u);
  EXPECT_EQ(histogram.percentile(0.999), 1'000'003u);
}

}  // namespace
}  // namespace sluice
