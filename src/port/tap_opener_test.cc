#include "port/tap_opener.h"

#include <gmock/gmock.h>

#include "base/uapi.h"
#include "port/tap_interface.h"
#include "port/tap_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TapOpener : public NetnsTest {};

// An interface that exists and is no TAP.
void make_veth() { std::ignore = std::system("ip link add veth0 type veth peer name veth1"); }

TEST(TapPolicy, NapiIsUsedWhenAskedForOrOffered) {
  struct Row {
    NapiChoice choice;
    bool offered;
    std::optional<bool> used;
  };
  const Row table[] = {
      {NapiChoice::automatic, true, true}, {NapiChoice::automatic, false, false},
      {NapiChoice::on, true, true},        {NapiChoice::on, false, std::nullopt},
      {NapiChoice::off, true, false},      {NapiChoice::off, false, false},
  };
  for (const Row& row : table) EXPECT_EQ(choose_napi(row.choice, row.offered), row.used);
}

TEST(TapPolicy, OffloadsWithoutTheirConditionAreLeftOut) {
  EXPECT_EQ(tun_offload_flags({}), 0u);
  EXPECT_EQ(tun_offload_flags({.tso4 = true, .uso = true}), 0u);
  EXPECT_EQ(tun_offload_flags({.csum = true, .tso_ecn = true}), unsigned{TUN_F_CSUM});
  EXPECT_EQ(tun_offload_flags({.csum = true, .tso6 = true, .tso_ecn = true}),
            unsigned{TUN_F_CSUM | TUN_F_TSO6 | TUN_F_TSO_ECN});
  EXPECT_EQ(tun_offload_flags({.csum = true, .uso = true}),
            unsigned{TUN_F_CSUM | TUN_F_USO4 | TUN_F_USO6});
}

TEST(TapPolicy, WordsThatContradictOneAnotherAreUsageFailures) {
  struct Row {
    TapSpec spec;
    const char* sentence;
  };
  const Row table[] = {
      {{.name = "t0"}, "exactly one of ifname= and fd="},
      {{.name = "t0", .ifname = "tap0", .fds = {3}}, "exactly one of ifname= and fd="},
      {{.name = "t0", .ifname = "a-name-that-is-too-long"}, "1 to 15 characters"},
      {{.name = "t0", .ifname = "a/b"}, "1 to 15 characters"},
      {{.name = "t0", .ifname = "tap0", .queues = 129}, "1 to 128"},
      {{.name = "t0", .ifname = "tap0", .mtu = 67}, "68 to 65521"},
      {{.name = "t0", .ifname = "m0", .napi = NapiChoice::on, .macvtap = true}, "no IFF_NAPI"},
      {{.name = "t0", .ifname = "m0", .persist = true, .macvtap = true}, "are for TAP"},
      {{.name = "t0", .fds = {3}, .netns = "blue"}, "need ifname="},
      {{.name = "t0", .fds = {3}, .napi = NapiChoice::off}, "napi= needs ifname="},
      {{.name = "t0", .fds = {3, 4}, .queues = 3}, "queues=3 and 2 descriptors"},
      {{.name = "t0", .fds = {3, 3}}, "twice"},
  };
  for (const Row& row : table) {
    const Result<TapHandles> tap = open_tap(row.spec);
    ASSERT_FALSE(tap) << row.sentence;
    EXPECT_THAT(tap.error().text, HasSubstr(row.sentence));
    EXPECT_TRUE(tap.error().is_usage) << tap.error().text;
  }
}

TEST_F(TapOpener, NegotiatesWhatWasAskedFor) {
  struct Row {
    NapiChoice napi;
    uint32_t queues;
    bool napi_seen;
  };
  const Row table[] = {
      {NapiChoice::automatic, 1, true}, {NapiChoice::on, 1, true}, {NapiChoice::off, 1, false},
      {NapiChoice::automatic, 4, true}, {NapiChoice::on, 4, true}, {NapiChoice::off, 4, false},
  };
  for (const Row& row : table) {
    Result<TapHandles> tap =
        open_tap({.name = "t0", .ifname = "tap0", .queues = row.queues, .napi = row.napi});
    ASSERT_TRUE(tap) << tap.error().text;
    ASSERT_EQ(tap->queues.size(), row.queues);
    for (const Fd& fd : tap->queues) {
      const unsigned flags = tun_flags(fd.get());
      EXPECT_TRUE(flags & IFF_TAP && flags & IFF_VNET_HDR && flags & IFF_NO_PI);
      EXPECT_EQ(bool(flags & IFF_NAPI), row.napi_seen);
      EXPECT_EQ(bool(flags & IFF_MULTI_QUEUE), row.queues > 1);
      EXPECT_TRUE(::fcntl(fd.get(), F_GETFL) & O_NONBLOCK);
      EXPECT_TRUE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
      int header_bytes = 0;
      EXPECT_EQ(::ioctl(fd.get(), TUNGETVNETHDRSZ, &header_bytes), 0);
      EXPECT_EQ(header_bytes, 12);
    }
    EXPECT_EQ(tap->napi, row.napi_seen);
    EXPECT_EQ(tap->multi_queue, row.queues > 1);
    EXPECT_FALSE(tap->existing || tap->persistent);
    EXPECT_TRUE(tap->offloads.csum && tap->offloads.tso4 && tap->offloads.tso6);
    EXPECT_EQ(tap->mtu, 1500u);
    EXPECT_THAT(tap->describe(), HasSubstr("t0: tap tap0, "));
  }
  EXPECT_EQ(interface_index("tap0"), 0u) << "a TAP that we made stays when it is closed";
}

