// What is wrong with one instruction, seen by itself: an opcode, a register or a reserved field.
#pragma once

#include <string>

#include "xdp/instruction.h"

namespace sluice {

// Empty: nothing. Jump targets, calls and 64-bit immediates are the caller's to look at.
std::string fault_of(const Instruction& instruction);

}  // namespace sluice
