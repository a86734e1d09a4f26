// The hostile half of fake_vm: a front end that does everything wrong, at random, for a while.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

struct HostileFigures {
  uint64_t rounds = 0;       // connections made
  uint64_t refused = 0;      // set-ups that the back end did not go along with
  uint64_t ring_rounds = 0;  // rounds that got to running rings
};

// Attacks the back end at `path` until `deadline_ns` of the monotonic clock. Repeatable by seed.
HostileFigures attack(const std::string& path, uint32_t queue_pairs, uint64_t seed,
                      uint64_t deadline_ns);

}  // namespace sluice
