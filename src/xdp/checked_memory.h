// CheckedMemory: what an unverified program may touch, asked before each access and for each
// argument of a helper.
#pragma once

#include <cstdint>
#include <span>

#include "xdp/interpreter.h"

namespace sluice {

class CheckedMemory {
 public:
  CheckedMemory(const ProgramImage& image, const CheckedBounds& bounds, std::span<uint8_t> stack)
      : image_(&image), bounds_(bounds), stack_(stack) {}

  // A tail call was taken: its maps count now.
  void set_image(const ProgramImage& image) { image_ = &image; }

  bool may_read(uint64_t address, uint64_t bytes) const { return holds(address, bytes, false); }
  bool may_write(uint64_t address, uint64_t bytes) const { return holds(address, bytes, true); }

  // Whether the arguments of a helper are of the kinds that it takes. False too for a helper whose
  // kinds are not known.
  bool fits(uint32_t helper_id, const uint64_t* arguments) const;

 private:
  bool holds(uint64_t address, uint64_t bytes, bool for_writing) const;
  bool holds_frame(uint64_t address, uint64_t bytes) const;
  bool is_value_of_a_map(uint64_t address, uint64_t bytes) const;
  const MapRef* find_map(uint64_t pointer) const;

  const ProgramImage* image_;
  CheckedBounds bounds_;
  std::span<uint8_t> stack_;
};

}  // namespace sluice
