// Notification suppression under stress, and, compiled with SLUICE_MUTANT_NO_FENCE, the proof that
// the stress sees a missing fence (no_fence_mutant.cc).
#include "testing/suppression_stress.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

#if !defined(SLUICE_MUTANT_NO_FENCE)

struct StressRow {
  std::string what;
  StressOptions options;
};
// Without it the names that ctest shows are the bytes of the row.
void PrintTo(const StressRow& row, std::ostream* out) { *out << row.what; }

class SuppressionStress : public ::testing::TestWithParam<StressRow> {};

TEST_P(SuppressionStress, NoWakeUpIsLost) {
  const StressResult result = run_suppression_stress(GetParam().options);
  EXPECT_NE(result.end, StressEnd::stalled) << "after " << result.completed << " chains";
  EXPECT_NE(result.end, StressEnd::stuck) << "after " << result.completed << " chains";
  EXPECT_FALSE(result.wrong_payload);
  EXPECT_FALSE(result.wrong_order_of_calls);
  if (result.end == StressEnd::done) {
    EXPECT_EQ(result.completed, GetParam().options.chains);
  }
  // Both sides did sleep, or nothing was tried.
  EXPECT_GT(result.device_sleeps, 0u);
  EXPECT_GT(result.driver_sleeps, 0u);
  RecordProperty("chains", static_cast<int>(result.completed));
  RecordProperty("kicks", static_cast<int>(result.kicks));
  RecordProperty("interrupts", static_cast<int>(result.interrupts));
}

std::vector<StressRow> rows() {
  constexpr auto kPacked = RingFormat::packed;
  std::vector<StressRow> all;
  for (const auto format : {RingFormat::split, kPacked}) {
    for (const bool event_idx : {true, false}) {
      const std::string name =
          std::string(format == kPacked ? "Packed" : "Split") + (event_idx ? "EventIdx" : "Flags");
      StressOptions options{.format = format, .event_idx = event_idx};
      options.chains = 20'000;
      all.push_back({name + "OneByOne", options});
      options.chains = 50'000;
      options.looks_before_sleep = 0;
      all.push_back({name + "Asleep", options});
      options = {.format = format, .outstanding_max = 40, .event_idx = event_idx};
      all.push_back({name + "ManyAtOnce", options});
      options = {.format = format, .chains = 10'000, .ring_size = 2, .event_idx = event_idx};
      all.push_back({name + "RingOfTwo", options});
    }
  }
  // No power of two: wrap counters turn over at all places of a batch.
  all.push_back({"PackedEventIdxRingOfSeven",
                 {.format = kPacked,
                  .ring_size = 7,
                  .outstanding_max = 3,
                  .event_idx = true,
                  .start_index = 9}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Rings, SuppressionStress, ::testing::ValuesIn(rows()),
                         [](const auto& param_info) { return param_info.param.what; });

#elif !defined(__SANITIZE_THREAD__)  // whose own locking is as good as a fence

class SuppressionMutant : public ::testing::TestWithParam<RingFormat> {};

TEST_P(SuppressionMutant, StallsWithoutTheFence) {
  // A busy machine is kinder to the one or to the other, so they take turns.
  StressResult result;
  uint64_t completed = 0;
  for (uint32_t turn = 0; turn < 60 && result.end != StressEnd::stalled; ++turn) {
    result = run_suppression_stress({.format = GetParam(),
                                     .chains = UINT64_MAX,
                                     .event_idx = true,
                                     .looks_before_sleep = turn % 2 == 0 ? 3000u : 30u,
                                     .seconds_max = 1});
    completed += result.completed;
    ASSERT_FALSE(result.wrong_payload || result.wrong_order_of_calls);
  }
  EXPECT_EQ(result.end, StressEnd::stalled)
      << "after " << completed << " chains: the stress is blind";
}

INSTANTIATE_TEST_SUITE_P(Rings, SuppressionMutant,
                         ::testing::Values(RingFormat::split, RingFormat::packed),
                         [](const auto& param_info) {
                           return param_info.param == RingFormat::split ? "Split" : "Packed";
                         });

#endif

}  // namespace
}  // namespace sluice
