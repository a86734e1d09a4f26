#include "xdp/opcode_check.h"

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr uint8_t kFramePointer = 10;

std::string unknown(const Instruction& instruction) {
  return fmt::format("opcode 0x{:02x} is unknown", instruction.code);
}

std::string fault_of_byte_swap(const Instruction& instruction) {
  const bool is_swap = class_of(instruction) == BPF_ALU64;
  if (is_swap && uses_register(instruction)) return unknown(instruction);
  if (instruction.off != 0) return "a byte swap has an offset";
  const int32_t bits = instruction.imm;
  return bits == 16 || bits == 32 || bits == 64 ? "" : fmt::format("a byte swap of {} bits", bits);
}

std::string fault_of_move(const Instruction& instruction) {
  const bool is_64 = class_of(instruction) == BPF_ALU64;
  switch (instruction.off) {
    case 0:
      return "";
    case 8:
    case 16:
      return uses_register(instruction) ? "" : "a signed move of a number";
    case 32:
      return uses_register(instruction) && is_64 ? "" : "a signed move of 32 bits into 32";
    case 1:
      return "casts between address spaces (arena) are not supported";
    default:
      return fmt::format("a move has the offset {}", instruction.off);
  }
}

std::string fault_of_arithmetic(const Instruction& instruction) {
  switch (operation_of(instruction)) {
    case BPF_END:
      return fault_of_byte_swap(instruction);
    case BPF_MOV:
      return fault_of_move(instruction);
    case BPF_DIV:
    case BPF_MOD:
      return instruction.off == 0 || instruction.off == 1
                 ? ""
                 : fmt::format("a division has the offset {}", instruction.off);
    case BPF_NEG:
      if (uses_register(instruction)) return unknown(instruction);
      break;
    case BPF_ADD:
    case BPF_SUB:
    case BPF_MUL:
    case BPF_OR:
    case BPF_AND:
    case BPF_LSH:
    case BPF_RSH:
    case BPF_XOR:
    case BPF_ARSH:
      break;
    default:
      return unknown(instruction);
  }
  return instruction.off == 0 ? "" : "an arithmetic instruction has an offset";
}

std::string fault_of_jump(const Instruction& instruction) {
  const bool is_32 = class_of(instruction) == BPF_JMP32;
  switch (operation_of(instruction)) {
    case BPF_JA:
      return uses_register(instruction) ? "jumps through a register (gotox) are not supported" : "";
    case BPF_CALL:
      if (is_32) return unknown(instruction);
      return "";
    case BPF_EXIT:
      return is_32 || uses_register(instruction) ? unknown(instruction) : "";
    case kJumpMayGoto:
      return is_32 ? unknown(instruction) : "may_goto is not supported";
    case BPF_JEQ:
    case BPF_JGT:
    case BPF_JGE:
    case BPF_JSET:
    case BPF_JNE:
    case BPF_JSGT:
    case BPF_JSGE:
    case BPF_JLT:
    case BPF_JLE:
    case BPF_JSLT:
    case BPF_JSLE:
      return "";
    default:
      return unknown(instruction);
  }
}

std::string fault_of_atomic(const Instruction& instruction) {
  const uint32_t bytes = size_of_access(instruction);
  if (bytes != 4 && bytes != 8) return "an atomic operation on less than 4 bytes";
  switch (instruction.imm) {
    case BPF_ADD:
    case BPF_OR:
    case BPF_AND:
    case BPF_XOR:
    case BPF_ADD | BPF_FETCH:
    case BPF_OR | BPF_FETCH:
    case BPF_AND | BPF_FETCH:
    case BPF_XOR | BPF_FETCH:
    case BPF_XCHG:
    case BPF_CMPXCHG:
      return "";
    default:
      return fmt::format("atomic operation 0x{:x} is unknown", instruction.imm);
  }
}

std::string fault_of_access(const Instruction& instruction) {
  const uint8_t mode = mode_of(instruction);
  switch (class_of(instruction)) {
    case BPF_LD:
      if (is_wide(instruction)) return "";
      if (mode == BPF_ABS || mode == BPF_IND)
        return "loads of the socket filters (LD_ABS, LD_IND) are not for XDP";
      return unknown(instruction);
    case BPF_LDX:
      if (mode == kModeMemSx && size_of_access(instruction) < 8) return "";
      return mode == BPF_MEM ? "" : unknown(instruction);
    case BPF_ST:
      return mode == BPF_MEM ? "" : unknown(instruction);
    default:
      if (mode == BPF_ATOMIC) return fault_of_atomic(instruction);
      return mode == BPF_MEM ? "" : unknown(instruction);
  }
}

bool writes_destination(const Instruction& instruction) {
  const uint8_t kind = class_of(instruction);
  return kind == BPF_ALU || kind == BPF_ALU64 || kind == BPF_LDX || kind == BPF_LD;
}

}  // namespace

std::string fault_of(const Instruction& instruction) {
  if (instruction.dst_reg > kFramePointer)
    return fmt::format("no register r{}", +instruction.dst_reg);
  if (instruction.src_reg > kFramePointer)
    return fmt::format("no register r{}", +instruction.src_reg);
  if (instruction.dst_reg == kFramePointer && writes_destination(instruction))
    return "r10, the frame pointer, is written";
  const bool fetches = class_of(instruction) == BPF_STX && mode_of(instruction) == BPF_ATOMIC &&
                       (instruction.imm & BPF_FETCH) != 0 && instruction.imm != BPF_CMPXCHG;
  if (fetches && instruction.src_reg == kFramePointer) return "r10, the frame pointer, is written";
  switch (class_of(instruction)) {
    case BPF_ALU:
    case BPF_ALU64:
      return fault_of_arithmetic(instruction);
    case BPF_JMP:
    case BPF_JMP32:
      return fault_of_jump(instruction);
    default:
      return fault_of_access(instruction);
  }
}

}  // namespace sluice
