// What the fuzzers of rings take their steps from: an input that is used up bit by bit, with
// addresses and lengths that mean something more often than chance would have it.
#pragma once

#include <cstdint>

#include "fuzz_input.h"

namespace sluice {

// Rings and tables in the first region; two neighbours; a hole between.
inline constexpr uint64_t kRingsBytes = 16 << 10;
inline constexpr uint64_t kNeighbour = 64 << 10;
inline constexpr uint64_t kNeighbourBytes = 8 << 10;

class RingInput : public FuzzInput {
 public:
  using FuzzInput::FuzzInput;

  // An address that means something more often than chance would have it.
  uint64_t address() {
    switch (byte() % 8) {
      case 0:
        return byte() * uint64_t{16};  // the rings themselves
      case 1:
        return kNeighbour + word() % (2 * kNeighbourBytes);
      case 2:
        return kNeighbour + kNeighbourBytes - byte();  // over the border
      case 3:
        return kRingsBytes - byte();  // into the hole
      case 4:
        return UINT64_MAX - byte();
      case 5:
        return dword() | static_cast<uint64_t>(dword()) << 32;
      default:
        return word() % kRingsBytes;
    }
  }
  uint32_t length() {
    switch (byte() % 4) {
      case 0:
        return byte();
      case 1:
        return 16u * (byte() % 80);
      case 2:
        return word();
      default:
        return dword();
    }
  }
};

}  // namespace sluice
