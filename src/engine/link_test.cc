#include "engine/link.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

namespace sluice {
namespace {

// A queue whose frames and answers a test scripts. A frame's first byte is its number.
class ScriptedQueue : public PortQueue {
 public:
  bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept override {
    ++receives;
    while (!incoming.empty() && batch.size() < budget.frames) {
      Frame* frame = cache.take();
      if (frame == nullptr) return true;
      frame->data()[0] = incoming.front();
      frame->set_single(60);
      if (span_tailed) frame->set_span_tail(60, {}, 1000);
      incoming.pop_front();
      batch.push(frame);
    }
    return !incoming.empty();
  }
  void transmit(FrameBatch& batch) noexcept override {
    ++transmits;
    for (Frame* frame : batch) {
      if (frame->data()[0] == refused) {
        frame->set_dropped(DropReason::port_rejected);
      } else if (accepts == 0) {
        frame->set_result(FrameResult::blocked);
      } else {
        --accepts;
        sent.push_back(frame->data()[0]);
        frame->set_result(FrameResult::done);
      }
    }
  }
  void finish_breath() noexcept override { ++finishes; }
  size_t transmit_room() noexcept override { return room; }
  bool arm(bool wants_frames, bool wants_room) noexcept override {
    armed_for_frames = wants_frames;
    armed_for_room = wants_room;
    return wants_frames && !incoming.empty();
  }
  void disarm() noexcept override { ++disarms; }
  int wake_fd() const noexcept override { return -1; }
  void on_wake() noexcept override {}

  std::deque<uint8_t> incoming;
  std::vector<uint8_t> sent;
  size_t accepts = 1000;
  size_t room = kBatchFramesMax;
  int refused = -1;
  bool span_tailed = false;
  int receives = 0, transmits = 0, finishes = 0, disarms = 0;
  bool armed_for_frames = false, armed_for_room = false;
};

class LinkTest : public testing::Test {
 protected:
  void TearDown() override {
    link.release(cache);
    // Whatever happened, every frame has found its way back: in the cache or in the pool.
    size_t in_cache = 0;
    while (cache.take() != nullptr) ++in_cache;
    EXPECT_EQ(in_cache, pool->frames_total());
  }
  uint64_t drops(const QueueCounters& counters, DropReason reason) {
    return counters.drops[static_cast<size_t>(reason)].get();
  }

