// A nic against our own device, back to back: every shape of packet, both formats, both transmit
// modes, and what happens when the other side is not there or does not behave.
#include "port/nic_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/allocation_guard.h"
#include "testing/nic_test_kit.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Shape {
  const char* what;
  NicBenchOptions options;
};

const Shape kShapes[] = {
    {"SplitNapi", {}},
    {"SplitInline", {.mode = TransmitMode::inline_reclaim}},
    {"PackedNapi", {.packed = true}},
    {"PackedInline", {.packed = true, .mode = TransmitMode::inline_reclaim}},
    {"SplitNotMerging", {.without = feature::mrg_rxbuf}},
    {"PackedNotMerging", {.packed = true, .without = feature::mrg_rxbuf}},
    {"SplitWithoutEventIdx", {.without = feature::event_idx}},
    {"PackedWithoutInOrder", {.packed = true, .without = feature::in_order}},
    {"SplitWithoutInOrder", {.without = feature::in_order}},
    {"PackedOddSize", {.ring_size = 100, .packed = true}},
    {"SmallSplit", {.ring_size = 32}},
};

Bytes counted(size_t bytes, uint8_t first) {
  Bytes packet(bytes);
  for (size_t i = 0; i < bytes; ++i) packet[i] = static_cast<uint8_t>(first + i * 7);
  return packet;
}

class NicShape : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { ASSERT_TRUE(bench.connect()); }
  void TearDown() override {
    bench.disconnect();
    bench.cache.reset();
    EXPECT_EQ(bench.pool->frames_free(), bench.pool->frames_total());
    EXPECT_EQ(bench.pool->slabs_free(), bench.pool->slabs_total());
  }
  PortQueue& nic() { return bench.nic->queue(0); }
  PortQueue& vm() { return bench.vm->queue(0); }

  NicBench bench{GetParam().options};
};

TEST_P(NicShape, CarriesPacketsOfEverySizeBothWays) {
  for (const size_t bytes : {14u, 15u, 60u, 64u, 1500u, 1514u, 3520u, 3521u, 4084u, 4085u, 9014u,
                             40000u, 65535u, 65557u}) {
    SCOPED_TRACE(bytes);
    const Bytes packet = counted(bytes, static_cast<uint8_t>(bytes));
    EXPECT_THAT(bench.send(nic(), {packet}), ElementsAre(FrameResult::done));
    EXPECT_THAT(bench.take(vm()), ElementsAre(packet));
    EXPECT_THAT(bench.send(vm(), {packet}), ElementsAre(FrameResult::done));
    EXPECT_THAT(bench.take(nic()), ElementsAre(packet));
  }
}

TEST_P(NicShape, CarriesThousandsInOrderThroughAFullRing) {
  uint32_t sent = 0, received = 0;
  const uint32_t count = 3000;
  while (received < count) {
    for (int burst = 0; burst < 3 && sent < count && nic().transmit_room() > 0; ++burst) {
      std::vector<Bytes> packets;
      for (uint32_t i = 0; i < 20 && sent + i < count; ++i) {
        Bytes packet(64);
        const uint32_t number = sent + i;
        std::memcpy(packet.data() + 20, &number, 4);
        packets.push_back(packet);
      }
      for (const FrameResult result : bench.send(nic(), packets))
        sent += result == FrameResult::done;
    }
    for (const Bytes& packet : bench.take(vm())) {
      uint32_t number = 0;
      std::memcpy(&number, packet.data() + 20, 4);
      ASSERT_EQ(number, received++);
    }
  }
  EXPECT_EQ(nic().transmitted().frames.get(), count);
  EXPECT_EQ(vm().received().frames.get(), count);
}

