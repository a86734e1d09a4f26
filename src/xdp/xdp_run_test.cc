// Programs on batches: what they see, what becomes of the frame, and which verdict comes out.
#include "xdp/xdp_run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "memory/frame_pool.h"
#include "xdp/map.h"
#include "xdp/program_testing.h"

namespace sluice {
namespace {

using Engine = XdpProgram::Engine;
constexpr int16_t kData = offsetof(xdp_md, data);
constexpr int16_t kPort = offsetof(xdp_md, ingress_ifindex);
constexpr int16_t kQueue = offsetof(xdp_md, rx_queue_index);
constexpr int32_t kCsumMark = 0x77;

void mark_checksum(Frame& frame) { frame.data()[frame.offload().csum_start] = kCsumMark; }

Instruction copy(uint8_t to, uint8_t from) { return {BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0}; }

class XdpRun : public testing::TestWithParam<Engine> {
 protected:
  void SetUp() override {
    if (!pool_->below_4gib()) GTEST_SKIP() << "no memory below 4 GiB is free here";
#ifndef __x86_64__
    if (GetParam() == Engine::compiled) GTEST_SKIP() << "no compiler for this processor";
#endif
  }
  void TearDown() override {
    for (Frame* frame : batch_) cache_.give(frame);
  }

  Frame& add_frame(size_t bytes = 60) {
    Frame* frame = cache_.take();
    for (size_t i = 0; i < bytes; ++i) frame->data()[i] = static_cast<uint8_t>(i);
    frame->set_single(bytes);
    batch_.push(frame);
    return *frame;
  }
  std::unique_ptr<XdpProgram> make(const std::vector<Instruction>& code,
                                   std::span<const MapRef> maps = {}) {
    auto program = XdpProgram::create({code, maps}, {.engine = GetParam(), .name = "test"});
    EXPECT_TRUE(program) << (program ? "" : program.error().text);
    return program ? std::move(*program) : nullptr;
  }
  void run(const XdpProgram& program) {
    run_batch(
        program, batch_,
        {.port_number = 5, .queue_index = 2, .worker_index = 1, .complete_checksum = mark_checksum},
        verdicts_);
  }
  void run(const std::vector<Instruction>& code) { run(*make(code)); }

