// What well-behaved front ends say, and what becomes of it: sequences of real ones as tables, and
// the rules by which rings start and stop.
#include "vhost/backend_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "vhost/session_test_kit.h"

namespace sluice {
namespace {

using Events = std::vector<std::string>;
namespace pf = protocol_feature;

constexpr uint64_t kFeatures = feature::version_1 | feature::mrg_rxbuf | feature::event_idx;
constexpr uint64_t kWithProtocol = kFeatures | feature::protocol_features;

struct Session : ::testing::Test {
  RecordingDevice device{1};
  TestFrontEnd front_end{device};

  // Rings 0 and 1 run, enabled from the start.
  void run_both() {
    front_end.negotiate(kFeatures);
    front_end.say_memory();
    front_end.say_ring(0);
    front_end.say_ring(1);
    ASSERT_EQ(device.running.size(), 2u);
    device.take_events();
  }
};

// --- Start-up sequences of real front ends ----------------------------------------------------

struct Step {
  Request request;
  uint32_t index = 0;
  uint64_t value = 0;
};

// Plays one step as that front end would word it; false when the answer is missing or refuses.
bool play(TestFrontEnd& front_end, const Step& step, bool ack) {
  const uint32_t flags = kFlagsVersion | (ack ? kFlagsNeedReply : 0);
  const Fd event = make_event();
  const Fd memory = make_memory(TestFrontEnd::kMemoryBytes);
  std::vector<uint8_t> payload;
  std::vector<int> fds;
  int channel[2] = {-1, -1};
  switch (step.request) {
    case Request::set_features:
    case Request::set_protocol_features:
    case Request::set_status:
    case Request::net_set_mtu:
      payload = bytes_of(step.value);
      break;
    case Request::set_mem_table:
      payload = memory_table({TestFrontEnd::region()});
      fds = {memory.get()};
      break;
    case Request::add_mem_reg:
      payload = single_region(TestFrontEnd::region());
      fds = {memory.get()};
      break;
    case Request::set_vring_num:
    case Request::set_vring_base:
    case Request::set_vring_enable:
    case Request::get_vring_base:
      payload = bytes_of(VringState{step.index, static_cast<uint32_t>(step.value)});
      break;
    case Request::set_vring_addr:
      payload = bytes_of(TestFrontEnd::addresses(step.index));
      break;
    case Request::set_vring_kick:
    case Request::set_vring_call:
    case Request::set_vring_err:
      payload = bytes_of(uint64_t{step.index});
      fds = {event.get()};
      break;
    case Request::set_backend_req_fd:
      SLUICE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
      fds = {channel[1]};
      break;
    case Request::get_config:
      payload = config_access(0, static_cast<uint32_t>(step.value), step.value);
      break;
    default:
      break;
  }
  front_end.say(step.request, payload, fds, flags);
  if (channel[0] >= 0) ::close(channel[0]);
  if (channel[1] >= 0) ::close(channel[1]);
  const bool own = find_request(static_cast<uint32_t>(step.request))->has_own_reply;
  const auto reply = front_end.read_reply();
  if (own != reply.has_value() && !ack) return false;
  if (!own && ack && reply && reply->number() != 0) return false;
  return front_end.session->state() == SessionState::open;
}

// Every message with NEED_REPLY, one configuration byte at a time, and the second SET_FEATURES
// without protocol features: rings are on without SET_VRING_ENABLE.
const std::vector<Step> kUserModeLinux = {
    {Request::set_owner},
    {Request::get_features},
    {Request::get_protocol_features},
    {Request::set_protocol_features, 0, pf::reply_ack | pf::backend_req | pf::config},
    {Request::set_backend_req_fd},
    {Request::get_config, 0, 1},
    {Request::get_config, 0, 2},
    {Request::get_config, 0, 6},
    {Request::set_features, 0, kFeatures | feature::ctrl_vq},
    {Request::set_mem_table},
    {Request::set_vring_call, 0},
    {Request::set_vring_num, 0, 256},
    {Request::set_vring_base, 0, 0},
    {Request::set_vring_addr, 0},
    {Request::set_vring_call, 1},
    {Request::set_vring_num, 1, 256},
    {Request::set_vring_base, 1, 0},
    {Request::set_vring_addr, 1},
    {Request::set_vring_call, 2},
    {Request::set_vring_num, 2, 64},
    {Request::set_vring_base, 2, 0},
    {Request::set_vring_addr, 2},
    {Request::set_vring_kick, 0},
    {Request::set_vring_kick, 1},
    {Request::set_vring_kick, 2},
};

const std::vector<Step> kQemu = {
    {Request::get_features},
    {Request::get_protocol_features},
    {Request::set_protocol_features, 0, kOfferedProtocolFeatures},
    {Request::get_queue_num},
    {Request::get_max_mem_slots},
    {Request::set_backend_req_fd},
    {Request::set_owner},
    {Request::get_features},
    {Request::set_vring_call, 0},
    {Request::set_vring_call, 1},
    {Request::net_set_mtu, 0, 1500},
    {Request::set_vring_enable, 0, 1},
    {Request::set_vring_enable, 1, 1},
    {Request::set_features, 0, kWithProtocol},
    {Request::add_mem_reg},
    {Request::get_status},
    {Request::set_vring_num, 0, 256},
    {Request::set_vring_base, 0, 0},
    {Request::set_vring_addr, 0},
    {Request::set_vring_kick, 0},
    {Request::set_vring_call, 0},
    {Request::set_vring_num, 1, 256},
    {Request::set_vring_base, 1, 0},
    {Request::set_vring_addr, 1},
    {Request::set_vring_kick, 1},
    {Request::set_vring_call, 1},
    {Request::set_status, 0, 15},
    {Request::set_vring_err, 0},
};

const std::vector<Step> kVirtioUser = {
    {Request::set_owner},
    {Request::get_features},
    {Request::get_protocol_features},
    {Request::set_protocol_features, 0, pf::mq | pf::reply_ack | pf::status},
    {Request::set_status, 0, 0},
    {Request::get_status},
    {Request::set_status, 0, 1},
    {Request::set_status, 0, 3},
    {Request::set_vring_call, 0},
    {Request::set_vring_call, 1},
    {Request::set_features, 0, kWithProtocol},
    {Request::set_status, 0, 11},
    {Request::set_mem_table},
    {Request::set_vring_num, 0, 256},
    {Request::set_vring_base, 0, 0},
    {Request::set_vring_addr, 0},
    {Request::set_vring_kick, 0},
    {Request::set_vring_num, 1, 256},
    {Request::set_vring_base, 1, 0},
    {Request::set_vring_addr, 1},
    {Request::set_vring_kick, 1},
    {Request::set_vring_enable, 0, 1},
    {Request::set_vring_enable, 1, 1},
    {Request::set_status, 0, 15},
};

const std::vector<Step> kCloudHypervisor = {
    {Request::set_owner},
    {Request::get_features},
    {Request::get_protocol_features},
    {Request::set_protocol_features, 0, pf::mq | pf::configure_mem_slots | pf::reply_ack},
    {Request::get_queue_num},
    {Request::set_features, 0, kWithProtocol},
    {Request::set_mem_table},
    {Request::set_vring_num, 0, 256},
    {Request::set_vring_addr, 0},
    {Request::set_vring_base, 0, 0},
    {Request::set_vring_call, 0},
    {Request::set_vring_kick, 0},
    {Request::set_vring_num, 1, 256},
    {Request::set_vring_addr, 1},
    {Request::set_vring_base, 1, 0},
    {Request::set_vring_call, 1},
    {Request::set_vring_kick, 1},
    {Request::set_vring_enable, 0, 1},
    {Request::set_vring_enable, 1, 1},
};

TEST(BackendSession, FrontEndsStartUpInTheirOwnOrders) {
  const struct {
    const char* name;
    const std::vector<Step>& steps;
    size_t rings;
  } rows[] = {{"User-Mode Linux 6.1", kUserModeLinux, 3},
              {"QEMU", kQemu, 2},
              {"DPDK virtio_user", kVirtioUser, 2},
              {"Cloud Hypervisor", kCloudHypervisor, 2}};
  for (const auto& row : rows) {
    for (const bool ack : {false, true}) {
      RecordingDevice device;
      const size_t open_before = open_descriptor_count();
      {
        TestFrontEnd front_end(device);
        for (size_t i = 0; i < row.steps.size(); ++i)
          ASSERT_TRUE(play(front_end, row.steps[i], ack)) << row.name << ", step " << i;
        EXPECT_EQ(device.running.size(), row.rings) << row.name;
        for (const auto& [index, ring] : device.running) {
          EXPECT_TRUE(ring.enabled) << row.name << ", ring " << index;
          EXPECT_TRUE(ring.kick.valid()) << row.name;
          EXPECT_TRUE(ring.call.valid()) << row.name;
        }
      }
      EXPECT_FALSE(device.session_open);
      EXPECT_EQ(open_descriptor_count(), open_before) << row.name;
    }
  }
}

// --- Replies ----------------------------------------------------------------------------------

TEST_F(Session, QueriesAreAnswered) {
  const struct {
    Request request;
    uint64_t number;
  } rows[] = {
      {Request::get_features, device.offered | feature::protocol_features},
      {Request::get_protocol_features, kOfferedProtocolFeatures},
      {Request::get_queue_num, 2},
      {Request::get_max_mem_slots, kMemorySlotsMax},
      {Request::get_status, 0},
  };
  for (const auto& row : rows) {
    front_end.say(row.request);
    const auto reply = front_end.read_reply();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->header.request, static_cast<uint32_t>(row.request));
    EXPECT_EQ(reply->number(), row.number);
    EXPECT_FALSE(front_end.read_reply());
  }
  front_end.say_u64(Request::set_status, 7);
  front_end.say(Request::get_status);
  EXPECT_EQ(front_end.read_reply()->number(), 7u);
}

TEST_F(Session, AnAnswerIsGivenOnlyWhenAskedForAndNegotiated) {
  EXPECT_FALSE(front_end.ask(Request::set_owner));
  // The message that turns answers on is itself answered.
  EXPECT_EQ(front_end.ask(Request::set_protocol_features, bytes_of(pf::reply_ack)), 0u);
  EXPECT_EQ(front_end.ask(Request::set_owner), 0u);
  front_end.say(Request::set_owner);
  EXPECT_FALSE(front_end.read_reply());
  front_end.say(Request::get_features, {}, {}, kFlagsVersion | kFlagsNeedReply);
  EXPECT_TRUE(front_end.read_reply());
  EXPECT_FALSE(front_end.read_reply());
  EXPECT_EQ(front_end.ask(Request::net_set_mtu, bytes_of(uint64_t{20})), 1u);
  EXPECT_EQ(front_end.ask(static_cast<Request>(99)), 1u);
  EXPECT_EQ(front_end.session->state(), SessionState::open);
}

TEST_F(Session, TheConfigurationIsReadInAnyPieces) {
  const struct {
    uint32_t offset, bytes;
    std::string expected;
  } rows[] = {{0, 1, "A"}, {5, 1, "F"}, {0, 12, "ABCDEFGHIJKL"}, {10, 4, std::string("KL\0\0", 4)}};
  for (const auto& row : rows) {
    front_end.say(Request::get_config, config_access(row.offset, row.bytes, row.bytes));
    const auto reply = front_end.read_reply();
    ASSERT_TRUE(reply);
    const auto access = parse_config_access(reply->payload);
    ASSERT_TRUE(access);
    EXPECT_EQ(access->offset, row.offset);
    EXPECT_EQ(std::string(access->bytes.begin(), access->bytes.end()), row.expected);
  }
  front_end.say(Request::get_config, config_access(250, 10, 10));
  EXPECT_TRUE(front_end.read_reply()->payload.empty());
  EXPECT_EQ(front_end.session->state(), SessionState::open);
  front_end.say(Request::set_config, config_access(0, 6, 6));
  EXPECT_THAT(device.take_events(), ::testing::Contains("write_config 0 6"));
}

TEST_F(Session, AConfigurationChangeIsToldOnceThereIsAChannel) {
  EXPECT_FALSE(front_end.session->notify_config_change());
  front_end.negotiate(kFeatures);
  int channel[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel), 0);
  Fd mine(channel[0]);
  Fd theirs(channel[1]);
  front_end.say(Request::set_backend_req_fd, {}, {theirs.get()});
  theirs.reset();
  ASSERT_TRUE(front_end.session->notify_config_change());
  MessageHeader header;
  ASSERT_EQ(::recv(mine.get(), &header, sizeof header, MSG_DONTWAIT),
            static_cast<ssize_t>(sizeof header));
  EXPECT_EQ(header.request, static_cast<uint32_t>(BackendRequest::config_change_msg));
  EXPECT_EQ(header.flags, kFlagsVersion);
  EXPECT_EQ(header.payload_bytes, 0u);
  // A front end that never reads does not hold us up.
  int sent = 0;
  while (sent < 1'000'000 && front_end.session->notify_config_change()) ++sent;
  EXPECT_LT(sent, 1'000'000);
  mine.reset();
  EXPECT_FALSE(front_end.session->notify_config_change());
}