TEST_P(NicShape, BlocksWhenTheDeviceTakesNothingAndGoesOnWhenItDoes) {
  size_t done = 0;
  for (int round = 0; round < 40; ++round) {
    for (const FrameResult result : bench.send(nic(), std::vector<Bytes>(16, counted(64, 1))))
      done += result == FrameResult::done;
  }
  EXPECT_EQ(done, GetParam().options.ring_size) << "a buffer a descriptor";
  EXPECT_EQ(nic().transmit_room(), 0u);
  EXPECT_FALSE(nic().arm(/*wants_frames=*/false, /*wants_room=*/true));
  size_t taken = 0;
  for (int round = 0; round < 40; ++round) taken += bench.take(vm()).size();
  EXPECT_EQ(taken, done);
  EXPECT_TRUE(is_readable(nic().wake_fd())) << "the callback that was asked for";
  nic().on_wake();
  EXPECT_EQ(nic().transmitted().kicks.get(), 1u);
  nic().disarm();
  EXPECT_GT(nic().transmit_room(), 0u);
  EXPECT_THAT(bench.send(nic(), {counted(64, 2)}), ElementsAre(FrameResult::done));
}

TEST_P(NicShape, WakesForFramesOnlyWhenItAskedTo) {
  // After a start the device tells once without being asked, since it does not know what was said.
  bench.send(vm(), {counted(64, 1)});
  EXPECT_THAT(bench.take(nic()), SizeIs(1));
  while (is_readable(nic().wake_fd())) nic().on_wake();
  const uint64_t kicks_before = nic().received().kicks.get();
  bench.send(vm(), {counted(64, 1)});
  EXPECT_FALSE(is_readable(nic().wake_fd())) << "it polls";
  EXPECT_TRUE(nic().arm(true, false)) << "there is one already";
  nic().disarm();
  EXPECT_THAT(bench.take(nic()), SizeIs(1));
  EXPECT_FALSE(nic().arm(true, false));
  bench.send(vm(), {counted(64, 2)});
  EXPECT_TRUE(is_readable(nic().wake_fd()));
  nic().on_wake();
  EXPECT_FALSE(is_readable(nic().wake_fd()));
  EXPECT_EQ(nic().received().kicks.get(), kicks_before + 1);
}

TEST_P(NicShape, KicksOnlyADeviceThatAskedTo) {
  // A fresh split ring asks for its first kick, as its words are all zero.
  bench.send(nic(), {counted(64, 1)});
  EXPECT_THAT(bench.take(vm()), SizeIs(1));
  vm().on_wake();
  const uint64_t before = nic().transmitted().notifications.get();
  bench.send(nic(), {counted(64, 1)});
  EXPECT_EQ(nic().transmitted().notifications.get(), before) << "it polls";
  EXPECT_THAT(bench.take(vm()), SizeIs(1));
  EXPECT_FALSE(vm().arm(true, false));
  bench.send(nic(), {counted(64, 1)});
  EXPECT_EQ(nic().transmitted().notifications.get(), before + 1);
  EXPECT_TRUE(is_readable(vm().wake_fd()));
}

TEST_P(NicShape, TouchesNoHeapWhileItCarries) {
  FrameBatch batch;
  for (int i = 0; i < 16; ++i) batch.push(bench.frame_of(counted(100, 3)));
  FrameBatch received;
  {
    const AllocationGuard guard;
    nic().transmit_room();
    nic().transmit(batch);
    nic().finish_breath();
    vm().receive(received, {}, *bench.cache);
    vm().finish_breath();
  }
  EXPECT_EQ(received.size(), 16u);
  for (Frame* frame : batch) bench.cache->give(frame);
  for (Frame* frame : received) bench.cache->give(frame);
}

INSTANTIATE_TEST_SUITE_P(All, NicShape, ::testing::ValuesIn(kShapes),
                         [](const auto& shape) { return std::string(shape.param.what); });

TEST(NicPort, PassesOffloadsThroughAsFarAsBothAgree) {
  NicBench bench({});
  ASSERT_TRUE(bench.connect());
  const BuiltPacket tcp = packet().eth().ipv4().tcp().payload(8000).build_needing_csum();
  OffloadMeta offload = tcp.offload;
  offload.gso_type = GsoType::tcp4;
  offload.gso_size = 1448;
  EXPECT_THAT(bench.send(bench.nic->queue(0), {tcp.bytes}, offload),
              ElementsAre(FrameResult::done));
  EXPECT_THAT(bench.take(bench.vm->queue(0)), ElementsAre(tcp.bytes));
  EXPECT_EQ(bench.offloads[0].gso_type, GsoType::tcp4);
  EXPECT_EQ(bench.offloads[0].gso_size, 1448);
  EXPECT_TRUE(bench.offloads[0].needs_csum);
  EXPECT_THAT(bench.send(bench.vm->queue(0), {tcp.bytes}, offload), ElementsAre(FrameResult::done));
  EXPECT_THAT(bench.take(bench.nic->queue(0)), ElementsAre(tcp.bytes));
  EXPECT_EQ(bench.offloads[0].gso_size, 1448);
}

