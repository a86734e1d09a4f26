// What becomes of frames by their verdict. The program is a few instructions that make the frame's
// first byte the verdict, and its second the port of a redirect.
#include "engine/xdp_path.h"

#include <gtest/gtest.h>

#include "xdp/map.h"

namespace sluice {
namespace {

// Takes what it has room for, and remembers it.
class Sink : public PortQueue {
 public:
  bool receive(FrameBatch&, const Budget&, FrameCache&) noexcept override { return false; }
  void transmit(FrameBatch& batch) noexcept override {
    for (Frame* frame : batch) {
      if (room == 0) {
        frame->set_result(FrameResult::blocked);
        continue;
      }
      --room;
      sent.push_back(frame->data()[2]);
      frame->set_result(FrameResult::done);
    }
  }
  void finish_breath() noexcept override { ++finishes; }
  size_t transmit_room() noexcept override { return room; }
  bool arm(bool, bool) noexcept override { return false; }
  void disarm() noexcept override {}
  int wake_fd() const noexcept override { return -1; }
  void on_wake() noexcept override {}

  std::vector<uint8_t> sent;  // the third byte of each frame: its number
  size_t room = 100;
  int finishes = 0;
};

constexpr uint8_t kLoadByte = BPF_LDX | BPF_MEM | BPF_B, kLoadWord = BPF_LDX | BPF_MEM | BPF_W;

// r0 = byte 0; redirect(byte 1, 0) is called before.
const std::vector<Instruction> kByFirstByte = {
    {kLoadWord, 6, 1, 0, 0},  // r6 = data
    {kLoadByte, 1, 6, 1, 0},
    {BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0},
    {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect},
    {kLoadByte, 0, 6, 0, 0},
    {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
};

class XdpPathTest : public testing::Test {
 protected:
  void SetUp() override {
    pool = std::move(*FramePool::create({.frame_count = 256, .slab_count = 1}));
    if (!pool->below_4gib()) GTEST_SKIP() << "no memory below 4 GiB is free here";
    cache = std::make_unique<FrameCache>(*pool);
    program = std::move(*XdpProgram::create({kByFirstByte, {}}, {}));
    XdpPorts ports;
    ports.entries = {{}, {{&source}}, {{&other}}, {}};  // port 3 is another worker's
    ports.mtus = {0, 1500, 1500, 1500};
    path.set_worker(0, std::move(ports));
  }
  void TearDown() override {
    if (!cache) return;
    for (Frame* frame : batch) cache->give(frame);
    size_t in_cache = 0;
    while (cache->take() != nullptr) ++in_cache;
    EXPECT_EQ(in_cache, pool->frames_total()) << "every frame is back, or was passed on";
  }
  void add(uint8_t verdict, uint8_t port = 0) {
    Frame* frame = cache->take();
    frame->set_single(60);
    frame->data()[0] = verdict;
    frame->data()[1] = port;
    frame->data()[2] = static_cast<uint8_t>(added++);
    batch.push(frame);
  }
  void run() {
    path.run({program.get(), 1, 0}, source, batch, *cache);
    path.finish_breath();
  }
  std::vector<uint8_t> passed() const {
    std::vector<uint8_t> numbers;
    for (Frame* frame : batch) numbers.push_back(frame->data()[2]);
    return numbers;
  }
  uint64_t dropped(const QueueCounters& counters, DropReason reason) const {
    return counters.drops[static_cast<size_t>(reason)].get();
  }
  using Numbers = std::vector<uint8_t>;

  std::unique_ptr<FramePool> pool;
  std::unique_ptr<FrameCache> cache;
  std::unique_ptr<XdpProgram> program;
  Sink source, other;
  XdpPath path;
  FrameBatch batch;
  int added = 0;
};

TEST_F(XdpPathTest, EachFrameGoesWhereItsVerdictSays) {
  for (const uint8_t verdict : {XDP_PASS, XDP_DROP, XDP_TX, XDP_ABORTED, XDP_PASS}) add(verdict);
  add(XDP_REDIRECT, 2);
  add(77);
  add(XDP_TX);
  run();
  EXPECT_EQ(passed(), (Numbers{0, 4}));
  EXPECT_EQ(source.sent, (Numbers{2, 7}));
  EXPECT_EQ(other.sent, (Numbers{5}));
  EXPECT_EQ(dropped(source.received(), DropReason::xdp_drop), 1u);
  EXPECT_EQ(dropped(source.received(), DropReason::xdp_aborted), 1u);
  EXPECT_EQ(dropped(source.received(), DropReason::xdp_unknown_verdict), 1u);
  EXPECT_EQ(source.finishes, 1);
  EXPECT_EQ(other.finishes, 1);
}

TEST_F(XdpPathTest, ABatchThatPassesWholeIsLeftAlone) {
  for (int i = 0; i < 64; ++i) add(XDP_PASS);
  run();
  EXPECT_EQ(batch.size(), 64u);
  EXPECT_EQ(source.finishes, 0) << "nobody was sent anything";
}

TEST_F(XdpPathTest, ARedirectToNobodyIsCounted) {
  add(XDP_REDIRECT, 0);
  add(XDP_REDIRECT, 3);
  add(XDP_REDIRECT, 200);
  run();
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(dropped(source.received(), DropReason::xdp_redirect_failed), 3u);
}

TEST_F(XdpPathTest, WhatFindsNoRoomIsDroppedUnderTheDestinationsName) {
  other.room = 2;
  for (int i = 0; i < 5; ++i) add(XDP_REDIRECT, 2);
  run();
  EXPECT_EQ(other.sent, (Numbers{0, 1}));
  EXPECT_EQ(dropped(other.transmitted(), DropReason::port_full), 3u);
  for (int i = 0; i < 2; ++i) add(XDP_REDIRECT, 2);
  run();
  EXPECT_EQ(dropped(other.transmitted(), DropReason::port_full), 5u);
}

TEST_F(XdpPathTest, FramesForSeveralPortsKeepTheirOrder) {
  for (int i = 0; i < 10; ++i) add(XDP_REDIRECT, static_cast<uint8_t>(1 + i % 2));
  run();
  EXPECT_EQ(source.sent, (Numbers{0, 2, 4, 6, 8}));
  EXPECT_EQ(other.sent, (Numbers{1, 3, 5, 7, 9}));
}

TEST_F(XdpPathTest, AFrameThatIsNotWholeIsDroppedUnseen) {
  add(XDP_PASS);
  batch[0]->offload().gso_type = GsoType::tcp4;
  run();
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(dropped(source.received(), DropReason::xdp_frame_too_big), 1u);
}

TEST_F(XdpPathTest, ABroadcastReachesEveryPortOfTheMapButItsOwn) {
  auto map = create_map({.type = BPF_MAP_TYPE_DEVMAP,
                         .key_size = 4,
                         .value_size = 4,
                         .max_entries = 8,
                         .name = "ports"},
                        {});
  ASSERT_TRUE(map);
  for (const uint32_t port : {1u, 2u}) ASSERT_EQ((*map)->update(&port, &port, BPF_ANY), 0);
  const std::vector<MapRef> refs = {(*map)->ref()};
  for (const bool excludes_ingress : {false, true}) {
    source.sent.clear();
    other.sent.clear();
    const int32_t flags = BPF_F_BROADCAST | (excludes_ingress ? BPF_F_EXCLUDE_INGRESS : 0);
    const std::vector<Instruction> code = {
        {BPF_LD | BPF_DW | BPF_IMM, 1, uint8_t(WideImmediate::map), 0, 0},
        {},
        {BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0},
        {BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, flags},
        {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map},
        {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
    program = std::move(*XdpProgram::create({code, refs}, {}));
    added = 0;
    add(0);
    run();
    EXPECT_EQ(source.sent, excludes_ingress ? Numbers{} : Numbers{0});
    EXPECT_EQ(other.sent, (Numbers{0}));
  }
  program.reset();
}

}  // namespace
}  // namespace sluice
