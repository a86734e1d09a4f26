// What a back end can say wrongly, and when it can fall silent or go: the session ends with a
// sentence that names the message, tells its driver once, and leaves no descriptor behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "vhost/front_end_test_kit.h"

namespace sluice {
namespace {

namespace pf = protocol_feature;
using testing::HasSubstr;

using Answer = std::function<void(FrontEndBench&, const ReceivedMessage&)>;

std::vector<Fd> some_events(size_t count) {
  std::vector<Fd> fds;
  for (size_t i = 0; i < count; ++i) fds.push_back(make_event());
  return fds;
}
std::vector<Fd> one(Fd fd) {
  std::vector<Fd> fds;
  fds.push_back(std::move(fd));
  return fds;
}
bool is(const ReceivedMessage& message, Request request) {
  return message.header.request == static_cast<uint32_t>(request);
}

// The bytes of a good answer to `message`, to be spoilt.
std::vector<uint8_t> good_bytes(FrontEndBench& bench, const ReceivedMessage& message) {
  std::vector<Fd> fds;
  const auto payload = bench.back_end.good_answer(message, fds);
  return message_bytes(message.header.request, kFlagsVersion | kFlagsReply, payload);
}
void answer_with(FrontEndBench& bench, const ReceivedMessage& message, uint32_t flags,
                 const std::vector<uint8_t>& payload, const std::vector<Fd>& fds = {}) {
  bench.back_end.send(message_bytes(message.header.request, flags, payload), fds);
}
// An answer with this payload, otherwise as it should be.
Answer payload_of(std::vector<uint8_t> payload) {
  return [payload](FrontEndBench& bench, const ReceivedMessage& message) {
    answer_with(bench, message, kFlagsVersion | kFlagsReply, payload);
  };
}
Answer number(uint64_t value) { return payload_of(bytes_of(value)); }

// The end that is wanted of every session here.
void expect_ended(FrontEndBench& bench, const std::string& says) {
  ASSERT_TRUE(bench.is_closed());
  EXPECT_THAT(bench.reason(), HasSubstr(says));
  EXPECT_EQ(bench.driver.times_closed, 1u);
  EXPECT_EQ(bench.driver.events.back(), "closed: " + bench.reason());
  EXPECT_EQ(bench.session->deadline_ns(), 0u);
  EXPECT_EQ(bench.session->request_fd(), -1);
  // Nothing more happens.
  const size_t events = bench.driver.events.size();
  EXPECT_EQ(bench.session->on_readable(), SessionState::closed);
  EXPECT_EQ(bench.session->on_request(), SessionState::closed);
  EXPECT_EQ(bench.session->on_deadline(), SessionState::closed);
  bench.session->close();
  bench.session.reset();
  EXPECT_EQ(bench.driver.events.size(), events);
}

struct Row {
  std::string name;
  Request at;
  Answer answer;
  std::string says;  // in the reason, besides the message's name
  uint64_t protocol_features = ScriptedBackEnd::kAllProtocolFeatures;
};

void expect_ended_by(const Row& row) {
  const std::string request = request_name(static_cast<uint32_t>(row.at));
  SCOPED_TRACE(row.name + " at " + request);
  const size_t open_before = open_descriptor_count();
  {
    FrontEndBench bench;
    bench.back_end.protocol_features = row.protocol_features;
    bool spoilt = false;
    bench.back_end.instead = [&](const ReceivedMessage& message) {
      if (spoilt || !is(message, row.at)) return false;
      spoilt = true;
      row.answer(bench, message);
      return true;
    };
    bench.talk();
    ASSERT_TRUE(spoilt) << "the message was never sent";
    expect_ended(bench, row.says);
    EXPECT_THAT(bench.driver.events.back(), HasSubstr(request));
  }
  EXPECT_EQ(open_descriptor_count(), open_before);
}
void expect_ended_by(const std::vector<Row>& rows) {
  for (const Row& row : rows) expect_ended_by(row);
}

// Every message of a good conversation that is answered, in its order.
std::vector<Request> answered_requests(uint64_t protocol_features) {
  FrontEndBench bench;
  bench.back_end.protocol_features = protocol_features;
  bench.talk();
  SLUICE_ASSERT(bench.session->is_ready());
  std::vector<Request> requests;
  for (const ReceivedMessage& message : bench.back_end.heard) {
    if (ScriptedBackEnd::expects_answer(message))
      requests.push_back(static_cast<Request>(message.header.request));
  }
  return requests;
}

// Talks until `count` answers have been given; what follows is heard, and `then` is asked for.
void talk_until(FrontEndBench& bench, size_t count, const std::function<void()>& then) {
  size_t answers = 0;
  bench.back_end.instead = [&bench, &answers, count, then](const ReceivedMessage& message) {
    if (!ScriptedBackEnd::expects_answer(message)) return false;
    if (answers++ < count) return false;
    then();
    return true;
  };
  bench.talk();
  bench.back_end.instead = nullptr;
}

constexpr uint64_t kFeatureSets[] = {ScriptedBackEnd::kAllProtocolFeatures, 0, pf::reply_ack,
                                     pf::inflight_shmfd | pf::config | pf::mq};

// --- Answers of the wrong shape ---------------------------------------------------------------

struct Spoiler {
  const char* name;
  Answer answer;
  const char* says;
};

void cut_off(FrontEndBench& bench, const ReceivedMessage& message, size_t bytes) {
  std::vector<uint8_t> whole = good_bytes(bench, message);
  whole.resize(bytes);
  bench.back_end.send(whole);
  bench.back_end.hang_up();
}

const std::vector<Spoiler>& spoilers() {
  using Bench = FrontEndBench;
  using Message = ReceivedMessage;
  constexpr uint32_t kReply = kFlagsVersion | kFlagsReply;
  static const std::vector<Spoiler> all = {
      {"another request",
       [](Bench& bench, const Message&) {
         bench.back_end.reply(uint32_t(Request::set_config), bytes_of(uint64_t{0}));
       },
       "an answer to SET_CONFIG where one to"},
      {"an unknown request",
       [](Bench& bench, const Message&) { bench.back_end.reply(4711, bytes_of(uint64_t{0})); },
       "an answer to request 4711"},
      {"no reply flag",
       [](Bench& bench, const Message& message) {
         answer_with(bench, message, kFlagsVersion, bytes_of(uint64_t{0}));
       },
       "came where an answer belongs"},
      {"version 2",
       [](Bench& bench, const Message& message) {
         answer_with(bench, message, 2 | kFlagsReply, bytes_of(uint64_t{0}));
       },
       "protocol version 2"},
      {"version 0",
       [](Bench& bench, const Message& message) {
         answer_with(bench, message, kFlagsReply, bytes_of(uint64_t{0}));
       },
       "protocol version 0"},
      {"a payload of 4 GiB",
       [](Bench& bench, const Message& message) {
         bench.back_end.send(bytes_of(MessageHeader{message.header.request, kReply, UINT32_MAX}));
       },
       "announces a payload of 4294967295 bytes"},
      {"a payload just too long",
       [](Bench& bench, const Message& message) {
         bench.back_end.send(
             bytes_of(MessageHeader{message.header.request, kReply, kPayloadBytesMax + 1}));
       },
       "announces a payload of 4097 bytes"},
      {"half a header, then the end",
       [](Bench& bench, const Message& message) { cut_off(bench, message, 6); },
       "in the middle of a message"},
      {"a header without its payload, then the end",
       [](Bench& bench, const Message& message) { cut_off(bench, message, kHeaderBytes); },
       "in the middle of a message"},
      {"all but a byte, then the end",
       [](Bench& bench, const Message& message) {
         cut_off(bench, message, good_bytes(bench, message).size() - 1);
       },
       "in the middle of a message"},
      {"the same answer twice",
       [](Bench& bench, const Message& message) {
         bench.back_end.answer(message);
         bench.back_end.answer(message);
       },
       "an answer to"},
      {"sixty descriptors",
       [](Bench& bench, const Message& message) {
         answer_with(bench, message, kReply, bytes_of(uint64_t{0}), some_events(60));
       },
       "too many descriptors came"},
      {"the end", [](Bench& bench, const Message&) { bench.back_end.hang_up(); }, "the back end"},
  };
  return all;
}

TEST(FrontEndSessionHostile, AnswersThatAreNoneEndTheSession) {
  for (const uint64_t features : kFeatureSets) {
    for (const Request request : answered_requests(features)) {
      for (const Spoiler& spoiler : spoilers())
        expect_ended_by({spoiler.name, request, spoiler.answer, spoiler.says, features});
    }
  }
}

TEST(FrontEndSessionHostile, AnswersOfTheWrongSizeEndTheSession) {
  for (const Request request : answered_requests(ScriptedBackEnd::kAllProtocolFeatures)) {
    // Nothing is read from this one. [vhost-user SET_LOG_BASE]
    if (request == Request::set_log_base) continue;
    for (const size_t bytes : {0, 1, 7, 9, 16, 4096}) {
      if (request == Request::get_config && bytes == 0) continue;  // "there is none"
      const std::string name = fmt::format("{} bytes", bytes);
      expect_ended_by({name, request, payload_of(std::vector<uint8_t>(bytes)), ": "});
    }
  }
}

TEST(FrontEndSessionHostile, DescriptorsThatAreNotDueEndTheSession) {
  for (const Request request : answered_requests(ScriptedBackEnd::kAllProtocolFeatures)) {
    if (request == Request::get_inflight_fd) continue;
    const Answer answer = [](FrontEndBench& bench, const ReceivedMessage& message) {
      bench.back_end.send(good_bytes(bench, message), some_events(1));
    };
    expect_ended_by({"a descriptor", request, answer, "descriptors came with the answer to"});
  }
}

TEST(FrontEndSessionHostile, ARefusalEndsTheSession) {
  for (const Request request : answered_requests(ScriptedBackEnd::kAllProtocolFeatures)) {
    if (find_request(static_cast<uint32_t>(request))->has_own_reply) continue;
    const std::string says = "the back end refused " + request_name(uint32_t(request));
    expect_ended_by({"refused", request, number(1), says});
    expect_ended_by({"refused aloud", request, number(UINT64_MAX), says});
  }
}

// A back end that refuses and goes at once: what it said is worth more than that it has gone.
TEST(FrontEndSessionHostile, ARefusalIsHeardAlsoWhenItIsTheLastWord) {
  const Answer refuse_and_go = [](FrontEndBench& bench, const ReceivedMessage& message) {
    bench.back_end.reply(message.header.request, bytes_of(uint64_t{1}));
    bench.back_end.hang_up();
  };
  for (const Request request : answered_requests(ScriptedBackEnd::kAllProtocolFeatures)) {
    if (find_request(static_cast<uint32_t>(request))->has_own_reply) continue;
    expect_ended_by({"refused, and gone", request, refuse_and_go,
                     "the back end refused " + request_name(uint32_t(request))});
  }
}

// It can close its ear alone, and then our socket never looks closed.
TEST(FrontEndSessionHostile, ABackEndThatOnlyStopsListeningIsNotWaitedForForEver) {
  for (size_t count = 0; count < 20; ++count) {
    SCOPED_TRACE(count);
    FrontEndBench bench;
    talk_until(bench, count, [&] { ::shutdown(bench.back_end.fd(), SHUT_RD); });
    if (!bench.is_closed()) {
      ASSERT_NE(bench.session->deadline_ns(), 0u);
      bench.now_ns = bench.session->deadline_ns();
      bench.session->on_deadline();
    }
    expect_ended(bench, "the back end ");
  }
}

TEST(FrontEndSessionHostile, ABackEndThatHasGoneAtOnceIsNamedWithTheFirstMessage) {
  FrontEndBench bench;
  bench.back_end.hang_up();
  bench.talk();
  expect_ended(bench, "closed the connection before GET_FEATURES could be sent");
}

// --- Answers of the right shape that make no sense --------------------------------------------

TEST(FrontEndSessionHostile, CapacitiesThatMakeNoSenseEndTheSession) {
  expect_ended_by({
      {"no queues", Request::get_queue_num, number(0), "the back end has 0 queues"},
      {"65536 queues", Request::get_queue_num, number(0x10000), "has 65536 queues"},
      {"all queues", Request::get_queue_num, number(UINT64_MAX), "queues"},
      {"configuration at another place", Request::get_config, payload_of(config_access(8, 12, 12)),
       "of the configuration"},
      {"less configuration", Request::get_config, payload_of(config_access(0, 11, 11)),
       "11 bytes of the configuration came where 12 were asked for"},
      {"more configuration", Request::get_config, payload_of(config_access(0, 256, 256)),
       "256 bytes of the configuration came"},
      {"no configuration at all", Request::get_config, payload_of(config_access(0, 0, 0)),
       "0 bytes of the configuration came"},
      {"a header that lies", Request::get_config, payload_of(config_access(0, 12, 4)), "carries 4"},
      {"a header that overflows", Request::get_config,
       payload_of(config_access(UINT32_MAX, 12, 12)), "of the configuration, which ends at"},
  });
}

TEST(FrontEndSessionHostile, FeaturesThatMakeNoSenseEndTheSession) {
  struct Case {
    uint64_t features;
    const char* says;
  };
  for (const Case& row : {Case{0, "does not offer version_1"},
                          {feature::protocol_features, "does not offer version_1"},
                          {~feature::version_1, "does not offer version_1"}}) {
    FrontEndBench bench;
    bench.back_end.features = row.features;
    bench.talk();
    expect_ended(bench, row.says);
  }
  FrontEndBench all;
  all.back_end.features = ~uint64_t{0};
  all.talk();
  ASSERT_TRUE(all.session->is_ready()) << "what we do not know is not agreed";
  EXPECT_EQ(all.session->agreement().features, all.driver.wanted);
}

TEST(FrontEndSessionHostile, FeaturesThatChangeLaterAreNotLookedAt) {
  FrontEndBench bench;
  bench.back_end.protocol_features = 0;
  bench.back_end.instead = [&](const ReceivedMessage& message) {
    if (bench.back_end.heard.size() > 1) bench.back_end.features = ~feature::version_1;
    (void)message;
    return false;
  };
  bench.talk();
  ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
  EXPECT_EQ(bench.session->agreement().features, bench.driver.last_agreement.features);
  EXPECT_NE(bench.session->agreement().features & feature::version_1, 0u);
}

Answer inflight(uint64_t bytes, uint64_t offset, std::function<std::vector<Fd>()> make_fds) {
  return [=](FrontEndBench& bench, const ReceivedMessage& message) {
    answer_with(bench, message, kFlagsVersion | kFlagsReply,
                inflight_payload(bytes, offset, 2, 256), make_fds());
  };
}

TEST(FrontEndSessionHostile, InflightAreasThatMakeNoSenseEndTheSession) {
  const auto none = [] { return std::vector<Fd>(); };
  const auto memory = [] { return one(make_memory(4096)); };
  const auto at = Request::get_inflight_fd;
  expect_ended_by({
      {"no descriptor", at, inflight(4096, 0, none), "0 descriptors came with it"},
      {"two", at, inflight(4096, 0, [] { return some_events(2); }), "2 descriptors"},
      {"eight", at, inflight(4096, 0, [] { return some_events(8); }), "8 descriptors"},
      {"huge", at, inflight(uint64_t{1} << 62, 0, memory), "more than an account needs"},
      {"huge and negative", at, inflight(UINT64_MAX, 0, memory), "more than an account needs"},
      {"far off", at, inflight(4096, UINT64_MAX, memory), "more than an account needs"},
      {"short", at, payload_of(std::vector<uint8_t>(19)), "a description of 19 bytes"},
      {"long", at, payload_of(std::vector<uint8_t>(25)), "a description of 25 bytes"},
  });
}

// It is the back end's own, and never mapped here: whatever it is, it gets it back.
TEST(FrontEndSessionHostile, AnInflightAreaThatCannotBeMappedGoesBackAsItCame) {
  const std::vector<std::function<std::vector<Fd>()>> things = {
      [] { return some_events(1); },
      [] { return one(make_memory(1)); },
      [] { return one(Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC))); },
      [] { return one(Fd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC))); },
  };
  for (const auto& make : things) {
    const size_t open_before = open_descriptor_count();
    {
      FrontEndBench bench;
      const Answer answer = inflight(4096, 0, make);
      bench.back_end.instead = [&](const ReceivedMessage& message) {
        if (!is(message, Request::get_inflight_fd)) return false;
        answer(bench, message);
        return true;
      };
      bench.talk();
      ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
      const auto set = bench.back_end.all(Request::set_inflight_fd);
      ASSERT_EQ(set.size(), 1u);
      EXPECT_EQ(set[0]->fds.size(), 1u);
    }
    EXPECT_EQ(open_descriptor_count(), open_before);
  }
}

