// The interpreter: runs a checked image instruction by instruction, on any machine.
//
// Two ways: trusted, for what the kernel's verifier has passed (it is the oracle of the compiler,
// and what runs where there is no compiler), and checked, for what nobody has verified: each access
// must lie in the stack, the frame or the value of a map, each argument of a helper fit its kind,
// and a run ends after a number of instructions.
//
//   InterpretedRun run = interpret(image, {context});                 // trusted
//   InterpretedRun run = interpret_checked(image, {context}, bounds);
//   if (run.fault != RunFault::none) …                                // r0 means nothing then
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "xdp/program_image.h"

struct xdp_md;

namespace sluice {

// How deep functions may call one another; the verifier's own bound.
inline constexpr uint32_t kCallDepthMax = 8;
inline constexpr uint32_t kStackBytes = 512;  // of each function
// How many tail calls one run may take. [MAX_TAIL_CALL_CNT]
inline constexpr uint32_t kTailCallsMax = 33;
// Instructions of one run on one frame, unless verified.
inline constexpr uint64_t kInstructionBudget = 1'000'000;

enum class RunFault : uint8_t {
  none,
  bad_access,  // outside the stack, the frame and every map
  bad_call,    // a helper was given what it must not get, or functions call too deep
  over_budget,
};
std::string_view name_of(RunFault fault);

struct InterpretedRun {
  uint64_t r0 = 0;
  RunFault fault = RunFault::none;
};

using ProgramArguments = std::array<uint64_t, 5>;  // r1 … r5

struct MemoryRegion {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool is_writable = false;
};

// What a checked run may touch besides its stack and the values of its maps.
struct CheckedBounds {
  std::span<const MemoryRegion> regions;
  // The frame's description: readable, and what it describes is writable, as it is at the time.
  const xdp_md* context = nullptr;
  uint64_t instructions_max = kInstructionBudget;
};

InterpretedRun interpret(const ProgramImage& image, const ProgramArguments& arguments);
InterpretedRun interpret_checked(const ProgramImage& image, const ProgramArguments& arguments,
                                 const CheckedBounds& bounds);

}  // namespace sluice
