// What a BPF instruction is made of, by the names of RFC 9669, on top of the kernel's struct
// bpf_insn. Only what Debian 12's headers do not know yet is defined here.
//
//   code (8 bits): class in the low three; then, for arithmetic and jumps, source (K or X) and
//   operation; for loads and stores, size and mode.
#pragma once

#include <linux/bpf.h>

#include <cstddef>
#include <cstdint>

namespace sluice {

using Instruction = bpf_insn;
static_assert(sizeof(Instruction) == 8);

// Signed loads. [RFC 9669 5.2]
inline constexpr uint8_t kModeMemSx = 0x80;
// BPF_JMP operations that the verifier knows and we refuse.
inline constexpr uint8_t kJumpMayGoto = 0xe0;

// What the 64-bit immediate stands for: src_reg of the first half. [RFC 9669 5.4.2]
enum class WideImmediate : uint8_t {
  number = 0,
  map = 1,            // imm: which map
  map_value = 2,      // imm: which map; imm of the second half: offset in its first value
  kernel_symbol = 3,  // BTF id of a variable of the kernel
  function = 4,       // imm: a subprogram, relative to the next instruction
  map_index = 5,
  map_index_value = 6,
};
// What `call` calls: its src_reg.
enum class CallKind : uint8_t { helper = 0, subprogram = 1, kernel_function = 2 };

// libbpf puts this helper number where a CO-RE relocation failed; the verifier has proved that no
// run reaches it, or it has refused the program.
inline constexpr int32_t kPoisonedCall = 0xbad2310;

inline uint8_t class_of(const Instruction& instruction) { return BPF_CLASS(instruction.code); }
inline uint8_t operation_of(const Instruction& instruction) { return BPF_OP(instruction.code); }
inline uint8_t mode_of(const Instruction& instruction) { return BPF_MODE(instruction.code); }
inline bool is_jump(const Instruction& instruction) {
  return class_of(instruction) == BPF_JMP || class_of(instruction) == BPF_JMP32;
}
inline bool is_call(const Instruction& instruction) {
  return instruction.code == (BPF_JMP | BPF_CALL);
}
// callx: the helper whose number a register holds.
inline bool is_call_by_register(const Instruction& instruction) {
  return instruction.code == (BPF_JMP | BPF_CALL | BPF_X);
}
inline bool is_exit(const Instruction& instruction) {
  return instruction.code == (BPF_JMP | BPF_EXIT);
}
// The two halves of a 64-bit immediate count as two instructions for every distance.
inline bool is_wide(const Instruction& instruction) {
  return instruction.code == (BPF_LD | BPF_DW | BPF_IMM);
}
inline bool uses_register(const Instruction& instruction) {
  return BPF_SRC(instruction.code) == BPF_X;
}
// An unconditional jump and how far: 16 bits in `off`, or 32 in `imm` (gotol).
inline bool is_goto(const Instruction& instruction) {
  return instruction.code == (BPF_JMP | BPF_JA) || instruction.code == (BPF_JMP32 | BPF_JA);
}
inline int64_t jump_distance(const Instruction& instruction) {
  return instruction.code == (BPF_JMP32 | BPF_JA) ? instruction.imm : instruction.off;
}
// Bytes that a load or store moves.
inline uint32_t size_of_access(const Instruction& instruction) {
  switch (BPF_SIZE(instruction.code)) {
    case BPF_B:
      return 1;
    case BPF_H:
      return 2;
    case BPF_W:
      return 4;
    default:
      return 8;
  }
}
inline uint64_t wide_immediate(const Instruction* pair) {
  return static_cast<uint32_t>(pair[0].imm) | (uint64_t{static_cast<uint32_t>(pair[1].imm)} << 32);
}

}  // namespace sluice
