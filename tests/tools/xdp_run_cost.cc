// What an XDP program costs a frame, by engine (measure/xdp_run_cost.h).
//
//   xdp_run_cost [--rounds N]                            all, alternating: the best round of each
//   xdp_run_cost --program NAME --engine NAME --rounds N one, for a profiler to count instructions
//
// One JSON line a program and engine.
#include "measure/xdp_run_cost.h"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>

namespace sluice {
namespace {

int run(std::string_view program, std::string_view engine, uint64_t rounds) {
  XdpRunCost cost;
  if (!cost.is_usable()) {
    std::fprintf(stderr, "no memory below 4 GiB is free here\n");
    return 77;
  }
  int count = 0;
  for (const char* one : XdpRunCost::programs()) {
    if (!program.empty() && program != one) continue;
    for (const char* name : XdpRunCost::engines()) {
      if (!engine.empty() && engine != name) continue;
      ++count;
      std::printf(
          "{\"program\": \"%s\", \"engine\": \"%s\", \"frames\": %llu, "
          "\"ns_a_frame\": %.2f}\n",
          one, name, static_cast<unsigned long long>(rounds * XdpRunCost::kFramesARound),
          cost.run(one, name, rounds));
    }
  }
  return count > 0 ? 0 : 2;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  static const option words[] = {{"program", required_argument, nullptr, 'p'},
                                 {"engine", required_argument, nullptr, 'e'},
                                 {"rounds", required_argument, nullptr, 'r'},
                                 {nullptr, 0, nullptr, 0}};
  std::string_view program, engine;
  uint64_t rounds = 200;
  int got = 0;
  while ((got = ::getopt_long(argc, argv, "", words, nullptr)) != -1) {
    if (got == 'p') program = optarg;
    if (got == 'e') engine = optarg;
    if (got == 'r') rounds = std::strtoull(optarg, nullptr, 10);
    if (got == '?') return 2;
  }
  return sluice::run(program, engine, rounds);
}
