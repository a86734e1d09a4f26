// ring_stress: our driver side against our device side of one ring, in two threads, for as many
// chains as are asked for.
//
//   ring_stress [--chains N] [--seed S] [--format split|packed]
//
// N chains (default 1,000,000) of each format go through rings of 4 to 1024 descriptors, one size
// after the other, and packed ones of sizes between; features, batches, and how long either side
// looks before it sleeps differ from ring to ring by the seed, and both sides switch suppression on
// and off at random. Each chain has a number: the device sees them in their order, each once, and
// what it answers arrives. A lost wake-up is seen for certain, not by a timeout (testing/bell.h).
//
// Prints a line a ring, and at the end one JSON object of totals. Exit status 1 when something was
// wrong; the line then says what, and with which ring.
#include <fmt/format.h>
#include <getopt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "testing/driver_stress.h"

namespace sluice {
namespace {

constexpr uint64_t kChainsOfOneRingMax = 250'000;
const std::vector<uint32_t> kSplitSizes = {4, 8, 16, 32, 64, 128, 256, 512, 1024};
// A packed ring's size need not be a power of two.
const std::vector<uint32_t> kPackedSizes = {4,  5,   8,   7,   16,  13,  32,  33,  64,
                                            63, 128, 100, 256, 300, 512, 777, 1024};

struct Options {
  uint64_t chains = 1'000'000;
  uint64_t seed = 1;
  std::string format;  // empty: both
};

struct Totals {
  uint64_t split = 0;
  uint64_t packed = 0;
  uint64_t rings = 0;
  uint64_t kicks = 0;
  uint64_t interrupts = 0;
  uint64_t driver_sleeps = 0;
  uint64_t device_sleeps = 0;
};

// What ring number `index` of a run is like.
DriverStressOptions ring_options(uint32_t size, uint64_t seed, uint64_t index) {
  Jitter jitter(static_cast<uint32_t>(seed * 1'000'003 + index * 7919) | 1);
  for (int i = 0; i < 8; ++i) (void)jitter.next();
  constexpr uint32_t kBatches[] = {1, 4, 32, 64};
  constexpr uint32_t kLooks[] = {0, 30, 300, 3000};
  DriverStressOptions options;
  options.ring.size = size;
  options.ring.event_idx = jitter.next() % 2;
  options.ring.in_order = jitter.next() % 3 == 0;
  options.ring.table_entries = jitter.next() % 3 == 0 ? 3 : 0;
  options.batch_max = kBatches[jitter.next() % 4];
  // True sleep costs two system calls a round: seldom.
  options.looks_before_sleep = kLooks[jitter.next() % 8 == 0 ? 0 : 1 + jitter.next() % 3];
  options.seed = jitter.next();
  options.seconds_max = 0;
  return options;
}

bool run_format(bool packed, const Options& options, Totals& totals) {
  const std::vector<uint32_t>& sizes = packed ? kPackedSizes : kSplitSizes;
  const uint64_t each =
      std::min(kChainsOfOneRingMax, (options.chains + sizes.size() - 1) / sizes.size());
  uint64_t& done = packed ? totals.packed : totals.split;
  for (uint64_t index = 0; done < options.chains; ++index) {
    DriverStressOptions ring = ring_options(sizes[index % sizes.size()], options.seed, index);
    ring.chains = std::min(each, options.chains - done);
    const DriverStressResult result =
        packed ? stress_both_sides<PackedDriver>(ring) : stress_both_sides<SplitDriver>(ring);
    const bool is_whole = result.problem.empty() && result.completed == ring.chains;
    fmt::print("{} {} size {}{}{}{}, batches to {}, {} looks, seed {}: {} of {} chains, {}{}{}\n",
               packed ? "packed" : "split", index, ring.ring.size,
               ring.ring.event_idx ? ", event-idx" : ", flags",
               ring.ring.in_order ? ", in order" : "", ring.ring.table_entries ? ", tables" : "",
               ring.batch_max, ring.looks_before_sleep, ring.seed, result.completed, ring.chains,
               stress_end_words(result.end), result.problem.empty() ? "" : ": ", result.problem);
    std::fflush(stdout);
    done += result.completed;
    ++totals.rings;
    totals.kicks += result.kicks;
    totals.interrupts += result.interrupts;
    totals.driver_sleeps += result.driver_sleeps;
    totals.device_sleeps += result.device_sleeps;
    if (!is_whole) return false;
  }
  return true;
}

int run(const Options& options) {
  fmt::print("ring_stress --chains {} --seed {}\n", options.chains, options.seed);
  const uint64_t begin_ns = monotonic_ns();
  Totals totals;
  bool is_whole = true;
  if (options.format != "packed") is_whole = run_format(false, options, totals);
  if (options.format != "split" && is_whole) is_whole = run_format(true, options, totals);
  fmt::print(
      "{{\"split\": {}, \"packed\": {}, \"rings\": {}, \"kicks\": {}, \"interrupts\": {}, "
      "\"driver_sleeps\": {}, \"device_sleeps\": {}, \"seconds\": {:.1f}, \"seed\": {}, "
      "\"whole\": {}}}\n",
      totals.split, totals.packed, totals.rings, totals.kicks, totals.interrupts,
      totals.driver_sleeps, totals.device_sleeps,
      static_cast<double>(monotonic_ns() - begin_ns) / 1e9, options.seed, is_whole);
  return is_whole ? 0 : 1;
}

bool parse(int argc, char** argv, Options& options) {
  const option words[] = {{"chains", required_argument, nullptr, 'c'},
                          {"seed", required_argument, nullptr, 's'},
                          {"format", required_argument, nullptr, 'f'},
                          {}};
  int got = 0;
  while ((got = ::getopt_long(argc, argv, "", words, nullptr)) != -1) {
    if (got == 'c')
      options.chains = std::strtoull(optarg, nullptr, 10);
    else if (got == 's')
      options.seed = std::strtoull(optarg, nullptr, 10);
    else if (got == 'f')
      options.format = optarg;
    else
      return false;
  }
  const bool is_format =
      options.format.empty() || options.format == "split" || options.format == "packed";
  return optind == argc && is_format;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Options options;
  if (!sluice::parse(argc, argv, options)) {
    std::fputs("usage: ring_stress [--chains N] [--seed S] [--format split|packed]\n", stderr);
    return 2;
  }
  return sluice::run(options);
}
