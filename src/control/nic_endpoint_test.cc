// Where a nic meets its back ends: how it finds them, loses them, and takes the next.
#include "control/nic_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "memory/frame_pool.h"
#include "vhost/front_end_test_kit.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr int kRoundsMax = 1000;

class NicEndpointTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sluice_nic_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    options_.name = "nic0";
    options_.socket_path = folder_ + "/nic0.sock";
    options_.origin.text = "--nic nic0";
    auto loop = EventLoop::create();
    ASSERT_TRUE(loop);
    loop_ = std::move(*loop);
  }
  void TearDown() override {
    endpoint_.reset();
    if (nic_) {
      EXPECT_FALSE(nic_->is_ready());
    }
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "a socket file was left";
  }
  void open(SocketSide side) {
    options_.side = side;
    auto nic = NicPort::create({.name = "nic0", .queue_pairs = options_.queue_pairs});
    ASSERT_TRUE(nic);
    nic_ = std::move(*nic);
    auto endpoint = NicEndpoint::open(*loop_, options_, *nic_);
    ASSERT_TRUE(endpoint) << endpoint.error().text;
    endpoint_ = std::move(*endpoint);
  }
  // A back end that has come to a nic that listens.
  ScriptedBackEnd come() { return ScriptedBackEnd(std::move(*connect_unix(options_.socket_path))); }
  // One that is listened for.
  std::optional<ScriptedBackEnd> accept_nic(const UnixListener& listener) {
    for (int i = 0; i < kRoundsMax && !is_readable(listener.fd()); ++i) loop_->run_once(10);
    Fd socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) return std::nullopt;
    return ScriptedBackEnd(std::move(socket));
  }
  // Both sides, until neither has anything to say.
  void talk(ScriptedBackEnd& back_end) {
    int quiet = 0;
    for (int i = 0; i < kRoundsMax && quiet < 3; ++i) {
      loop_->run_once(0);
      ++quiet;
      while (back_end.hear_one()) quiet = 0;
    }
  }
  void run_loop(int rounds = 5) {
    for (int i = 0; i < rounds; ++i) loop_->run_once(0);
  }
  static bool was_closed(const ScriptedBackEnd& back_end) {
    char c = 0;
    const ssize_t count = ::recv(back_end.fd(), &c, 1, MSG_DONTWAIT | MSG_PEEK);
    return count == 0 || (count < 0 && errno == ECONNRESET);
  }
  // The device writes a used index that its driver never made room for, and a worker sees it.
  void break_receive_ring(const ScriptedBackEnd& back_end) {
    const auto regions = parse_memory_table(back_end.all(Request::set_mem_table)[0]->payload);
    ASSERT_TRUE(regions);
    const auto addresses = parse_vring_addresses(back_end.all(Request::set_vring_addr)[0]->payload);
    ASSERT_TRUE(addresses);
    ASSERT_EQ(addresses->index, 0u);
    const uint64_t at = raw(addresses->used) - raw((*regions)[0].frontend_address) + 2;
    const uint16_t index = 0x4000;
    ASSERT_EQ(::pwrite(back_end.all(Request::set_mem_table)[0]->fds[0].get(), &index, sizeof index,
                       static_cast<off_t>(at)),
              ssize_t{sizeof index});
    FrameBatch batch;
    nic_->queue(0).receive(batch, {}, *cache_);
    nic_->queue(0).finish_breath();
    ASSERT_TRUE(batch.empty());
  }

  std::string folder_;
  NicOptions options_;
  std::unique_ptr<FramePool> pool_ =
      std::move(*FramePool::create({.frame_count = 128, .slab_count = 4}));
  std::unique_ptr<FrameCache> cache_ = std::make_unique<FrameCache>(*pool_);
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<NicPort> nic_;
  std::unique_ptr<NicEndpoint> endpoint_;
};

// ---- As a client --------------------------------------------------------------------------------