TEST(FrontEndSessionHostile, ADescriptorOfAnAreaThatIsSaidNotToBeIsClosed) {
  const size_t open_before = open_descriptor_count();
  {
    FrontEndBench bench;
    const Answer answer = inflight(0, 0, [] { return some_events(8); });
    bench.back_end.instead = [&](const ReceivedMessage& message) {
      if (!is(message, Request::get_inflight_fd)) return false;
      answer(bench, message);
      return true;
    };
    bench.talk();
    ASSERT_TRUE(bench.session->is_ready()) << bench.reason();
  }
  EXPECT_EQ(open_descriptor_count(), open_before);
}

// --- Silence, and the end, after each answer ---------------------------------------------------

// Each conversation up to each of its answers, which does not come any more: `instead` happens in
// its place, and `check` is told the name of the message that was left unanswered. Nothing is left
// open.
void stop_at_each_answer(const std::function<void(FrontEndBench&)>& instead,
                         const std::function<void(FrontEndBench&, const std::string&)>& check) {
  for (const uint64_t features : kFeatureSets) {
    const std::vector<Request> requests = answered_requests(features);
    for (size_t count = 0; count < requests.size(); ++count) {
      const std::string name = request_name(uint32_t(requests[count]));
      SCOPED_TRACE(fmt::format("at answer {}, {}", count, name));
      const size_t open_before = open_descriptor_count();
      {
        FrontEndBench bench;
        bench.back_end.protocol_features = features;
        talk_until(bench, count, [&] { instead(bench); });
        check(bench, name);
        if (testing::Test::HasFatalFailure()) return;
      }
      EXPECT_EQ(open_descriptor_count(), open_before);
    }
  }
}