  std::unique_ptr<FramePool> pool =
      std::move(*FramePool::create({.frame_count = 256, .slab_count = 1}));
  FrameCache cache{*pool};
  XdpPath path;
  ScriptedQueue vm, tap;
  Link link{vm, tap, true};
};

TEST_F(LinkTest, CarriesBothDirectionsAndPublishesOnceABreath) {
  vm.incoming = {1, 2, 3};
  tap.incoming = {7, 8};
  EXPECT_EQ(link.breathe(cache, path, 64), 5u);
  EXPECT_EQ(tap.sent, (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(vm.sent, (std::vector<uint8_t>{7, 8}));
  EXPECT_EQ(vm.finishes, 1);
  EXPECT_EQ(tap.finishes, 1);
  EXPECT_EQ(link.breathe(cache, path, 64), 0u);
}

TEST_F(LinkTest, TakesNoMoreThanTheBatchOrTheRoom) {
  for (uint8_t i = 0; i < 100; ++i) vm.incoming.push_back(i);
  link.breathe(cache, path, 16);
  EXPECT_EQ(tap.sent.size(), 16u);
  tap.room = 5;
  link.breathe(cache, path, 64);
  EXPECT_EQ(tap.sent.size(), 21u);
}

TEST_F(LinkTest, DoesNotReadASourceWhoseDestinationHasNoRoom) {
  vm.room = 0;
  tap.incoming = {1};
  EXPECT_EQ(link.breathe(cache, path, 64), 0u);
  EXPECT_EQ(tap.receives, 0);
  EXPECT_FALSE(link.arm());
  EXPECT_TRUE(vm.armed_for_room);
  EXPECT_FALSE(tap.armed_for_frames);
  EXPECT_TRUE(vm.armed_for_frames) << "the other direction goes on";
  vm.room = 64;
  EXPECT_EQ(link.breathe(cache, path, 64), 1u);
  EXPECT_EQ(vm.sent, (std::vector<uint8_t>{1}));
}

TEST_F(LinkTest, HoldsWhatIsBlockedAndKeepsItsOrder) {
  vm.incoming = {1, 2, 3, 4};
  tap.accepts = 2;
  link.breathe(cache, path, 64);
  EXPECT_TRUE(link.has_held());
  vm.incoming.push_back(5);
  const int receives = vm.receives;
  link.breathe(cache, path, 64);
  EXPECT_EQ(vm.receives, receives) << "nothing new is read while something is held";
  tap.accepts = 100;
  link.breathe(cache, path, 64);
  EXPECT_EQ(tap.sent, (std::vector<uint8_t>{1, 2, 3, 4, 5}));
  EXPECT_FALSE(link.has_held());
}

TEST_F(LinkTest, AsksForRoomBeforeItOffersHeldFramesAgain) {
  // A port may take back what it has sent only when it is asked for room.
  vm.incoming = {1, 2};
  tap.accepts = 0;
  link.breathe(cache, path, kBatchFramesMax);
  ASSERT_TRUE(link.has_held());
  const int transmits = tap.transmits;
  tap.accepts = 1000;
  tap.room = 0;
  link.breathe(cache, path, kBatchFramesMax);
  EXPECT_EQ(tap.transmits, transmits);
  tap.room = 1;
  link.breathe(cache, path, kBatchFramesMax);
  EXPECT_EQ(tap.sent, (std::vector<uint8_t>{1, 2}));
}

TEST_F(LinkTest, MovesSeveralBatchesABreathWhenTold) {
  for (uint8_t i = 0; i < 10; ++i) vm.incoming.push_back(i);
  EXPECT_EQ(link.breathe(cache, path, 4, 2), 8u);
  EXPECT_EQ(tap.finishes, 1);
  EXPECT_EQ(link.breathe(cache, path, 4, 2), 2u);
  EXPECT_EQ(vm.receives, 3);
}

TEST_F(LinkTest, DropsHeldFramesByNameWhenTheirTimeIsUp) {
  vm.incoming = {1, 2};
  tap.accepts = 0;
  link.breathe(cache, path, 64);
  ASSERT_TRUE(link.has_held());
  std::this_thread::sleep_for(std::chrono::milliseconds(kHeldMillisecondsMax + 20));
  link.breathe(cache, path, 64);
  EXPECT_FALSE(link.has_held());
  EXPECT_EQ(drops(tap.transmitted(), DropReason::port_full), 2u);
}

TEST_F(LinkTest, NeverHoldsAFrameThatRefersToGuestMemory) {
  vm.span_tailed = true;
  vm.incoming = {1, 2};
  tap.accepts = 0;
  link.breathe(cache, path, 64);
  EXPECT_FALSE(link.has_held());
  EXPECT_EQ(drops(tap.transmitted(), DropReason::port_full), 2u);
}

TEST_F(LinkTest, CountsARefusedFrameAndSendsItsNeighbours) {
  vm.incoming = {1, 2, 3};
  tap.refused = 2;
  link.breathe(cache, path, 64);
  EXPECT_EQ(tap.sent, (std::vector<uint8_t>{1, 3}));
  EXPECT_EQ(drops(tap.transmitted(), DropReason::port_rejected), 1u);
}

TEST_F(LinkTest, StaysHotWhenArmingFindsWork) {
  vm.incoming = {1};
  EXPECT_TRUE(link.arm());
  vm.incoming.clear();
  EXPECT_FALSE(link.arm());
}

TEST(Link, LeavesASharedQueueToTheLinkThatCarriesItsFrames) {
  ScriptedQueue first, shared;
  shared.incoming = {1};
  Link link(first, shared, /*carries_b_to_a=*/false);
  auto pool = std::move(*FramePool::create({.frame_count = 64, .slab_count = 1}));
  FrameCache cache(*pool);
  XdpPath path;
  link.breathe(cache, path, 64);
  EXPECT_EQ(shared.receives, 0);
  shared.armed_for_frames = true;  // by the link that carries them
  EXPECT_FALSE(link.arm());
  EXPECT_TRUE(shared.armed_for_frames);
  link.disarm();
  EXPECT_EQ(shared.disarms, 0);
  EXPECT_FALSE(link.must_be_polled());
  shared.room = 0;
  link.breathe(cache, path, 64);
  EXPECT_TRUE(link.must_be_polled()) << "nobody else tells it of room";
}

}  // namespace
}  // namespace sluice