TEST(NicPort, CompletesChecksumsForADeviceThatDoesNot) {
  NicBench bench({.vm_peer = {}});
  ASSERT_TRUE(bench.connect());
  const BuiltPacket partial = packet().eth().ipv4().udp().payload(100).build_needing_csum();
  const BuiltPacket whole = packet().eth().ipv4().udp().payload(100).build();
  EXPECT_THAT(bench.send(bench.nic->queue(0), {partial.bytes}, partial.offload),
              ElementsAre(FrameResult::done));
  EXPECT_THAT(bench.take(bench.vm->queue(0)), ElementsAre(whole.bytes));
  EXPECT_FALSE(bench.offloads[0].needs_csum);
}

TEST(NicPort, DropsByNameWithoutABackEndAndCarriesAfterEachNewOne) {
  NicBench bench({.packed = true});
  PortQueue& nic = bench.nic->queue(0);
  for (int life = 0; life < 3; ++life) {
    EXPECT_EQ(nic.transmit_room(), kBatchFramesMax);
    EXPECT_THAT(bench.send(nic, {counted(64, 1)}), ElementsAre(FrameResult::dropped));
    EXPECT_THAT(bench.reasons, ElementsAre(DropReason::no_back_end));
    EXPECT_THAT(bench.take(nic), IsEmpty());
    ASSERT_TRUE(bench.connect());
    EXPECT_THAT(bench.send(nic, {counted(64, 1)}), ElementsAre(FrameResult::done));
    EXPECT_THAT(bench.take(bench.vm->queue(0)), SizeIs(1));
    bench.disconnect();
  }
}

TEST(NicPort, AsksForSeveralPairsByTheControlQueue) {
  for (const bool packed : {false, true}) {
    NicBench bench({.queue_pairs = 4, .packed = packed});
    ASSERT_TRUE(bench.connect());
    EXPECT_THAT(bench.vm->active_queues(), ElementsAre(true, false, false, false));
    bench.vm->on_control_kick();
    EXPECT_THAT(bench.vm->active_queues(), Each(true));
    ASSERT_GE(bench.nic->control_fd(), 0);
    EXPECT_TRUE(is_readable(bench.nic->control_fd()));
    bench.nic->on_control_event();
    for (uint32_t pair = 0; pair < 4; ++pair) {
      bench.send(bench.nic->queue(pair), {counted(64, static_cast<uint8_t>(pair))});
      EXPECT_THAT(bench.take(bench.vm->queue(pair)),
                  ElementsAre(counted(64, static_cast<uint8_t>(pair))));
    }
  }
}

TEST(NicPort, CountsInterruptsInAThreadOfItsOwn) {
  NicBench bench({});
  bench.nic = std::move(*NicPort::create({.name = "nic0", .interrupt_cpu = 0}));
  ASSERT_TRUE(bench.connect());
  PortQueue& nic = bench.nic->queue(0);
  for (int round = 0; round < 20; ++round) bench.send(nic, std::vector<Bytes>(16, counted(64, 1)));
  ASSERT_EQ(nic.transmit_room(), 0u);
  ASSERT_FALSE(nic.arm(false, true));
  for (int round = 0; round < 20; ++round) bench.take(bench.vm->queue(0));
  pollfd waiting{nic.wake_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 10'000), 1) << "the handler wakes who waits for room";
  nic.on_wake();
  EXPECT_GE(bench.nic->interrupts(), 1u);
  nic.disarm();
  EXPECT_GT(nic.transmit_room(), 0u);
}

}  // namespace
}  // namespace sluice