TEST(FrontEndSessionHostile, SilenceAfterAnyAnswerEndsTheSessionAtItsDeadline) {
  stop_at_each_answer([](FrontEndBench&) {},
                      [](FrontEndBench& bench, const std::string& name) {
                        ASSERT_FALSE(bench.is_closed());
                        ASSERT_EQ(bench.session->deadline_ns(),
                                  bench.now_ns + kAnswerMillisecondsMax * 1'000'000);
                        bench.now_ns = bench.session->deadline_ns() - 1;
                        ASSERT_EQ(bench.session->on_deadline(), SessionState::open);
                        bench.now_ns += 1;
                        bench.session->on_deadline();
                        expect_ended(bench, "the back end did not answer " + name + " within 5 s");
                      });
}

TEST(FrontEndSessionHostile, TheEndAfterAnyAnswerNamesTheMessageThatWasLeftUnanswered) {
  stop_at_each_answer(
      [](FrontEndBench& bench) { bench.back_end.hang_up(); },
      [](FrontEndBench& bench, const std::string& name) { expect_ended(bench, name); });
}

TEST(FrontEndSessionHostile, OneByteAtATimeIsSlowButNotWrong) {
  for (const uint64_t features : kFeatureSets) {
    FrontEndBench bench;
    bench.back_end.protocol_features = features;
    bench.back_end.one_byte_at_a_time = true;
    bench.back_end.after_byte = [&] { bench.session_reads(); };
    bench.talk();
    EXPECT_TRUE(bench.session->is_ready()) << bench.reason();
    EXPECT_EQ(bench.driver.times_closed, 0u);
  }
}