TEST_F(TapOpener, SetsUpWhatItMakes) {
  sh("ip link add br0 type bridge");
  Result<TapHandles> tap = open_tap({.name = "t0", .ifname = "tap0", .bridge = "br0", .mtu = 9000});
  ASSERT_TRUE(tap) << tap.error().text;
  EXPECT_EQ(tap->mtu, 9000u);
  sh("ip -o link show tap0 | grep -q 'UP.*mtu 9000.*master br0'");
}

TEST_F(TapOpener, LeavesAnExistingTapAsItIs) {
  sh("ip tuntap add tap0 mode tap vnet_hdr");
  const uint32_t index = interface_index("tap0");
  {
    Result<TapHandles> tap = open_tap({.name = "t0", .ifname = "tap0"});
    ASSERT_TRUE(tap) << tap.error().text;
    EXPECT_THAT(tap->negotiated(),
                ElementsAre("napi", "vnet_hdr", "one_queue", "persistent", "existing"));
    EXPECT_EQ(interface_index("tap0"), index);
    sh("ip -o link show tap0 | grep -qv 'UP'");
  }
  EXPECT_EQ(interface_index("tap0"), index) << "it must outlive us";
}

TEST_F(TapOpener, MakesAPersistentTapWhenAsked) {
  { ASSERT_TRUE(open_tap({.name = "t0", .ifname = "tap0", .queues = 2, .persist = true})); }
  EXPECT_NE(interface_index("tap0"), 0u);
  const Result<TapHandles> again = open_tap({.name = "t0", .ifname = "tap0", .queues = 2});
  ASSERT_TRUE(again) << again.error().text;
  EXPECT_TRUE(again->persistent && again->existing);
}

TEST_F(TapOpener, TakesOneQueueOfAnExistingMultiQueueTap) {
  sh("ip tuntap add tap0 mode tap multi_queue vnet_hdr");
  const Result<TapHandles> tap = open_tap({.name = "t0", .ifname = "tap0", .queues = 1});
  ASSERT_TRUE(tap) << tap.error().text;
  EXPECT_TRUE(tap->multi_queue);
}

