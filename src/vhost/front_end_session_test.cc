// What a front-end session says to well-behaved back ends, and what it makes of their answers:
// against our own back end, and against a scripted one that offers more and less.
#include "vhost/front_end_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "vhost/front_end_test_kit.h"

namespace sluice {
namespace {

namespace pf = protocol_feature;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Names = std::vector<std::string>;

bool is_same_file(const Fd& a, const Fd& b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a.get(), &first) == 0 && ::fstat(b.get(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Eventfds share one inode; what is written to the one is read from the other, or they differ.
bool is_same_event(const Fd& a, const Fd& b) {
  const uint64_t written = 77;
  uint64_t got = 0;
  for (const Fd* fd : {&a, &b}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  return ::write(a.get(), &written, sizeof written) == sizeof written &&
         ::read(b.get(), &got, sizeof got) == sizeof got && got == written;
}

// --- Against our own back end -----------------------------------------------------------------

struct OwnBackEnd : testing::Test {
  void set_config(uint16_t pairs, uint16_t mtu_bytes) {
    const auto payload = config_payload(pairs, mtu_bytes, 0x56);
    device->config.assign(payload.begin() + kConfigHeaderBytes, payload.end());
  }
  void connect(uint32_t device_pairs = 1) {
    if (!device) device.emplace(device_pairs);
    if (device->config == "ABCDEFGHIJKL") set_config(static_cast<uint16_t>(device_pairs), 1500);
    SocketPair sockets;
    front_end = std::make_unique<FrontEndSession>(std::move(sockets.front), driver,
                                                  [this] { return now_ns; });
    back_end = std::make_unique<BackendSession>(std::move(sockets.back), *device);
    talk();
  }
  void talk() {
    for (int i = 0; i < FrontEndBench::kRoundsMax; ++i) {
      bool any = false;
      if (back_end->state() == SessionState::open && is_readable(back_end->fd())) {
        back_end->on_readable();
        any = true;
      }
      if (front_end->state() == SessionState::open && is_readable(front_end->fd())) {
        front_end->on_readable();
        any = true;
      }
      if (is_readable(front_end->request_fd())) {
        front_end->on_request();
        any = true;
      }
      if (!any) return;
    }
    FAIL() << "the talk does not end";
  }

  uint64_t now_ns = 1;
  RecordingDriver driver;
  std::optional<RecordingDevice> device;
  std::unique_ptr<BackendSession> back_end;
  std::unique_ptr<FrontEndSession> front_end;
};

TEST_F(OwnBackEnd, ReachesReadyWithAllRingsRunningAndEnabled) {
  connect();
  ASSERT_TRUE(front_end->is_ready()) << front_end->close_reason();
  EXPECT_THAT(driver.take_events(), ElementsAre("agreed", "ready"));
  ASSERT_EQ(device->running.size(), 3u);  // one pair, and the control queue
  for (const auto& [index, ring] : device->running) {
    EXPECT_TRUE(ring.enabled) << index;
    EXPECT_EQ(ring.size, driver.ring_size) << index;
    EXPECT_EQ(ring.base, 0u) << index;
  }
  EXPECT_EQ(front_end->deadline_ns(), 0u) << "nothing is waited for";
}

TEST_F(OwnBackEnd, AgreesOnWhatBothKnowAndSpeaksOfItToBoth) {
  device.emplace(1);
  device->offered = feature::version_1 | feature::mrg_rxbuf | feature::csum | feature::mac;
  connect();
  ASSERT_TRUE(front_end->is_ready()) << front_end->close_reason();
  const uint64_t both = feature::version_1 | feature::mrg_rxbuf | feature::mac;
  EXPECT_EQ(driver.last_agreement.features, both);
  EXPECT_EQ(device->features, both);
  EXPECT_EQ(back_end->features(), both);
  EXPECT_FALSE(driver.last_agreement.has_control_queue);
  EXPECT_EQ(front_end->agreement().protocol_features, back_end->protocol_features());
}

TEST_F(OwnBackEnd, LeavesOutFeaturesWhosePrerequisitesAreMissing) {
  device.emplace(1);
  device->offered = feature::version_1 | feature::host_tso4;
  driver.wanted |= feature::host_tso4 | feature::csum;
  connect();
  ASSERT_TRUE(front_end->is_ready());
  EXPECT_EQ(driver.last_agreement.features, feature::version_1);
}

TEST_F(OwnBackEnd, EndsWithTheNameOfARequiredFeatureThatIsNotOffered) {
  driver.wanted |= feature::ring_packed;
  driver.required |= feature::ring_packed;
  connect();
  EXPECT_EQ(front_end->state(), SessionState::closed);
  EXPECT_THAT(front_end->close_reason(), HasSubstr("does not offer ring_packed"));
  EXPECT_THAT(driver.take_events(), ElementsAre("closed: " + front_end->close_reason()));
}

TEST_F(OwnBackEnd, HandsOverItsMemoryInOneRegion) {
  connect();
  ASSERT_NE(back_end->memory(), nullptr);
  const auto span = back_end->memory()->translate(FrontendAddr{RecordingDriver::kFrontendBase},
                                                  3 * RecordingDriver::kRingAreaBytes);
  ASSERT_TRUE(span);
  // One memory, not a copy: what the driver writes is there.
  const char word[] = "shared";
  ASSERT_EQ(::pwrite(driver.memory.get(), word, sizeof word, 0), ssize_t{sizeof word});
  char seen[sizeof word] = {};
  span->copy_out(0, seen, sizeof seen);
  EXPECT_STREQ(seen, word);
}

TEST_F(OwnBackEnd, HandsOverTheEventsOfEachRing) {
  connect();
  ASSERT_EQ(device->running.size(), driver.ring_events.size());
  for (auto& [index, ring] : device->running) {
    ASSERT_TRUE(driver.ring_events.contains(index)) << index;
    const RecordingDriver::Events& own = driver.ring_events[index];
    EXPECT_TRUE(is_same_event(own.kick, ring.kick)) << index;
    EXPECT_TRUE(is_same_event(ring.call, own.call)) << index;
    EXPECT_TRUE(is_same_event(ring.error, own.error)) << index;
  }
}

TEST_F(OwnBackEnd, ReadsTheConfigurationThatTheFeaturesCover) {
  device.emplace(1);
  device->offered |= feature::mtu;
  set_config(1, 9000);
  connect();
  EXPECT_EQ(driver.last_agreement.mtu_bytes, 9000);
  ASSERT_TRUE(driver.last_agreement.mac);
  EXPECT_THAT(*driver.last_agreement.mac, ElementsAre(0x52, 0x54, 0, 0x12, 0x34, 0x56));
}

TEST_F(OwnBackEnd, LeavesConfigurationWithoutItsFeatureAlone) {
  device.emplace(1);
  device->offered &= ~(feature::mac | feature::mtu);
  connect();
  EXPECT_FALSE(driver.last_agreement.mac);
  EXPECT_FALSE(driver.last_agreement.mtu_bytes);
}

TEST_F(OwnBackEnd, SetsUpAsManyPairsAsBothHave) {
  struct Case {
    uint32_t wanted;
    uint32_t device;
    uint32_t agreed;
    uint32_t control_index;
  };
  for (const Case& row : {Case{1, 4, 1, 8}, {2, 2, 2, 4}, {4, 2, 2, 4}, {64, 64, 64, 128}}) {
    SCOPED_TRACE(fmt::format("{} of {}", row.wanted, row.device));
    front_end.reset();
    back_end.reset();
    device.reset();
    driver.queue_pairs = row.wanted;
    connect(row.device);
    ASSERT_TRUE(front_end->is_ready()) << front_end->close_reason();
    EXPECT_EQ(driver.last_agreement.queue_pairs, row.agreed);
    EXPECT_EQ(driver.last_agreement.control_index, row.control_index);
    EXPECT_EQ(device->running.size(), 2 * row.agreed + 1);
    EXPECT_TRUE(device->running.contains(row.control_index));
  }
}

// Its configuration has a number of pairs also without MQ, and GET_QUEUE_NUM counts rings.
TEST_F(OwnBackEnd, SetsUpOnePairWhereTheDeviceDoesNotOfferMore) {
  for (const uint64_t missing : {feature::mq, feature::mq | feature::ctrl_vq}) {
    front_end.reset();
    back_end.reset();
    device.emplace(1);
    device->offered &= ~missing;
    driver.queue_pairs = 4;
    connect();
    ASSERT_TRUE(front_end->is_ready()) << front_end->close_reason();
    EXPECT_EQ(driver.last_agreement.queue_pairs, 1u);
    EXPECT_EQ(device->running.size(), missing == feature::mq ? 3u : 2u);
  }
}

TEST_F(OwnBackEnd, HearsOfAChangedConfigurationOnTheBackEndsChannel) {
  connect();
  driver.take_events();
  ASSERT_TRUE(back_end->notify_config_change());
  talk();
  EXPECT_THAT(driver.take_events(), ElementsAre("config"));
  EXPECT_TRUE(front_end->is_ready());
}

TEST_F(OwnBackEnd, ReadsTheConfigurationAgainWhenItHasChanged) {
  device.emplace(1);
  device->offered |= feature::mtu;
  connect();
  ASSERT_EQ(front_end->agreement().mtu_bytes, 1500);
  set_config(1, 4000);
  ASSERT_TRUE(back_end->notify_config_change());
  talk();
  EXPECT_EQ(driver.last_agreement.mtu_bytes, 4000);
  EXPECT_EQ(front_end->agreement().mtu_bytes, 4000);
}

TEST_F(OwnBackEnd, EndsWhenTheBackEndDoes) {
  connect();
  back_end.reset();
  front_end->on_readable();
  EXPECT_EQ(front_end->state(), SessionState::closed);
  EXPECT_EQ(front_end->close_reason(), "the back end went away");
  EXPECT_EQ(driver.times_closed, 1u);
  front_end.reset();
  EXPECT_EQ(driver.times_closed, 1u) << "an end is told once";
}

TEST_F(OwnBackEnd, EndsWithoutAReasonWhenItIsClosedByUs) {
  connect();
  driver.take_events();
  front_end->close();
  EXPECT_THAT(driver.take_events(), ElementsAre("closed"));
  EXPECT_THAT(front_end->close_reason(), IsEmpty());
  EXPECT_EQ(front_end->request_fd(), -1);
  talk();
  EXPECT_EQ(back_end->state(), SessionState::closed) << "the back end sees the end";
  EXPECT_TRUE(device->running.empty());
}

TEST_F(OwnBackEnd, StartsAnewAfterEachEnd) {
  connect();
  front_end.reset();
  back_end.reset();
  const size_t open_before = open_descriptor_count();
  for (int i = 0; i < 20; ++i) {
    connect();
    ASSERT_TRUE(front_end->is_ready()) << front_end->close_reason();
    EXPECT_EQ(device->running.size(), 3u);
    front_end.reset();
    back_end.reset();
  }
  EXPECT_EQ(driver.times_closed, 21u);
  EXPECT_EQ(open_descriptor_count(), open_before);
}

TEST_F(OwnBackEnd, EndsWhenTheDriverCannotMakeItsRings) {
  driver.refuse_agreement = true;
  connect();
  EXPECT_EQ(front_end->close_reason(), "the test wants no rings");
  EXPECT_EQ(driver.times_closed, 1u);
}

TEST_F(OwnBackEnd, EndsWithTheNameOfTheMessageThatWasRefused) {
  driver.ring_size = 300;  // no power of two
  connect();
  EXPECT_THAT(front_end->close_reason(), HasSubstr("the back end refused SET_VRING_NUM"));
  EXPECT_EQ(driver.times_closed, 1u);
}

// --- Against a scripted back end --------------------------------------------------------------

TEST(FrontEndSession, SpeaksInThisOrderWithABackEndThatKnowsEverything) {
  FrontEndBench bench;
  bench.driver.wanted &= ~(feature::ctrl_vq | feature::mq);
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
  EXPECT_THAT(bench.back_end.names,
              ElementsAre("GET_FEATURES", "GET_PROTOCOL_FEATURES", "SET_PROTOCOL_FEATURES",
                          "SET_OWNER", "GET_QUEUE_NUM", "GET_CONFIG", "SET_FEATURES", "SET_STATUS",
                          "SET_BACKEND_REQ_FD", "SET_MEM_TABLE", "SET_LOG_BASE", "GET_INFLIGHT_FD",
                          "SET_INFLIGHT_FD", "SET_VRING_NUM", "SET_VRING_BASE", "SET_VRING_ADDR",
                          "SET_VRING_ERR", "SET_VRING_CALL", "SET_VRING_KICK", "SET_VRING_NUM",
                          "SET_VRING_BASE", "SET_VRING_ADDR", "SET_VRING_ERR", "SET_VRING_CALL",
                          "SET_VRING_KICK", "SET_VRING_ENABLE", "SET_VRING_ENABLE", "SET_STATUS"));
}

TEST(FrontEndSession, SpeaksInThisOrderWithABackEndThatKnowsNothing) {
  FrontEndBench bench;
  bench.back_end.features = feature::version_1;
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
  // GET_FEATURES again and again: its answers say that all before has been read.
  EXPECT_THAT(bench.back_end.names,
              ElementsAre("GET_FEATURES", "SET_OWNER", "SET_FEATURES", "SET_MEM_TABLE",
                          "SET_VRING_NUM", "SET_VRING_BASE", "SET_VRING_ADDR", "SET_VRING_ERR",
                          "SET_VRING_CALL", "SET_VRING_KICK", "GET_FEATURES", "SET_VRING_NUM",
                          "SET_VRING_BASE", "SET_VRING_ADDR", "SET_VRING_ERR", "SET_VRING_CALL",
                          "SET_VRING_KICK", "GET_FEATURES", "GET_FEATURES"));
  EXPECT_EQ(bench.session->agreement().protocol_features, 0u);
}

// What the back end has to keep account in must be there before its rings start.
TEST(FrontEndSession, SetsUpNoRingBeforeTheInflightAreaIsWhereItBelongs) {
  for (const uint64_t others : {uint64_t{0}, pf::reply_ack, pf::status | pf::config}) {
    FrontEndBench bench;
    bench.back_end.protocol_features = pf::inflight_shmfd | others;
    bench.talk();
    ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
    const Names& names = bench.back_end.names;
    const auto set = std::find(names.begin(), names.end(), "SET_INFLIGHT_FD");
    ASSERT_NE(set, names.end());
    EXPECT_EQ(set, std::find(names.begin(), names.end(), "SET_VRING_NUM") - 1);
    EXPECT_EQ(set, std::find(names.begin(), names.end(), "GET_INFLIGHT_FD") + 1);
  }
}

TEST(FrontEndSession, GivesTheInflightAreaBackAsItCame) {
  FrontEndBench bench;
  bench.talk();
  const auto set = bench.back_end.all(Request::set_inflight_fd);
  ASSERT_EQ(set.size(), 1u);
  EXPECT_EQ(set[0]->payload, inflight_payload(4096, 0, 2, 256));
  ASSERT_EQ(set[0]->fds.size(), 1u);
  EXPECT_TRUE(is_same_file(set[0]->fds[0], bench.back_end.inflight));
}

TEST(FrontEndSession, SetsNoInflightAreaWhereTheBackEndKeepsNone) {
  FrontEndBench bench;
  bench.back_end.inflight_bytes = 0;
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
  EXPECT_THAT(bench.back_end.names, Not(Contains("SET_INFLIGHT_FD")));
}

TEST(FrontEndSession, UsesEachProtocolFeatureWhereItIsOfferedAndOnlyThere) {
  struct Case {
    uint64_t feature;
    Names messages;  // that are sent with it, and not without
  };
  const Case cases[] = {
      {pf::mq, {"GET_QUEUE_NUM"}},
      {pf::config, {"GET_CONFIG"}},
      {pf::status, {"SET_STATUS"}},
      {pf::backend_req, {"SET_BACKEND_REQ_FD"}},
      {pf::log_shmfd, {"SET_LOG_BASE"}},
      {pf::inflight_shmfd, {"GET_INFLIGHT_FD", "SET_INFLIGHT_FD"}},
  };
  for (const Case& row : cases) {
    SCOPED_TRACE(row.messages.front());
    FrontEndBench with;
    with.back_end.protocol_features = row.feature;
    with.talk();
    ASSERT_TRUE(with.session->is_ready()) << with.reason();
    for (const std::string& name : row.messages) EXPECT_THAT(with.back_end.names, Contains(name));
    FrontEndBench without;
    without.back_end.protocol_features &= ~row.feature;
    without.talk();
    ASSERT_TRUE(without.session->is_ready()) << without.reason();
    for (const std::string& name : row.messages)
      EXPECT_THAT(without.back_end.names, Not(Contains(name)));
  }
}

TEST(FrontEndSession, AsksForAcksOnlyBehindTheAgreementOnThem) {
  FrontEndBench bench;
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready());
  bool agreed = false;
  for (const ReceivedMessage& message : bench.back_end.heard) {
    const auto* row = find_request(message.header.request);
    EXPECT_EQ(message.header.needs_reply(), agreed && !row->has_own_reply) << row->name;
    agreed = agreed || row->request == Request::set_protocol_features;
  }
  FrontEndBench without;
  without.back_end.protocol_features &= ~pf::reply_ack;
  without.talk();
  ASSERT_TRUE(without.session->is_ready());
  for (const ReceivedMessage& message : without.back_end.heard)
    EXPECT_FALSE(message.header.needs_reply()) << request_name(message.header.request);
}

TEST(FrontEndSession, AcknowledgesOnlyProtocolFeaturesThatItSpeaks) {
  FrontEndBench bench;
  bench.back_end.protocol_features = ~uint64_t{0};
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
  const auto told = bench.back_end.all(Request::set_protocol_features);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(*parse_u64(told[0]->payload), ScriptedBackEnd::kAllProtocolFeatures);
  const auto features = bench.back_end.all(Request::set_features);
  ASSERT_EQ(features.size(), 1u);
  EXPECT_EQ(*parse_u64(features[0]->payload),
            bench.session->agreement().features | feature::protocol_features);
}

TEST(FrontEndSession, EnablesRingsOnlyWhereTheyAreNotEnabledFromTheStart) {
  FrontEndBench bench;
  bench.back_end.features &= ~feature::protocol_features;
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready());
  EXPECT_THAT(bench.back_end.names, Not(Contains("SET_VRING_ENABLE")));
}

TEST(FrontEndSession, SendsOneMemoryRegionWithItsDescriptor) {
  FrontEndBench bench;
  bench.talk();
  const auto tables = bench.back_end.all(Request::set_mem_table);
  ASSERT_EQ(tables.size(), 1u);
  const auto regions = parse_memory_table(tables[0]->payload);
  ASSERT_TRUE(regions);
  ASSERT_EQ(regions->size(), 1u);
  EXPECT_EQ((*regions)[0].bytes, 3 * RecordingDriver::kRingAreaBytes);
  EXPECT_EQ(raw((*regions)[0].frontend_address), RecordingDriver::kFrontendBase);
  EXPECT_EQ((*regions)[0].mmap_offset, 0u);
  ASSERT_EQ(tables[0]->fds.size(), 1u);
  EXPECT_TRUE(is_same_file(tables[0]->fds[0], bench.driver.memory));
}

TEST(FrontEndSession, SharesALogWithABitForEachPage) {
  FrontEndBench bench;
  bench.talk();
  const auto logs = bench.back_end.all(Request::set_log_base);
  ASSERT_EQ(logs.size(), 1u);
  ASSERT_EQ(logs[0]->payload.size(), 16u);
  ASSERT_EQ(logs[0]->fds.size(), 1u);
  uint64_t bytes = 0;
  std::memcpy(&bytes, logs[0]->payload.data(), sizeof bytes);
  EXPECT_GE(bytes, 3 * RecordingDriver::kRingAreaBytes / 4096 / 8);
  struct stat file {};
  ASSERT_EQ(::fstat(logs[0]->fds[0].get(), &file), 0);
  EXPECT_EQ(static_cast<uint64_t>(file.st_size), bytes);
}

TEST(FrontEndSession, TellsTheDriverWhatTheStatusSays) {
  FrontEndBench bench;
  bench.talk();
  const auto told = bench.back_end.all(Request::set_status);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(*parse_u64(told[0]->payload), 1u | 2 | 8);      // acknowledge, driver, features_ok
  EXPECT_EQ(*parse_u64(told[1]->payload), 1u | 2 | 8 | 4);  // and driver_ok
}

TEST(FrontEndSession, TakesTheNumberOfPairsFromQueueNumWithoutAConfiguration) {
  FrontEndBench bench;
  bench.back_end.protocol_features = pf::mq | pf::reply_ack;
  bench.back_end.queue_num = 3;
  bench.driver.queue_pairs = 8;
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
  EXPECT_EQ(bench.session->agreement().queue_pairs, 3u);
  EXPECT_FALSE(bench.session->agreement().has_control_queue)
      << "it would lie behind pairs whose number is not known for sure";
}

// The messages that carry a descriptor have eight bits for the ring's index.
TEST(FrontEndSession, UsesNoControlQueueWhoseIndexCannotBeSaid) {
  struct Case {
    uint16_t config_pairs;
    bool has_control_queue;
  };
  for (const Case& row : {Case{127, true}, {128, false}, {0x8000, false}, {0xffff, false}}) {
    SCOPED_TRACE(row.config_pairs);
    FrontEndBench bench;
    bench.back_end.config_pairs = row.config_pairs;
    bench.back_end.queue_num = 2;
    bench.driver.queue_pairs = 2;
    bench.talk();
    ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
    EXPECT_EQ(bench.session->agreement().has_control_queue, row.has_control_queue);
    EXPECT_EQ(bench.session->agreement().queue_pairs, 2u);
    for (const ReceivedMessage* kick : bench.back_end.all(Request::set_vring_kick))
      EXPECT_TRUE(parse_vring_file(kick->payload)) << "this ring's index";
  }
}

// A slow reader's socket takes some hundred messages.
TEST(FrontEndSession, NeverHasMoreMessagesUnderWayThanASocketTakes) {
  for (const uint64_t acks : {uint64_t{0}, pf::reply_ack}) {
    FrontEndBench bench;
    bench.back_end.protocol_features = pf::mq | acks;
    bench.back_end.queue_num = kQueuePairsMax;
    bench.driver.queue_pairs = kQueuePairsMax;
    bench.start();
    do {
      while (bench.session_reads()) {
      }
    } while (bench.back_end.hear_one());
    ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
    EXPECT_EQ(bench.back_end.all(Request::set_vring_enable).size(), 2 * kQueuePairsMax);
  }
}

TEST(FrontEndSession, AnswersTheBackEndsOwnRequestsWhereItIsAsked) {
  FrontEndBench bench;
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready());
  bench.driver.take_events();
  struct Case {
    uint32_t request;
    uint32_t flags;
    std::optional<uint64_t> answer;
  };
  const Case cases[] = {
      {2, kFlagsVersion, std::nullopt},
      {2, kFlagsVersion | kFlagsNeedReply, 0},
      {5, kFlagsVersion, std::nullopt},
      {5, kFlagsVersion | kFlagsNeedReply, 1},  // known to the protocol, not to us
      {99, kFlagsVersion | kFlagsNeedReply, 1},
  };
  Connection channel(copy_of(bench.back_end.channel), Expects::replies);
  for (const Case& row : cases) {
    SCOPED_TRACE(fmt::format("request {} flags {}", row.request, row.flags));
    ASSERT_TRUE(send_with_descriptors(bench.back_end.channel.get(),
                                      message_bytes(row.request, row.flags, {}), {}));
    bench.talk();
    ReceivedMessage answer;
    ASSERT_EQ(channel.receive(answer) == Receive::message, row.answer.has_value());
    if (!row.answer) continue;
    EXPECT_EQ(answer.header.request, row.request);
    EXPECT_EQ(*parse_u64(answer.payload), *row.answer);
  }
  EXPECT_TRUE(bench.session->is_ready());
}

// However often it is told: one question is under way, and one more follows for what came
// meanwhile.
TEST(FrontEndSession, AsksOnceForManyChangesOfTheConfiguration) {
  FrontEndBench bench;
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready());
  bench.back_end.names.clear();
  const auto change = build_backend_request(BackendRequest::config_change_msg);
  const uint64_t began_ns = bench.now_ns;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 50; ++i)
      ASSERT_TRUE(send_with_descriptors(bench.back_end.channel.get(), change, {}));
    bench.session->on_request();
    EXPECT_EQ(bench.session->deadline_ns(), began_ns + kAnswerMillisecondsMax * 1'000'000)
        << "what is no answer does not move it";
    bench.now_ns += 1'000'000;
  }
  bench.talk();
  EXPECT_THAT(bench.back_end.names, ElementsAre("GET_CONFIG", "GET_CONFIG"));
  EXPECT_TRUE(bench.session->is_ready());
}

