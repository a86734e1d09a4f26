#include "engine/worker.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>

namespace sluice {
namespace {

// A source that has as many frames as a test puts in, and says so by its eventfd as a guest would.
class CountingQueue : public PortQueue {
 public:
  CountingQueue() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept override {
    while (batch.size() < budget.frames && waiting.load() > 0) {
      Frame* frame = cache.take();
      if (frame == nullptr) break;
      frame->set_single(60);
      batch.push(frame);
      waiting.fetch_sub(1);
    }
    return false;
  }
  void transmit(FrameBatch& batch) noexcept override {
    for (Frame* frame : batch) frame->set_result(FrameResult::done);
    sent.fetch_add(batch.size());
  }
  void finish_breath() noexcept override {}
  size_t transmit_room() noexcept override { return kBatchFramesMax; }
  bool arm(bool, bool) noexcept override {
    armed.store(true);
    full_fence();
    return waiting.load() > 0;
  }
  void disarm() noexcept override { armed.store(false); }
  int wake_fd() const noexcept override { return event_.get(); }
  void on_wake() noexcept override {
    uint64_t value = 0;
    if (::read(event_.get(), &value, sizeof value) > 0) wakes.fetch_add(1);
  }
  bool must_be_polled() const noexcept override { return polled.load(); }

  void put(size_t count, bool kick = true) {
    waiting.fetch_add(count);
    full_fence();
    const uint64_t one = 1;
    if (!kick || !armed.load()) return;
    ASSERT_EQ(::write(event_.get(), &one, sizeof one), 8);
  }

  std::atomic<size_t> waiting{0}, sent{0}, wakes{0};
  std::atomic<bool> armed{false}, polled{false};

 private:
  Fd event_;
};

class WorkerTest : public testing::Test {
 protected:
  void start(uint32_t poll_us = 20) {
    pool = std::move(*FramePool::create({.frame_count = 1024, .slab_count = 1}));
    worker = std::move(*Worker::create({.poll_us = poll_us}, *pool));
    ASSERT_TRUE(worker->add_link(vm, tap, true));
    ASSERT_TRUE(worker->start());
  }
  // Waits for what must come; the bound is only for the case that it does not.
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 10'000; ++i) {
      if (condition()) return true;
      ::usleep(1000);
    }
    return false;
  }

  std::unique_ptr<FramePool> pool;
  CountingQueue vm, tap;
  std::unique_ptr<Worker> worker;
};

TEST_F(WorkerTest, CarriesFramesAndSleepsInBetween) {
  start();
  for (size_t round = 1; round <= 100; ++round) {
    vm.put(10);
    ASSERT_TRUE(eventually([&] { return tap.sent.load() == 10 * round; })) << round;
  }
  EXPECT_TRUE(eventually([&] { return vm.armed.load(); }));
  EXPECT_GT(worker->counters().sleeps.get(), 0u);
}

TEST_F(WorkerTest, DoesNotBreatheWhileNothingHappens) {
  start();
  ASSERT_TRUE(eventually([&] { return vm.armed.load(); }));
  ::usleep(20'000);
  const uint64_t breaths = worker->counters().breaths.get();
  ::usleep(200'000);
  EXPECT_EQ(worker->counters().breaths.get(), breaths);
}

TEST_F(WorkerTest, RunsAChangeBetweenBreathsAndReturnsWhenItHasRun) {
  start();
  std::thread::id ran_on;
  for (int i = 0; i < 1000; ++i) {
    bool ran = false;
    worker->call([&] {
      ran = true;
      ran_on = std::this_thread::get_id();
    });
    ASSERT_TRUE(ran);
  }
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST_F(WorkerTest, RunsAChangeAtOnceWhenItIsNotStarted) {
  pool = std::move(*FramePool::create({.frame_count = 64, .slab_count = 1}));
  worker = std::move(*Worker::create({}, *pool));
  bool ran = false;
  worker->call([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST_F(WorkerTest, LooksByItselfAfterAFrontEndThatSendsNoKicks) {
  vm.polled.store(true);
  start();
  ASSERT_TRUE(eventually([&] { return worker->counters().sleeps.get() > 0; }));
  vm.put(5, /*kick=*/false);
  EXPECT_TRUE(eventually([&] { return tap.sent.load() == 5; }));
}

TEST_F(WorkerTest, LooksAfterAFrontEndWithoutKicksHoweverBusyOthersAre) {
  pool = std::move(*FramePool::create({.frame_count = 1024, .slab_count = 1}));
  worker = std::move(*Worker::create({.poll_us = 20}, *pool));
  CountingQueue busy, sink;
  vm.polled.store(true);
  busy.waiting.store(SIZE_MAX / 2);  // never runs dry
  ASSERT_TRUE(worker->add_link(busy, sink, true));
  ASSERT_TRUE(worker->add_link(vm, tap, true));
  ASSERT_TRUE(worker->start());
  ASSERT_TRUE(eventually([&] { return vm.armed.load(); }));
  vm.put(5, /*kick=*/false);
  EXPECT_TRUE(eventually([&] { return tap.sent.load() == 5; }));
  worker->stop();
}

TEST_F(WorkerTest, LooksAtEachLinkAfterAChange) {
  start();
  ASSERT_TRUE(eventually([&] { return vm.armed.load(); }));
  worker->call([&] { vm.waiting.fetch_add(3); });
  EXPECT_TRUE(eventually([&] { return tap.sent.load() == 3; }));
}

TEST_F(WorkerTest, GivesEveryFrameBackWhenItStops) {
  start();
  vm.put(500);
  ASSERT_TRUE(eventually([&] { return tap.sent.load() == 500; }));
  worker->stop();
  worker.reset();
  EXPECT_EQ(pool->frames_free(), pool->frames_total());
}

TEST_F(WorkerTest, RefusesACpuThatDoesNotExist) {
  pool = std::move(*FramePool::create({.frame_count = 64, .slab_count = 1}));
  worker = std::move(*Worker::create({.cpu = 1000}, *pool));
  const Result<void> started = worker->start();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().text.find("CPU 1000"), std::string::npos);
}

}  // namespace
}  // namespace sluice
