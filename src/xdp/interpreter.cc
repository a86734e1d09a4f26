#include "xdp/interpreter.h"

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "xdp/arithmetic.h"
#include "xdp/checked_memory.h"

namespace sluice {
namespace {

// A function's address, as a register holds it: no memory, and nothing that a helper could call.
constexpr uint64_t kFunctionTag = 0x5b9f'0000'0000'0000;
constexpr uint64_t kTagMask = 0xffff'0000'0000'0000;
constexpr uint64_t kLoopsMax = 1u << 23;  // BPF_MAX_LOOPS

template <typename T>
uint64_t atomic_on(int32_t operation, uint64_t address, uint64_t operand, uint64_t& expected) {
  std::atomic_ref<T> word(*reinterpret_cast<T*>(address));
  const auto value = static_cast<T>(operand);
  switch (operation & ~BPF_FETCH) {
    case BPF_ADD:
      return word.fetch_add(value);
    case BPF_OR:
      return word.fetch_or(value);
    case BPF_AND:
      return word.fetch_and(value);
    case BPF_XOR:
      return word.fetch_xor(value);
    case BPF_XCHG & ~BPF_FETCH:
      return word.exchange(value);
    default: {  // BPF_CMPXCHG
      auto old = static_cast<T>(expected);
      word.compare_exchange_strong(old, value);
      expected = old;
      return old;
    }
  }
}

template <bool kChecked>
class Run {
 public:
  explicit Run(const CheckedBounds& bounds, const ProgramImage& image)
      : memory_(image, bounds, {stack_, sizeof stack_}), budget_(bounds.instructions_max) {
    if constexpr (kChecked) std::memset(stack_, 0, sizeof stack_);
  }
  RunFault fault() const { return fault_; }

  // One function, up to its exit; nested calls nest here too, at most kCallDepthMax deep.
  uint64_t call(const ProgramImage* image, uint32_t begin, const uint64_t* arguments,
                uint32_t depth) {
    if (depth >= kCallDepthMax) return stop(RunFault::bad_call), 0;
    // The exit of a function counts here: a loop may call one that does nothing else.
    if (kChecked && --budget_ == 0) return stop(RunFault::over_budget), 0;
    Function f{image, image->instructions.data(), begin, depth, {}};
    std::memcpy(&f.r[1], arguments, 5 * sizeof f.r[0]);
    f.r[10] = reinterpret_cast<uint64_t>(stack_ + (kCallDepthMax - depth) * kStackBytes);
    while (step(f)) {
      if (kChecked && --budget_ == 0) return stop(RunFault::over_budget), 0;
    }
    return f.r[0];
  }

 private:
  struct Function {
    const ProgramImage* image;
    const Instruction* code;
    uint32_t next;
    uint32_t depth;
    uint64_t r[11];
  };

  // Always false, so that what finds a fault can return it.
  bool stop(RunFault fault) {
    if (fault_ == RunFault::none) fault_ = fault;
    return false;
  }

  // False: the function is over, by its exit or by a fault.
  bool step(Function& f) {
    const Instruction& i = f.code[f.next++];
    uint64_t& destination = f.r[i.dst_reg];
    switch (class_of(i)) {
      case BPF_ALU64:
        destination = operation_of(i) == BPF_END
                          ? converted(i, destination)
                          : arithmetic<uint64_t>(i, destination, operand(f, i));
        return true;
      case BPF_ALU:
        destination = operation_of(i) == BPF_END
                          ? converted(i, destination)
                          : arithmetic<uint32_t>(i, static_cast<uint32_t>(destination),
                                                 static_cast<uint32_t>(operand(f, i)));
        return true;
      case BPF_LD:
        return load_wide(f, i);
      case BPF_LDX:
        return load(i, destination, f.r[i.src_reg] + static_cast<int64_t>(i.off));
      case BPF_ST:
        return store(i, destination + static_cast<int64_t>(i.off), operand(f, i));
      case BPF_STX:
        if (mode_of(i) == BPF_ATOMIC) return atomic(f, i);
        return store(i, destination + static_cast<int64_t>(i.off), f.r[i.src_reg]);
      default:
        return jump(f, i);
    }
  }

  static uint64_t operand(const Function& f, const Instruction& i) {
    const bool is_register = uses_register(i) && class_of(i) != BPF_ST;
    return is_register ? f.r[i.src_reg] : static_cast<uint64_t>(int64_t{i.imm});
  }

  bool load_wide(Function& f, const Instruction& i) {
    f.r[i.dst_reg] = i.src_reg == static_cast<uint8_t>(WideImmediate::function)
                         ? kFunctionTag | static_cast<uint32_t>(f.next + i.imm)
                         : wide_immediate(&i);
    ++f.next;
    return true;
  }

  bool load(const Instruction& i, uint64_t& destination, uint64_t address) {
    const uint32_t bytes = size_of_access(i);
    if (kChecked && !memory_.may_read(address, bytes)) return stop(RunFault::bad_access);
    uint64_t value = 0;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&value, reinterpret_cast<const void*>(address), bytes);
    destination =
        mode_of(i) == kModeMemSx ? sign_extended(value, static_cast<int>(bytes) * 8) : value;
    return true;
  }

  bool store(const Instruction& i, uint64_t address, uint64_t value) {
    const uint32_t bytes = size_of_access(i);
    if (kChecked && !memory_.may_write(address, bytes)) return stop(RunFault::bad_access);
    std::memcpy(reinterpret_cast<void*>(address), &value, bytes);
    return true;
  }

