// What a front end can say wrongly, and that only its own connection suffers from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "vhost/backend_session.h"
#include "vhost/session_test_kit.h"

namespace sluice {
namespace {

constexpr uint64_t kFeatures = feature::version_1 | feature::mrg_rxbuf;
constexpr uint64_t kBase = TestFrontEnd::kFrontendBase;

// A message with the descriptors that it names; they live until the row has been played.
struct Bad {
  const char* name;
  Request request;
  std::vector<uint8_t> payload;
  std::function<std::vector<Fd>()> make_fds = [] { return std::vector<Fd>(); };
};

std::vector<Fd> one(Fd fd) {
  std::vector<Fd> fds;
  fds.push_back(std::move(fd));
  return fds;
}
std::vector<Fd> events(size_t count) {
  std::vector<Fd> fds;
  for (size_t i = 0; i < count; ++i) fds.push_back(make_event());
  return fds;
}
std::vector<Fd> memories(size_t count, size_t bytes = TestFrontEnd::kMemoryBytes) {
  std::vector<Fd> fds;
  for (size_t i = 0; i < count; ++i) fds.push_back(make_memory(bytes));
  return fds;
}
Fd one_end_of_a_pipe(int which) {
  int pair[2];
  SLUICE_ASSERT(::pipe2(pair, O_CLOEXEC) == 0);
  Fd ends[2] = {Fd(pair[0]), Fd(pair[1])};
  return std::move(ends[which]);
}
Fd directory() { return Fd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
Fd device_file() { return Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)); }

// Each row must be refused, both ways, leave no descriptor behind and no ring changed.
void expect_refused(const std::vector<Bad>& rows, uint32_t queue_pairs = 1) {
  for (const Bad& row : rows) {
    for (const bool with_ack : {false, true}) {
      const std::string context = std::string(row.name) + (with_ack ? ", with REPLY_ACK" : "");
      RecordingDevice device(queue_pairs);
      TestFrontEnd front_end(device);
      front_end.negotiate(kFeatures);
      front_end.say_memory();
      front_end.say_ring(0);
      ASSERT_EQ(device.running.size(), 1u);
      device.take_events();
      const size_t open_before = open_descriptor_count();
      {
        const std::vector<Fd> fds = row.make_fds();
        std::vector<int> numbers;
        for (const Fd& fd : fds) numbers.push_back(fd.get());
        const bool own_reply = find_request(static_cast<uint32_t>(row.request)) != nullptr &&
                               find_request(static_cast<uint32_t>(row.request))->has_own_reply;
        if (with_ack && !own_reply) {
          const auto answer = front_end.ask(row.request, row.payload, numbers);
          ASSERT_TRUE(answer.has_value()) << context;
          EXPECT_NE(*answer, 0u) << context;
          EXPECT_EQ(front_end.session->state(), SessionState::open) << context;
          EXPECT_TRUE(device.take_events().empty()) << context << ": the rings run on";
        } else {
          EXPECT_EQ(front_end.say(row.request, row.payload, numbers), SessionState::closed)
              << context;
          EXPECT_FALSE(front_end.session->close_reason().empty()) << context;
          EXPECT_FALSE(front_end.read_reply()) << context;
          EXPECT_EQ(device.take_events(), (std::vector<std::string>{"stop 0", "closed"}))
              << context;
        }
      }
      EXPECT_LE(open_descriptor_count(), open_before) << context;
    }
  }
}

std::vector<uint8_t> state(uint32_t index, uint32_t value) {
  return bytes_of(VringState{index, value});
}
std::vector<uint8_t> addresses(uint64_t descriptors, uint64_t available, uint64_t used,
                               uint32_t index = 0) {
  return bytes_of(VringAddresses{index, 0, FrontendAddr{descriptors}, FrontendAddr{used},
                                 FrontendAddr{available}, GuestAddr{0}});
}

TEST(BackendSessionHostile, MessagesOfTheWrongShapeAreRefused) {
  expect_refused({
      {"unknown request", static_cast<Request>(45), {}},
      {"request 0", static_cast<Request>(0), {}},
      {"unknown request with payload", static_cast<Request>(4711), std::vector<uint8_t>(4096)},
      {"payload missing", Request::set_vring_num, {}},
      {"payload short", Request::set_vring_num, std::vector<uint8_t>(7)},
      {"payload long", Request::set_vring_num, std::vector<uint8_t>(9)},
      {"payload where none belongs", Request::set_owner, std::vector<uint8_t>(8)},
      {"payload of a query", Request::get_features, std::vector<uint8_t>(8)},
      {"address payload short", Request::set_vring_addr, std::vector<uint8_t>(39)},
      {"memory table short", Request::set_mem_table, std::vector<uint8_t>(4)},
      {"memory table long", Request::set_mem_table, std::vector<uint8_t>(265)},
      {"configuration short", Request::set_config, std::vector<uint8_t>(11)},
      {"configuration long", Request::set_config, config_access(0, 257, 257)},
      {"configuration that lies", Request::set_config, config_access(0, 200, 8)},
      {"configuration behind its end", Request::set_config, config_access(250, 8, 8)},
  });
}

TEST(BackendSessionHostile, RequestsThatWereNotOfferedAreRefused) {
  expect_refused({
      {"SET_LOG_BASE", Request::set_log_base, std::vector<uint8_t>(16), [] { return memories(1); }},
      {"SET_LOG_BASE that overflows", Request::set_log_base, std::vector<uint8_t>(16, 0xff),
       [] { return memories(1); }},
      {"SET_LOG_FD", Request::set_log_fd, {}, [] { return events(1); }},
      {"SEND_RARP", Request::send_rarp, std::vector<uint8_t>(8)},
      {"IOTLB_MSG", Request::iotlb_msg, std::vector<uint8_t>(32)},
      {"SET_VRING_ENDIAN", Request::set_vring_endian, state(0, 1)},
      {"GET_INFLIGHT_FD", Request::get_inflight_fd, std::vector<uint8_t>(20)},
      {"SET_INFLIGHT_FD", Request::set_inflight_fd, std::vector<uint8_t>(20),
       [] { return memories(1); }},
      {"GPU_SET_SOCKET", Request::gpu_set_socket, {}, [] { return events(1); }},
      {"VRING_KICK", Request::vring_kick, state(0, 0)},
      {"POSTCOPY_ADVISE", Request::postcopy_advise, {}},
      {"POSTCOPY_END", Request::postcopy_end, {}},
      {"GET_SHARED_OBJECT", Request::get_shared_object, std::vector<uint8_t>(16)},
      {"SET_DEVICE_STATE_FD", Request::set_device_state_fd, std::vector<uint8_t>(8),
       [] { return events(1); }},
      {"GET_SHMEM_CONFIG", Request::get_shmem_config, {}},
  });
}

TEST(BackendSessionHostile, RingIndicesAreComparedInFull) {
  std::vector<Bad> rows;
  for (const uint32_t index : {3u, 255u, 256u, 0x10000u, 0x10001u, 0x80000000u, UINT32_MAX}) {
    rows.push_back({"NUM", Request::set_vring_num, state(index, 256)});
    rows.push_back({"BASE", Request::set_vring_base, state(index, 0)});
    rows.push_back({"GET_BASE", Request::get_vring_base, state(index, 0)});
    rows.push_back({"ENABLE", Request::set_vring_enable, state(index, 1)});
    rows.push_back(
        {"ADDR", Request::set_vring_addr, addresses(kBase, kBase + 0x4000, kBase + 0x8000, index)});
    // The index of these has 8 bits, and bit 8 is NOFD: 256 is "ring 0 without a descriptor".
    const uint64_t word = index == 256 ? 0x200 : index;
    rows.push_back({"KICK", Request::set_vring_kick, bytes_of(word), [] { return events(1); }});
    rows.push_back({"CALL", Request::set_vring_call, bytes_of(word), [] { return events(1); }});
    rows.push_back({"ERR", Request::set_vring_err, bytes_of(word), [] { return events(1); }});
  }
  expect_refused(rows);
}

TEST(BackendSessionHostile, RingsOfImpossibleShapeAreRefused) {
  expect_refused({
      {"size 0", Request::set_vring_num, state(0, 0)},
      {"size 3", Request::set_vring_num, state(0, 3)},
      {"size 257", Request::set_vring_num, state(0, 257)},
      {"size 65536", Request::set_vring_num, state(0, 65536)},
      {"size 2^31", Request::set_vring_num, state(0, 0x80000000)},
      {"base 65536", Request::set_vring_base, state(0, 65536)},
      {"base 2^32-1", Request::set_vring_base, state(0, UINT32_MAX)},
      {"enable 2", Request::set_vring_enable, state(0, 2)},
      {"descriptors unaligned", Request::set_vring_addr,
       addresses(kBase + 8, kBase + 0x4000, kBase + 0x8000)},
      {"available unaligned", Request::set_vring_addr,
       addresses(kBase, kBase + 0x4001, kBase + 0x8000)},
      {"used unaligned", Request::set_vring_addr, addresses(kBase, kBase + 0x4000, kBase + 0x8002)},
      {"descriptors nowhere", Request::set_vring_addr,
       addresses(0, kBase + 0x4000, kBase + 0x8000)},
      {"available nowhere", Request::set_vring_addr, addresses(kBase, 0, kBase + 0x8000)},
      {"used nowhere", Request::set_vring_addr, addresses(kBase, kBase + 0x4000, 0)},
      {"descriptors run out of the region", Request::set_vring_addr,
       addresses(kBase + TestFrontEnd::kMemoryBytes - 16, kBase, kBase)},
      {"the event word of the available ring is outside", Request::set_vring_addr,
       addresses(kBase, kBase + TestFrontEnd::kMemoryBytes - (4 + 2 * 256), kBase + 0x8000)},
      {"the event word of the used ring is outside", Request::set_vring_addr,
       addresses(kBase, kBase + 0x4000, kBase + TestFrontEnd::kMemoryBytes - (4 + 8 * 256))},
      {"at the end of the address space", Request::set_vring_addr,
       addresses(UINT64_MAX - 15, kBase + 0x4000, kBase + 0x8000)},
  });
}

TEST(BackendSessionHostile, DescriptorsOfTheWrongKindOrNumberAreRefused) {
  const auto ring0 = bytes_of(uint64_t{0});
  const auto ring0_no_fd = bytes_of(uint64_t{0x100});
  const auto region = single_region({0x10000000, 0x1000, kBase + 0x10000000, 0});
  expect_refused({
      {"kick missing", Request::set_vring_kick, ring0},
      {"call missing", Request::set_vring_call, ring0},
      {"kick that should not come", Request::set_vring_kick, ring0_no_fd, [] { return events(1); }},
      {"two kicks", Request::set_vring_kick, ring0, [] { return events(2); }},
      {"eight kicks", Request::set_vring_kick, ring0, [] { return events(8); }},
      {"sixty kicks", Request::set_vring_kick, ring0, [] { return events(60); }},
      {"a pipe as kick", Request::set_vring_kick, ring0, [] { return one(one_end_of_a_pipe(0)); }},
      {"memory as kick", Request::set_vring_kick, ring0, [] { return memories(1); }},
      {"an epoll descriptor as kick", Request::set_vring_kick, ring0,
       [] { return one(Fd(::epoll_create1(EPOLL_CLOEXEC))); }},
      {"an epoll descriptor as call", Request::set_vring_call, ring0,
       [] { return one(Fd(::epoll_create1(EPOLL_CLOEXEC))); }},
      {"a directory as kick", Request::set_vring_kick, ring0, [] { return one(directory()); }},
      {"a device as kick", Request::set_vring_kick, ring0, [] { return one(device_file()); }},
      {"memory as call", Request::set_vring_call, ring0, [] { return memories(1); }},
      {"a directory as call", Request::set_vring_call, ring0, [] { return one(directory()); }},
      {"the reading end of a pipe as call", Request::set_vring_call, ring0,
       [] { return one(one_end_of_a_pipe(0)); }},
      {"a device as error", Request::set_vring_err, ring0, [] { return one(device_file()); }},
      {"features with a descriptor", Request::set_features, bytes_of(kFeatures),
       [] { return events(1); }},
      {"owner with nine", Request::set_owner, {}, [] { return events(9); }},
      {"a query with one", Request::get_features, {}, [] { return events(1); }},
      {"channel missing", Request::set_backend_req_fd, {}},
      {"an eventfd as channel", Request::set_backend_req_fd, {}, [] { return events(1); }},
      {"region without its file", Request::add_mem_reg, region},
      {"region with two files", Request::add_mem_reg, region, [] { return memories(2); }},
      {"region of an eventfd", Request::add_mem_reg, region, [] { return events(1); }},
      {"region of a directory", Request::add_mem_reg, region, [] { return one(directory()); }},
      {"region of a pipe", Request::add_mem_reg, region, [] { return one(one_end_of_a_pipe(0)); }},
      {"removal with two files", Request::rem_mem_reg, region, [] { return memories(2); }},
  });
}

TEST(BackendSessionHostile, MemoryTablesThatCannotBeMappedAreRefusedAndTheOldOneStays) {
  const auto one_memory = [] { return memories(1); };
  const auto two = [] { return memories(2); };
  const WireRegion good{0, 0x1000, kBase, 0};
  expect_refused({
      {"no regions", Request::set_mem_table, memory_table({})},
      {"no regions but a file", Request::set_mem_table, memory_table({}), one_memory},
      {"no file", Request::set_mem_table, memory_table({good})},
      {"fewer files than regions", Request::set_mem_table,
       memory_table({good, {0x1000, 0x1000, kBase + 0x1000, 0}}), one_memory},
      {"more files than regions", Request::set_mem_table, memory_table({good}), two},
      {"size 0", Request::set_mem_table, memory_table({{0, 0, kBase, 0}}), one_memory},
      {"same guest address", Request::set_mem_table,
       memory_table({good, {0xfff, 0x1000, kBase + 0x1000, 0}}), two},
      {"same front-end address", Request::set_mem_table,
       memory_table({good, {0x1000, 0x1000, kBase, 0}}), two},
      {"guest address overflows", Request::set_mem_table,
       memory_table({{UINT64_MAX - 0xfff, 0x2000, kBase, 0}}), one_memory},
      {"front-end address overflows", Request::set_mem_table,
       memory_table({{0, 0x2000, UINT64_MAX - 0xfff, 0}}), one_memory},
      {"offset overflows", Request::set_mem_table,
       memory_table({{0, 0x2000, kBase, UINT64_MAX - 0xfff}}), one_memory},
      {"size and offset of 2^64", Request::set_mem_table,
       memory_table({{0, UINT64_MAX, kBase, UINT64_MAX}}), one_memory},
      {"size of 2^63", Request::set_mem_table, memory_table({{0, uint64_t{1} << 63, 0, 0}}),
       one_memory},
      {"one byte longer than its file", Request::set_mem_table,
       memory_table({{0, TestFrontEnd::kMemoryBytes + 1, kBase, 0}}), one_memory},
      {"offset behind its file", Request::set_mem_table,
       memory_table({{0, 0x1000, kBase, TestFrontEnd::kMemoryBytes}}), one_memory},
      {"a tiny file", Request::set_mem_table, memory_table({good}), [] { return memories(1, 10); }},
      {"an empty file", Request::set_mem_table, memory_table({good}),
       [] { return memories(1, 0); }},
      {"the second region is bad", Request::set_mem_table,
       memory_table({good, {0x1000, 0x1000, kBase + 0x1000, UINT64_MAX}}), two},
  });
}

TEST(BackendSessionHostile, OtherValuesOutOfRangeAreRefused) {
  expect_refused({
      {"MTU 0", Request::net_set_mtu, bytes_of(uint64_t{0})},
      {"MTU 67", Request::net_set_mtu, bytes_of(uint64_t{67})},
      {"MTU 65536", Request::net_set_mtu, bytes_of(uint64_t{65536})},
      {"MTU with high bits", Request::net_set_mtu, bytes_of(uint64_t{0x1000005dc})},
      {"status of nine bits", Request::set_status, bytes_of(uint64_t{0x100})},
  });
}

TEST(BackendSessionHostile, MemoryThatIsNotSharedGetsTheSentenceThatHelps) {
  RecordingDevice device;
  TestFrontEnd front_end(device);
  front_end.say(Request::set_mem_table, memory_table({TestFrontEnd::region()}));
  EXPECT_THAT(front_end.session->close_reason(), ::testing::HasSubstr("share=on"));
}

TEST(BackendSessionHostile, HeadersThatBreakTheStreamEndItEvenWithReplyAck) {
  const struct {
    const char* name;
    MessageHeader header;
  } rows[] = {{"version 0", {3, 8, 0}},
              {"version 2", {3, 2 | 8, 0}},
              {"a reply", {3, 1 | 4 | 8, 0}},
              {"4 GiB", {3, 1 | 8, UINT32_MAX}},
              {"one too many", {3, 1 | 8, kPayloadBytesMax + 1}}};
  for (const auto& row : rows) {
    RecordingDevice device;
    TestFrontEnd front_end(device);
    front_end.negotiate(kFeatures);
    front_end.send_bytes(bytes_of(row.header));
    EXPECT_EQ(front_end.session->on_readable(), SessionState::closed) << row.name;
  }
}

TEST(BackendSessionHostile, CallsMayBeEventsPipesAndSockets) {
  RecordingDevice device;
  TestFrontEnd front_end(device);
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const Fd ends[2] = {Fd(pair[0]), Fd(pair[1])};
  const Fd pipe_end = one_end_of_a_pipe(1);
  const Fd event = make_event();
  for (const int fd : {event.get(), pipe_end.get(), ends[0].get()}) {
    EXPECT_EQ(front_end.say_u64(Request::set_vring_call, 0, {fd}), SessionState::open);
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0) << "a full one must not hold a worker";
  }
}