TEST(FrontEndSessionHostile, BytesInsteadOfAnAnswerDoNotMoveTheDeadline) {
  FrontEndBench bench;
  bench.start();
  ASSERT_TRUE(bench.back_end.heard.empty());
  const uint64_t deadline_ns = bench.session->deadline_ns();
  const auto answer = message_bytes(1, kFlagsVersion | kFlagsReply, bytes_of(uint64_t{0}));
  for (size_t i = 0; i + 1 < answer.size(); ++i) {
    bench.now_ns += 100'000'000;
    bench.back_end.send({answer[i]});
    ASSERT_TRUE(bench.session_reads());
    ASSERT_EQ(bench.session->deadline_ns(), deadline_ns);
  }
  bench.now_ns = deadline_ns;
  bench.session->on_deadline();
  expect_ended(bench, "did not answer GET_FEATURES");
}

// --- While it runs -----------------------------------------------------------------------------

TEST(FrontEndSessionHostile, AnAnswerThatNobodyAskedForEndsARunningSession) {
  for (const uint32_t request : {1u, 24u, 33u, 77u}) {
    FrontEndBench bench;
    bench.talk();
    ASSERT_TRUE(bench.session->is_ready());
    bench.back_end.reply(request, bytes_of(uint64_t{0}), some_events(2));
    bench.talk();
    expect_ended(bench, fmt::format("an answer to {}, which was not asked", request_name(request)));
  }
}