  std::unique_ptr<FramePool> pool_ = std::move(*FramePool::create({.frame_count = 128}));
  FrameCache cache_{*pool_};
  FrameBatch batch_;
  XdpVerdicts verdicts_;
};

TEST_P(XdpRun, EachNumberIsAVerdictAndADropHasItsReason) {
  struct Case {
    int32_t returned;
    XdpVerdict verdict;
    DropReason reason;
  };
  const Case cases[] = {
      {XDP_PASS, XdpVerdict::pass, {}},
      {XDP_TX, XdpVerdict::tx, {}},
      {XDP_DROP, XdpVerdict::drop, DropReason::xdp_drop},
      {XDP_ABORTED, XdpVerdict::aborted, DropReason::xdp_aborted},
      {5, XdpVerdict::unknown, DropReason::xdp_unknown_verdict},
      {-1, XdpVerdict::unknown, DropReason::xdp_unknown_verdict},
      {XDP_REDIRECT, XdpVerdict::drop, DropReason::xdp_redirect_failed},  // to nowhere
  };
  Frame& frame = add_frame();
  for (const Case& c : cases) {
    frame.set_result(FrameResult::pending);
    run({mov(0, c.returned), exit_now()});
    EXPECT_EQ(verdicts_.of[0], c.verdict) << c.returned;
    EXPECT_EQ(verdicts_.count(c.verdict), 1u);
    EXPECT_EQ(frame.result() == FrameResult::dropped, is_drop(c.verdict)) << c.returned;
    if (is_drop(c.verdict)) {
      EXPECT_EQ(frame.drop_reason(), c.reason) << c.returned;
    }
  }
}

TEST_P(XdpRun, AProgramKnowsWhereItIs) {
  add_frame();
  // port + queue + worker = 8, and the first bytes of the packet
  run({copy(6, 1),
       load(4, 7, 6, kPort),
       load(4, 8, 6, kQueue),
       add_register(7, 8),
       call_helper(BPF_FUNC_get_smp_processor_id),
       add_register(7, 0),
       load(4, 8, 6, kData),
       load(1, 0, 8, 6),
       add_register(0, 7),
       {BPF_ALU64 | BPF_ADD | BPF_K, 0, 0, 0, -12},
       exit_now()});
  EXPECT_EQ(verdicts_.of[0], XdpVerdict::pass);
}

TEST_P(XdpRun, TheWindowIsTheProgramsAfterwards) {
  Frame& frame = add_frame();
  const uint8_t* before = frame.data();
  run({copy(6, 1), mov(2, -8), call_helper(BPF_FUNC_xdp_adjust_head), copy(1, 6), mov(2, 10),
       call_helper(BPF_FUNC_xdp_adjust_tail), mov(0, XDP_TX), exit_now()});
  EXPECT_EQ(verdicts_.of[0], XdpVerdict::tx);
  EXPECT_EQ(frame.data(), before - 8);
  EXPECT_EQ(frame.packet_bytes(), 78u);
  EXPECT_EQ(frame.head_bytes(), 78u);
  EXPECT_EQ(frame.data()[67], 59);
  EXPECT_EQ(frame.data()[68], 0);
}

TEST_P(XdpRun, TheWholeChunkButWhatTheKernelKeepsIsThePrograms) {
  Frame& frame = add_frame();
  run({copy(6, 1),
       mov(2, -216),
       call_helper(BPF_FUNC_xdp_adjust_head),
       copy(1, 6),
       mov(2, static_cast<int32_t>(kFrameDataBytesMax) - 60),
       call_helper(BPF_FUNC_xdp_adjust_tail),
       {BPF_ALU64 | BPF_ADD | BPF_K, 0, 0, 0, XDP_PASS},
       exit_now()});
  EXPECT_EQ(verdicts_.of[0], XdpVerdict::pass);
  EXPECT_EQ(frame.packet_bytes(), kFrameDataBytesMax + 216);
  EXPECT_EQ(frame.headroom_bytes(), 40u);
}

TEST_P(XdpRun, WhatIsNotInOneBufferIsNotShown) {
  Frame& tailed = add_frame();
  tailed.set_slab_tail(60, cache_.take_slab(), 3000);
  Frame& segmented = add_frame(3000);
  segmented.offload() = {.needs_csum = true, .gso_type = GsoType::tcp4, .gso_size = 1000};
  add_frame();
  run({mov(0, XDP_PASS), exit_now()});
  EXPECT_EQ(tailed.drop_reason(), DropReason::xdp_frame_too_big);
  EXPECT_EQ(segmented.drop_reason(), DropReason::xdp_frame_too_big);
  EXPECT_EQ(verdicts_.of[1], XdpVerdict::drop);
  EXPECT_EQ(verdicts_.of[2], XdpVerdict::pass);
  EXPECT_EQ(verdicts_.count(XdpVerdict::drop), 2u);
}

TEST_P(XdpRun, APacketIsShownWithItsChecksumComplete) {
  Frame& partial = add_frame();
  partial.offload() = {.needs_csum = true, .csum_start = 34, .csum_offset = 16};
  Frame& verified = add_frame();
  verified.offload().data_valid = true;
  // passes if byte 34 is marked
  run({load(4, 2, 1, kData),
       load(1, 0, 2, 34),
       {BPF_ALU64 | BPF_ADD | BPF_K, 0, 0, 0, XDP_PASS - kCsumMark},
       exit_now()});
  EXPECT_EQ(verdicts_.of[0], XdpVerdict::pass);
  EXPECT_FALSE(partial.offload().needs_csum);
  EXPECT_EQ(verdicts_.of[1], XdpVerdict::unknown);
  EXPECT_FALSE(verified.offload().data_valid);
}

TEST_P(XdpRun, ARedirectBelongsToItsFrameOnly) {
  add_frame();
  add_frame();
  add_frame().data()[0] = 1;
  // redirect to port 9 if the first byte is 0; always returns XDP_REDIRECT
  run({load(4, 2, 1, kData), load(1, 3, 2, 0), jump_if(BPF_JNE, 3, 0, 3), mov(1, 9), mov(2, 0),
       call_helper(BPF_FUNC_redirect), mov(0, XDP_REDIRECT), exit_now()});
  EXPECT_EQ(verdicts_.of[0], XdpVerdict::redirect);
  EXPECT_EQ(verdicts_.of[1], XdpVerdict::redirect);
  EXPECT_EQ(verdicts_.targets[1].kind, RedirectTarget::Kind::port);
  EXPECT_EQ(verdicts_.targets[1].port, 9u);
  EXPECT_EQ(batch_[2]->drop_reason(), DropReason::xdp_redirect_failed);
}

TEST_P(XdpRun, EachFrameHasItsOwnTailCalls) {
  // Nothing looks into the map itself.
  auto map = create_map(
      {.type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1}, {});
  ASSERT_TRUE(map);
  std::atomic<const TailTarget*> slot = nullptr;
  const MapRef maps[] = {{.map = map->get(), .array = {}, .programs = ProgramSlots{&slot, 1}}};
  // Counts its entries in the packet's first byte and enters itself again.
  std::vector<Instruction> code = {load(4, 2, 1, kData),
                                   load(1, 3, 2, 0),
                                   {BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, 1},
                                   store(1, 2, 0, 3)};
  for (const Instruction& half : load_map(2, 0)) code.push_back(half);
  for (const Instruction& last : {mov(3, 0), call_helper(12), mov(0, XDP_PASS), exit_now()})
    code.push_back(last);
  const auto program = make(code, maps);
  slot = program.get();
  for (int i = 0; i < 3; ++i) add_frame();
  run(*program);
  EXPECT_EQ(verdicts_.count(XdpVerdict::pass), 3u);
  for (Frame* frame : batch_) EXPECT_EQ(frame->data()[0], kTailCallsMax + 1);
}

TEST_P(XdpRun, AFullBatchAndAnEmptyOne) {
  run({mov(0, XDP_PASS), exit_now()});
  EXPECT_EQ(verdicts_.count(XdpVerdict::pass), 0u);
  for (size_t i = 0; i < kBatchFramesMax; ++i) add_frame();
  run({mov(0, XDP_PASS), exit_now()});
  EXPECT_EQ(verdicts_.count(XdpVerdict::pass), kBatchFramesMax);
}

INSTANTIATE_TEST_SUITE_P(, XdpRun,
                         testing::Values(Engine::compiled, Engine::interpreted, Engine::checked),
                         [](const auto& row) {
                           return row.param == Engine::compiled      ? "Compiled"
                                  : row.param == Engine::interpreted ? "Interpreted"
                                                                     : "Checked";
                         });

TEST(CheckedRun, AFaultAbortsItsFrameOnly) {
  auto pool = std::move(*FramePool::create({.frame_count = 8}));
  if (!pool->below_4gib()) GTEST_SKIP() << "no memory below 4 GiB is free here";
  FrameCache cache(*pool);
  FrameBatch batch;
  for (const size_t bytes : {20, 60}) {
    batch.push(cache.take());
    batch[batch.size() - 1]->set_single(bytes);
  }
  // Looks at a byte that only the longer one has.
  const std::vector<Instruction> code = {load(4, 2, 1, kData), load(1, 3, 2, 40), mov(0, XDP_PASS),
                                         exit_now()};
  auto program = XdpProgram::create({code, {}}, {.engine = Engine::checked});
  ASSERT_TRUE(program);
  XdpVerdicts verdicts;
  run_batch(**program, batch, {.complete_checksum = mark_checksum}, verdicts);
  EXPECT_EQ(verdicts.of[0], XdpVerdict::aborted);
  EXPECT_EQ(verdicts.of[1], XdpVerdict::pass);
  EXPECT_EQ(verdicts.fault, RunFault::bad_access);
  EXPECT_EQ(batch[0]->drop_reason(), DropReason::xdp_aborted);
  for (Frame* frame : batch) cache.give(frame);
}

TEST(XdpProgram, IsRefusedWithTheSentenceOfTheCheck) {
  const std::vector<Instruction> code = {call_helper(BPF_FUNC_fib_lookup), exit_now()};
  const auto program = XdpProgram::create({code, {}}, {});
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().text.find("bpf_fib_lookup"), std::string::npos);
}

TEST(XdpProgram, KeepsItsNameAndTag) {
  const std::vector<Instruction> code = {mov(0, XDP_PASS), exit_now()};
  const auto program = XdpProgram::create(
      {code, {}}, {.engine = Engine::interpreted, .name = "filter", .tag = {1, 2}, .id = 7});
  ASSERT_TRUE(program);
  EXPECT_EQ((*program)->name(), "filter");
  EXPECT_EQ((*program)->tag()[1], 2);
  EXPECT_EQ((*program)->id(), 7u);
  EXPECT_EQ((*program)->entry(), nullptr);
}

}  // namespace
}  // namespace sluice
