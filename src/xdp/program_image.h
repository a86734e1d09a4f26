// ProgramImage: the instructions of one program, checked and with its maps in place, ready to be
// interpreted or compiled.
//
// check_image() is our own allow-list, independent of the kernel's verifier: every opcode is known,
// every register and jump target exists, every helper is one that we have. It does not prove that
// memory accesses are in bounds: that is the verifier's part, or else the checked interpreter's.
//
//   Result<ProgramImage> image = check_image({instructions, maps}, standard_helpers());
//
// What is refused is refused by name, with the number of the instruction.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "xdp/helper_table.h"
#include "xdp/instruction.h"
#include "xdp/map_ref.h"

namespace sluice {

// What a loader hands over: the main program first and its subprograms behind it. The 64-bit
// immediates that name a map (WideImmediate::map and ::map_value) hold its index in `maps`.
struct ImageSource {
  std::span<const Instruction> instructions;
  std::span<const MapRef> maps;
  // callx: a helper by the number in a register. The kernel refuses it, the conformance suite has
  // it.
  bool may_call_by_register = false;
};

// A function: instructions [begin, end). The main program is the first.
struct Subprogram {
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct ProgramImage {
  // As in the source, but maps and their values are plain 64-bit numbers now.
  std::vector<Instruction> instructions;
  std::vector<Subprogram> subprograms;
  std::vector<MapRef> maps;
  // For each instruction: the index of the map that a `call map_lookup_elem` is certain to be
  // about, or kNoMap.
  std::vector<uint16_t> lookup_maps;
  const HelperTable* helpers = nullptr;

  static constexpr uint16_t kNoMap = 0xffff;
};

Result<ProgramImage> check_image(const ImageSource& source, const HelperTable& helpers);

}  // namespace sluice
