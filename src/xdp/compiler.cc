#include "xdp/compiler.h"

#ifdef __x86_64__
#include <xbyak/xbyak_util.h>

#include <cerrno>
#include <map>
#include <memory>

#include "xdp/interpreter.h"
#include "xdp/run_state.h"
#include "xdp/x86_emitter.h"
#endif

namespace sluice {

#ifdef __x86_64__
namespace {

using Xbyak::Label;
using Xbyak::Reg64;

// The longest code of one instruction, and what a function has around its own.
constexpr size_t kInstructionBytesMax = 96;
constexpr size_t kFunctionBytesMax = 96;

// Where a tail call goes; null: on with the next instruction. A function, since the place is
// another at every call, and rarely taken.
const void* tail_target(const ProgramImage* image, const XdpMap* map, uint32_t index) {
  for (const MapRef& ref : image->maps) {
    if (ref.map != map || !ref.programs) continue;
    if (index >= ref.programs->max_entries || run_state.tail_calls >= kTailCallsMax) return nullptr;
    const TailTarget* target = ref.programs->slots[index].load(std::memory_order_acquire);
    if (target == nullptr) return nullptr;
    ++run_state.tail_calls;
    return target->jit_entry;
  }
  return nullptr;
}

// bpf_loop, for a function that has been compiled.
uint64_t run_loop(uint64_t count, uint64_t function, uint64_t context, uint64_t flags, uint64_t) {
  constexpr uint32_t kLoopsMax = 1u << 23;  // BPF_MAX_LOOPS
  const auto body = reinterpret_cast<HelperFunction>(function);
  const auto bound = static_cast<uint32_t>(count);
  if (flags != 0) return static_cast<uint64_t>(-EINVAL);
  if (bound > kLoopsMax) return static_cast<uint64_t>(-E2BIG);
  uint32_t i = 0;
  for (bool goes_on = true; goes_on && i < bound; ++i) goes_on = body(i, context, 0, 0, 0) == 0;
  return i;
}

class Compiler : public X86Emitter {
 public:
  Compiler(const ProgramImage& image, const CompilerOptions& options)
      : X86Emitter(image.instructions.size() * kInstructionBytesMax +
                       image.subprograms.size() * kFunctionBytesMax,
                   options.may_use_bmi2 && Xbyak::util::Cpu().has(Xbyak::util::Cpu::tBMI2)),
        image_(image),
        options_(options),
        labels_(image.instructions.size()) {}

  void run() {
    for (const Subprogram& part : image_.subprograms) emit_function(part);
  }

 private:
  const Instruction& at(uint32_t index) const { return image_.instructions[index]; }

  // What a function needs around it: found out by what it touches.
  struct Frame {
    bool has_stack = false;
    bool calls = false;
    std::vector<Reg64> saved;
    bool is_needed() const { return has_stack || calls || !saved.empty(); }
    // Helpers want the stack at a multiple of 16.
    bool is_padded() const { return saved.size() % 2 == 1; }
  };

  Frame frame_of(const Subprogram& part) const {
    Frame frame;
    uint32_t used = 0;
    for (uint32_t i = part.begin; i < part.end; ++i) {
      used |= 1u << at(i).dst_reg | 1u << at(i).src_reg;
      frame.calls |= is_call(at(i)) || is_call_by_register(at(i));
    }
    frame.has_stack = (used >> 10 & 1) != 0;
    for (uint8_t reg = 6; reg <= 9; ++reg)
      if ((used >> reg & 1) != 0) frame.saved.push_back(machine_register(reg));
    return frame;
  }

  void enter(const Frame& frame) {
    if (!frame.is_needed()) return;
    push(rbp);
    mov(rbp, rsp);
    const uint32_t bytes = (frame.has_stack ? kStackBytes : 0) + (frame.is_padded() ? 8 : 0);
    if (bytes > 0) sub(rsp, bytes);
    for (const Reg64& reg : frame.saved) push(reg);
  }
  void leave_frame(const Frame& frame) {
    if (!frame.is_needed()) return;
    for (auto reg = frame.saved.rbegin(); reg != frame.saved.rend(); ++reg) pop(*reg);
    leave();
  }

  void emit_function(const Subprogram& part) {
    const Frame frame = frame_of(part);
    align(16);
    L(entries_[part.begin]);
    enter(frame);
    for (uint32_t i = part.begin; i < part.end; ++i) {
      L(labels_[i]);
      emit(i, frame);
      if (is_wide(at(i))) ++i;
    }
  }

  void emit(uint32_t i, const Frame& frame) {
    const Instruction& instruction = at(i);
    switch (class_of(instruction)) {
      case BPF_ALU:
      case BPF_ALU64:
        return emit_arithmetic(instruction);
      case BPF_LD:
        return emit_wide(i);
      case BPF_LDX:
        return emit_load(instruction);
      case BPF_ST:
        return emit_store(instruction);
      case BPF_STX:
        return mode_of(instruction) == BPF_ATOMIC ? emit_atomic(instruction)
                                                  : emit_store(instruction);
      default:
        return emit_jump(i, frame);
    }
  }

