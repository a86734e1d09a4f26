// Monotonic time in nanoseconds, from the vDSO (no system call on usual machines).
#pragma once

#include <time.h>

#include <cstdint>

namespace sluice {

inline uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace sluice