TEST(BackendSessionHostile, FeaturesThatWereNotOfferedOrLackOthersAreOff) {
  const struct {
    const char* name;
    uint64_t acked;
    uint64_t left;
  } rows[] = {
      {"everything", UINT64_MAX, 0},  // what is left is what was offered; see below
      {"packed without version 1", feature::ring_packed | feature::csum, feature::csum},
      {"segmentation without checksums", feature::version_1 | feature::host_tso4,
       feature::version_1},
      {"the guest's without its", feature::guest_tso4 | feature::version_1, feature::version_1},
      {"several pairs without control", feature::mq | feature::version_1, feature::version_1},
  };
  for (const auto& row : rows) {
    RecordingDevice device;
    TestFrontEnd front_end(device);
    front_end.say_u64(Request::set_features, row.acked);
    EXPECT_EQ(device.features, row.acked == UINT64_MAX ? device.offered : row.left) << row.name;
    EXPECT_EQ(front_end.session->features(), device.features) << row.name;
  }
}

TEST(BackendSessionHostile, OneBadFrontEndDoesNotTouchAnother) {
  RecordingDevice good_device;
  RecordingDevice bad_device;
  TestFrontEnd good(good_device);
  TestFrontEnd bad(bad_device);
  good.negotiate(kFeatures);
  good.say_memory();
  good.say_ring(0);
  good_device.take_events();
  EXPECT_EQ(bad.say(static_cast<Request>(99)), SessionState::closed);
  EXPECT_EQ(good.say(Request::get_features), SessionState::open);
  EXPECT_TRUE(good.read_reply());
  EXPECT_TRUE(good_device.take_events().empty());
}

