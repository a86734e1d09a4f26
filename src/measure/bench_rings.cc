// rings: what a ring costs, without packets and without a second processor.
//
// One thread plays driver and device of a ring; see engine/ring_bench.h. Before is the split ring,
// after the packed one with the same features.
#include <fmt/format.h>

#include "engine/ring_bench.h"
#include "measure/benchmark.h"

namespace sluice {
namespace {

constexpr uint64_t kChainsCalibration = 200'000;

Result<double> ns_per_chain(const RingBenchCase& ring, uint64_t chains) {
  auto result = run_ring_bench(ring, chains);
  if (!result) return fail("{}: {}", ring_bench_name(ring), result.error().text);
  return result->ns_per_chain();
}

// What the case is called beside its format.
std::string label_of(const RingBenchCase& ring) {
  const std::string name = ring_bench_name(ring);
  const size_t space = name.find(' ');
  return space == std::string::npos ? name : name.substr(space + 1);
}

}  // namespace

Result<Report> bench_rings(const BenchOptions& options) {
  Report report{.name = "rings",
                .title = "driver and device of one ring in one thread, no bytes copied",
                .setup = "bursts as named (64 chains otherwise), ring of 256; split against packed",
                .rows = {},
                .skips = {}};
  for (const RingBenchCase& split : ring_bench_cases()) {
    if (split.format != RingFormat::split) continue;
    RingBenchCase packed = split;
    packed.format = RingFormat::packed;
    options.progress(fmt::format("rings: {}", label_of(split)));
    // As many chains as fill a fifth of a half's time: there are many cases.
    auto first = ns_per_chain(split, kChainsCalibration);
    if (!first) return fail(first.error());
    const auto chains = static_cast<uint64_t>(options.seconds / 5 * 1e9 / *first);
    ReportRow row{.label = label_of(split),
                  .unit = "ns a chain",
                  .before_label = "split",
                  .after_label = "packed",
                  .before = {},
                  .after = {},
                  .more_is_better = false,
                  .document = std::nullopt,
                  .notes = {}};
    for (uint32_t round = 0; round < options.rounds; ++round) {
      for (const RingBenchCase* half : {&split, const_cast<const RingBenchCase*>(&packed)}) {
        auto ns = ns_per_chain(*half, std::max(chains, kChainsCalibration));
        if (!ns) return fail(ns.error());
        (half == &split ? row.before : row.after).push_back(*ns);
      }
    }
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace sluice