TEST(FrontEndSessionHostile, AChangedConfigurationIsCheckedAsTheFirstOneWas) {
  const auto change = build_backend_request(BackendRequest::config_change_msg);
  struct Case {
    std::vector<uint8_t> payload;
    const char* says;
  };
  for (const Case& row : {Case{config_access(0, 11, 11), "GET_CONFIG: 11 bytes"},
                          {std::vector<uint8_t>(5), "GET_CONFIG: payload of 5 bytes"}}) {
    FrontEndBench bench;
    bench.talk();
    bench.back_end.instead = [&](const ReceivedMessage& message) {
      payload_of(row.payload)(bench, message);
      return true;
    };
    send_with_descriptors(bench.back_end.channel.get(), change, {});
    bench.talk();
    expect_ended(bench, row.says);
  }
  FrontEndBench silent;
  silent.talk();
  silent.back_end.instead = [](const ReceivedMessage&) { return true; };
  send_with_descriptors(silent.back_end.channel.get(), change, {});
  silent.talk();
  silent.now_ns = silent.session->deadline_ns();
  silent.session->on_deadline();
  expect_ended(silent, "did not answer GET_CONFIG");
}

TEST(FrontEndSessionHostile, NonsenseOnItsOwnChannelCostsTheBackEndTheChannelOnly) {
  const std::vector<std::vector<uint8_t>> nonsense = {
      message_bytes(2, kFlagsVersion | kFlagsReply, {}),
      message_bytes(2, 0, {}),
      bytes_of(MessageHeader{2, kFlagsVersion, UINT32_MAX}),
      std::vector<uint8_t>(4096, 0xff),
  };
  for (const auto& bytes : nonsense) {
    const size_t open_before = open_descriptor_count();
    {
      FrontEndBench bench;
      bench.talk();
      const Fd event = make_event();
      send_with_descriptors(bench.back_end.channel.get(), bytes, {event.get()});
      bench.talk();
      EXPECT_EQ(bench.session->request_fd(), -1);
      EXPECT_TRUE(bench.session->is_ready()) << bench.reason();
    }
    EXPECT_EQ(open_descriptor_count(), open_before);
  }
}

