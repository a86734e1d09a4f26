#include "xdp/program_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "xdp/program_testing.h"

namespace sluice {
namespace {

using testing::HasSubstr;

struct RefusalCase {
  const char* name;
  std::vector<Instruction> code;
  const char* words;
};
class ImageRefusal : public testing::TestWithParam<RefusalCase> {};

TEST_P(ImageRefusal, NamesWhatIsWrong) {
  const Result<ProgramImage> image = check_image({GetParam().code, {}}, no_helpers());
  ASSERT_FALSE(image);
  EXPECT_THAT(image.error().text, HasSubstr(GetParam().words));
}

constexpr uint8_t kWide = BPF_LD | BPF_DW | BPF_IMM;

INSTANTIATE_TEST_SUITE_P(
    , ImageRefusal,
    testing::Values(
        RefusalCase{"Empty", {}, "1 to"},
        RefusalCase{"UnknownHelper", {call_helper(69), exit_now()}, "bpf_fib_lookup (69)"},
        RefusalCase{"NoSuchHelper", {call_helper(999), exit_now()}, "number 999"},
        RefusalCase{"NegativeHelper", {call_helper(-2), exit_now()}, "number 4294967294"},
        RefusalCase{"Kfunc", {{BPF_JMP | BPF_CALL, 0, 2, 0, 5}, exit_now()}, "kfuncs"},
        RefusalCase{"CallThroughARegister",
                    {{BPF_JMP | BPF_CALL | BPF_X, 1, 0, 0, 0}, exit_now()},
                    "callx"},
        RefusalCase{"Ksym", {{kWide, 1, 3, 0, 5}, {}, exit_now()}, "ksyms"},
        RefusalCase{"NoSuchMap", {{kWide, 1, 1, 0, 0}, {}, exit_now()}, "no such map"},
        RefusalCase{"HalfANumber", {exit_now(), {kWide, 1, 0, 0, 0}}, "second half"},
        RefusalCase{
            "StrangeSecondHalf", {{kWide, 1, 0, 0, 0}, {0, 1, 0, 0, 0}, exit_now()}, "second half"},
        RefusalCase{"JumpIntoANumber",
                    {jump_to(1), {kWide, 1, 0, 0, 0}, {}, exit_now()},
                    "into a 64-bit number"},
        RefusalCase{"JumpOut", {jump_to(5), exit_now()}, "out of its function"},
        RefusalCase{"JumpBeforeTheBegin", {jump_to(-2), exit_now()}, "out of its function"},
        RefusalCase{"JumpIntoAnotherFunction",
                    {call_function(2), jump_to(1), exit_now(), mov(0, 0), exit_now()},
                    "out of its function"},
        RefusalCase{"NoExit", {mov(0, 0)}, "runs over its end"},
        RefusalCase{"CallOut", {call_function(7), exit_now()}, "outside the program"},
        RefusalCase{"MayGoto", {{BPF_JMP | 0xe0, 0, 0, 0, 0}, exit_now()}, "may_goto"},
        RefusalCase{"Gotox", {{BPF_JMP | BPF_JA | BPF_X, 1, 0, 0, 0}, exit_now()}, "gotox"},
        RefusalCase{"Arena", {{BPF_ALU64 | BPF_MOV | BPF_X, 1, 2, 1, 1}, exit_now()}, "arena"},
        RefusalCase{"LoadAbsolute", {{BPF_LD | BPF_ABS | BPF_B, 0, 0, 0, 0}, exit_now()}, "LD_ABS"},
        RefusalCase{"Register11", {mov(11, 0), exit_now()}, "no register r11"},
        RefusalCase{"FramePointer", {mov(10, 0), exit_now()}, "frame pointer"},
        RefusalCase{"AtomicByte",
                    {{BPF_STX | BPF_ATOMIC | BPF_B, 1, 2, 0, BPF_ADD}, exit_now()},
                    "less than 4 bytes"},
        RefusalCase{
            "UnknownAtomic", {{BPF_STX | BPF_ATOMIC | BPF_W, 1, 2, 0, 0x77}, exit_now()}, "0x77"},
        RefusalCase{"Swap24", {{BPF_ALU | BPF_END, 1, 0, 0, 24}, exit_now()}, "24 bits"},
        RefusalCase{"UnknownOpcode", {{0xff, 1, 1, 0, 0}, exit_now()}, "0xff"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(ProgramImage, SplitsFunctionsWhereTheyAreCalled) {
  const ProgramImage image = checked({call_function(1), exit_now(), mov(0, 2), exit_now()});
  ASSERT_EQ(image.subprograms.size(), 2u);
  EXPECT_EQ(image.subprograms[1].begin, 2u);
  EXPECT_EQ(image.subprograms[1].end, 4u);
}

uint64_t nothing(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) { return 0; }
constexpr HelperEntry kLookup[] = {{1, "map_lookup_elem", nothing}};

class LookupKnowledge : public testing::Test {
 protected:
  // The index of the map that the call at `at` is known to be about.
  uint16_t known(std::vector<Instruction> code, size_t at) {
    const std::vector<MapRef> maps(2);
    return checked(code, helpers_, maps).lookup_maps[at];
  }
  const HelperTable helpers_{{kLookup}};
  const std::vector<Instruction> second_ = load_map(1, 1);
};

TEST_F(LookupKnowledge, HoldsOnTheStraightWay) {
  EXPECT_EQ(known({second_[0], second_[1], mov(2, 0), call_helper(1), exit_now()}, 3), 1u);
}
TEST_F(LookupKnowledge, EndsWhereTheRegisterIsWritten) {
  EXPECT_EQ(known({second_[0], second_[1], mov(1, 0), call_helper(1), exit_now()}, 3),
            ProgramImage::kNoMap);
}
TEST_F(LookupKnowledge, EndsWhereOthersJumpTo) {
  EXPECT_EQ(
      known({jump_if(BPF_JEQ, 0, 0, 2), second_[0], second_[1], call_helper(1), exit_now()}, 3),
      ProgramImage::kNoMap);
}
TEST_F(LookupKnowledge, EndsAtACall) {
  EXPECT_EQ(known({second_[0], second_[1], call_helper(1), call_helper(1), exit_now()}, 3),
            ProgramImage::kNoMap);
}

TEST(ProgramImage, NothingIsReadThroughAMapsAddress) {
  const std::vector<MapRef> maps(1);
  const std::vector<Instruction> map = load_map(1, 0);
  const std::vector<Instruction> direct = {map[0], map[1], load(8, 0, 1, 56), exit_now()};
  const std::vector<Instruction> copied = {map[0],
                                           map[1],
                                           {BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0},
                                           {BPF_ALU64 | BPF_ADD | BPF_K, 6, 0, 0, 8},
                                           load(8, 0, 6, 0),
                                           exit_now()};
  for (const auto& code : {direct, copied}) {
    const Result<ProgramImage> image = check_image({code, maps}, no_helpers());
    ASSERT_FALSE(image);
    EXPECT_THAT(image.error().text, HasSubstr("description of a map"));
  }
  const std::vector<Instruction> overwritten = {map[0], map[1], mov(1, 0), load(8, 0, 1, 0),
                                                exit_now()};
  EXPECT_TRUE(check_image({overwritten, maps}, no_helpers()));
}

TEST(ProgramImage, AGlobalMustLieInItsMap) {
  uint8_t memory[64];
  MapRef ref;
  ref.array = ArrayLayout{memory, 16, 16, 1};
  const std::vector<MapRef> maps = {ref};
  std::vector<Instruction> code = {{kWide, 1, 2, 0, 0}, {0, 0, 0, 0, 15}, exit_now()};
  const Result<ProgramImage> image = check_image({code, maps}, no_helpers());
  ASSERT_TRUE(image);
  EXPECT_EQ(wide_immediate(image->instructions.data()), reinterpret_cast<uint64_t>(memory) + 15);
  code[1].imm = 16;
  EXPECT_FALSE(check_image({code, maps}, no_helpers()));
}

}  // namespace
}  // namespace sluice
