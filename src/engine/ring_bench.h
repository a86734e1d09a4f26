// The cost of a ring alone: our driver side and our device side of one virtqueue, in one thread.
//
// A round: the driver adds a burst of chains and publishes it, the device pops them all, completes
// and publishes, the driver takes them back. Both sides look themselves, so there are no kicks and
// no callbacks, but each side does ask whether the other wants one, as it would. No byte of a
// buffer is touched: what is measured is rings, not copies.
//
//   for (const RingBenchCase& bench_case : ring_bench_cases()) {
//     const auto result = run_ring_bench(bench_case, 10'000'000);
//     if (result) …ring_bench_name(bench_case), result->ns_per_chain()…
//   }
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "virtio/ring_format.h"

namespace sluice {

enum class RingDirection : uint8_t { from_guest, to_guest };

struct RingBenchCase {
  RingFormat format = RingFormat::split;
  RingDirection direction = RingDirection::from_guest;
  bool event_idx = false;
  bool in_order = false;
  bool indirect = false;  // each chain in a table
  uint32_t pieces = 1;    // buffers a chain
  uint32_t ring_size = 256;
  uint32_t burst = 64;  // chains a round
};

struct RingBenchResult {
  uint64_t chains = 0;  // whole rounds: as many as were asked for, or up to a burst more
  uint64_t ns = 0;
  double ns_per_chain() const { return static_cast<double>(ns) / static_cast<double>(chains); }
};

// Every case that `sluice bench rings` prints; for each split one there is the same one packed.
std::span<const RingBenchCase> ring_bench_cases();
// "packed from_guest event_idx in_order", and what differs from the usual: "2 pieces", "burst 1".
std::string ring_bench_name(const RingBenchCase& bench_case);

// Runs `chains` chains behind a warm-up of as many, at most 100'000, that is not counted. Fails for
// want of memory, or for a case that cannot be: a burst that has no room on the ring.
Result<RingBenchResult> run_ring_bench(const RingBenchCase& bench_case, uint64_t chains);

}  // namespace sluice