TEST(FrontEndSessionHostile, UnknownRequestsOfTheBackEndAreAnsweredAndTheirDescriptorsClosed) {
  FrontEndBench bench;
  bench.talk();
  const size_t open_before = open_descriptor_count();
  const Fd event = make_event();
  for (uint32_t request = 0; request < 20; ++request) {
    for (const size_t bytes : {0, 8, 4096}) {
      send_with_descriptors(bench.back_end.channel.get(),
                            message_bytes(request, kFlagsVersion, std::vector<uint8_t>(bytes)),
                            {event.get(), event.get()});
      bench.talk();
    }
  }
  EXPECT_TRUE(bench.session->is_ready());
  EXPECT_EQ(open_descriptor_count(), open_before + 1);
}

// Each call takes a bounded number, and a back end that does not read our answers loses the
// channel.
TEST(FrontEndSessionHostile, AFloodOnTheChannelIsTakenInPortions) {
  FrontEndBench bench;
  bench.talk();
  bench.back_end.instead = [](const ReceivedMessage&) { return true; };
  const auto message = message_bytes(9, kFlagsVersion | kFlagsNeedReply, {});
  int sent = 0;
  for (int call = 0; call < 1000 && bench.session->request_fd() >= 0; ++call) {
    while (send_with_descriptors(bench.back_end.channel.get(), message, {})) ++sent;
    bench.session->on_request();
    if (call == 0) {
      EXPECT_TRUE(is_readable(bench.session->request_fd())) << "one call takes not all";
    }
  }
  EXPECT_GT(sent, kMessagesPerCallMax);
  EXPECT_EQ(bench.session->request_fd(), -1);
  EXPECT_TRUE(bench.session->is_ready()) << bench.reason();
}

