// That the ring benchmark measures what it says, not how fast it is.
#include "engine/ring_bench.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

TEST(RingBench, EachCaseRunsAsManyChainsAsItWasAsked) {
  for (const RingBenchCase& bench_case : ring_bench_cases()) {
    SCOPED_TRACE(ring_bench_name(bench_case));
    const auto result = run_ring_bench(bench_case, 1000);
    ASSERT_TRUE(result) << result.error().text;
    EXPECT_GE(result->chains, 1000u);
    EXPECT_LT(result->chains, 1000u + bench_case.burst);
    EXPECT_GT(result->ns, 0u);
  }
}

TEST(RingBench, CasesHaveNamesOfTheirOwnAndComeInPairs) {
  std::set<std::string> names;
  for (const RingBenchCase& bench_case : ring_bench_cases()) {
    EXPECT_TRUE(names.insert(ring_bench_name(bench_case)).second);
  }
  for (RingBenchCase bench_case : ring_bench_cases()) {
    bench_case.format =
        bench_case.format == RingFormat::split ? RingFormat::packed : RingFormat::split;
    EXPECT_TRUE(names.count(ring_bench_name(bench_case)));
  }
}

TEST(RingBench, RefusesWhatHasNoRoom) {
  EXPECT_FALSE(run_ring_bench({.ring_size = 32, .burst = 64}, 1));
  EXPECT_FALSE(run_ring_bench({.pieces = 5, .ring_size = 256, .burst = 64}, 1));
  EXPECT_FALSE(run_ring_bench({.ring_size = 100, .burst = 64}, 1));
  EXPECT_FALSE(run_ring_bench({.ring_size = 0}, 1));
  EXPECT_FALSE(run_ring_bench({.burst = 0}, 1));
}

}  // namespace
}  // namespace sluice