// --- The same again and again -----------------------------------------------------------------

TEST(BackendSessionHostile, AMemoryTableSwappedAThousandTimesLeavesNothingBehind) {
  RecordingDevice device;
  device.keep_events = false;
  TestFrontEnd front_end(device);
  front_end.negotiate(kFeatures);
  front_end.say_memory();
  front_end.say_ring(0);
  front_end.say_ring(1);
  const size_t open_before = open_descriptor_count();
  for (int i = 0; i < 1000; ++i) front_end.say_memory();
  EXPECT_EQ(device.running.size(), 2u);
  EXPECT_EQ(device.running.at(0).memory.use_count(), 4) << "table, session, two rings";
  EXPECT_EQ(open_descriptor_count(), open_before);
}

TEST(BackendSessionHostile, RepeatedRefusalsAndReplacementsKeepTheDescriptorCount) {
  RecordingDevice device;
  device.keep_events = false;
  TestFrontEnd front_end(device);
  front_end.negotiate(kFeatures);
  front_end.say_memory();
  front_end.say_ring(0);
  const Fd event = make_event();
  const size_t open_before = open_descriptor_count();
  const auto ring0 = bytes_of(uint64_t{0});
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_EQ(front_end.ask(Request::set_vring_kick, ring0, {event.get(), event.get()}), 1u);
    ASSERT_EQ(front_end.ask(Request::set_inflight_fd, std::vector<uint8_t>(20), {event.get()}), 1u);
    ASSERT_EQ(front_end.ask(Request::set_vring_call, ring0, {event.get()}), 0u);
    ASSERT_EQ(front_end.ask(Request::set_vring_kick, ring0, {event.get()}), 0u);
    ASSERT_EQ(front_end.ask(Request::set_vring_num, state(1, 256)), 0u);
  }
  EXPECT_EQ(open_descriptor_count(), open_before);
}

