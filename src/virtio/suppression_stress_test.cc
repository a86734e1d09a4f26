// Notification suppression under stress, and, compiled with SLUICE_MUTANT_NO_FENCE, the proof that
// the stress sees a missing fence (no_fence_mutant.cc).
#include "testing/suppression_stress.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

#if !defined(SLUICE_MUTANT_NO_FENCE)

struct StressRow {
  const char* what;
  StressOptions options;
};

class SuppressionStress : public ::testing::TestWithParam<StressRow> {};

TEST_P(SuppressionStress, NoWakeUpIsLost) {
  const StressResult result = run_suppression_stress(GetParam().options);
  EXPECT_FALSE(result.stalled) << "both sides sleep after " << result.completed << " chains";
  EXPECT_FALSE(result.out_of_time) << result.completed << " chains";
  EXPECT_FALSE(result.wrong_payload);
  EXPECT_FALSE(result.wrong_order_of_calls);
  EXPECT_EQ(result.completed, GetParam().options.chains);
  // Both sides did sleep, or nothing was tried.
  EXPECT_GT(result.device_sleeps, 0u);
  EXPECT_GT(result.driver_sleeps, 0u);
  RecordProperty("kicks", static_cast<int>(result.kicks));
  RecordProperty("interrupts", static_cast<int>(result.interrupts));
}

INSTANTIATE_TEST_SUITE_P(
    Rings, SuppressionStress,
    ::testing::Values(
        StressRow{"EventIdxOneByOne", {.chains = 20'000, .event_idx = true}},
        StressRow{"FlagsOneByOne", {.chains = 20'000, .event_idx = false}},
        StressRow{"EventIdxManyAtOnce", {.outstanding_max = 40, .event_idx = true}},
        StressRow{"FlagsManyAtOnce", {.outstanding_max = 40, .event_idx = false}},
        StressRow{"EventIdxRingOfTwo", {.chains = 10'000, .ring_size = 2, .event_idx = true}},
        StressRow{"EventIdxAsleep",
                  {.chains = 100'000, .event_idx = true, .looks_before_sleep = 0}},
        StressRow{"FlagsAsleep", {.chains = 100'000, .event_idx = false, .looks_before_sleep = 0}}),
    [](const auto& param_info) { return std::string(param_info.param.what); });

#elif !defined(__SANITIZE_THREAD__)  // whose own locking is as good as a fence

TEST(SuppressionMutant, StallsWithoutTheFence) {
  // A busy machine is kinder to the one or to the other, so they take turns.
  StressResult result;
  uint64_t completed = 0;
  for (uint32_t turn = 0; turn < 60 && !result.stalled; ++turn) {
    result = run_suppression_stress({.chains = UINT64_MAX,
                                     .event_idx = true,
                                     .looks_before_sleep = turn % 2 == 0 ? 3000u : 30u,
                                     .seconds_max = 1});
    completed += result.completed;
    ASSERT_FALSE(result.wrong_payload || result.wrong_order_of_calls);
  }
  EXPECT_TRUE(result.stalled) << "after " << completed << " chains: the stress is blind";
}

#endif

}  // namespace
}  // namespace sluice
