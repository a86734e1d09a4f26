// Figures of repeated runs, and what may be said of two of them.
//
// Machines are shared and noisy: the two halves of a comparison alternate (before, after, before,
// after …), and what counts is the ratio of the medians. The spread says how much to trust it: the
// smallest and the largest ratio of a round's own two halves.
#pragma once

#include <cstddef>
#include <vector>

namespace sluice {

using Series = std::vector<double>;

// 0 for an empty series; the mean of the middle two for an even number.
double median(Series values);

struct Ratio {
  double value = 0;  // median of `after` over median of `before`
  double low = 0;    // of the rounds' own ratios
  double high = 0;
};
// One value a round in each; series of different lengths are compared as far as both go. A `before`
// of 0 makes no ratio: the result is all zero.
Ratio ratio_of(const Series& before, const Series& after);

// +0.55 for half as much again; what documents of the field print as "+55 %".
inline double gain_of(const Ratio& ratio) { return ratio.value == 0 ? 0 : ratio.value - 1; }

}  // namespace sluice
