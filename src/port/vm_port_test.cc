// A VM port as its session and its peers see it.
#include "port/vm_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/vm_test_kit.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

struct Listener final : PortListener {
  void takes_changed(Port& port) override { takes.push_back(port.takes()); }
  void active_queues_changed(Port& port) override { active = port.active_queues(); }
  std::vector<OffloadSet> takes;
  std::vector<bool> active;
};

constexpr OffloadSet kAll{true, true, true, true, true};

class VmPortTest : public ::testing::Test {
 protected:
  void make(const VmPortOptions& options, const OffloadSet& peer = kAll) {
    port = std::move(*VmPort::create(options));
    port->attach(nullptr, &listener);
    port->set_peer_takes(peer);
  }
  DrivenRing& start(uint32_t index, bool enabled = true) {
    rings.push_back(std::make_unique<DrivenRing>(guest, FakeDriverOptions{.size = 64}));
    EXPECT_TRUE(port->ring_start(rings.back()->start(index, features, enabled)));
    return *rings.back();
  }
  void negotiate(uint64_t wanted) {
    features = wanted & port->offered_features() & ~feature::ring_packed;
    port->session_opened();
    port->features_negotiated(features);
  }
  Bytes config(uint32_t offset, size_t bytes) {
    Bytes out(bytes, 0xcc);
    port->read_config(offset, out);
    return out;
  }
  void TearDown() override {
    for (uint32_t i = 0; port && i <= 2 * port->queue_count(); ++i) port->ring_stop(i);
  }

  FakeGuestMemory guest;
  Listener listener;
  std::unique_ptr<VmPort> port;
  std::vector<std::unique_ptr<DrivenRing>> rings;
  uint64_t features = 0;
};

TEST_F(VmPortTest, OffersWhatItsOptionsAndItsPeerAllow) {
  constexpr uint64_t kTso = feature::host_tso4 | feature::guest_tso4 | feature::host_tso6 |
                            feature::guest_tso6 | feature::host_ecn | feature::guest_ecn;
  constexpr uint64_t kUso = feature::host_uso | feature::guest_uso4 | feature::guest_uso6;
  constexpr uint64_t kCsum = feature::csum | feature::guest_csum | feature::ctrl_guest_offloads;
  struct Row {
    const char* name;
    VmPortOptions options;
    OffloadSet peer;
    uint64_t offered, not_offered;
  };
  const Row rows[] = {
      {"plain",
       {.name = "a"},
       kAll,
       kCsum | kTso | kUso | feature::ring_packed,
       feature::mq | feature::mtu},
      {"two pairs",
       {.name = "a", .queue_pairs = 2},
       kAll,
       feature::mq,
       feature::rss | feature::hash_report},
      {"scaling", {.name = "a", .rss = true}, kAll, feature::rss | feature::hash_report, 0},
      {"no packed rings", {.name = "a", .packed = false}, kAll, 0, feature::ring_packed},
      {"an MTU", {.name = "a", .mtu_bytes = 9000}, kAll, feature::mtu, 0},
      {"no offload",
       {.name = "a", .offload = false},
       kAll,
       feature::mrg_rxbuf,
       kCsum | kTso | kUso},
      {"a peer without any", {.name = "a"}, {}, feature::version_1, kCsum | kTso | kUso},
      {"a peer without USO", {.name = "a"}, {true, true, true, true, false}, kCsum | kTso, kUso},
      {"a peer without checksums",
       {.name = "a"},
       {false, true, true, true, true},
       0,
       kCsum | kTso | kUso},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    make(row.options, row.peer);
    EXPECT_EQ(port->offered_features() & row.offered, row.offered);
    EXPECT_EQ(port->offered_features() & row.not_offered, 0u);
    constexpr uint64_t kNever =
        feature::guest_ufo | feature::host_ufo | feature::notification_data | feature::ring_reset;
    EXPECT_EQ(port->offered_features() & kNever, 0u);
  }
}