TEST_F(NicEndpointTest, ConnectsWhenABackEndComesAndAgainWhenItReturns) {
  open(SocketSide::client);
  run_loop();
  EXPECT_FALSE(endpoint_->is_ready());
  EXPECT_THAT(endpoint_->last_failure(), HasSubstr(options_.socket_path));
  int times_ready = 0;
  endpoint_->on_ready([&] { ++times_ready; });
  for (int i = 1; i <= 3; ++i) {
    const auto listener = listen_unix(options_.socket_path, 0600, "");
    ASSERT_TRUE(listener);
    auto back_end = accept_nic(*listener);
    ASSERT_TRUE(back_end);
    talk(*back_end);
    ASSERT_TRUE(endpoint_->is_ready()) << endpoint_->last_failure();
    EXPECT_TRUE(nic_->is_ready());
    EXPECT_EQ(times_ready, i);
    back_end->hang_up();
    run_loop();
    EXPECT_FALSE(endpoint_->is_ready());
    EXPECT_FALSE(nic_->is_ready());
    EXPECT_EQ(endpoint_->last_failure(), "the back end went away");
  }
}

TEST_F(NicEndpointTest, TriesAgainAfterABackEndThatRefuses) {
  const auto listener = listen_unix(options_.socket_path, 0600, "");
  ASSERT_TRUE(listener);
  open(SocketSide::client);
  auto bad = accept_nic(*listener);
  ASSERT_TRUE(bad);
  bad->features &= ~feature::version_1;
  talk(*bad);
  EXPECT_TRUE(was_closed(*bad));
  EXPECT_THAT(endpoint_->last_failure(), HasSubstr("version_1"));
  auto good = accept_nic(*listener);
  ASSERT_TRUE(good);
  talk(*good);
  EXPECT_TRUE(endpoint_->is_ready());
}

TEST_F(NicEndpointTest, WaitsLongerEachTimeABackEndIsNotThere) {
  open(SocketSide::client);
  // 100, 200 and 400 ms: at most four tries in what is at least half a second.
  int wakes = 0;
  const uint64_t end_ns = monotonic_ns() + 500'000'000;
  while (monotonic_ns() < end_ns && wakes < kRoundsMax) {
    loop_->run_once(600);
    ++wakes;
  }
  EXPECT_LE(wakes, 4);
}

TEST_F(NicEndpointTest, WaitsLongerEachTimeABackEndGoesAsSoonAsItIsReady) {
  const auto listener = listen_unix(options_.socket_path, 0600, "");
  ASSERT_TRUE(listener);
  open(SocketSide::client);
  // At 0, 100, 300 and 700 ms; a slow machine makes it fewer.
  int sessions = 0;
  const uint64_t end_ns = monotonic_ns() + 650'000'000;
  while (monotonic_ns() < end_ns) {
    loop_->run_once(10);
    if (!is_readable(listener->fd())) continue;
    auto back_end = accept_nic(*listener);
    ASSERT_TRUE(back_end);
    talk(*back_end);
    ASSERT_TRUE(endpoint_->is_ready());
    ++sessions;
    back_end->hang_up();
    run_loop();
  }
  EXPECT_LE(sessions, 4);
}

// ---- As a server --------------------------------------------------------------------------------

TEST_F(NicEndpointTest, TakesBackEndsOneAfterTheOther) {
  open(SocketSide::server);
  for (int i = 0; i < 20; ++i) {
    ScriptedBackEnd back_end = come();
    talk(back_end);
    ASSERT_TRUE(endpoint_->is_ready()) << endpoint_->last_failure();
    back_end.hang_up();
    run_loop();
    ASSERT_FALSE(endpoint_->is_ready());
  }
}

TEST_F(NicEndpointTest, RefusesASecondBackEndAndKeepsTheFirst) {
  open(SocketSide::server);
  ScriptedBackEnd first = come();
  talk(first);
  ScriptedBackEnd second = come();
  talk(second);
  EXPECT_TRUE(was_closed(second));
  EXPECT_FALSE(was_closed(first));
  EXPECT_TRUE(endpoint_->is_ready());
}

