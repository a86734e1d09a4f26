// Driver and device side in two threads: no wake-up is lost, nothing is lost or comes twice. Under
// thread sanitizer this shows that what each publishes is published.
#include "testing/driver_stress.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace sluice {
namespace {

template <typename Ring>
DriverStressResult against_fake(const DriverStressOptions& options) {
  return DriverStress<Ring, FakeStressDevice>(
             options,
             [](DriverTestRing<Ring>& ring) { return FakeStressDevice(*ring.device, ring.guest); })
      .run();
}

using StressRun = DriverStressResult (*)(const DriverStressOptions&);

#if !defined(SLUICE_MUTANT_NO_FENCE)

// SLUICE_STRESS_CHAINS=1000000 in the environment for a long run, which no time ends early.
const char* chains_wanted() { return std::getenv("SLUICE_STRESS_CHAINS"); }
uint64_t chains() {
  return chains_wanted() == nullptr ? 20'000 : std::strtoull(chains_wanted(), nullptr, 10);
}

struct Row {
  const char* what;
  StressRun run;
};
constexpr Row kRows[] = {
    {"split against a fake device", against_fake<SplitDriver>},
    {"packed against a fake device", against_fake<PackedDriver>},
    {"split against SplitQueue", stress_both_sides<SplitDriver>},
    {"packed against PackedQueue", stress_both_sides<PackedDriver>},
};

void expect_whole(const Row& row, DriverStressOptions options) {
  // There are 50 runs in one test, which has a time bound.
  options.seconds_max = chains_wanted() == nullptr ? 1 : 0;
  SCOPED_TRACE(testing::Message() << row.what << ", size " << options.ring.size << ", event_idx "
                                  << options.ring.event_idx);
  const DriverStressResult result = row.run(options);
  EXPECT_EQ(result.problem, "") << "after " << result.completed << " chains";
  EXPECT_NE(result.end, StressEnd::stalled) << "after " << result.completed << " chains";
  EXPECT_NE(result.end, StressEnd::stuck) << "after " << result.completed << " chains";
  if (result.end == StressEnd::done) {
    EXPECT_EQ(result.completed, options.chains);
  }
}

TEST(DriverStress, NothingIsLostAndNobodySleepsForGood) {
  for (const Row& row : kRows) {
    for (const uint32_t size : {1u, 2u, 4u, 16u, 64u, 256u}) {
      for (const bool event_idx : {false, true}) {
        expect_whole(row,
                     {.chains = chains() / 10, .ring = {.size = size, .event_idx = event_idx}});
      }
    }
  }
}

TEST(DriverStress, OneAtATimeIsTheSharpest) {
  for (const Row& row : kRows) {
    for (const bool event_idx : {false, true}) {
      expect_whole(row, {.chains = chains() / 5,
                         .ring = {.size = 4, .event_idx = event_idx},
                         .batch_max = 1,
                         .looks_before_sleep = 3000});
    }
  }
}

TEST(DriverStress, InOrderAndWithTables) {
  for (const Row& row : kRows) {
    expect_whole(row,
                 {.chains = chains(), .ring = {.size = 64, .event_idx = true, .in_order = true}});
    expect_whole(row,
                 {.chains = chains(), .ring = {.size = 16, .event_idx = true, .table_entries = 3}});
  }
}

#elif !defined(__SANITIZE_THREAD__)  // whose own locking is as good as a fence

// Here the driver side has no fence, and the fake device keeps its own.
TEST(DriverStressMutant, StallsWithoutTheFence) {
  for (const StressRun run : {against_fake<SplitDriver>, against_fake<PackedDriver>}) {
    DriverStressResult result;
    uint64_t completed = 0;
    for (uint32_t turn = 0; turn < 60 && result.end != StressEnd::stalled; ++turn) {
      result = run({.chains = UINT64_MAX,
                    .ring = {.size = 1, .event_idx = true},
                    .batch_max = 1,
                    .looks_before_sleep = turn % 2 == 0 ? 3000u : 30u,
                    .seconds_max = 1});
      completed += result.completed;
    }
    EXPECT_EQ(result.end, StressEnd::stalled) << "after " << completed << " chains";
  }
}

#endif

}  // namespace
}  // namespace sluice
