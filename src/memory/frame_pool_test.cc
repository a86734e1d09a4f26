#include "memory/frame_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "testing/allocation_guard.h"

namespace sluice {
namespace {

std::unique_ptr<FramePool> make_pool(size_t frame_count, size_t slab_count = 4) {
  auto pool = FramePool::create({.frame_count = frame_count, .slab_count = slab_count});
  EXPECT_TRUE(pool);
  return std::move(*pool);
}

TEST(FramePool, LiesBelowFourGigabytes) {
  // Several at once: the search goes on behind what is taken.
  const auto a = make_pool(4096), b = make_pool(4096), c = make_pool(65536);
  for (const auto* pool : {a.get(), b.get(), c.get()}) {
    EXPECT_TRUE(pool->below_4gib());
    EXPECT_LE(reinterpret_cast<uintptr_t>(pool->begin()) + pool->bytes(), uintptr_t{1} << 32);
  }
  EXPECT_NE(a->begin(), b->begin());
}

TEST(FramePool, GoesAnywhereWhenItCannotLieBelowFourGigabytes) {
  const auto pool =
      make_pool(64, size_t{5} << 14);  // 5.3 GiB of address space, nothing of it touched
  EXPECT_FALSE(pool->below_4gib());
  FrameCache cache(*pool);
  Frame* frame = cache.take();
  ASSERT_NE(frame, nullptr);
  std::memset(frame->chunk(), 1, kChunkBytes);
  cache.give(frame);
}

TEST(FramePool, GivesChunksThatDoNotOverlapAndHaveTheirHeadroom) {
  const auto pool = make_pool(300, 3);
  FrameCache cache(*pool);
  std::set<uint8_t*> chunks;
  std::vector<Frame*> frames;
  while (Frame* frame = cache.take()) {
    EXPECT_EQ(frame->data(), frame->chunk() + kHeadroomBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(frame->chunk()) % kChunkBytes, 0u);
    EXPECT_EQ(frame->packet_bytes(), 0u);
    EXPECT_EQ(frame->result(), FrameResult::pending);
    chunks.insert(frame->chunk());
    std::memset(frame->chunk(), 0xff, kChunkBytes);  // the handle lies elsewhere
    frame->set_single(kFrameDataBytesMax);
    frame->set_dropped(DropReason::runt);
    frame->offload().needs_csum = true;
    frames.push_back(frame);
  }
  EXPECT_EQ(chunks.size(), 300u);
  EXPECT_EQ(frames.size(), 300u);
  for (Frame* frame : frames) cache.give(frame);
  // What a frame was is forgotten.
  Frame* again = cache.take();
  EXPECT_EQ(again->packet_bytes(), 0u);
  EXPECT_FALSE(again->offload().needs_csum);
  EXPECT_EQ(again->result(), FrameResult::pending);
  cache.give(again);
}

TEST(FramePool, HasEverythingBackAfterUse) {
  const auto pool = make_pool(200, 3);
  {
    FrameCache cache(*pool);
    std::vector<Frame*> frames;
    while (Frame* frame = cache.take()) frames.push_back(frame);
    EXPECT_EQ(frames.size(), 200u);
    EXPECT_EQ(pool->frames_free(), 0u);
    for (size_t i = 0; i < 3; ++i) {
      Slab* slab = cache.take_slab();
      ASSERT_NE(slab, nullptr);
      std::memset(slab->data, 0xaa, kSlabBytes);
      frames[i]->set_slab_tail(100, slab, kSlabBytes);
    }
    EXPECT_EQ(cache.take_slab(), nullptr);
    for (Frame* frame : frames) cache.give(frame);  // slabs come back with their frames
    EXPECT_EQ(pool->slabs_free(), 3u);
  }
  EXPECT_EQ(pool->frames_free(), pool->frames_total());
  EXPECT_EQ(pool->slabs_free(), pool->slabs_total());
}

TEST(FramePool, ReusesTheFrameThatWasGivenLast) {
  const auto pool = make_pool(1000);
  FrameCache cache(*pool);
  Frame* first = cache.take();
  cache.give(first);
  for (int i = 0; i < 100; ++i) {
    Frame* frame = cache.take();
    EXPECT_EQ(frame, first);
    cache.give(frame);
  }
}

TEST(FramePool, TakesAndGivesWithoutAllocating) {
  const auto pool = make_pool(1000);
  FrameCache cache(*pool);
  std::vector<Frame*> frames(900);
  const AllocationGuard guard;
  for (int round = 0; round < 10; ++round) {
    for (Frame*& frame : frames) frame = cache.take();
    for (Frame* frame : frames) cache.give(frame);
  }
}

TEST(FramePool, FramesWanderBetweenThreadsAndNoneIsLostOrSeenTwice) {
  constexpr size_t kFrames = 512;
  const auto pool = make_pool(kFrames);
  // One slot is a belt: one thread puts frames on it, the other takes them off.
  std::atomic<Frame*> belt{nullptr};
  constexpr uint32_t kPassed = 50'000;
  std::thread giver([&] {
    FrameCache cache(*pool);
    for (uint32_t i = 0; i < kPassed;) {
      if (belt.load(std::memory_order_acquire) != nullptr) continue;
      Frame* frame = cache.take();
      if (frame == nullptr) continue;  // the other thread holds them for the moment
      std::memcpy(frame->data(), &i, sizeof i);
      frame->set_single(64);
      belt.store(frame, std::memory_order_release);
      ++i;
    }
  });
  {
    FrameCache cache(*pool);
    for (uint32_t i = 0; i < kPassed;) {
      Frame* frame = belt.load(std::memory_order_acquire);
      if (frame == nullptr) continue;
      uint32_t number = 0;
      std::memcpy(&number, frame->data(), sizeof number);
      EXPECT_EQ(number, i);
      belt.store(nullptr, std::memory_order_release);
      cache.give(frame);
      ++i;
    }
    giver.join();
  }
  EXPECT_EQ(pool->frames_free(), kFrames);
}

TEST(FramePool, UsesOnlyHugePagesThatAreThere) {
  // Whether or not the machine has any, every byte of the pool can be written.
  auto pool = FramePool::create({.frame_count = 2000, .slab_count = 2, .want_hugepages = true});
  ASSERT_TRUE(pool);
  std::memset((*pool)->begin(), 0x55, (*pool)->bytes());
  EXPECT_TRUE((*pool)->below_4gib());
}

TEST(FrameCache, FramesThatBelongToAPacketComeBackWithIt) {
  const auto pool = make_pool(128);
  {
    FrameCache cache(*pool);
    Frame* packet = cache.take();
    packet->set_single(3);
    std::memcpy(packet->data(), "abc", 3);
    std::string expected = "abc";
    for (char letter = 'd'; letter < 'd' + 20; ++letter) {
      Frame* part = cache.take();
      part->set_single(2);
      std::memset(part->data(), letter, 2);
      packet->append_frame(part);
      expected += std::string(2, letter);
    }
    EXPECT_EQ(packet->tail_kind(), TailKind::frames);
    EXPECT_EQ(packet->packet_bytes(), 43u);
    EXPECT_EQ(packet->tail_bytes(), 40u);
    std::string seen;
    for_each_part(*packet, [&](const uint8_t* bytes, size_t count) {
      seen.append(reinterpret_cast<const char*>(bytes), count);
    });
    EXPECT_EQ(seen, expected);
    cache.give(packet);
  }
  EXPECT_EQ(pool->frames_free(), 128u);
}

TEST(FramePoolDeathTest, GivingAFrameTwiceAborts) {
  const auto pool = make_pool(64);
  const auto give_twice = [&] {
    FrameCache cache(*pool);
    Frame* frame = cache.take();
    for (int i = 0; i < 200; ++i) cache.give(frame);
  };
  EXPECT_DEATH(give_twice(), "internal error");
}

TEST(FrameDeathTest, OurOwnMistakesAbort) {
  const auto pool = make_pool(64);
  FrameCache cache(*pool);
  Frame* frame = cache.take();
  EXPECT_DEATH(frame->set_single(kFrameDataBytesMax + 1), "internal error");
  EXPECT_DEATH((void)frame->spans(), "internal error");
  EXPECT_DEATH((void)frame->slab(), "internal error");
  FrameBatch batch;
  for (size_t i = 0; i < kBatchFramesMax; ++i) batch.push(frame);
  EXPECT_DEATH(batch.push(frame), "internal error");
  EXPECT_DEATH((void)batch[kBatchFramesMax], "internal error");
  cache.give(frame);
}

}  // namespace
}  // namespace sluice