// --- Whatever it says --------------------------------------------------------------------------

// Good answers with some bytes changed, from a fixed seed: neither a hang nor a crash nor a leak.
TEST(FrontEndSessionHostile, AnswersWithBytesChangedNeverDoHarm) {
  std::mt19937 random(20);
  const size_t open_before = open_descriptor_count();
  for (int round = 0; round < 500; ++round) {
    FrontEndBench bench;
    bench.back_end.protocol_features = kFeatureSets[random() % std::size(kFeatureSets)];
    bench.driver.queue_pairs = 1 + random() % 3;
    const size_t at = random() % 30;
    bench.back_end.instead = [&](const ReceivedMessage& message) {
      if (!ScriptedBackEnd::expects_answer(message) || bench.back_end.heard.size() < at)
        return false;
      std::vector<uint8_t> bytes = good_bytes(bench, message);
      for (int change = 0; change < 2; ++change)
        bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
      bench.back_end.send(bytes);
      return true;
    };
    bench.talk();
    if (!bench.is_closed()) {
      bench.now_ns += kAnswerMillisecondsMax * 1'000'000;
      bench.session->on_deadline();
    }
    EXPECT_EQ(bench.driver.times_closed, bench.is_closed() ? 1u : 0u);
    EXPECT_TRUE(bench.is_closed() || bench.session->is_ready());
    EXPECT_EQ(bench.is_closed(), !bench.reason().empty());
  }
  EXPECT_EQ(open_descriptor_count(), open_before);
}

}  // namespace
}  // namespace sluice
