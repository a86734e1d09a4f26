#include "measure/series.h"

#include <algorithm>

namespace sluice {

double median(Series values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

Ratio ratio_of(const Series& before, const Series& after) {
  const size_t rounds = std::min(before.size(), after.size());
  const double before_median = median(before);
  if (rounds == 0 || before_median == 0) return {};
  Ratio ratio{.value = median(after) / before_median};
  bool first = true;
  for (size_t i = 0; i < rounds; ++i) {
    if (before[i] == 0) continue;
    const double own = after[i] / before[i];
    ratio.low = first ? own : std::min(ratio.low, own);
    ratio.high = first ? own : std::max(ratio.high, own);
    first = false;
  }
  return ratio;
}

}  // namespace sluice