TEST(FrontEndSession, ReadsAChangeThatCameBeforeTheRingsRan) {
  FrontEndBench bench;
  bench.back_end.instead = [&](const ReceivedMessage& message) {
    if (message.header.request != static_cast<uint32_t>(Request::set_mem_table)) return false;
    bench.back_end.mac_last = 0x99;
    send_with_descriptors(bench.back_end.channel.get(),
                          build_backend_request(BackendRequest::config_change_msg), {});
    return false;
  };
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
  EXPECT_THAT(bench.driver.take_events(), ElementsAre("agreed", "ready", "config"));
  EXPECT_EQ(bench.driver.last_agreement.mac->back(), 0x99);
}

TEST(FrontEndSession, LeavesAChangedConfigurationWithoutItsFeatureAloneToo) {
  FrontEndBench bench;
  bench.back_end.features &= ~(feature::mac | feature::mtu);
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready());
  send_with_descriptors(bench.back_end.channel.get(),
                        build_backend_request(BackendRequest::config_change_msg), {});
  bench.talk();
  EXPECT_EQ(bench.driver.take_events().back(), "config");
  EXPECT_FALSE(bench.driver.last_agreement.mac);
  EXPECT_FALSE(bench.driver.last_agreement.mtu_bytes);
}

// The number of pairs and what was made of it stay as they were agreed.
TEST(FrontEndSession, KeepsItsQueuesWhenTheConfigurationSaysOtherwise) {
  FrontEndBench bench;
  bench.back_end.config_pairs = 2;
  bench.driver.queue_pairs = 2;
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready());
  bench.back_end.config_pairs = 1;
  send_with_descriptors(bench.back_end.channel.get(),
                        build_backend_request(BackendRequest::config_change_msg), {});
  bench.talk();
  EXPECT_TRUE(bench.session->is_ready());
  EXPECT_EQ(bench.session->agreement().queue_pairs, 2u);
  EXPECT_EQ(bench.session->agreement().control_index, 4u);
}

