// Ports, cables and workers together: what one port's guest negotiates reaches its peer, and frames
// cross between two VMs while their rings come and go.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "port/null_port.h"
#include "port/vm_port.h"
#include "testing/vm_test_kit.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

constexpr OffloadSet kAll{true, true, true, true, true};

// A peer that remembers what it is told.
class Peer final : public Port {
 public:
  Peer(std::string name, uint32_t queue_count) : Port(std::move(name)) {
    for (uint32_t i = 0; i < queue_count; ++i)
      queues_.push_back(std::make_unique<NullQueue>(std::move(*WakeSet::create())));
  }
  std::string_view kind() const override { return "peer"; }
  uint32_t queue_count() const override { return static_cast<uint32_t>(queues_.size()); }
  PortQueue& queue(uint32_t index) override { return *queues_[index]; }
  std::pair<std::string_view, std::string_view> direction_names() const override {
    return {"from_peer", "to_peer"};
  }
  std::vector<std::string> negotiated() const override { return {}; }
  OffloadSet takes() const override { return kAll; }
  void set_peer_takes(const OffloadSet& peer) override { told = peer; }
  void set_active_queues(const std::vector<bool>& queues) override { active = queues; }

  OffloadSet told;
  std::vector<bool> active;

 private:
  std::vector<std::unique_ptr<NullQueue>> queues_;
};

// Waits for what must come; the bound is only for the case that it does not.
bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 30'000; ++i) {
    if (condition()) return true;
    ::usleep(1000);
  }
  return false;
}

// A VM port with its drivers, on the engine's workers.
struct Vm {
  Vm(Engine& engine, const VmPortOptions& options) {
    auto made = std::move(*VmPort::create(options));
    port = made.get();
    engine.add(std::move(made));
  }
  void open(uint64_t wanted) {
    features = wanted & port->offered_features() & ~feature::ring_packed;
    port->session_opened();
    port->features_negotiated(features);
    for (uint32_t i = 0; i < 2 * port->queue_count(); ++i) {
      rings.push_back(std::make_unique<DrivenRing>(
          guest, FakeDriverOptions{.event_idx = (features & feature::event_idx) != 0}));
      start(i);
    }
  }
  void start(uint32_t index, uint32_t base = 0) {
    RingStart start = rings[index]->start(index, features);
    start.base = base;
    ASSERT_TRUE(port->ring_start(std::move(start)));
  }
  void close() {
    for (uint32_t i = 0; i < rings.size(); ++i) port->ring_stop(i);
    port->session_closed();
    rings.clear();
  }
  bool send(const Bytes& packet, uint32_t pair = 0) {
    DrivenRing& ring = *rings[2 * pair + 1];
    ring.driver.take_all_used();
    if (!ring.driver.offer(ChainBuilder{}.readable(joined(net_header(), packet)))) return false;
    if (ring.driver.kick_wanted()) write_event(ring.kick);
    return true;
  }
  void refill(size_t count, uint32_t pair = 0) {
    DrivenRing& ring = *rings[2 * pair];
    while (ring.driver.outstanding() < count) ring.driver.offer(ChainBuilder{}.writable(2048));
    if (ring.driver.kick_wanted()) write_event(ring.kick);
  }

  FakeGuestMemory guest;
  VmPort* port;
  uint64_t features = 0;
  std::vector<std::unique_ptr<DrivenRing>> rings;
};

constexpr uint64_t kPlain = feature::version_1 | feature::mrg_rxbuf | feature::event_idx;

TEST(Engine, TellsAPeerWhatTheGuestTakesAndWhichQueuesItRuns) {
  Engine engine({});
  Vm vm(engine, {.name = "vm0", .queue_pairs = 2});
  auto made = std::make_unique<Peer>("t0", 2);
  Peer& peer = *made;
  engine.add(std::move(made));
  engine.connect(*vm.port, peer);
  ASSERT_TRUE(engine.start());
  EXPECT_EQ(peer.told, OffloadSet{});
  EXPECT_THAT(peer.active, ElementsAre(false, false));
  EXPECT_TRUE(vm.port->offered_features() & feature::host_uso) << "the peer takes it all";
  vm.open(kPlain | feature::guest_csum | feature::guest_tso4);
  EXPECT_EQ(peer.told, (OffloadSet{.csum = true, .tso4 = true}));
  EXPECT_THAT(peer.active, ElementsAre(true, true));
  vm.port->ring_set_enabled(2, false);
  EXPECT_THAT(peer.active, ElementsAre(true, false));
  vm.close();
  EXPECT_EQ(peer.told, OffloadSet{});
  EXPECT_THAT(peer.active, ElementsAre(false, false));
}