TEST_F(VmPortTest, ShowsItsConfigurationByTheByte) {
  make({.name = "a", .queue_pairs = 3, .mac = {2, 1, 2, 3, 4, 5}, .mtu_bytes = 9000});
  const Bytes whole{2, 1, 2, 3, 4, 5, 1, 0, 3, 0, 0x28, 0x23, 0xff, 0xff, 0xff, 0xff, 1};
  EXPECT_EQ(config(0, 17), whole);
  for (uint32_t offset = 0; offset < 17; ++offset)
    EXPECT_EQ(config(offset, 1)[0], whole[offset]) << offset;
  EXPECT_EQ(config(17, 3), (Bytes{0, 0, 0}));
  EXPECT_EQ(config(0xffff'ffff, 4), (Bytes{0, 0, 0, 0}));
}

TEST_F(VmPortTest, MakesAStableAddressOfItsName) {
  make({.name = "a"});
  const Bytes first = config(0, 6);
  EXPECT_EQ(first[0] & 3, 2) << "locally administered, unicast";
  make({.name = "b"});
  EXPECT_NE(config(0, 6), first);
  make({.name = "a"});
  EXPECT_EQ(config(0, 6), first);
}

TEST_F(VmPortTest, LetsTheGuestWriteItsAddressOnlyAndForgetsItWithTheFrontEnd) {
  make({.name = "a", .mac = {2, 1, 2, 3, 4, 5}});
  negotiate(~0ull);
  EXPECT_TRUE(port->write_config(0, Bytes{2, 9, 9, 9, 9, 9}));
  EXPECT_TRUE(port->write_config(5, Bytes{7}));
  EXPECT_EQ(config(0, 6), (Bytes{2, 9, 9, 9, 9, 7}));
  for (const uint32_t offset : {5u, 6u, 8u, 0xffff'fffeu})
    EXPECT_FALSE(port->write_config(offset, Bytes{1, 1})) << offset;
  port->session_closed();
  EXPECT_EQ(config(0, 6), (Bytes{2, 1, 2, 3, 4, 5}));
}

TEST_F(VmPortTest, TakesAnMtuFromTheFrontEnd) {
  make({.name = "a"});
  EXPECT_FALSE(port->set_mtu(67));
  EXPECT_TRUE(port->set_mtu(68));
  EXPECT_EQ(config(10, 2), (Bytes{68, 0}));
}

TEST_F(VmPortTest, TellsWhichQueuesCarry) {
  make({.name = "a", .queue_pairs = 2});
  negotiate(feature::version_1);
  EXPECT_THAT(port->active_queues(), ElementsAre(false, false));
  start(0);
  EXPECT_THAT(listener.active, ElementsAre(true, false));
  start(2, /*enabled=*/false);
  EXPECT_THAT(listener.active, ElementsAre(true, false));
  port->ring_set_enabled(2, true);
  EXPECT_THAT(listener.active, ElementsAre(true, true));
  port->ring_set_enabled(0, false);
  EXPECT_THAT(listener.active, ElementsAre(false, true)) << "a sparse set is a set, too";
  port->ring_stop(2);
  EXPECT_THAT(listener.active, ElementsAre(false, true)) << "it may be back at once";
  ::usleep((kHeldMillisecondsMax + 20) * 1000);
  port->queue(1).finish_breath();
  EXPECT_TRUE(is_readable(port->fault_fd()));
  EXPECT_FALSE(port->on_fault());
  EXPECT_THAT(listener.active, ElementsAre(false, false));
}

TEST_F(VmPortTest, FindsTheControlQueueBehindThePairsThatTheDriverKnows) {
  make({.name = "a", .queue_pairs = 3});
  negotiate(feature::version_1 | feature::ctrl_vq | feature::mq);
  for (const uint32_t index : {0u, 2u, 4u}) start(index);
  EXPECT_THAT(port->active_queues(), ElementsAre(true, true, true));
  start(6);
  EXPECT_THAT(port->active_queues(), ElementsAre(true, false, false))
      << "a driver that has the control queue uses one pair until it says more";
  EXPECT_FALSE(port->ring_start(rings.back()->start(7, features)));
  EXPECT_EQ(port->ring_stop(100), 0u);
}

TEST_F(VmPortTest, RefusesAControlKickThatCannotBeWatched) {
  make({.name = "a"});
  negotiate(feature::version_1 | feature::ctrl_vq);
  rings.push_back(std::make_unique<DrivenRing>(guest, FakeDriverOptions{.size = 64}));
  RingStart bad = rings.back()->start(2, features);
  bad.kick = copy_of(guest.file(0));
  EXPECT_FALSE(port->ring_start(std::move(bad)));
  EXPECT_TRUE(port->ring_start(rings.back()->start(2, features))) << "it had stayed stopped";
}

TEST_F(VmPortTest, TellsItsPeerWhatTheGuestTakesWhileItIsThere) {
  make({.name = "a"});
  negotiate(feature::version_1 | feature::guest_csum | feature::guest_tso4);
  ASSERT_EQ(listener.takes.size(), 1u);
  EXPECT_EQ(listener.takes[0], (OffloadSet{.csum = true, .tso4 = true}));
  EXPECT_FALSE(port->negotiated().empty());
  port->session_closed();
  EXPECT_EQ(listener.takes.back(), OffloadSet{});
  EXPECT_TRUE(port->negotiated().empty());
}

TEST_F(VmPortTest, NeedsBothFamiliesForUdpSegmentation) {
  make({.name = "a"});
  negotiate(feature::version_1 | feature::guest_csum | feature::guest_uso4);
  EXPECT_FALSE(port->takes().uso);
}

TEST_F(VmPortTest, LogsAFaultOfOneRingAndKeepsTheSession) {
  make({.name = "a"});
  negotiate(feature::version_1);
  DrivenRing& from = start(1);
  from.driver.offer(ChainBuilder{}.writable(1));
  auto pool = std::move(*FramePool::create({.frame_count = 64, .slab_count = 1}));
  FrameCache cache(*pool);
  FrameBatch batch;
  port->queue(0).receive(batch, {}, cache);
  port->queue(0).finish_breath();
  EXPECT_TRUE(is_readable(port->fault_fd()));
  EXPECT_FALSE(port->on_fault());
  EXPECT_FALSE(is_readable(port->fault_fd()));
}

TEST_F(VmPortTest, AsksForTheEndOfTheSessionWhenItsMemoryVanished) {
  make({.name = "a"});
  negotiate(feature::version_1);
  DrivenRing& from = start(1);
  start(0);
  from.driver.offer(ChainBuilder{}.readable(72));
  guest.truncate(0, 0);
  auto pool = std::move(*FramePool::create({.frame_count = 64, .slab_count = 1}));
  FrameCache cache(*pool);
  FrameBatch batch;
  port->queue(0).receive(batch, {}, cache);
  port->queue(0).finish_breath();
  EXPECT_TRUE(batch.empty());
  EXPECT_TRUE(port->on_fault());
  EXPECT_FALSE(port->on_fault()) << "once";
}

}  // namespace
}  // namespace sluice