  bool atomic(Function& f, const Instruction& i) {
    const uint64_t address = f.r[i.dst_reg] + static_cast<int64_t>(i.off);
    const uint32_t bytes = size_of_access(i);
    if (kChecked && (address % bytes != 0 || !memory_.may_write(address, bytes)))
      return stop(RunFault::bad_access);
    const uint64_t old = bytes == 4 ? atomic_on<uint32_t>(i.imm, address, f.r[i.src_reg], f.r[0])
                                    : atomic_on<uint64_t>(i.imm, address, f.r[i.src_reg], f.r[0]);
    if ((i.imm & BPF_FETCH) != 0 && i.imm != BPF_CMPXCHG) f.r[i.src_reg] = old;
    return true;
  }

  bool jump(Function& f, const Instruction& i) {
    if (is_exit(i)) return false;
    if (is_call(i)) return call_from(f, i);
    if (is_call_by_register(i)) {
      const auto id = static_cast<uint32_t>(f.r[i.dst_reg]);
      return f.image->helpers->find(id) != nullptr ? call_helper(f, id) : stop(RunFault::bad_call);
    }
    const bool is_taken =
        class_of(i) == BPF_JMP32
            ? comparison<uint32_t>(operation_of(i), static_cast<uint32_t>(f.r[i.dst_reg]),
                                   static_cast<uint32_t>(operand(f, i)))
            : comparison<uint64_t>(operation_of(i), f.r[i.dst_reg], operand(f, i));
    if (is_taken) f.next = static_cast<uint32_t>(f.next + jump_distance(i));
    return true;
  }

  bool call_from(Function& f, const Instruction& i) {
    if (i.src_reg == static_cast<uint8_t>(CallKind::subprogram)) {
      f.r[0] = call(f.image, static_cast<uint32_t>(f.next + i.imm), &f.r[1], f.depth + 1);
      return fault_ == RunFault::none;
    }
    if (i.imm == kPoisonedCall) return stop(RunFault::bad_call);
    const auto id = static_cast<uint32_t>(i.imm);
    if (id == kHelperTailCall) return tail_call(f);
    if (id == kHelperLoop) return loop(f);
    return call_helper(f, id);
  }

  bool call_helper(Function& f, uint32_t id) {
    if (kChecked && !memory_.fits(id, &f.r[1])) return stop(RunFault::bad_call);
    f.r[0] = f.image->helpers->find(id)(f.r[1], f.r[2], f.r[3], f.r[4], f.r[5]);
    return true;
  }

  // Where there is no such program the call falls through, as in the kernel.
  bool tail_call(Function& f) {
    const auto index = static_cast<uint32_t>(f.r[3]);
    for (const MapRef& ref : f.image->maps) {
      if (reinterpret_cast<uint64_t>(ref.map) != f.r[2] || !ref.programs) continue;
      if (index >= ref.programs->max_entries || tail_calls_ >= kTailCallsMax) return true;
      const TailTarget* target = ref.programs->slots[index].load(std::memory_order_acquire);
      if (target == nullptr) return true;
      ++tail_calls_;
      f.image = static_cast<const ProgramImage*>(target->image);
      f.code = f.image->instructions.data();
      f.next = 0;
      memory_.set_image(*f.image);
      return true;
    }
    return kChecked ? stop(RunFault::bad_call) : true;
  }

  // bpf_loop(count, function, context, flags)
  bool loop(Function& f) {
    const auto count = static_cast<uint32_t>(f.r[1]);
    const uint64_t function = f.r[2];
    if (kChecked && !is_function(*f.image, function)) return stop(RunFault::bad_call);
    if (f.r[4] != 0) return f.r[0] = static_cast<uint64_t>(-EINVAL), true;
    if (count > kLoopsMax) return f.r[0] = static_cast<uint64_t>(-E2BIG), true;
    uint32_t i = 0;
    for (bool goes_on = true; goes_on && i < count; ++i) {
      const uint64_t arguments[5] = {i, f.r[3], 0, 0, 0};
      goes_on = call(f.image, static_cast<uint32_t>(function), arguments, f.depth + 1) == 0;
      if (fault_ != RunFault::none) return false;
    }
    f.r[0] = i;
    return true;
  }

  static bool is_function(const ProgramImage& image, uint64_t value) {
    if ((value & kTagMask) != kFunctionTag) return false;
    for (const Subprogram& part : image.subprograms)
      if (part.begin == (value & ~kTagMask)) return true;
    return false;
  }

  alignas(16) uint8_t stack_[kCallDepthMax * kStackBytes];
  CheckedMemory memory_;
  uint64_t budget_;
  uint32_t tail_calls_ = 0;
  RunFault fault_ = RunFault::none;
};

template <bool kChecked>
InterpretedRun run_image(const ProgramImage& image, const ProgramArguments& arguments,
                         const CheckedBounds& bounds) {
  Run<kChecked> run(bounds, image);
  const uint64_t r0 = run.call(&image, 0, arguments.data(), 0);
  return {r0, run.fault()};
}

}  // namespace

std::string_view name_of(RunFault fault) {
  switch (fault) {
    case RunFault::none:
      return "none";
    case RunFault::bad_access:
      return "it touched memory that is not its own";
    case RunFault::bad_call:
      return "it gave a helper what it must not get, or called too deep";
    case RunFault::over_budget:
      return "it ran for too many instructions";
  }
  return "?";
}

InterpretedRun interpret(const ProgramImage& image, const ProgramArguments& arguments) {
  return run_image<false>(image, arguments, {});
}

InterpretedRun interpret_checked(const ProgramImage& image, const ProgramArguments& arguments,
                                 const CheckedBounds& bounds) {
  return run_image<true>(image, arguments, bounds);
}

}  // namespace sluice
