// The kernel's 64-bit tag of a program: what shows that the instructions which run are those that
// the verifier has seen. It is an integrity check, no defence against who can forge one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "xdp/instruction.h"

namespace sluice {

using ProgramTag = std::array<uint8_t, 8>;

// Whether `program_fd` is an XDP program of the kernel's with these instructions, whatever the
// numbers of its maps. Kernels up to 6.17 sum with SHA-1, later ones with SHA-256: either is fine.
Result<ProgramTag> check_program_tag(int program_fd, std::span<const Instruction> instructions);

std::string tag_text(const ProgramTag& tag);

}  // namespace sluice
