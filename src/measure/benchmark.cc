#include "measure/benchmark.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr Benchmark kBenchmarks[] = {
    {"s4-napi-tx", "driver side: sent buffers taken back inside transmit, and from a poll",
     "virtio-net: tweak for better TX performance in NAPI mode (2025)", bench_napi_tx},
    {"s2-batch", "a guest's packets one by one and in batches, with an XDP program and without",
     "Vhost_net TX batching (2018)", bench_xdp_batch},
    {"xdp-run", "what an XDP program costs a frame: compiled, interpreted, and as native code", "",
     bench_xdp_run},
    {"rings", "one thread plays driver and device of a ring: ns a chain, split and packed", "",
     bench_rings},
};

}  // namespace

std::span<const Benchmark> all_benchmarks() { return kBenchmarks; }

const Benchmark* find_benchmark(std::string_view name) {
  const auto found = std::ranges::find(kBenchmarks, name, &Benchmark::name);
  return found == std::end(kBenchmarks) ? nullptr : &*found;
}

}  // namespace sluice
