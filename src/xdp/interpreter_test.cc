// The interpreter's own cases: what the conformance vectors do not have. Those are run by
// conformance_test.cc.
#include "xdp/interpreter.h"

#include <gtest/gtest.h>

#include "xdp/program_testing.h"

namespace sluice {
namespace {

uint64_t doubled(uint64_t r1, uint64_t, uint64_t, uint64_t, uint64_t) { return r1 * 2; }
constexpr HelperEntry kEntries[] = {{7, "get_prandom_u32", doubled}};

TEST(Interpreter, CallsAHelperWithTheProgramsRegisters) {
  const HelperTable helpers({kEntries});
  const ProgramImage image = checked({mov(1, 21), call_helper(7), exit_now()}, helpers);
  EXPECT_EQ(interpret(image, {}).r0, 42u);
}

TEST(Interpreter, SubprogramsKeepTheCallersRegistersAndHaveTheirOwnStack) {
  const ProgramImage image = checked({
      mov(6, 5),
      store_number(8, 10, -8, 7),
      mov(1, 3),
      call_function(3),  // -> 7
      load(8, 1, 10, -8),
      add_register(0, 1),
      exit_now(),  // 9 + 7
      store_number(8, 10, -8, 100),
      mov(6, 6),
      mov(0, 9),
      exit_now(),
  });
  EXPECT_EQ(interpret(image, {}).r0, 16u);
  EXPECT_EQ(interpret_checked(image, {}, {}).r0, 16u);
}

TEST(Interpreter, LoopCallsItsFunctionUntilItSaysStop) {
  std::vector<Instruction> code = {mov(1, 10),
                                   {},
                                   {},
                                   mov(3, 0),
                                   mov(4, 0),
                                   call_helper(181),
                                   exit_now(),
                                   // stops in the fourth call
                                   mov(0, 0),
                                   jump_if(BPF_JLT, 1, 3, 1),
                                   mov(0, 1),
                                   exit_now()};
  code[1] = {BPF_LD | BPF_DW | BPF_IMM, 2, uint8_t(WideImmediate::function), 0, 5};
  const ProgramImage image = checked(code);
  EXPECT_EQ(interpret(image, {}).r0, 4u);
  EXPECT_EQ(interpret_checked(image, {}, {}).r0, 4u);
}

struct FaultCase {
  const char* name;
  std::vector<Instruction> code;
  RunFault fault;
};
class CheckedInterpreter : public testing::TestWithParam<FaultCase> {};

TEST_P(CheckedInterpreter, EndsTheRunWithTheFault) {
  const ProgramImage image = checked(GetParam().code);
  uint64_t host_word = 1;
  const InterpretedRun run = interpret_checked(image, {reinterpret_cast<uint64_t>(&host_word)}, {});
  EXPECT_EQ(run.fault, GetParam().fault);
  EXPECT_EQ(host_word, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    , CheckedInterpreter,
    testing::Values(
        FaultCase{"ReadsTheHost", {load(8, 0, 1, 0), exit_now()}, RunFault::bad_access},
        FaultCase{"WritesTheHost", {store_number(8, 1, 0, 5), exit_now()}, RunFault::bad_access},
        FaultCase{
            "WritesAboveItsStack", {store_number(8, 10, 0, 5), exit_now()}, RunFault::bad_access},
        FaultCase{"WritesOverTheEndOfItsStack",
                  {store_number(8, 10, -4, 5), exit_now()},
                  RunFault::bad_access},
        FaultCase{"WrapsRound", {mov(1, -4), load(8, 0, 1, 0), exit_now()}, RunFault::bad_access},
        FaultCase{"RunsForEver", {jump_to(-1), exit_now()}, RunFault::over_budget},
        FaultCase{"LoopsThroughAnEmptyFunction",
                  {mov(1, 1 << 23),
                   {BPF_LD | BPF_DW | BPF_IMM, 2, uint8_t(WideImmediate::function), 0, 5},
                   {},
                   mov(3, 0),
                   mov(4, 0),
                   call_helper(181),
                   exit_now(),
                   exit_now()},
                  RunFault::over_budget},
        FaultCase{"CallsItself",
                  {call_function(1), exit_now(), call_function(-1), exit_now()},
                  RunFault::bad_call},
        FaultCase{"LoopsThroughNoFunction",
                  {mov(1, 1), mov(2, 77), mov(3, 0), mov(4, 0), call_helper(181), exit_now()},
                  RunFault::bad_call},
        FaultCase{"TailCallsThroughNoMap",
                  {mov(2, 77), mov(3, 0), call_helper(12), exit_now()},
                  RunFault::bad_call},
        FaultCase{"IsPoisoned", {call_helper(kPoisonedCall), exit_now()}, RunFault::bad_call}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Interpreter, ReadsOnlyTheFrameThatTheContextDescribes) {
  const LowMemory low;
  if (!low) GTEST_SKIP() << "no memory below 4 GiB is free here";
  xdp_md context{};
  context.data = context.data_meta = low.address();
  context.data_end = context.data + 14;
  const ProgramImage inside =
      checked({load(4, 2, 1, 0), store_number(1, 2, 13, 9), load(1, 0, 2, 13), exit_now()});
  const ProgramImage beyond = checked({load(4, 2, 1, 0), load(2, 0, 2, 13), exit_now()});
  const ProgramArguments arguments = {reinterpret_cast<uint64_t>(&context)};
  EXPECT_EQ(interpret_checked(inside, arguments, {{}, &context}).r0, 9u);
  EXPECT_EQ(interpret_checked(beyond, arguments, {{}, &context}).fault, RunFault::bad_access);
}

}  // namespace
}  // namespace sluice