TEST(FrontEndSession, GoesOnWhenTheBackEndClosesItsOwnChannel) {
  FrontEndBench bench;
  bench.talk();
  ASSERT_GE(bench.session->request_fd(), 0);
  bench.back_end.heard.clear();  // it holds a copy, as a message that came
  bench.back_end.channel.reset();
  bench.talk();
  EXPECT_EQ(bench.session->request_fd(), -1);
  EXPECT_TRUE(bench.session->is_ready());
}

TEST(FrontEndSession, SetsADeadlineWhileAnAnswerIsDueAndMovesItWithEachAnswer) {
  FrontEndBench bench;
  bench.start();
  const uint64_t first_ns = bench.session->deadline_ns();
  EXPECT_EQ(first_ns, bench.now_ns + kAnswerMillisecondsMax * 1'000'000);
  bench.now_ns += 4'000'000'000;
  ASSERT_TRUE(bench.back_end.hear_one());
  ASSERT_TRUE(bench.session_reads());
  EXPECT_EQ(bench.session->deadline_ns(), first_ns + 4'000'000'000);
  bench.now_ns = bench.session->deadline_ns() - 1;
  EXPECT_EQ(bench.session->on_deadline(), SessionState::open) << "called too early";
  bench.talk();
  EXPECT_TRUE(bench.session->is_ready());
  EXPECT_EQ(bench.session->deadline_ns(), 0u);
  bench.now_ns += 1'000'000'000'000;
  EXPECT_EQ(bench.session->on_deadline(), SessionState::open) << "silence is good when it runs";
}

TEST(FrontEndSession, EndsQuietlyWhenItIsClosedAfterAnyMessage) {
  size_t messages = 0;
  {
    FrontEndBench bench;
    bench.talk();
    messages = bench.back_end.heard.size();
  }
  for (size_t count = 0; count <= messages; ++count) {
    SCOPED_TRACE(fmt::format("after {} messages", count));
    const size_t open_before = open_descriptor_count();
    {
      FrontEndBench bench;
      bench.start();
      for (int round = 0; bench.back_end.heard.size() < count && round < 1000; ++round) {
        if (!bench.back_end.hear_one()) bench.session_reads();
      }
      ASSERT_EQ(bench.back_end.heard.size(), count);
      bench.session->close();
      EXPECT_EQ(bench.driver.take_events().back(), "closed");
      EXPECT_EQ(bench.session->on_readable(), SessionState::closed);
      EXPECT_EQ(bench.session->on_request(), SessionState::closed);
      EXPECT_EQ(bench.session->on_deadline(), SessionState::closed);
      bench.session.reset();
      EXPECT_EQ(bench.driver.times_closed, 1u);
    }
    EXPECT_EQ(open_descriptor_count(), open_before);
  }
}

}  // namespace
}  // namespace sluice
