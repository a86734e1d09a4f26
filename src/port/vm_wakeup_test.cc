// A queue pair asleep and awake: kicks, calls, what the data path may not do, memory that vanishes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/allocation_guard.h"
#include "testing/vm_test_kit.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// With EVENT_IDX, and with the plain flags.
class WakeupTest : public VmQueueTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { start(GetParam() ? kModern : kModern & ~feature::event_idx); }
  void offer_packet(uint8_t seed = 1) {
    ASSERT_TRUE(from->driver.offer(
        ChainBuilder{}.readable(joined(net_header(), numbered_packet(60, seed)))));
  }
  void offer_buffer() { ASSERT_TRUE(to->driver.offer(ChainBuilder{}.writable(2048))); }
};
INSTANTIATE_TEST_SUITE_P(Rings, WakeupTest, ::testing::Bool(), [](const auto& suppression) {
  return suppression.param ? "EventIdx" : "Flags";
});

TEST_P(WakeupTest, CallsOnceABreathAndDirection) {
  from->driver.enable_interrupts();
  to->driver.enable_interrupts();
  for (uint8_t i = 0; i < 10; ++i) offer_packet(i);
  for (int i = 0; i < 10; ++i) offer_buffer();
  EXPECT_EQ(receive().size(), 10u);
  EXPECT_EQ(take_event(from->call), 1u);
  EXPECT_EQ(take_event(to->call), 0u) << "nothing was used there";
  send(std::vector<Bytes>(10, numbered_packet(60, 1)));
  EXPECT_EQ(take_event(from->call), 0u);
  EXPECT_EQ(take_event(to->call), 1u);
  EXPECT_EQ(queue->received().notifications.get(), 1u);
  EXPECT_EQ(queue->transmitted().notifications.get(), 1u);
}

TEST_P(WakeupTest, DoesNotCallADriverThatDoesNotWantToBe) {
  // The first publish after a start always calls: it is not known what the driver has been told.
  offer_packet();
  receive();
  take_event(from->call);
  from->driver.take_all_used();
  from->driver.disable_interrupts();
  const uint64_t sent = queue->received().notifications.get();
  for (int i = 0; i < 5; ++i) {
    offer_packet();
    EXPECT_EQ(receive().size(), 1u);
    EXPECT_EQ(take_event(from->call), 0u);
  }
  EXPECT_EQ(queue->received().notifications.get(), sent);
  EXPECT_EQ(queue->received().notifications_suppressed.get(), 5u);
  EXPECT_TRUE(from->driver.enable_interrupts()) << "the driver looks again by itself";
  from->driver.take_all_used();
  from->driver.enable_interrupts();
  offer_packet();
  receive();
  EXPECT_EQ(take_event(from->call), 1u);
}

TEST_P(WakeupTest, SuppressesKicksWhileItPollsAndAsksForThemToSleep) {
  offer_packet();
  from->driver.kick_wanted();
  EXPECT_TRUE(queue->arm(true, false)) << "there is work already";
  queue->disarm();
  EXPECT_EQ(receive().size(), 1u);
  offer_packet();
  EXPECT_FALSE(from->driver.kick_wanted()) << "it polls";
  EXPECT_EQ(receive().size(), 1u);
  EXPECT_FALSE(queue->arm(true, false));
  offer_packet();
  EXPECT_TRUE(from->driver.kick_wanted()) << "it sleeps";
  write_event(from->kick);
  EXPECT_TRUE(is_readable(queue->wake_fd()));
  queue->disarm();
  queue->on_wake();
  EXPECT_FALSE(is_readable(queue->wake_fd()));
  EXPECT_EQ(queue->received().kicks.get(), 1u);
  EXPECT_EQ(receive().size(), 1u);
}

TEST_P(WakeupTest, ArmsOnlyWhatIsAskedFor) {
  offer_packet();
  offer_buffer();
  EXPECT_FALSE(queue->arm(false, false));
  EXPECT_TRUE(queue->arm(false, true));
  EXPECT_TRUE(queue->arm(true, false));
  queue->disarm();
}

TEST_P(WakeupTest, SwallowsKicksThatMeanNothing) {
  for (int i = 0; i < 1000; ++i) {
    write_event(from->kick);
    write_event(to->kick);
  }
  queue->on_wake();
  EXPECT_FALSE(is_readable(queue->wake_fd()));
  EXPECT_THAT(receive(), IsEmpty());
  EXPECT_EQ(take_event(from->call), 0u);
  EXPECT_LE(queue->received().kicks.get(), 2u) << "an eventfd counts many as one";
}

TEST_P(WakeupTest, RunsWithoutKicksAndCalls) {
  queue->stop(Side::from_guest);
  RingStart bare = from->start(1, GetParam() ? kModern : kModern & ~feature::event_idx);
  bare.kick.reset();
  bare.call.reset();
  bare.error.reset();
  EXPECT_FALSE(queue->must_be_polled());
  ASSERT_TRUE(queue->start(Side::from_guest, std::move(bare)));
  EXPECT_TRUE(queue->must_be_polled());
  offer_packet();
  EXPECT_EQ(receive().size(), 1u);
  EXPECT_EQ(queue->received().notifications.get(), 0u);
  ASSERT_TRUE(from->driver.offer(ChainBuilder{}.writable(1)));
  receive();
  EXPECT_FALSE(queue->must_be_polled()) << "a broken ring costs no time";
}

