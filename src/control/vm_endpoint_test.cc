#include "control/vm_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "vhost/session_test_kit.h"

namespace sluice {
namespace {

constexpr int kRoundsMax = 1000;

class VmEndpointTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sluice_endpoint_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    options_.name = "vm0";
    options_.socket_path = folder_ + "/vm0.sock";
    options_.origin.text = "--vm vm0";
    Result<std::unique_ptr<EventLoop>> loop = EventLoop::create();
    ASSERT_TRUE(loop);
    loop_ = std::move(*loop);
  }
  void TearDown() override {
    endpoint_.reset();
    EXPECT_FALSE(device_.session_open);
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "a socket file was left";
  }
  void open() {
    auto endpoint = VmEndpoint::open(*loop_, options_, device_);
    ASSERT_TRUE(endpoint) << endpoint.error().text;
    endpoint_ = std::move(*endpoint);
  }
  Fd front_end() { return std::move(*connect_unix(options_.socket_path)); }
  void run_loop(int rounds = 5) {
    for (int i = 0; i < rounds; ++i) loop_->run_once(0);
  }
  // Whether the endpoint has closed this front end's socket.
  static bool was_closed(const Fd& socket) {
    char c = 0;
    const ssize_t count = recv(socket.get(), &c, 1, MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno == ECONNRESET);
  }
  bool wait_connected(bool wanted) {
    for (int i = 0; i < kRoundsMax && endpoint_->is_connected() != wanted; ++i) loop_->run_once(10);
    return endpoint_->is_connected() == wanted;
  }

  std::string folder_;
  VmOptions options_;
  RecordingDevice device_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<VmEndpoint> endpoint_;
};

TEST_F(VmEndpointTest, ServesFrontEndsOneAfterTheOther) {
  open();
  for (int i = 0; i < 100; ++i) {
    const Fd socket = front_end();
    run_loop(2);
    ASSERT_TRUE(endpoint_->is_connected());
    ASSERT_FALSE(was_closed(socket));
    shutdown(socket.get(), SHUT_RDWR);
    run_loop(2);
    ASSERT_FALSE(endpoint_->is_connected());
  }
}

TEST_F(VmEndpointTest, RefusesASecondFrontEndAndKeepsTheFirst) {
  open();
  const Fd first = front_end();
  run_loop();
  const Fd second = front_end();
  run_loop();
  EXPECT_TRUE(was_closed(second));
  EXPECT_FALSE(was_closed(first));
  EXPECT_TRUE(endpoint_->is_connected());
}

TEST_F(VmEndpointTest, TakesTheSuccessorOfAFrontEndThatIsDeadAlready) {
  open();
  Fd first = front_end();
  run_loop();
  first.reset();
  // Both events, the end of the first and the second's arrival, are there at once.
  const Fd second = front_end();
  run_loop();
  EXPECT_TRUE(endpoint_->is_connected());
  EXPECT_FALSE(was_closed(second));
}

TEST_F(VmEndpointTest, ClosesAFrontEndThatTalksNonsenseAndListensOn) {
  open();
  const Fd first = front_end();
  const std::string nonsense(64, '\xff');
  send(first.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
  run_loop();
  EXPECT_TRUE(was_closed(first));
  const Fd second = front_end();
  run_loop();
  EXPECT_TRUE(endpoint_->is_connected());
}

TEST_F(VmEndpointTest, DropsAFrontEndOnDemandAndTakesItBack) {
  open();
  const Fd first = front_end();
  run_loop();
  endpoint_->drop_front_end("the test says so");
  EXPECT_TRUE(was_closed(first));
  endpoint_->drop_front_end("there is none");
  const Fd second = front_end();
  run_loop();
  EXPECT_TRUE(endpoint_->is_connected());
}

TEST_F(VmEndpointTest, NamesTheOptionWhenItsSocketIsTaken) {
  open();
  RecordingDevice other;
  const auto refused = VmEndpoint::open(*loop_, options_, other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, testing::HasSubstr("--vm vm0: socket"));
}

TEST_F(VmEndpointTest, ConnectsAsAClientWhenTheServerComesAndAgainWhenItReturns) {
  options_.side = SocketSide::client;
  open();
  run_loop();
  EXPECT_FALSE(endpoint_->is_connected());
  for (int i = 0; i < 2; ++i) {
    const Result<UnixListener> server = listen_unix(options_.socket_path, 0600, "");
    ASSERT_TRUE(server);
    ASSERT_TRUE(wait_connected(true));
    {
      const Fd accepted(accept(server->fd(), nullptr, nullptr));
      EXPECT_TRUE(accepted);
    }
    ASSERT_TRUE(wait_connected(false));
  }
}

TEST_F(VmEndpointTest, WaitsLongerEachTimeAServerIsNotThere) {
  options_.side = SocketSide::client;
  open();
  // 100, 200 and 400 ms: at most four tries in what is at least half a second.
  int wakes = 0;
  const uint64_t end_ns = monotonic_ns() + 500'000'000;
  while (monotonic_ns() < end_ns && wakes < kRoundsMax) {
    loop_->run_once(600);
    ++wakes;
  }
  EXPECT_LE(wakes, 4);
}

}  // namespace
}  // namespace sluice