// --- Rings ------------------------------------------------------------------------------------

TEST_F(Session, ARingStartsWhenTheLastPartComesWhicheverThatIs) {
  std::vector<int> order = {0, 1, 2, 3, 4, 5, 6};
  int permutations = 0;
  do {
    if (permutations++ % 7 != 0) continue;  // 720 of 5040
    RecordingDevice own_device;
    TestFrontEnd other(own_device);
    for (const int part : order) {
      switch (part) {
        case 0:
          other.say_u64(Request::set_features, kFeatures);
          break;
        case 1:
          other.say_memory();
          break;
        case 2:
          other.say_state(Request::set_vring_num, 0, 128);
          break;
        case 3:
          other.say_state(Request::set_vring_base, 0, 77);
          break;
        case 4:
          other.say_addresses(0);
          break;
        case 5:
          other.say_event(Request::set_vring_kick, 0);
          break;
        case 6:
          other.say_event(Request::set_vring_call, 0);
          break;
      }
    }
    ASSERT_TRUE(own_device.running.contains(0));
    const RingStart& ring = own_device.running.at(0);
    ASSERT_EQ(ring.size, 128u);
    ASSERT_EQ(ring.base, 77u);
    ASSERT_TRUE(ring.kick.valid() && ring.call.valid() && ring.enabled);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(Session, RingsStartDisabledOnlyWithProtocolFeatures) {
  front_end.negotiate(kWithProtocol);
  front_end.say_memory();
  front_end.say_ring(0);
  EXPECT_FALSE(device.running.at(0).enabled);
  front_end.say_state(Request::set_vring_enable, 0, 1);
  EXPECT_TRUE(device.running.at(0).enabled);
  front_end.say_state(Request::set_vring_enable, 0, 1);
  front_end.say_state(Request::set_vring_enable, 0, 0);
  EXPECT_FALSE(device.running.at(0).enabled);
  // User-Mode Linux: the last SET_FEATURES counts.
  front_end.say_u64(Request::set_features, kFeatures);
  EXPECT_TRUE(device.running.at(0).enabled);
}

TEST_F(Session, GetVringBaseStopsAndTheNextKickGoesOnFromThere) {
  run_both();
  device.bases[0] = 4711;
  for (int i = 0; i < 3; ++i) {  // several in a row are as good as one
    front_end.say_state(Request::get_vring_base, 0, 0);
    const auto state = parse_vring_state(front_end.read_reply()->payload);
    EXPECT_EQ(state->index, 0u);
    EXPECT_EQ(state->value, 4711u);
  }
  EXPECT_EQ(device.take_events(), (Events{"stop 0"}));
  front_end.say_state(Request::set_vring_enable, 0, 1);
  front_end.say_event(Request::set_vring_call, 0);
  EXPECT_TRUE(device.take_events().empty()) << "only a kick starts it";
  front_end.say_event(Request::set_vring_kick, 0);
  EXPECT_EQ(device.take_events(), (Events{"start 0 size 256 base 4711 on"}));
  front_end.say_state(Request::get_vring_base, 1, 0);
  EXPECT_EQ(parse_vring_state(front_end.read_reply()->payload)->value, 0u);
}

TEST_F(Session, NoDescriptorMeansPolling) {
  front_end.negotiate(kFeatures);
  front_end.say_memory();
  front_end.say_state(Request::set_vring_num, 0, 256);
  front_end.say_addresses(0);
  front_end.say_u64(Request::set_vring_call, 0x100);
  front_end.say_u64(Request::set_vring_kick, 0x100);
  ASSERT_TRUE(device.running.contains(0));
  EXPECT_FALSE(device.running.at(0).kick.valid());
  EXPECT_FALSE(device.running.at(0).call.valid());
}

TEST_F(Session, ChangesOfARunningRingStopItFirst) {
  run_both();
  const struct {
    const char* name;
    std::function<void()> change;
    Events expected;
  } rows[] = {
      {"base",
       [&] { front_end.say_state(Request::set_vring_base, 0, 9); },
       {"stop 0", "start 0 size 256 base 9 on"}},
      {"addresses", [&] { front_end.say_addresses(0); }, {"stop 0", "start 0 size 256 base 9 on"}},
      {"kick",
       [&] { front_end.say_event(Request::set_vring_kick, 0); },
       {"stop 0", "start 0 size 256 base 9 on"}},
      {"call", [&] { front_end.say_event(Request::set_vring_call, 0); }, {"call 0"}},
      {"error", [&] { front_end.say_event(Request::set_vring_err, 0); }, {"error 0"}},
      {"disable", [&] { front_end.say_state(Request::set_vring_enable, 0, 0); }, {"disable 0"}},
      {"enable", [&] { front_end.say_state(Request::set_vring_enable, 0, 1); }, {"enable 0"}},
      {"the same features", [&] { front_end.say_u64(Request::set_features, kFeatures); }, {}},
      {"other features",
       [&] { front_end.say_u64(Request::set_features, feature::version_1); },
       {"stop 0", "stop 1", "features 0x100000000", "start 0 size 256 base 9 on",
        "start 1 size 256 base 0 on"}},
      {"memory",
       [&] { front_end.say_memory(); },
       {"stop 0", "stop 1", "start 0 size 256 base 9 on", "start 1 size 256 base 0 on"}},
      {"size, after which a new kick is due",
       [&] { front_end.say_state(Request::set_vring_num, 0, 64); },
       {"stop 0"}},
      {"that kick",
       [&] { front_end.say_event(Request::set_vring_kick, 0); },
       {"start 0 size 64 base 9 on"}},
      {"a reset by status",
       [&] { front_end.say_u64(Request::set_status, 0); },
       {"stop 0", "stop 1"}},
      {"kick after it",
       [&] { front_end.say_event(Request::set_vring_kick, 0); },
       {"start 0 size 64 base 9 on"}},
      {"RESET_OWNER", [&] { front_end.say(Request::reset_owner); }, {"stop 0"}},
      {"RESET_DEVICE", [&] { front_end.say(Request::reset_device); }, {}},
      {"kick of a ring that was reset",
       [&] { front_end.say_event(Request::set_vring_kick, 0); },
       {}},
      {"set-up after a reset",
       [&] { front_end.say_ring(0); },
       {"start 0 size 256 base 0 on", "stop 0", "start 0 size 256 base 0 on", "call 0"}},
  };
  for (const auto& row : rows) {
    row.change();
    EXPECT_EQ(device.take_events(), row.expected) << row.name;
  }
  EXPECT_EQ(front_end.session->state(), SessionState::open);
}

TEST_F(Session, ARingThatIsNoLongerMappedStaysStoppedAndComesBackWithTheMemory) {
  run_both();
  const Fd error = make_event();
  front_end.say_u64(Request::set_vring_err, 1, {error.get()});
  device.take_events();
  const Fd memory = make_memory(0x10000);
  WireRegion small = TestFrontEnd::region();
  small.bytes = 0x10000;  // ring 1 begins behind it
  front_end.say(Request::set_mem_table, memory_table({small}), {memory.get()});
  EXPECT_EQ(device.take_events(), (Events{"stop 0", "stop 1", "start 0 size 256 base 0 on"}));
  uint64_t count = 0;
  EXPECT_EQ(::read(error.get(), &count, sizeof count), 8) << "the front end is told";
  front_end.say_memory();
  EXPECT_EQ(device.take_events(),
            (Events{"stop 0", "start 0 size 256 base 0 on", "start 1 size 256 base 0 on"}));
}

TEST_F(Session, OldMemoryIsLetGoWhenATableReplacesIt) {
  run_both();
  std::weak_ptr<const GuestMemory> old = device.running.at(0).memory;
  front_end.say_memory();
  EXPECT_TRUE(old.expired());
  old = device.running.at(0).memory;
  front_end.hang_up();
  EXPECT_EQ(front_end.session->on_readable(), SessionState::closed);
  EXPECT_TRUE(old.expired()) << "also before the session is destroyed";
}

TEST_F(Session, MemoryIsAddedAndRemovedRegionByRegion) {
  front_end.negotiate(kFeatures);
  const Fd memory = make_memory(TestFrontEnd::kMemoryBytes);
  const auto payload = single_region(TestFrontEnd::region());
  const WireRegion far{0x10000000, 0x10000, TestFrontEnd::kFrontendBase + 0x10000000, 0};
  EXPECT_EQ(front_end.ask(Request::add_mem_reg, payload, {memory.get()}), 0u);
  front_end.say_ring(0);
  device.take_events();
  EXPECT_EQ(front_end.ask(Request::add_mem_reg, single_region(far), {memory.get()}), 0u);
  EXPECT_EQ(device.take_events(), (Events{"stop 0", "start 0 size 256 base 0 on"}));
  EXPECT_EQ(device.running.at(0).memory->region_count(), 2u);
  EXPECT_EQ(front_end.ask(Request::add_mem_reg, payload, {memory.get()}), 0u)
      << "said again, as QEMU 7.2 does for each queue pair";
  const Fd other_file = make_memory(TestFrontEnd::kMemoryBytes);
  EXPECT_EQ(front_end.ask(Request::add_mem_reg, payload, {other_file.get()}), 1u) << "overlap";
  const size_t open_before = open_descriptor_count();
  EXPECT_EQ(front_end.ask(Request::rem_mem_reg, single_region(far), {memory.get()}), 0u);
  EXPECT_EQ(open_descriptor_count(), open_before) << "QEMU's descriptor is closed";
  EXPECT_EQ(front_end.ask(Request::rem_mem_reg, single_region(far)), 0u) << "said again";
  EXPECT_EQ(front_end.ask(Request::rem_mem_reg, payload), 0u);
  EXPECT_TRUE(device.running.empty());
  EXPECT_EQ(front_end.ask(Request::add_mem_reg, payload, {memory.get()}), 0u);
  EXPECT_EQ(device.running.size(), 1u);
}

TEST_F(Session, ARingThatTheDeviceRefusesIsTriedAgainWithItsNextMessage) {
  front_end.negotiate(kFeatures);
  front_end.say_memory();
  device.refuse_start = true;
  front_end.say_ring(0);
  EXPECT_TRUE(device.running.empty());
  EXPECT_EQ(front_end.session->state(), SessionState::open);
  device.refuse_start = false;
  front_end.say_event(Request::set_vring_kick, 0);
  EXPECT_EQ(device.running.size(), 1u);
}

TEST_F(Session, ASparseSetOfRingsKeepsItsIndices) {
  RecordingDevice four_pairs(4);
  TestFrontEnd other(four_pairs);
  other.negotiate(kFeatures);
  other.say_memory();
  for (const uint32_t index : {1u, 3u, 8u}) other.say_ring(index);
  ASSERT_EQ(four_pairs.running.size(), 3u);
  for (const uint32_t index : {1u, 3u, 8u}) {
    EXPECT_EQ(four_pairs.running.at(index).index, index);
    other.say_state(Request::get_vring_base, index, 0);
    EXPECT_EQ(parse_vring_state(other.read_reply()->payload)->index, index);
  }
}

TEST_F(Session, TheEndStopsRingsBeforeTheDeviceHearsOfIt) {
  run_both();
  front_end.hang_up();
  EXPECT_EQ(front_end.session->on_readable(), SessionState::closed);
  EXPECT_EQ(device.take_events(), (Events{"stop 0", "stop 1", "closed"}));
  EXPECT_TRUE(front_end.session->close_reason().empty());
  EXPECT_EQ(front_end.session->on_readable(), SessionState::closed);
  EXPECT_FALSE(front_end.session->notify_config_change());
  EXPECT_TRUE(device.take_events().empty());
}

TEST_F(Session, AnEndedSessionHoldsNothingButItsSocket) {
  const size_t open_before = open_descriptor_count();
  for (const Step& step : kQemu) ASSERT_TRUE(play(front_end, step, false));
  ASSERT_GT(open_descriptor_count(), open_before);
  front_end.hang_up();
  EXPECT_EQ(front_end.session->on_readable(), SessionState::closed);
  EXPECT_EQ(open_descriptor_count(), open_before - 1) << "the front end's own end is gone too";
}

TEST_F(Session, AFrontEndThatReadsNoRepliesIsLeft) {
  SessionState state = SessionState::open;
  for (int i = 0; i < 100'000 && state == SessionState::open; ++i)
    state = front_end.say(Request::get_features);
  EXPECT_EQ(state, SessionState::closed);
  EXPECT_THAT(front_end.session->close_reason(), ::testing::HasSubstr("does not read"));
}

TEST_F(Session, OneCallHandlesABoundedNumberOfMessages) {
  const auto one = message_bytes(static_cast<uint32_t>(Request::net_set_mtu), kFlagsVersion,
                                 bytes_of(uint64_t{1500}));
  for (int i = 0; i < 3 * kMessagesPerCallMax / 2; ++i) ASSERT_TRUE(front_end.send_bytes(one));
  device.take_events();
  front_end.session->on_readable();
  EXPECT_EQ(device.take_events().size(), static_cast<size_t>(kMessagesPerCallMax));
  front_end.session->on_readable();
  EXPECT_EQ(device.take_events().size(), static_cast<size_t>(kMessagesPerCallMax / 2));
}

}  // namespace
}  // namespace sluice