TEST_P(WakeupTest, KeepsItsStateWhatEverTheDriverScribbles) {
  for (uint8_t round = 0; round < 20; ++round) {
    offer_packet(round);
    offer_buffer();
    from->driver.scribble_used(static_cast<uint8_t>(round * 37));
    to->driver.scribble_used(static_cast<uint8_t>(round * 53));
    EXPECT_THAT(receive(), ElementsAre(numbered_packet(60, round)));
    EXPECT_THAT(send({numbered_packet(60, round)}), ElementsAre(FrameResult::done));
    const uint16_t count = static_cast<uint16_t>(round + 1);
    ASSERT_EQ(from->driver.used_index(), count);
    ASSERT_EQ(to->driver.used_index(), count);
    from->driver.take_all_used();
    to->driver.take_all_used();
  }
}

TEST_P(WakeupTest, AllocatesNothing) {
  while (Frame* frame = cache->take()) taken.push_back(frame);  // the cache's first fill is done
  for (Frame* frame : taken) cache->give(frame);
  taken.clear();
  for (uint8_t i = 0; i < 40; ++i) {
    offer_packet(i);
    offer_buffer();
  }
  const Bytes big = joined(net_header(), numbered_packet(60'000, 1));
  ASSERT_TRUE(from->driver.offer(ChainBuilder{}.readable(big)));
  ChainBuilder pieces;
  for (size_t at = 0; at < big.size(); at += 400)
    pieces.readable(std::span(big).subspan(at, std::min<size_t>(400, big.size() - at)));
  ASSERT_TRUE(from->driver.offer(pieces));
  ASSERT_TRUE(from->driver.offer(ChainBuilder{}.readable(5)));  // a drop
  ASSERT_TRUE(from->driver.offer(ChainBuilder{}.writable(5)));  // a fault
  size_t brought = 0;
  {
    AllocationGuard guard;
    FrameBatch batch;
    queue->receive(batch, {}, *cache);
    brought = batch.size();
    queue->transmit(batch);
    for (Frame* frame : batch) cache->give(frame);
    queue->finish_breath();
    queue->transmit_room();
    queue->arm(true, true);
    queue->on_wake();
    queue->disarm();
  }
  EXPECT_EQ(brought, 42u);
}

// --- Memory that vanishes ------------------------------------------------------------------

class VanishingTest : public VmQueueTest {
 protected:
  void expect_both_stopped() {
    for (const Side side : {Side::from_guest, Side::to_guest}) {
      EXPECT_FALSE(queue->ring(side).usable());
      EXPECT_EQ(queue->ring(side).take_new_fault(), RingFault::memory_vanished);
    }
    EXPECT_TRUE(is_readable(bell.fd()));
    EXPECT_FALSE(queue->arm(true, true));
  }
};

TEST_F(VanishingTest, StopsBothRingsAndDropsWhatWasRead) {
  start();
  const uint64_t far = guest.allocate(4096, 4096);
  const uint64_t tail_page = (48 << 20);
  ASSERT_TRUE(
      from->driver.offer(ChainBuilder{}.readable(joined(net_header(), numbered_packet(60, 1)))));
  ASSERT_TRUE(from->driver.offer(ChainBuilder{}.readable(net_header()).readable_at(tail_page, 60)));
  ASSERT_LT(far, tail_page);
  guest.truncate(0, tail_page);
  EXPECT_THAT(receive(), IsEmpty());
  EXPECT_EQ(drops(queue->received(), DropReason::guest_memory_gone), 2u);
  expect_both_stopped();
}

TEST_F(VanishingTest, IsFoundWhenTheRingsThemselvesAreGone) {
  start();
  ASSERT_TRUE(
      from->driver.offer(ChainBuilder{}.readable(joined(net_header(), numbered_packet(60, 1)))));
  ASSERT_TRUE(to->driver.offer(ChainBuilder{}.writable(2048)));
  receive();
  send({numbered_packet(60, 1)});
  guest.truncate(0, 0);
  EXPECT_THAT(receive(), IsEmpty());
  EXPECT_THAT(send({numbered_packet(60, 1)}), ElementsAre(FrameResult::dropped));
  expect_both_stopped();
}

TEST_F(VanishingTest, IsNamedWhenOnlyTheToGuestRingRuns) {
  start();
  queue->stop(Side::from_guest);
  ASSERT_TRUE(to->driver.offer(ChainBuilder{}.writable(2048)));
  send({numbered_packet(60, 1)});
  guest.truncate(0, 0);
  EXPECT_THAT(send({numbered_packet(60, 1)}), ElementsAre(FrameResult::dropped));
  EXPECT_EQ(queue->ring(Side::to_guest).take_new_fault(), RingFault::memory_vanished);
}

TEST_F(VanishingTest, IsFoundWhileABufferIsFilled) {
  start();
  const uint64_t tail_page = (48 << 20);
  ASSERT_TRUE(to->driver.offer(ChainBuilder{}.writable_at(tail_page, 2048)));
  guest.truncate(0, tail_page);
  send({numbered_packet(60, 1)});
  EXPECT_THAT(receive(), IsEmpty());
  expect_both_stopped();
}

TEST_F(VanishingTest, OfAnotherGuestChangesNothingHere) {
  start();
  FakeGuestMemory other;
  const uint64_t page = 4 << 20;
  const auto span = other.share()->translate(GuestAddr{page}, 1);
  other.truncate(0, page);
  uint8_t byte = 1;
  span->copy_out(0, &byte, 1);
  EXPECT_EQ(byte, 0);
  EXPECT_TRUE(other.share()->vanished());
  ASSERT_TRUE(
      from->driver.offer(ChainBuilder{}.readable(joined(net_header(), numbered_packet(60, 1)))));
  ASSERT_TRUE(to->driver.offer(ChainBuilder{}.writable(2048)));
  EXPECT_EQ(receive().size(), 1u);
  EXPECT_THAT(send({numbered_packet(60, 1)}), ElementsAre(FrameResult::done));
}

}  // namespace
}  // namespace sluice
