// Histogram: how often which value came, over the whole range of 64 bits, with a fixed amount of
// memory and an error of less than 1 %.
//
// Values below 256 have a bucket each; above, every power of two is split into 128. Recording is
// two shifts and an increment and never allocates. One thread records; copy it to hand it over.
//
//   Histogram latency_ns;
//   latency_ns.record(1234);
//   latency_ns.percentile(0.99);   // at most so much: the upper end of its bucket
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

class Histogram {
 public:
  Histogram() : buckets_(kBuckets) {}

  void record(uint64_t value) {
    ++buckets_[bucket_of(value)];
    ++count_;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }
  uint64_t count() const { return count_; }
  uint64_t min() const { return count_ == 0 ? 0 : min_; }
  uint64_t max() const { return max_; }

  // The smallest value that at least `share` (0 to 1) of all values do not exceed, but for the
  // error of a bucket. 0 when nothing was recorded.
  uint64_t percentile(double share) const {
    const double rank = share * static_cast<double>(count_);
    uint64_t seen = 0;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen > 0 && static_cast<double>(seen) >= rank) return std::min(upper_end(i), max_);
    }
    return max_;
  }

 private:
  static constexpr unsigned kSplitBits = 7;
  static constexpr size_t kSplit = size_t{1} << kSplitBits;
  // Two times kSplit exact ones, then kSplit for each power of two up to 2^63.
  static constexpr size_t kBuckets = (64 - kSplitBits + 1) * kSplit;

  static size_t bucket_of(uint64_t value) {
    const auto width = static_cast<unsigned>(std::bit_width(value));
    if (width <= kSplitBits + 1) return static_cast<size_t>(value);
    const unsigned shift = width - kSplitBits - 1;
    return shift * kSplit + static_cast<size_t>(value >> shift);
  }
  static uint64_t upper_end(size_t bucket) {
    if (bucket < 2 * kSplit) return bucket;
    const size_t shift = bucket / kSplit - 1;
    const uint64_t top = bucket - shift * kSplit;  // kSplit to 2 kSplit - 1
    return ((top + 1) << shift) - 1;
  }

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
};

}  // namespace sluice
