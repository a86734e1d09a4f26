// xdp-run: what an XDP program costs a frame in our engines, without ring and port.
//
// In one thread; see measure/xdp_run_cost.h. Before is the same C as native code called through the
// same loop, or the interpreter, after is our compiler.
#include <fmt/format.h>

#include "measure/benchmark.h"
#include "measure/xdp_run_cost.h"

namespace sluice {

Result<Report> bench_xdp_run(const BenchOptions& options) {
  Report report{.name = "xdp-run",
                .title = "an XDP program on 64-byte frames, the copy into the frame included",
                .setup =
                    "4096 frames in batches of 64, in one thread; drop, count (parses Ethernet, "
                    "IPv4, UDP and counts in an array), lookup (an address in a hash of 500)",
                .rows = {},
                .skips = {}};
  XdpRunCost cost;
  if (!cost.is_usable()) {
    report.skips.push_back({"all rows", "no memory below 4 GiB is free here"});
    return report;
  }
  for (const char* program : XdpRunCost::programs()) {
    for (const char* other : {"native", "interpreted", "checked"}) {
      options.progress(fmt::format("xdp-run: {}, {} and compiled", program, other));
      ReportRow row{.label = program,
                    .unit = "ns a frame",
                    .before_label = other,
                    .after_label = "compiled",
                    .before = {},
                    .after = {},
                    .more_is_better = false,
                    .document = std::nullopt,
                    .notes = {}};
      // Rounds that fill a tenth of a half's time at 20 ns a frame: there are many rows.
      const auto rounds = static_cast<uint64_t>(
          options.seconds / 10 * 1e9 / (20.0 * static_cast<double>(XdpRunCost::kFramesARound)));
      for (uint32_t round = 0; round < options.rounds; ++round) {
        row.before.push_back(cost.run(program, other, std::max<uint64_t>(rounds, 10)));
        row.after.push_back(cost.run(program, "compiled", std::max<uint64_t>(rounds, 10)));
      }
      report.rows.push_back(std::move(row));
    }
  }
  return report;
}

}  // namespace sluice