  void emit_wide(uint32_t i) {
    const Reg64 to = machine_register(at(i).dst_reg);
    if (at(i).src_reg == static_cast<uint8_t>(WideImmediate::function))
      return lea(to, ptr[rip + entries_[static_cast<uint32_t>(int64_t{i} + 1 + at(i).imm)]]);
    mov(to, wide_immediate(&at(i)));
  }

  void emit_jump(uint32_t i, const Frame& frame) {
    const Instruction& jump = at(i);
    if (is_exit(jump)) {
      leave_frame(frame);
      return ret();
    }
    if (is_call(jump)) return emit_call(i, frame);
    if (is_call_by_register(jump)) return emit_call_by_register(jump, frame);
    Label& target = labels_[static_cast<size_t>(int64_t{i} + 1 + jump_distance(jump))];
    if (is_goto(jump)) return jmp(target, T_NEAR);
    emit_comparison(jump);
    switch (operation_of(jump)) {
      case BPF_JEQ:
        return je(target, T_NEAR);
      case BPF_JNE:
      case BPF_JSET:
        return jne(target, T_NEAR);
      case BPF_JGT:
        return ja(target, T_NEAR);
      case BPF_JGE:
        return jae(target, T_NEAR);
      case BPF_JLT:
        return jb(target, T_NEAR);
      case BPF_JLE:
        return jbe(target, T_NEAR);
      case BPF_JSGT:
        return jg(target, T_NEAR);
      case BPF_JSGE:
        return jge(target, T_NEAR);
      case BPF_JSLT:
        return jl(target, T_NEAR);
      default:
        return jle(target, T_NEAR);
    }
  }

  void emit_call(uint32_t i, const Frame& frame) {
    const Instruction& instruction = at(i);
    if (instruction.src_reg == static_cast<uint8_t>(CallKind::subprogram))
      return call(entries_[static_cast<uint32_t>(int64_t{i} + 1 + instruction.imm)]);
    if (instruction.imm == kPoisonedCall) return ud2();
    const auto id = static_cast<uint32_t>(instruction.imm);
    if (id == kHelperTailCall) return emit_tail_call(frame);
    const uint16_t map = image_.lookup_maps[i];
    if (id == kHelperMapLookup && options_.may_inline_lookups && map != ProgramImage::kNoMap &&
        image_.maps[map].array)
      return emit_array_lookup(*image_.maps[map].array);
    const HelperFunction function = id == kHelperLoop ? run_loop : image_.helpers->find(id);
    mov(rax, reinterpret_cast<uint64_t>(function));
    call(rax);
  }

  // A number without a helper ends the run: no verifier has seen it.
  void emit_call_by_register(const Instruction& instruction, const Frame& frame) {
    const auto functions = image_.helpers->functions();
    Label is_none, end;
    mov(r11d, machine_register(instruction.dst_reg).cvt32());
    cmp(r11d, static_cast<uint32_t>(functions.size()));
    jae(is_none);
    mov(rax, reinterpret_cast<uint64_t>(functions.data()));
    mov(rax, ptr[rax + r11 * 8]);
    test(rax, rax);
    jz(is_none);
    call(rax);
    jmp(end, T_NEAR);
    L(is_none);
    leave_frame(frame);
    xor_(eax, eax);
    ret();
    L(end);
  }

  // base + index * stride, or null; r2 points at the index.
  void emit_array_lookup(const ArrayLayout& array) {
    Label is_outside, end;
    mov(eax, dword[rsi]);
    cmp(eax, array.max_entries);
    jae(is_outside);
    imul(rax, rax, static_cast<int>(array.stride));
    mov(r11, reinterpret_cast<uint64_t>(array.base));
    add(rax, r11);
    jmp(end);
    L(is_outside);
    xor_(eax, eax);
    L(end);
  }

  // r1 is the context that the other program gets; r2 (map) and r3 (index) are in place.
  void emit_tail_call(const Frame& frame) {
    Label stays;
    push(rdi);
    sub(rsp, 8);
    mov(rdi, reinterpret_cast<uint64_t>(&image_));
    mov(rax, reinterpret_cast<uint64_t>(tail_target));
    call(rax);
    add(rsp, 8);
    pop(rdi);
    test(rax, rax);
    jz(stays, T_NEAR);
    leave_frame(frame);
    jmp(rax);
    L(stays);
  }

  const ProgramImage& image_;
  const CompilerOptions options_;
  std::vector<Label> labels_;          // of each instruction
  std::map<uint32_t, Label> entries_;  // of each function
};

}  // namespace

Result<CompiledProgram> compile(const ProgramImage& image, const CompilerOptions& options) {
  try {
    Compiler compiler(image, options);
    compiler.run();
    compiler.ready(Xbyak::CodeArray::PROTECT_RW);
    Result<CodePages> pages = CodePages::from({compiler.getCode(), compiler.getSize()});
    if (!pages) return fail(pages.error());
    CompiledProgram program{std::move(*pages), nullptr};
    program.entry = reinterpret_cast<HelperFunction>(const_cast<uint8_t*>(program.pages.begin()));
    return program;
  } catch (const Xbyak::Error& error) {
    return fail("the program cannot be compiled: {}", error.what());
  }
}

#else

Result<CompiledProgram> compile(const ProgramImage&, const CompilerOptions&) {
  return fail("there is no compiler for this kind of processor: programs are interpreted");
}

#endif

}  // namespace sluice
