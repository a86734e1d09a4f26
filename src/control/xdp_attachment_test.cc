// What is believed of a program that was handed over: the kernel's word, and nothing else.
#include "control/xdp_attachment.h"

#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "xdp/map_array.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr uint8_t kWide = BPF_LD | BPF_DW | BPF_IMM;

// Looks one key up in map 0, and passes.
std::vector<Instruction> look_up(int32_t map) {
  return {{kWide, 1, uint8_t(WideImmediate::map), 0, map},
          {},
          {BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0},
          {BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4},
          {BPF_ST | BPF_MEM | BPF_W, 2, 0, 0, 1},
          {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem},
          {BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, XDP_PASS},
          {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
}

class XdpAttachmentTest : public testing::Test {
 protected:
  void SetUp() override {
    map_ = make_map(BPF_MAP_TYPE_HASH, 8, 0);
    if (!map_) GTEST_SKIP() << "the kernel lets nobody load programs here";
    program_ = verified(look_up(map_.get()));
    if (!program_) GTEST_SKIP() << "the kernel lets nobody load programs here";
  }
  static Fd make_map(bpf_map_type type, uint32_t value_bytes, uint32_t flags) {
    LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = flags);
    return Fd(bpf_map_create(type, "m", 4, value_bytes, 4, &options));
  }
  static Fd verified(const std::vector<Instruction>& code) {
    return Fd(bpf_prog_load(BPF_PROG_TYPE_XDP, "p", "GPL", code.data(), code.size(), nullptr));
  }
  // The object that a client would hand over.
  XdpObject object(Fd map) {
    XdpObject made;
    made.path = "a.o";
    made.programs.push_back({"p", look_up(0), std::move(program_)});
    made.maps.push_back({.shape = {.name = "m"}, .inner = {}, .fd = std::move(map), .initial = {}});
    return made;
  }
  static std::string refusal(XdpObject object, bool may_be_unverified = false) {
    auto made = XdpAttachment::create(std::move(object), {.may_be_unverified = may_be_unverified});
    return made ? "" : made.error().text;
  }
  Fd map_, program_;
};

TEST_F(XdpAttachmentTest, TakesTheKernelsWordOnAMap) {
  auto made = XdpAttachment::create(object(std::move(map_)), {});
  ASSERT_TRUE(made) << made.error().text;
  EXPECT_EQ((*made)->tag().size(), 16u);
  EXPECT_EQ((*made)->map(0).shape().value_size, 8u) << "the client had said 0";
  EXPECT_EQ((*made)->map(0).shape().type, BPF_MAP_TYPE_HASH);
}

TEST_F(XdpAttachmentTest, RefusesAMapThatTheProgramWasNotVerifiedWith) {
  EXPECT_THAT(refusal(object(make_map(BPF_MAP_TYPE_HASH, 4, 0))), HasSubstr("its maps are not"));
}

TEST_F(XdpAttachmentTest, RefusesInstructionsThatWereNotVerified) {
  XdpObject changed = object(std::move(map_));
  changed.programs[0].instructions[6].imm = XDP_DROP;
  EXPECT_THAT(refusal(std::move(changed)), HasSubstr("not the instructions"));
}

TEST_F(XdpAttachmentTest, RefusesWhatIsNoProgramOrNoMap) {
  XdpObject swapped = object(std::move(map_));
  std::swap(swapped.programs[0].fd, swapped.maps[0].fd);
  EXPECT_NE(refusal(std::move(swapped)), "");
}

TEST_F(XdpAttachmentTest, RunsUnverifiedOnlyWhereThatIsAllowed) {
  for (const bool is_allowed : {false, true}) {
    XdpObject unverified;
    unverified.path = "a.o";
    unverified.programs.push_back({"p", look_up(0), Fd()});
    unverified.maps.push_back({.shape = {.type = BPF_MAP_TYPE_HASH,
                                         .key_size = 4,
                                         .value_size = 8,
                                         .max_entries = 4,
                                         .name = "m"},
                               .inner = {},
                               .fd = Fd(),
                               .initial = {}});
    const std::string text = refusal(std::move(unverified), is_allowed);
    if (is_allowed)
      EXPECT_EQ(text, "");
    else
      EXPECT_THAT(text, HasSubstr("--xdp-unverified=interpret"));
  }
}

TEST_F(XdpAttachmentTest, AnArrayIsTheKernelsOwnMemory) {
  Fd array = make_map(BPF_MAP_TYPE_ARRAY, 8, BPF_F_MMAPABLE);
  ASSERT_TRUE(array.valid());
  program_ = verified(look_up(array.get()));
  const Fd same(::dup(array.get()));
  auto made = XdpAttachment::create(object(std::move(array)), {});
  ASSERT_TRUE(made) << made.error().text;
  const uint32_t key = 3;
  const uint64_t value = 77;
  ASSERT_EQ((*made)->map(0).write(&key, &value, BPF_ANY), 0);
  uint64_t seen = 0;
  ASSERT_EQ(bpf_map_lookup_elem(same.get(), &key, &seen), 0);
  EXPECT_EQ(seen, 77u);
}

}  // namespace
}  // namespace sluice
