// What an XDP program costs a frame, by engine, beside the same C compiled by our compiler and
// called through the same loop.
//
// A round copies 64 bytes into each of 4096 frames, in batches of 64, and runs the program over
// them: drop, count (looks at Ethernet, IPv4 and UDP and counts in an array) or lookup (an address
// in a hash).
//
//   XdpRunCost cost;
//   double ns = cost.run("count", "compiled", 200);   // of the best of 200 rounds
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace sluice {

class XdpRunCost {
 public:
  static constexpr uint64_t kFramesARound = 4096;

  XdpRunCost();
  ~XdpRunCost();
  // "drop", "count", "lookup"; "native", "compiled", "interpreted", "checked".
  static std::span<const char* const> programs();
  static std::span<const char* const> engines();
  // False: the frames found no room below 4 GiB.
  bool is_usable() const;
  // Nanoseconds a frame of the best round. 0: there is no such program.
  double run(std::string_view program, std::string_view engine, uint64_t rounds);

 private:
  class Bench;
  std::unique_ptr<Bench> bench_;
};

}  // namespace sluice
