#include "testing/driver_stress.h"

#include <algorithm>

namespace sluice {

uint32_t FakeStressDevice::serve(uint32_t count) {
  uint32_t served = 0;
  for (; served < count; ++served) {
    const auto taken = device_.take();
    if (!taken) break;
    uint64_t number = 0;
    uint32_t written = 0;
    for (const FakeDevice::Piece& piece : taken->pieces) {
      uint8_t* at = guest_.at(piece.address, piece.bytes);
      if (!piece.is_writable) {
        std::memcpy(&number, at, sizeof number);
        number *= 2;
        continue;
      }
      const uint32_t run = std::min<uint32_t>(piece.bytes, sizeof number - written);
      std::memcpy(at, reinterpret_cast<const uint8_t*>(&number) + written, run);
      written += run;
    }
    device_.use(*taken, written);
  }
  return served;
}

}  // namespace sluice
