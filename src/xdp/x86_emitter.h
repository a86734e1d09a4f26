// X86Emitter: the machine code of single BPF instructions, without control flow.
//
// Registers are the kernel's choice, so that calls of helpers move nothing: r0 rax, r1–r5 the C
// convention's first five, r6–r9 and r10 callee-saved. r9, r10 and r11 of the machine are scratch.
#pragma once

#include <xbyak/xbyak.h>

#include "xdp/instruction.h"

namespace sluice {

class X86Emitter : public Xbyak::CodeGenerator {
 public:
  X86Emitter(size_t bytes_max, bool has_bmi2)
      : Xbyak::CodeGenerator(bytes_max, Xbyak::DontSetProtectRWE), has_bmi2_(has_bmi2) {}

 protected:
  static Xbyak::Reg64 machine_register(uint8_t bpf_register);
  void emit_arithmetic(const Instruction& instruction);
  void emit_load(const Instruction& instruction);
  void emit_store(const Instruction& instruction);
  void emit_atomic(const Instruction& instruction);
  // The flags of a conditional jump's comparison.
  void emit_comparison(const Instruction& instruction);

 private:
  // The destination as wide as the instruction's class says.
  static Xbyak::Reg sized(const Instruction& instruction, const Xbyak::Reg64& reg);
  static Xbyak::Reg sized_by_bytes(uint32_t bytes, const Xbyak::Reg64& reg);
  Xbyak::Address memory_at(const Xbyak::Reg64& base, int16_t offset, uint32_t bytes);
  void emit_simple(const Instruction& instruction);
  void emit_move(const Instruction& instruction);
  void emit_division(const Instruction& instruction);
  void emit_shift(const Instruction& instruction);
  void emit_shift_by_register(uint8_t operation, const Xbyak::Reg& to, const Xbyak::Reg64& by);
  void emit_byte_order(const Instruction& instruction);
  void emit_fetching_loop(const Instruction& instruction, const Xbyak::Reg64& source);

  bool has_bmi2_;
};

}  // namespace sluice