// Random messages with a likely shape, random descriptors, random splits. The device asserts the
// promises; here it is counted that nothing stays open.
TEST(BackendSessionHostile, AHundredThousandRandomMessagesLeaveNothingBehind) {
  set_log_level(LogLevel::error);
  std::mt19937 random(4711);  // the same run each time
  const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  const Fd things[] = {make_event(), make_memory(TestFrontEnd::kMemoryBytes), make_memory(100),
                       one_end_of_a_pipe(1), directory()};
  RecordingDevice device(2);
  device.keep_events = false;
  std::optional<TestFrontEnd> front_end;
  size_t open_before = open_descriptor_count();
  size_t sessions = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (!front_end || front_end->session->state() == SessionState::closed) {
      front_end.reset();
      ASSERT_EQ(open_descriptor_count(), open_before) << "after session " << sessions;
      front_end.emplace(device);
      ++sessions;
      if (below(4) != 0)
        front_end->negotiate(kFeatures | (below(2) ? feature::protocol_features : 0));
      if (below(2) != 0) front_end->say_memory();
      if (below(2) != 0) front_end->say_ring(below(5));
    }
    const uint32_t request = 1 + below(below(16) == 0 ? 60 : 45);
    const RequestRow* row = find_request(request);
    std::vector<uint8_t> payload(row == nullptr || below(20) == 0 ? below(80)
                                                                  : row->payload_bytes_min);
    if (request == 5 && below(2) != 0) payload = memory_table({TestFrontEnd::region()});
    if (request == 9 && below(2) != 0) payload = bytes_of(TestFrontEnd::addresses(below(6)));
    for (size_t at = 0; request != 5 && request != 9 && at < payload.size(); at += 4)
      payload[at] = static_cast<uint8_t>(below(at == 4 ? 256 : 6));
    std::vector<int> fds;
    for (uint32_t left = row != nullptr && below(10) != 0 ? row->fds_max : below(12);
         left > 0 && fds.size() < 12; --left) {
      fds.push_back(things[request == 5 ? 1 : below(5)].get());
      if (request == 5 && below(4) != 0) break;
    }
    const auto bytes = message_bytes(request, kFlagsVersion | (below(8) != 0 ? 8 : 0), payload);
    const size_t split =
        below(2) == 0 ? bytes.size() : 1 + below(static_cast<uint32_t>(bytes.size()));
    front_end->send_bytes(std::span(bytes).first(split), fds);
    front_end->session->on_readable();
    if (split < bytes.size()) front_end->send_bytes(std::span(bytes).subspan(split));
    front_end->session->on_readable();
    front_end->drain_replies();
  }
  front_end.reset();
  EXPECT_EQ(open_descriptor_count(), open_before);
  EXPECT_GT(sessions, 1'000u);
  set_log_level(LogLevel::info);
}

// A stream of pure noise: closed at the first header that cannot be one.
TEST(BackendSessionHostile, NoiseEndsTheSession) {
  set_log_level(LogLevel::error);
  std::mt19937 random(42);
  for (int round = 0; round < 2000; ++round) {
    RecordingDevice device;
    TestFrontEnd front_end(device);
    std::vector<uint8_t> noise(8192);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
    front_end.send_bytes(noise);
    ASSERT_EQ(front_end.session->on_readable(), SessionState::closed);
  }
  set_log_level(LogLevel::info);
}

}  // namespace
}  // namespace sluice