TEST(Engine, PromisesAVmNothingThatItsPeerVmMayNotTake) {
  Engine engine({});
  Vm one(engine, {.name = "vm0"}), two(engine, {.name = "vm1"});
  engine.connect(*one.port, *two.port);
  ASSERT_TRUE(engine.start());
  EXPECT_EQ(one.port->offered_features() & (feature::csum | feature::host_tso4), 0u);
  EXPECT_EQ(engine.find("vm1"), two.port);
  EXPECT_EQ(engine.find("vm2"), nullptr);
}

TEST(Engine, TakesWhatAVmWithoutACableSends) {
  Engine engine({});
  Vm vm(engine, {.name = "vm0"});
  ASSERT_TRUE(engine.start());
  vm.open(kPlain);
  for (uint8_t i = 0; i < 100; ++i) ASSERT_TRUE(vm.send(numbered_packet(60, i)));
  EXPECT_TRUE(eventually(
      [&] { return drops(vm.port->queue(0).received(), DropReason::not_connected) == 100; }));
  vm.close();
}

class TwoVms : public ::testing::TestWithParam<uint32_t> {
 protected:
  TwoVms() : engine({.workers = GetParam(), .cpus = {}, .poll_us = 20}) {}
  void SetUp() override {
    engine.connect(*one.port, *two.port);
    ASSERT_TRUE(engine.start());
    one.open(kPlain);
    two.open(kPlain);
  }
  void TearDown() override {
    one.close();
    two.close();
    engine.stop();
  }
  // The next packet that arrived at `vm`.
  std::optional<Bytes> take(Vm& vm, uint32_t pair) {
    auto used = vm.rings[2 * pair]->driver.take_used();
    if (!used) return std::nullopt;
    return Bytes(used->data.begin() + kNetHeaderBytes, used->data.end());
  }
  void cross(Vm& from, Vm& to, uint32_t pair, const Bytes& packet) {
    to.refill(64, pair);
    ASSERT_TRUE(eventually([&] { return from.send(packet, pair); }));
    std::optional<Bytes> got;
    ASSERT_TRUE(eventually([&] { return (got = take(to, pair)).has_value(); }));
    ASSERT_EQ(*got, packet);
  }

  Engine engine;
  Vm one{engine, {.name = "vm0", .queue_pairs = 2}};
  Vm two{engine, {.name = "vm1", .queue_pairs = 2}};
};
INSTANTIATE_TEST_SUITE_P(Workers, TwoVms, ::testing::Values(1, 2));

TEST_P(TwoVms, ExchangeFramesOnEveryQueuePair) {
  for (uint8_t round = 0; round < 50; ++round) {
    for (const uint32_t pair : {0u, 1u}) {
      cross(one, two, pair, numbered_packet(60 + 20 * round, round));
      cross(two, one, pair, numbered_packet(1514 - round, round));
    }
  }
}

TEST_P(TwoVms, LoseNothingWhileRingsStopAndStartInAnyOrder) {
  uint32_t random = 7;
  two.refill(200);
  size_t sent = 0, got = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 4; ++i) sent += one.send(numbered_packet(60, static_cast<uint8_t>(sent)));
    random = random * 1664525 + 1013904223;
    // The sender's ring may stop at any time; the receiver's only when nothing is on its way, as
    // frames for a stopped ring are dropped.
    if (random >> 31) {
      one.start(1, one.port->ring_stop(1));
    } else {
      ASSERT_TRUE(eventually([&] {
        while (auto packet = take(two, 0)) {
          EXPECT_EQ((*packet)[0], static_cast<uint8_t>(got));
          ++got;
        }
        return got == sent;
      })) << got
          << " of " << sent;
      const uint32_t to_base = two.port->ring_stop(0);
      const uint32_t from_base = two.port->ring_stop(1);
      two.start(1, from_base);
      two.start(0, to_base);
    }
    two.refill(200);
  }
  EXPECT_GT(sent, 400u);
}

TEST_P(TwoVms, LiveOnWhenTheOtherIsGoneAndMeetAgain) {
  for (uint8_t round = 0; round < 20; ++round) {
    cross(one, two, 0, numbered_packet(60, round));
    two.close();
    const uint64_t before = drops(two.port->queue(0).transmitted(), DropReason::no_front_end);
    ASSERT_TRUE(one.send(numbered_packet(60, round)));
    ASSERT_TRUE(eventually([&] {
      return drops(two.port->queue(0).transmitted(), DropReason::no_front_end) == before + 1;
    }));
    two.open(kPlain);
  }
}

}  // namespace
}  // namespace sluice
