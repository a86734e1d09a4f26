// The compiler against the interpreter: the same image must give the same result, whatever the
// options. Random programs try what no hand-written case has.
#include "xdp/compiler.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "xdp/interpreter.h"
#include "xdp/program_testing.h"
#include "xdp/run_state.h"

namespace sluice {
namespace {

#ifdef __x86_64__

constexpr CompilerOptions kOptions[] = {{.may_use_bmi2 = true}, {.may_use_bmi2 = false}};

uint64_t run_compiled(const ProgramImage& image, const CompilerOptions& options,
                      const ProgramArguments& r) {
  const Result<CompiledProgram> program = compile(image, options);
  EXPECT_TRUE(program) << (program ? "" : program.error().text);
  if (!program) return 0;
  run_state.tail_calls = 0;
  return program->entry(r[0], r[1], r[2], r[3], r[4]);
}

// Straight code: numbers into r0…r9, then arithmetic and forward jumps of every kind on them, their
// sum at the end.
class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : random_(seed) {}

  std::vector<Instruction> make() {
    code_.clear();
    for (uint8_t reg = 0; reg < 10; ++reg) {
      code_.push_back({BPF_LD | BPF_DW | BPF_IMM, reg, 0, 0, number()});
      code_.push_back({0, 0, 0, 0, number()});
    }
    for (int16_t slot = 1; slot <= 4; ++slot) code_.push_back(store(8, 10, slot * -8, pick(10)));
    for (int i = 0; i < 60; ++i) add_one();
    // Jumps lead at most two on.
    code_.push_back(mov(1, 1));
    code_.push_back(mov(2, 2));
    for (int16_t slot = 1; slot <= 4; ++slot) {
      code_.push_back(load(8, 9, 10, slot * -8));
      code_.push_back(add_register(0, 9));
    }
    for (uint8_t reg = 1; reg < 9; ++reg) code_.push_back(add_register(0, reg));
    code_.push_back(exit_now());
    return code_;
  }

 private:
  uint8_t pick(uint32_t bound) { return static_cast<uint8_t>(random_() % bound); }
  int32_t number() {
    static constexpr int32_t kEdges[] = {0, 1, -1, 2, 31, 32, 63, 64, 255, INT32_MIN, INT32_MAX};
    return pick(2) == 0 ? kEdges[pick(std::size(kEdges))] : static_cast<int32_t>(random_());
  }
  void add_one() {
    const uint8_t to = pick(10), from = pick(10);
    const uint8_t wide = pick(2) == 0 ? BPF_ALU64 : BPF_ALU;
    switch (pick(6)) {
      case 0:
        return add_memory(to, from);
      case 1: {
        static constexpr uint8_t kJumps[] = {BPF_JEQ, BPF_JGT,  BPF_JGE,  BPF_JSET,
                                             BPF_JNE, BPF_JSGT, BPF_JSGE, BPF_JLT,
                                             BPF_JLE, BPF_JSLT, BPF_JSLE};
        const uint8_t kind = pick(2) == 0 ? BPF_JMP : BPF_JMP32;
        return code_.push_back({static_cast<uint8_t>(kind | kJumps[pick(11)] | source()), to, from,
                                int16_t(pick(3)), number()});
      }
      case 2: {
        static constexpr int32_t kBits[] = {16, 32, 64};
        const uint8_t direction = wide == BPF_ALU64 ? 0 : source();
        return code_.push_back(
            {static_cast<uint8_t>(wide | BPF_END | direction), to, 0, 0, kBits[pick(3)]});
      }
      case 3: {
        static constexpr int16_t kMoves[] = {0, 8, 16, 32};
        return code_.push_back({static_cast<uint8_t>(wide | BPF_MOV | BPF_X), to, from,
                                kMoves[pick(wide == BPF_ALU64 ? 4 : 3)], 0});
      }
      default: {
        static constexpr uint8_t kOperations[] = {BPF_ADD, BPF_SUB,  BPF_MUL, BPF_DIV, BPF_OR,
                                                  BPF_AND, BPF_LSH,  BPF_RSH, BPF_MOD, BPF_XOR,
                                                  BPF_MOV, BPF_ARSH, BPF_NEG};
        const uint8_t operation = kOperations[pick(std::size(kOperations))];
        const bool divides = operation == BPF_DIV || operation == BPF_MOD;
        const uint8_t by = operation == BPF_NEG ? uint8_t{BPF_K} : source();
        return code_.push_back({static_cast<uint8_t>(wide | operation | by), to, from,
                                int16_t(divides ? pick(2) : 0), number()});
      }
    }
  }
  uint8_t source() { return pick(2) == 0 ? BPF_K : BPF_X; }
  void add_memory(uint8_t to, uint8_t from) {
    const int bytes = 1 << pick(4);
    const auto slot = static_cast<int16_t>(-8 * (1 + pick(4)));
    switch (pick(5)) {
      case 0:
        return code_.push_back(load(bytes, to, 10, slot));
      case 1:
        return code_.push_back(store(bytes, 10, slot, from));
      case 2:
        return code_.push_back(store_number(bytes, 10, slot, number()));
      case 3:
        if (bytes == 8) return;
        return code_.push_back(
            {static_cast<uint8_t>(BPF_LDX | kModeMemSx | size_code(bytes)), to, 10, slot, 0});
      default: {
        static constexpr int32_t kAtomics[] = {BPF_ADD,
                                               BPF_OR,
                                               BPF_AND,
                                               BPF_XOR,
                                               BPF_ADD | BPF_FETCH,
                                               BPF_OR | BPF_FETCH,
                                               BPF_AND | BPF_FETCH,
                                               BPF_XOR | BPF_FETCH,
                                               BPF_XCHG,
                                               BPF_CMPXCHG};
        return code_.push_back(
            {static_cast<uint8_t>(BPF_STX | BPF_ATOMIC | (pick(2) ? BPF_W : BPF_DW)), 10, from,
             slot, kAtomics[pick(10)]});
      }
    }
  }

