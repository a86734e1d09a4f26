#include "port/device_ring.h"

#include <gtest/gtest.h>

#include "testing/vm_test_kit.h"

namespace sluice {
namespace {

class DeviceRingTest : public ::testing::Test {
 protected:
  void complete_one() {
    SpanList spans(16);
    Chain chain;
    ring.visit([&](auto& queue) {
      ASSERT_EQ(queue.pop(spans, chain), Pop::chain);
      queue.complete(std::move(chain), 0);
    });
  }

  FakeGuestMemory guest;
  DrivenRing driven{guest, {.size = 16}};
  DeviceRing ring;
  QueueCounters counters;
};

TEST_F(DeviceRingTest, GoesFromStoppedToRunningAndBack) {
  EXPECT_FALSE(ring.running());
  EXPECT_FALSE(ring.can_carry());
  EXPECT_FALSE(ring.must_be_polled());
  EXPECT_EQ(ring.stop(), 0u) << "a ring that never ran begins at 0";
  ring.start(driven.start(0, 0, /*enabled=*/false));
  EXPECT_TRUE(ring.running());
  EXPECT_TRUE(ring.usable());
  EXPECT_FALSE(ring.can_carry());
  ring.set_enabled(true);
  EXPECT_TRUE(ring.can_carry());
  driven.driver.offer(ChainBuilder{}.readable(60));
  complete_one();
  EXPECT_EQ(ring.stop(), 1u);
  EXPECT_FALSE(ring.running());
  EXPECT_TRUE(driven.driver.has_used()) << "what was completed is published at the latest now";
}

TEST_F(DeviceRingTest, LeavesKicksOnForWhoeverTakesOver) {
  ring.start(driven.start(0, 0));
  driven.driver.offer(ChainBuilder{}.readable(60));
  EXPECT_FALSE(driven.driver.kick_wanted());
  ring.stop();
  driven.driver.offer(ChainBuilder{}.readable(60));
  EXPECT_TRUE(driven.driver.kick_wanted());
}

TEST_F(DeviceRingTest, CallsOnlyForWhatIsNew) {
  ring.start(driven.start(0, 0));
  ring.publish_and_notify(counters);
  EXPECT_EQ(take_event(driven.call), 0u);
  driven.driver.offer(ChainBuilder{}.readable(60));
  complete_one();
  ring.publish_and_notify(counters);
  EXPECT_EQ(take_event(driven.call), 1u);
  ring.publish_and_notify(counters);
  EXPECT_EQ(take_event(driven.call), 0u);
  EXPECT_EQ(counters.notifications.get(), 1u);
}

TEST_F(DeviceRingTest, UsesANewCallFromTheNextPublishOn) {
  ring.start(driven.start(0, 0));
  const Fd other = make_event();
  ring.set_call(copy_of(other));
  driven.driver.offer(ChainBuilder{}.readable(60));
  complete_one();
  ring.publish_and_notify(counters);
  EXPECT_EQ(take_event(driven.call), 0u);
  EXPECT_EQ(take_event(other), 1u);
}

TEST_F(DeviceRingTest, DoesNotWaitForACallThatNobodyReads) {
  ring.start(driven.start(0, 0));
  const uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(::write(driven.call.get(), &full, sizeof full), 8);
  driven.driver.offer(ChainBuilder{}.readable(60));
  complete_one();
  ring.publish_and_notify(counters);
  EXPECT_EQ(take_event(driven.call), full);
}

TEST_F(DeviceRingTest, CountsKicksAndReadsThemEmpty) {
  ring.start(driven.start(0, 0));
  ring.drain_kick(counters);
  EXPECT_EQ(counters.kicks.get(), 0u);
  write_event(driven.kick);
  write_event(driven.kick);
  ring.drain_kick(counters);
  EXPECT_EQ(counters.kicks.get(), 1u);
  EXPECT_FALSE(is_readable(driven.kick.get()));
  ring.kick_ourselves();
  EXPECT_TRUE(is_readable(driven.kick.get()));
}

TEST_F(DeviceRingTest, ReportsAFaultOnceAndAgainAfterARestart) {
  for (int round = 0; round < 2; ++round) {
    ring.start(driven.start(0, 0));
    EXPECT_EQ(ring.take_new_fault(), RingFault::none);
    ring.break_with(RingFault::wrong_direction);
    EXPECT_EQ(take_event(driven.error), 1u);
    EXPECT_FALSE(ring.usable());
    EXPECT_FALSE(ring.can_carry());
    EXPECT_TRUE(ring.running());
    EXPECT_EQ(ring.take_new_fault(), RingFault::wrong_direction);
    EXPECT_EQ(ring.take_new_fault(), RingFault::none);
    ring.stop();
    EXPECT_EQ(ring.take_new_fault(), RingFault::none);
  }
}

TEST_F(DeviceRingTest, MustBePolledWithoutAKick) {
  RingStart start = driven.start(0, 0);
  start.kick.reset();
  start.error.reset();
  start.call.reset();
  ring.start(std::move(start));
  EXPECT_TRUE(ring.must_be_polled());
  ring.kick_ourselves();
  ring.drain_kick(counters);
  ring.break_with(RingFault::wrong_direction);
  EXPECT_EQ(counters.kicks.get(), 0u);
}

}  // namespace
}  // namespace sluice
