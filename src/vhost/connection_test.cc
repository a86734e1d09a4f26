#include "vhost/connection.h"

#include <gtest/gtest.h>

#include "vhost/session_test_kit.h"

namespace sluice {
namespace {

struct Pair {
  Pair() {
    int numbers[2];
    SLUICE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, numbers) == 0);
    peer = Fd(numbers[0]);
    connection.emplace(Fd(numbers[1]));
  }
  void write(std::span<const uint8_t> bytes) {
    ASSERT_EQ(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  Fd peer;
  std::optional<Connection> connection;
};

TEST(VhostConnection, AMessageThatComesByteByByteIsOneMessage) {
  Pair pair;
  const auto bytes = message_bytes(2, 1, bytes_of(uint64_t{0x1122334455667788}));
  ReceivedMessage message;
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(pair.connection->receive(message), Receive::need_more);
    pair.write(std::span(bytes).subspan(i, 1));
  }
  ASSERT_EQ(pair.connection->receive(message), Receive::message);
  EXPECT_EQ(message.header.request, 2u);
  EXPECT_EQ(*parse_u64(message.payload), 0x1122334455667788u);
  EXPECT_EQ(pair.connection->receive(message), Receive::need_more);
}

TEST(VhostConnection, MessagesThatComeTogetherAreTakenOneByOne) {
  Pair pair;
  std::vector<uint8_t> bytes;
  for (uint32_t request = 1; request <= 5; ++request) {
    const auto one = message_bytes(request, 1, std::vector<uint8_t>(request, 7));
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  pair.write(bytes);
  ReceivedMessage message;
  for (uint32_t request = 1; request <= 5; ++request) {
    ASSERT_EQ(pair.connection->receive(message), Receive::message);
    EXPECT_EQ(message.header.request, request);
    EXPECT_EQ(message.payload.size(), request);
  }
  EXPECT_EQ(pair.connection->receive(message), Receive::need_more);
  pair.peer.reset();
  EXPECT_EQ(pair.connection->receive(message), Receive::closed);
  EXPECT_EQ(pair.connection->receive(message), Receive::closed);
}

TEST(VhostConnection, DescriptorsStayWithTheMessageThatTheyCameWith) {
  Pair pair;
  const Fd event = make_event();
  const auto first = message_bytes(12, 1, bytes_of(uint64_t{0}));
  const auto second = message_bytes(5, 1, bytes_of(uint64_t{1}));
  ASSERT_TRUE(send_with_descriptors(pair.peer.get(), first, {event.get()}));
  ASSERT_TRUE(send_with_descriptors(pair.peer.get(), second, {event.get()}));
  ReceivedMessage message;
  for (const uint32_t request : {12u, 5u}) {
    ASSERT_EQ(pair.connection->receive(message), Receive::message);
    EXPECT_EQ(message.header.request, request);
    ASSERT_EQ(message.fds.size(), 1u);
    EXPECT_NE(::fcntl(message.fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_FALSE(message.fds_lost);
  }
}

TEST(VhostConnection, SurplusDescriptorsAreClosedAndTheMessageIsMarked) {
  Pair pair;
  const Fd event = make_event();
  const auto bytes = message_bytes(1, 1, {});
  for (const size_t count : {size_t{8}, size_t{9}, size_t{60}, size_t{253}}) {
    const size_t open_before = open_descriptor_count();
    ASSERT_TRUE(send_with_descriptors(pair.peer.get(), bytes, std::vector(count, event.get())));
    {
      ReceivedMessage message;
      ASSERT_EQ(pair.connection->receive(message), Receive::message);
      EXPECT_EQ(message.fds.size(), kMessageFdsMax);
      EXPECT_EQ(message.fds_lost, count > kMessageFdsMax);
      EXPECT_EQ(open_descriptor_count(), open_before + kMessageFdsMax);
    }
    EXPECT_EQ(open_descriptor_count(), open_before);
  }
  // Each byte of a message with descriptors of its own: they add up to more than a message may
  // have.
  const size_t open_before = open_descriptor_count();
  for (size_t i = 0; i < bytes.size(); ++i)
    ASSERT_TRUE(send_with_descriptors(pair.peer.get(), std::span(bytes).subspan(i, 1),
                                      std::vector(3, event.get())));
  ReceivedMessage message;
  ASSERT_EQ(pair.connection->receive(message), Receive::message);
  EXPECT_TRUE(message.fds_lost);
  message = {};
  EXPECT_EQ(open_descriptor_count(), open_before);
}

TEST(VhostConnection, AStreamThatEndsInAMessageIsAnErrorAndBetweenMessagesIsNone) {
  const auto bytes = message_bytes(2, 1, bytes_of(uint64_t{1}));
  for (size_t count = 0; count <= bytes.size(); ++count) {
    Pair pair;
    if (count > 0) pair.write(std::span(bytes).first(count));
    pair.peer.reset();
    ReceivedMessage message;
    if (count == bytes.size()) {
      EXPECT_EQ(pair.connection->receive(message), Receive::message);
    }
    const bool between = count == 0 || count == bytes.size();
    EXPECT_EQ(pair.connection->receive(message), between ? Receive::closed : Receive::error)
        << count;
    EXPECT_EQ(pair.connection->error().empty(), between);
  }
}

TEST(VhostConnection, APeerThatReadsNoRepliesGetsAnErrorAndNoMemory) {
  Pair pair;
  const auto reply = build_u64_reply(Request::get_features, 1);
  bool refused = false;
  for (int i = 0; i < 1'000'000 && !refused; ++i) refused = !pair.connection->send(reply);
  EXPECT_TRUE(refused);
}

TEST(VhostConnection, APeerThatHasGoneIsAnErrorAndNoSignal) {
  Pair pair;
  pair.peer.reset();
  EXPECT_FALSE(pair.connection->send(build_u64_reply(Request::get_features, 1)));
}

}  // namespace
}  // namespace sluice