  std::mt19937 random_;
  std::vector<Instruction> code_;
};

TEST(Compiler, AgreesWithTheInterpreterOnRandomPrograms) {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    const ProgramImage image = checked(RandomProgram(seed).make());
    const uint64_t expected = interpret(image, {}).r0;
    const InterpretedRun checked_run = interpret_checked(image, {}, {});
    ASSERT_EQ(checked_run.fault, RunFault::none) << "seed " << seed;
    ASSERT_EQ(checked_run.r0, expected) << "seed " << seed;
    for (const CompilerOptions& options : kOptions)
      ASSERT_EQ(run_compiled(image, options, {}), expected) << "seed " << seed;
  }
}

// Each helper sees its arguments, at a stack that C code can use, and the callee-saved registers
// outlive it, with any number of them in use.
uint64_t sum_of_five(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
  alignas(16) volatile uint64_t aligned[2] = {a + b, c + d};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % 16, 0u);
  return aligned[0] + aligned[1] + e;
}
constexpr HelperEntry kEntries[] = {{7, "get_prandom_u32", sum_of_five}};

TEST(Compiler, CallsHelpersFromFunctionsOfAnyShape) {
  const HelperTable helpers({kEntries});
  for (uint8_t saved = 0; saved <= 4; ++saved) {
    for (const bool has_stack : {false, true}) {
      std::vector<Instruction> code;
      for (uint8_t i = 0; i < saved; ++i) code.push_back(mov(6 + i, 100 * (i + 1)));
      if (has_stack) code.push_back(store_number(8, 10, -512, 7));
      for (uint8_t reg = 1; reg <= 5; ++reg) code.push_back(mov(reg, reg));
      code.push_back(call_helper(7));
      for (uint8_t i = 0; i < saved; ++i) code.push_back(add_register(0, 6 + i));
      code.push_back(exit_now());
      const ProgramImage image = checked(code, helpers);
      EXPECT_EQ(run_compiled(image, {}, {}), interpret(image, {}).r0) << int{saved} << has_stack;
    }
  }
}

TEST(Compiler, FunctionsCallOneAnotherAndLoopCallsThem) {
  std::vector<Instruction> code = {mov(6, 1),
                                   mov(1, 10),
                                   {},
                                   {},
                                   mov(3, 0),
                                   mov(4, 0),
                                   call_helper(181),
                                   add_register(0, 6),
                                   exit_now(),
                                   mov(6, 77),
                                   call_function(1),
                                   exit_now(),
                                   mov(0, 0),
                                   jump_if(BPF_JLT, 1, 3, 1),
                                   mov(0, 1),
                                   exit_now()};
  code[2] = {BPF_LD | BPF_DW | BPF_IMM, 2, uint8_t(WideImmediate::function), 0, 6};
  const ProgramImage image = checked(code);
  EXPECT_EQ(run_compiled(image, {}, {}), 5u);
  EXPECT_EQ(interpret(image, {}).r0, 5u);
}

