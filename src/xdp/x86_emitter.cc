#include "xdp/x86_emitter.h"

namespace sluice {

using Xbyak::Address;
using Xbyak::Label;
using Xbyak::Reg;
using Xbyak::Reg64;

Reg64 X86Emitter::machine_register(uint8_t bpf_register) {
  using Code = Xbyak::Operand;
  static constexpr int kCodes[] = {Code::RAX, Code::RDI, Code::RSI, Code::RDX, Code::RCX, Code::R8,
                                   Code::RBX, Code::R13, Code::R14, Code::R15, Code::RBP};
  return Reg64(kCodes[bpf_register]);
}

Reg X86Emitter::sized(const Instruction& instruction, const Reg64& reg) {
  const uint8_t kind = class_of(instruction);
  return kind == BPF_ALU || kind == BPF_JMP32 ? Reg(reg.cvt32()) : Reg(reg);
}

Reg X86Emitter::sized_by_bytes(uint32_t bytes, const Reg64& reg) {
  switch (bytes) {
    case 1:
      return reg.cvt8();
    case 2:
      return reg.cvt16();
    case 4:
      return reg.cvt32();
    default:
      return reg;
  }
}

Address X86Emitter::memory_at(const Reg64& base, int16_t offset, uint32_t bytes) {
  switch (bytes) {
    case 1:
      return byte[base + int{offset}];
    case 2:
      return word[base + int{offset}];
    case 4:
      return dword[base + int{offset}];
    default:
      return qword[base + int{offset}];
  }
}

void X86Emitter::emit_arithmetic(const Instruction& instruction) {
  switch (operation_of(instruction)) {
    case BPF_MOV:
      return emit_move(instruction);
    case BPF_DIV:
    case BPF_MOD:
      return emit_division(instruction);
    case BPF_LSH:
    case BPF_RSH:
    case BPF_ARSH:
      return emit_shift(instruction);
    case BPF_END:
      return emit_byte_order(instruction);
    default:
      return emit_simple(instruction);
  }
}

void X86Emitter::emit_simple(const Instruction& instruction) {
  const Reg to = sized(instruction, machine_register(instruction.dst_reg));
  const Reg from = sized(instruction, machine_register(instruction.src_reg));
  const auto number = static_cast<uint32_t>(instruction.imm);
  const bool is_register = uses_register(instruction);
  switch (operation_of(instruction)) {
    case BPF_ADD:
      return is_register ? add(to, from) : add(to, number);
    case BPF_SUB:
      return is_register ? sub(to, from) : sub(to, number);
    case BPF_OR:
      return is_register ? or_(to, from) : or_(to, number);
    case BPF_AND:
      return is_register ? and_(to, from) : and_(to, number);
    case BPF_XOR:
      return is_register ? xor_(to, from) : xor_(to, number);
    case BPF_MUL:
      return is_register ? imul(to, from) : imul(to, to, instruction.imm);
    default:  // BPF_NEG
      return neg(to);
  }
}

void X86Emitter::emit_move(const Instruction& instruction) {
  const Reg64 to = machine_register(instruction.dst_reg);
  const Reg64 from = machine_register(instruction.src_reg);
  const bool is_64 = class_of(instruction) == BPF_ALU64;
  if (!uses_register(instruction)) {
    if (instruction.imm == 0)
      xor_(to.cvt32(), to.cvt32());
    else if (is_64)
      mov(to, static_cast<uint64_t>(int64_t{instruction.imm}));
    else
      mov(to.cvt32(), static_cast<uint32_t>(instruction.imm));
    return;
  }
  switch (instruction.off) {
    case 8:
      return movsx(sized(instruction, to), from.cvt8());
    case 16:
      return movsx(sized(instruction, to), from.cvt16());
    case 32:
      return movsxd(to, from.cvt32());
    default:
      return mov(sized(instruction, to), sized(instruction, from));
  }
}

// Division by zero gives 0, and its remainder the dividend; the least number by -1 stays itself
// with the remainder 0. The machine would trap at both. [RFC 9669 4.1]
void X86Emitter::emit_division(const Instruction& instruction) {
  const Reg64 to = machine_register(instruction.dst_reg);
  const bool is_signed = instruction.off == 1;
  const bool wants_quotient = operation_of(instruction) == BPF_DIV;
  const Reg dividend = sized(instruction, rax), high = sized(instruction, rdx);
  const Reg divisor = sized(instruction, r11);
  Label by_zero, by_minus_one, end;
  if (uses_register(instruction))
    mov(divisor, sized(instruction, machine_register(instruction.src_reg)));
  else
    mov(r11, static_cast<uint64_t>(int64_t{instruction.imm}));
  mov(r9, rax);
  mov(r10, rdx);
  mov(dividend, sized(instruction, to));
  test(divisor, divisor);
  jz(by_zero);
  if (is_signed) {
    cmp(divisor, -1);
    je(by_minus_one);
    class_of(instruction) == BPF_ALU64 ? cqo() : cdq();
    idiv(divisor);
  } else {
    xor_(edx, edx);
    div(divisor);
  }
  mov(divisor, wants_quotient ? dividend : high);
  jmp(end);
  if (is_signed) {
    L(by_minus_one);
    if (wants_quotient) {
      neg(dividend);
      mov(divisor, dividend);
    } else {
      xor_(r11d, r11d);
    }
    jmp(end);
  }
  L(by_zero);
  if (wants_quotient)
    xor_(r11d, r11d);
  else
    mov(divisor, dividend);
  L(end);
  mov(rax, r9);
  mov(rdx, r10);
  mov(sized(instruction, to), divisor);
}

void X86Emitter::emit_shift(const Instruction& instruction) {
  const Reg to = sized(instruction, machine_register(instruction.dst_reg));
  const uint8_t operation = operation_of(instruction);
  if (uses_register(instruction))
    return emit_shift_by_register(operation, to, machine_register(instruction.src_reg));
  const int distance = instruction.imm & (to.getBit() - 1);
  switch (operation) {
    case BPF_LSH:
      shl(to, distance);
      break;
    case BPF_RSH:
      shr(to, distance);
      break;
    default:
      sar(to, distance);
  }
  // A shift by nothing leaves the upper half alone, which 32-bit arithmetic must clear.
  if (distance == 0 && to.getBit() == 32) mov(to, to);
}

void X86Emitter::emit_shift_by_register(uint8_t operation, const Reg& to, const Reg64& by) {
  const bool is_64 = to.getBit() == 64;
  const Xbyak::Reg32e wide_to =
      is_64 ? Xbyak::Reg32e(to.getIdx(), 64) : Xbyak::Reg32e(to.getIdx(), 32);
  const Xbyak::Reg32e wide_by =
      is_64 ? Xbyak::Reg32e(by.getIdx(), 64) : Xbyak::Reg32e(by.getIdx(), 32);
  if (has_bmi2_) {
    switch (operation) {
      case BPF_LSH:
        return shlx(wide_to, wide_to, wide_by);
      case BPF_RSH:
        return shrx(wide_to, wide_to, wide_by);
      default:
        return sarx(wide_to, wide_to, wide_by);
    }
  }
  // The machine wants the distance in cl, which is r4's.
  const Reg shifted = is_64 ? Reg(r11) : Reg(r11d);
  mov(r10, rcx);
  mov(shifted, to);
  mov(rcx, by);
  switch (operation) {
    case BPF_LSH:
      shl(shifted, cl);
      break;
    case BPF_RSH:
      shr(shifted, cl);
      break;
    default:
      sar(shifted, cl);
  }
  mov(rcx, r10);
  mov(to, shifted);
  if (!is_64) mov(to, to);
}

void X86Emitter::emit_byte_order(const Instruction& instruction) {
  const Reg64 to = machine_register(instruction.dst_reg);
  // Towards little endian there is nothing to swap here, only to cut.
  const bool swaps = class_of(instruction) == BPF_ALU64 || uses_register(instruction);
  switch (instruction.imm) {
    case 16:
      if (swaps) rol(to.cvt16(), 8);
      return movzx(to.cvt32(), to.cvt16());
    case 32:
      return swaps ? bswap(to.cvt32()) : mov(to.cvt32(), to.cvt32());
    default:
      if (swaps) bswap(to);
  }
}

void X86Emitter::emit_load(const Instruction& instruction) {
  const Reg64 to = machine_register(instruction.dst_reg);
  const uint32_t bytes = size_of_access(instruction);
  const Address from = memory_at(machine_register(instruction.src_reg), instruction.off, bytes);
  const bool is_signed = mode_of(instruction) == kModeMemSx;
  if (bytes == 8) return mov(to, from);
  if (bytes == 4) return is_signed ? movsxd(to, from) : mov(to.cvt32(), from);
  is_signed ? movsx(to, from) : movzx(to.cvt32(), from);
}

void X86Emitter::emit_store(const Instruction& instruction) {
  const uint32_t bytes = size_of_access(instruction);
  const Address to = memory_at(machine_register(instruction.dst_reg), instruction.off, bytes);
  if (class_of(instruction) == BPF_STX)
    return mov(to, sized_by_bytes(bytes, machine_register(instruction.src_reg)));
  auto number = static_cast<uint64_t>(int64_t{instruction.imm});  // as wide as 8 bytes want it
  if (bytes < 4) number &= (1u << (bytes * 8)) - 1;
  mov(to, number);
}

void X86Emitter::emit_atomic(const Instruction& instruction) {
  const uint32_t bytes = size_of_access(instruction);
  const Reg64 source = machine_register(instruction.src_reg);
  const Reg from = sized_by_bytes(bytes, source);
  const Address at = memory_at(machine_register(instruction.dst_reg), instruction.off, bytes);
  switch (instruction.imm) {
    case BPF_ADD:
      lock();
      return add(at, from);
    case BPF_OR:
      lock();
      return or_(at, from);
    case BPF_AND:
      lock();
      return and_(at, from);
    case BPF_XOR:
      lock();
      return xor_(at, from);
    case BPF_ADD | BPF_FETCH:
      lock();
      return xadd(at, from);
    case BPF_XCHG:
      return xchg(at, from);
    case BPF_CMPXCHG:
      lock();
      cmpxchg(at, from);
      if (bytes == 4) mov(eax, eax);  // where it was equal, the machine leaves the upper half
      return;
    default:
      return emit_fetching_loop(instruction, source);
  }
}

// and, or, xor that give back the old value: the machine has no such instruction.
void X86Emitter::emit_fetching_loop(const Instruction& instruction, const Reg64& source) {
  const uint32_t bytes = size_of_access(instruction);
  const bool source_is_rax = source.getIdx() == rax.getIdx();
  const Reg64 wide_fresh = source_is_rax ? Reg64(r9) : source;  // gets overwritten anyway
  const Reg fresh = sized_by_bytes(bytes, wide_fresh);
  const Reg old = sized_by_bytes(bytes, rax), operand = sized_by_bytes(bytes, r10);
  lea(r11, ptr[machine_register(instruction.dst_reg) + int{instruction.off}]);
  mov(r10, source);
  if (!source_is_rax) mov(r9, rax);
  Label again;
  L(again);
  mov(old, memory_at(r11, 0, bytes));
  mov(fresh, old);
  switch (instruction.imm & ~BPF_FETCH) {
    case BPF_OR:
      or_(fresh, operand);
      break;
    case BPF_AND:
      and_(fresh, operand);
      break;
    default:
      xor_(fresh, operand);
  }
  lock();
  cmpxchg(memory_at(r11, 0, bytes), fresh);
  jnz(again);
  if (source_is_rax) return;
  mov(source, rax);
  mov(rax, r9);
}

void X86Emitter::emit_comparison(const Instruction& instruction) {
  const Reg left = sized(instruction, machine_register(instruction.dst_reg));
  const Reg right = sized(instruction, machine_register(instruction.src_reg));
  const auto number = static_cast<uint32_t>(instruction.imm);
  if (operation_of(instruction) == BPF_JSET)
    uses_register(instruction) ? test(left, right) : test(left, number);
  else
    uses_register(instruction) ? cmp(left, right) : cmp(left, number);
}

}  // namespace sluice