TEST_F(NicEndpointTest, TakesTheSuccessorOfABackEndWhoseEndWasNotReadYet) {
  open(SocketSide::server);
  ScriptedBackEnd first = come();
  talk(first);
  ASSERT_TRUE(endpoint_->is_ready());
  // The loop sees the newcomer first.
  ScriptedBackEnd second = come();
  first.hang_up();
  talk(second);
  EXPECT_TRUE(endpoint_->is_ready());
  EXPECT_FALSE(was_closed(second));
}

TEST_F(NicEndpointTest, NamesTheOptionWhenItsSocketIsTaken) {
  open(SocketSide::server);
  auto other = NicPort::create({.name = "nic1"});
  ASSERT_TRUE(other);
  const auto refused = NicEndpoint::open(*loop_, options_, **other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("--nic nic0: socket"));
}

// ---- What a device does wrong -------------------------------------------------------------------

TEST_F(NicEndpointTest, DropsABackEndWhoseDeviceBreaksARing) {
  open(SocketSide::server);
  ScriptedBackEnd back_end = come();
  talk(back_end);
  ASSERT_TRUE(endpoint_->is_ready());
  break_receive_ring(back_end);
  run_loop();
  EXPECT_FALSE(endpoint_->is_ready());
  EXPECT_FALSE(nic_->is_ready());
  EXPECT_TRUE(was_closed(back_end));
  EXPECT_THAT(endpoint_->last_failure(), HasSubstr("the device broke a ring: "));
  ScriptedBackEnd next = come();
  talk(next);
  EXPECT_TRUE(endpoint_->is_ready()) << "the next one starts with rings of its own";
}

TEST_F(NicEndpointTest, LeavesNoDescriptorsBehindHoweverBackEndsEnd) {
  options_.queue_pairs = 2;
  open(SocketSide::server);
  const auto one_back_end = [&](int i) {
    ScriptedBackEnd back_end = come();
    back_end.config_pairs = 2;
    const int kind = i % 5;
    if (kind == 1) back_end.features = 0;
    if (kind == 2) {
      back_end.instead = [&](const ReceivedMessage&) {
        if (back_end.heard.size() > static_cast<size_t>(i) / 5) back_end.hang_up();
        return back_end.fd() < 0;
      };
    }
    if (kind == 3) {
      back_end.instead = [&](const ReceivedMessage&) {
        back_end.send(std::vector<uint8_t>(64, 0xff));
        return true;
      };
    }
    talk(back_end);
    if (kind == 4) break_receive_ring(back_end);
    run_loop();
  };
  for (int i = 0; i < 10; ++i) one_back_end(i);
  run_loop();
  const size_t open_before = open_descriptor_count();
  for (int i = 0; i < 200; ++i) one_back_end(i);
  run_loop();
  EXPECT_FALSE(endpoint_->is_ready());
  EXPECT_EQ(open_descriptor_count(), open_before);
}

// It keeps its copies of our eventfds when it goes, and may write them.
TEST_F(NicEndpointTest, IsNotWokenByABackEndThatHasGone) {
  options_.queue_pairs = 2;
  open(SocketSide::server);
  ScriptedBackEnd back_end = come();
  back_end.config_pairs = 2;
  talk(back_end);
  ASSERT_TRUE(endpoint_->is_ready());
  ASSERT_TRUE(nic_->agreement()->has_control_queue);
  back_end.hang_up();
  run_loop();
  ASSERT_FALSE(endpoint_->is_ready());
  const uint64_t one = 1;
  for (const ReceivedMessage& message : back_end.heard) {
    if (!find_request(message.header.request)->name.starts_with("SET_VRING_")) continue;
    for (const Fd& fd : message.fds) ASSERT_EQ(::write(fd.get(), &one, sizeof one), 8);
  }
  bool over = false;
  loop_->add_timer(20'000'000, [&] { over = true; });
  int wakes = 0;
  for (; !over && wakes < kRoundsMax; ++wakes) loop_->run_once(10'000);
  EXPECT_LE(wakes, 3) << "only the timer";
}

}  // namespace
}  // namespace sluice