TEST_F(TapOpener, SaysWhyAnInterfaceCannotBeUsed) {
  make_veth();
  sh("ip tuntap add single mode tap");
  sh("ip tuntap add layer3 mode tun");
  const Fd busy = attach_tun("busy", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
  const Fd plain = attach_tun("plain", IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE);
  struct Row {
    TapSpec spec;
    std::vector<std::string> words;
  };
  const Row table[] = {
      {{.name = "t0", .ifname = "veth0"}, {"veth0 exists and is no TAP", "veth"}},
      {{.name = "t0", .ifname = "veth0", .queues = 2}, {"veth0 exists and is no TAP"}},
      {{.name = "t0", .ifname = "lo"}, {"lo exists and is no TAP"}},
      {{.name = "t0", .ifname = "layer3"}, {"is a TUN (layer 3)"}},
      {{.name = "t0", .ifname = "busy"}, {"in use by process " + std::to_string(::getpid())}},
      {{.name = "t0", .ifname = "single", .queues = 2}, {"single queue", "queues=1"}},
      {{.name = "t0", .ifname = "plain", .queues = 2}, {"without the virtio-net header"}},
      {{.name = "t0", .ifname = "tap0", .netns = "no-such-place"}, {"ip netns add"}},
      {{.name = "t0", .ifname = "tap0", .netns = "/dev/null"}, {"no network namespace"}},
      {{.name = "t0", .ifname = "tap0", .bridge = "br9"}, {"bridge=br9 does not exist"}},
      {{.name = "t0", .ifname = "tap0", .bridge = "veth0"}, {"is no bridge"}},
      {{.name = "t0", .ifname = "m9", .macvtap = true}, {"no interface m9", "type macvtap"}},
      {{.name = "t0", .ifname = "veth0", .macvtap = true}, {"no device /dev/tap", "no macvtap"}},
  };
  for (const Row& row : table) {
    const Result<TapHandles> tap = open_tap(row.spec);
    ASSERT_FALSE(tap) << row.words[0];
    for (const std::string& word : row.words) EXPECT_THAT(tap.error().text, HasSubstr(word));
    EXPECT_FALSE(tap.error().is_usage) << tap.error().text;
    EXPECT_EQ(interface_index("tap0"), 0u) << "left behind after: " << tap.error().text;
  }
}

TEST_F(TapOpener, EntersAnotherNamespaceAndLeavesTheProcessWhereItIs) {
  const Fd blue = make_netns();
  ASSERT_TRUE(blue);
  const std::string path = "/proc/self/fd/" + std::to_string(blue.get());
  const Result<TapHandles> tap = open_tap({.name = "t0", .ifname = "tap7", .netns = path});
  ASSERT_TRUE(tap) << tap.error().text;
  EXPECT_EQ(interface_index("tap7"), 0u) << "it was made here";
  uint32_t index_there = 0;
  ASSERT_TRUE(run_in_netns(path, [&] { index_there = interface_index("tap7"); }));
  EXPECT_NE(index_there, 0u);
}

TEST_F(TapOpener, UsesDescriptorsThatWereHandedIn) {
  constexpr unsigned kFlags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
  Fd first = attach_tun("tap0", kFlags);
  Fd second = attach_tun("tap0", kFlags);
  Result<TapHandles> tap = open_tap({.name = "t0", .fds = {first.get(), second.get()}});
  ASSERT_TRUE(tap) << tap.error().text;
  EXPECT_EQ(tap->queues[1].get(), second.get());
  first.release();
  second.release();
  EXPECT_EQ(tap->ifname, "tap0");
  EXPECT_TRUE(tap->multi_queue && tap->existing && !tap->napi);
  EXPECT_TRUE(::fcntl(tap->queues[0].get(), F_GETFL) & O_NONBLOCK);
}

TEST_F(TapOpener, SaysWhyADescriptorCannotBeUsed) {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const Fd fresh(::open("/dev/net/tun", O_RDWR | O_CLOEXEC));
  const Fd layer3 = attach_tun("tun0", IFF_TUN | IFF_NO_PI | IFF_VNET_HDR);
  const Fd no_header = attach_tun("tap0", IFF_TAP | IFF_NO_PI);
  const Fd good = attach_tun("tap2", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
  const Fd other = attach_tun("tap3", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
  struct Row {
    std::vector<int> fds;
    const char* sentence;
  };
  const Row table[] = {
      {{1'000'000}, "no such descriptor"},         {{null.get()}, "is no TAP"},
      {{fresh.get()}, "without an interface"},     {{layer3.get()}, "is a TUN"},
      {{no_header.get()}, "without IFF_VNET_HDR"}, {{good.get(), other.get()}, "queues of one TAP"},
  };
  for (const Row& row : table) {
    const Result<TapHandles> tap = open_tap({.name = "t0", .fds = row.fds});
    ASSERT_FALSE(tap) << row.sentence;
    EXPECT_THAT(tap.error().text, HasSubstr(row.sentence));
  }
  EXPECT_FALSE(::fcntl(good.get(), F_GETFL) & O_NONBLOCK) << "a refused descriptor was changed";
}

TEST_F(TapOpener, ACommandGetsTheKernelsOwnHeaderSize) {
  const Result<TapHandles> tap = open_tap({.name = "t0", .ifname = "tap0", .header_bytes = 0});
  ASSERT_TRUE(tap) << tap.error().text;
  int header_bytes = 0;
  EXPECT_EQ(::ioctl(tap->queues[0].get(), TUNGETVNETHDRSZ, &header_bytes), 0);
  EXPECT_EQ(header_bytes, 10);
}

TEST_F(TapOpener, OpensAMacvtap) {
  make_veth();
  sh("ip link set veth0 up && ip link set veth1 up");
  sh("ip link add link veth0 name m0 type macvtap mode bridge && ip link set m0 up");
  const std::string device = "/dev/tap" + std::to_string(interface_index("m0"));
  if (::access(device.c_str(), F_OK) != 0) GTEST_SKIP() << "nobody makes macvtap device nodes here";
  const Result<TapHandles> tap =
      open_tap({.name = "t0", .ifname = "m0", .queues = 2, .macvtap = true});
  ASSERT_TRUE(tap) << tap.error().text;
  EXPECT_THAT(tap->negotiated(), ElementsAre("vnet_hdr", "multi_queue", "existing"));
  EXPECT_TRUE(tap->offloads.tso4);
}

}  // namespace
}  // namespace sluice