class ArrayLookup : public testing::Test {
 protected:
  ArrayLookup() {
    ref_.map = reinterpret_cast<XdpMap*>(this);
    ref_.array = ArrayLayout{reinterpret_cast<uint8_t*>(values_), 8, 8, 4};
  }
  static uint64_t not_inlined(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) { return 0; }
  uint64_t look_up(int32_t index) {
    static constexpr HelperEntry kLookup[] = {{1, "map_lookup_elem", not_inlined}};
    static const HelperTable helpers({kLookup});
    std::vector<Instruction> code = load_map(1, 0);
    code.insert(code.end(), {mov(2, 0), add_register(2, 10), store_number(4, 10, -4, index)});
    code.push_back({BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4});
    code.insert(code.end(), {call_helper(1), jump_if(BPF_JNE, 0, 0, 2), mov(0, 404), exit_now(),
                             load(8, 0, 0, 0), exit_now()});
    return run_compiled(checked(code, helpers, {&ref_, 1}), {}, {});
  }
  MapRef ref_;
  uint64_t values_[4] = {10, 11, 12, 13};
};

TEST_F(ArrayLookup, IsInlinedAndKnowsItsBounds) {
  EXPECT_EQ(look_up(0), 10u);
  EXPECT_EQ(look_up(3), 13u);
  EXPECT_EQ(look_up(4), 404u);
  EXPECT_EQ(look_up(-1), 404u);
}

// Two programs in a prog array; each can enter the other.
class TailCalls : public testing::Test {
 protected:
  struct Target : TailTarget {};
  TailCalls() {
    ref_.map = reinterpret_cast<XdpMap*>(this);
    ref_.programs = ProgramSlots{slots_, 2};
  }
  // Counts r1 (an address) up, then calls slot `index`, and returns `otherwise` if it cannot.
  std::vector<Instruction> counting(int32_t index, int32_t otherwise) {
    std::vector<Instruction> code = {
        load(8, 6, 1, 0), {BPF_ALU64 | BPF_ADD | BPF_K, 6, 0, 0, 1}, store(8, 1, 0, 6)};
    const std::vector<Instruction> map = load_map(2, 0);
    code.insert(code.end(), map.begin(), map.end());
    code.insert(code.end(), {mov(3, index), call_helper(12), mov(0, otherwise), exit_now()});
    return code;
  }
  void both_ways(const ProgramImage& first, const ProgramImage& second, uint64_t r0,
                 uint64_t entered) {
    const Result<CompiledProgram> code = compile(first), other = compile(second);
    ASSERT_TRUE(code && other);
    target_.image = &second;
    target_.jit_entry = reinterpret_cast<const void*>(other->entry);
    slots_[0] = &target_;
    uint64_t count = 0;
    EXPECT_EQ(interpret(first, {reinterpret_cast<uint64_t>(&count)}).r0, r0);
    EXPECT_EQ(count, entered);
    count = 0;
    run_state.tail_calls = 0;
    EXPECT_EQ(code->entry(reinterpret_cast<uint64_t>(&count), 0, 0, 0, 0), r0);
    EXPECT_EQ(count, entered);
  }
  std::atomic<const TailTarget*> slots_[2] = {};
  Target target_;
  MapRef ref_;
};

TEST_F(TailCalls, EnterTheOtherProgramWithTheSameContext) {
  both_ways(checked(counting(0, 1), no_helpers(), {&ref_, 1}), checked({mov(0, 7), exit_now()}), 7,
            1);
}
TEST_F(TailCalls, FallThroughAtAnEmptySlotAndBeyondTheArray) {
  for (const int32_t index : {1, 2, -1})
    both_ways(checked(counting(index, 5), no_helpers(), {&ref_, 1}),
              checked({mov(0, 7), exit_now()}), 5, 1);
}
TEST_F(TailCalls, EndAfterThirtyThree) {
  const ProgramImage image = checked(counting(0, 3), no_helpers(), {&ref_, 1});
  both_ways(image, image, 3, 34);
}

#endif

}  // namespace
}  // namespace sluice
