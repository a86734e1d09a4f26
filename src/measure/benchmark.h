// The named benchmarks: one table, one function each.
//
// A benchmark declares what it needs; what this machine has not becomes a skip in its report, which
// is counted and said. Its two halves alternate, one after the other, `rounds` times.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "measure/report.h"

namespace sluice {

struct BenchOptions {
  uint32_t rounds = 5;
  double seconds = 3;  // of each half
  int cpu_count = 1;   // CPUs that we may run on
  // Progress for whoever waits: one line a half.
  std::function<void(std::string_view)> progress = [](std::string_view) {};
};

struct Benchmark {
  std::string_view name;
  std::string_view sentence;
  std::string_view document;  // which public document's figures stand beside ours; may be empty
  Result<Report> (*run)(const BenchOptions& options);
};

std::span<const Benchmark> all_benchmarks();
const Benchmark* find_benchmark(std::string_view name);

// In files of their own, bench_<name>.cc.
Result<Report> bench_napi_tx(const BenchOptions& options);
Result<Report> bench_xdp_batch(const BenchOptions& options);
Result<Report> bench_xdp_run(const BenchOptions& options);
Result<Report> bench_rings(const BenchOptions& options);

}  // namespace sluice
