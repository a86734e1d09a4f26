#include "control/control_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "control/control_client.h"
#include "control/stats_json.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr uint64_t kTestIdleNs = 50'000'000;
// Rounds of at most 10 ms: a bound for a broken test, never reached by a good one.
constexpr int kRoundsMax = 1000;

class FixedStats final : public StatsSource {
 public:
  json stats() const override { return {{"version", "1"}, {"padding", padding}}; }
  json ports() const override { return {{"ports", json::array()}}; }
  std::string padding;
};

class ControlSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sluice_control_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/control.sock";
    Result<std::unique_ptr<EventLoop>> loop = EventLoop::create();
    ASSERT_TRUE(loop);
    loop_ = std::move(*loop);
  }
  void TearDown() override {
    control_.reset();
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "a socket file was left";
  }
  void open(uint64_t idle_ns = kControlIdleNs) {
    auto control = ControlSocket::open(*loop_, path_, source_, idle_ns);
    ASSERT_TRUE(control) << control.error().text;
    control_ = std::move(*control);
  }
  Fd client() { return std::move(*connect_unix(path_)); }
  static void send_text(const Fd& socket, std::string_view text) {
    ASSERT_EQ(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // What arrives until a newline or the end; `ended` tells which.
  std::string read_line(const Fd& socket, bool* ended = nullptr) {
    std::string line;
    for (int i = 0; i < kRoundsMax; ++i) {
      loop_->run_once(10);
      char c[65536];
      const ssize_t count = recv(socket.get(), c, sizeof c, MSG_DONTWAIT);
      if (count > 0) line.append(c, static_cast<size_t>(count));
      const bool is_end = count == 0 || (count < 0 && errno == ECONNRESET);
      if (ended != nullptr) *ended = is_end;
      if (is_end || (!line.empty() && line.back() == '\n')) return line;
    }
    ADD_FAILURE() << "nothing came";
    return line;
  }

  std::string folder_;
  std::string path_;
  FixedStats source_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ControlSocket> control_;
};

TEST_F(ControlSocketTest, AnswersEachLineInOrder) {
  open();
  const Fd socket = client();
  send_text(socket, "{\"command\":\"ports\"}\n{\"command\":\"sta");
  EXPECT_EQ(read_line(socket), "{\"ports\":[]}\n");
  send_text(socket, "ts\"}\n");
  EXPECT_THAT(read_line(socket), HasSubstr("\"version\":\"1\""));
}

TEST_F(ControlSocketTest, AnswersWhatItDoesNotUnderstandWithASentence) {
  open();
  const Fd socket = client();
  for (const char* request :
       {"{\"command\":\"reboot\"}\n", "{}\n", "[]\n", "\n", "nonsense\n", "{\"command\":7}\n",
        "{\"command\":\"\xff\"}\n", "{\"command\":\"\\u0000\"}\n"}) {
    SCOPED_TRACE(request);
    send_text(socket, request);
    const json answer = json::parse(read_line(socket), nullptr, false);
    ASSERT_TRUE(answer.is_object());
    EXPECT_TRUE(answer["error"].is_string());
  }
}

TEST_F(ControlSocketTest, SurvivesDeepNesting) {
  open();
  const Fd socket = client();
  send_text(socket, std::string(60'000, '[') + "\n");
  EXPECT_THAT(read_line(socket), HasSubstr("error"));
}

TEST_F(ControlSocketTest, ClosesAClientWhoseRequestHasNoEnd) {
  open();
  const Fd socket = client();
  const std::string part(32 * 1024, 'x');
  for (int i = 0; i < 3; ++i) {
    send(socket.get(), part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    for (int round = 0; round < 4; ++round) loop_->run_once(0);
  }
  EXPECT_EQ(control_->client_count(), 0u);
}

TEST_F(ControlSocketTest, AnswersNobodyElseLaterBecauseOfAClientThatDoesNotRead) {
  source_.padding.assign(4 * 1024 * 1024, 'x');  // more than a socket takes
  open();
  const Fd deaf = client();
  for (int i = 0; i < 50; ++i) send_text(deaf, "{\"command\":\"stats\"}\n");
  for (int i = 0; i < 50; ++i) loop_->run_once(0);
  const Fd other = client();
  send_text(other, "{\"command\":\"ports\"}\n");
  EXPECT_EQ(read_line(other), "{\"ports\":[]}\n");
  // And the deaf one gets whole answers once it reads.
  std::string answer;
  std::vector<char> bytes(1024 * 1024);
  for (int i = 0; i < kRoundsMax && answer.find('\n') == std::string::npos; ++i) {
    loop_->run_once(10);
    const ssize_t count = recv(deaf.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) answer.append(bytes.data(), static_cast<size_t>(count));
  }
  EXPECT_TRUE(json::parse(answer.substr(0, answer.find('\n')), nullptr, false).is_object());
}

TEST_F(ControlSocketTest, DoesNotSpinWhileAClientDoesNotRead) {
  source_.padding.assign(4 * 1024 * 1024, 'x');
  open();
  const Fd deaf = client();
  send_text(deaf, "{\"command\":\"stats\"}\n{\"command\":\"stats\"}\n");
  for (int i = 0; i < 10; ++i) loop_->run_once(0);
  int rounds = 0;
  bool timer_ran = false;
  loop_->add_timer(30'000'000, [&] { timer_ran = true; });
  while (!timer_ran && rounds < kRoundsMax) {
    loop_->run_once(-1);
    ++rounds;
  }
  EXPECT_LE(rounds, 3);
}

TEST_F(ControlSocketTest, ClosesIdleClientsAndThoseThatOnlyTrickle) {
  open(kTestIdleNs);
  const Fd idle = client();
  const Fd trickling = client();
  for (int i = 0; i < kRoundsMax && (i < 2 || control_->client_count() > 0); ++i) {
    send(trickling.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    loop_->run_once(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(control_->client_count(), 0u);
}

TEST_F(ControlSocketTest, RefusesMoreClientsThanItHolds) {
  open();
  std::vector<Fd> clients;
  for (size_t i = 0; i < kControlClientsMax; ++i) {
    clients.push_back(client());
    for (int round = 0; round < 2; ++round) loop_->run_once(0);
  }
  EXPECT_EQ(control_->client_count(), kControlClientsMax);
  const Fd late = client();
  EXPECT_THAT(read_line(late), HasSubstr("too many clients"));
  clients.pop_back();
  for (int round = 0; round < 4; ++round) loop_->run_once(0);
  const Fd next = client();
  send_text(next, "{\"command\":\"ports\"}\n");
  EXPECT_EQ(read_line(next), "{\"ports\":[]}\n");
}

TEST_F(ControlSocketTest, IsAskedByTheClientOfTheSubcommands) {
  source_.padding.assign(1024 * 1024, 'x');
  open();
  std::thread daemon([&] { loop_->run(); });
  const Result<json> stats = ask_daemon(path_, "stats");
  const Result<json> unknown = ask_daemon(path_, "reboot");
  loop_->stop();
  daemon.join();
  ASSERT_TRUE(stats) << stats.error().text;
  EXPECT_EQ((*stats)["version"], "1");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().text, HasSubstr("reboot"));
}

TEST_F(ControlSocketTest, SaysThatNoDaemonRuns) {
  const Result<json> stats = ask_daemon(path_, "stats");
  ASSERT_FALSE(stats);
  EXPECT_THAT(stats.error().text, testing::AllOf(HasSubstr("no daemon"), HasSubstr(path_)));
}

// What the stats of a port look like.

class OneQueue final : public PortQueue {
 public:
  bool receive(FrameBatch&, const Budget&, FrameCache&) noexcept override { return false; }
  void transmit(FrameBatch&) noexcept override {}
  void finish_breath() noexcept override {}
  size_t transmit_room() noexcept override { return 0; }
  bool arm(bool, bool) noexcept override { return false; }
  void disarm() noexcept override {}
  int wake_fd() const noexcept override { return -1; }
  void on_wake() noexcept override {}
  void count() {
    received_.count_batch(64, 0);
    received_.count_batch(1, 0);
    received_.count_drop(DropReason::runt, 3);
    transmitted_.notifications_suppressed.add(2);
  }
};

class OnePort final : public Port {
 public:
  OnePort() : Port("p0") { queue_.count(); }
  std::string_view kind() const override { return "tap"; }
  uint32_t queue_count() const override { return 1; }
  PortQueue& queue(uint32_t) override { return queue_; }
  std::pair<std::string_view, std::string_view> direction_names() const override {
    return {"from_host", "to_host"};
  }
  std::vector<std::string> negotiated() const override { return {"napi"}; }
  OffloadSet takes() const override { return {}; }
  void set_peer_takes(const OffloadSet&) override {}
  void set_active_queues(const std::vector<bool>&) override {}

 private:
  OneQueue queue_;
};

TEST(StatsJson, ShowsEachQueueBothWaysAndOnlyDropsThatHappened) {
  OnePort port;
  Port* const ports[] = {&port};
  EXPECT_EQ(stats_ports(ports), json::parse(R"([{
      "name": "p0", "kind": "tap", "negotiated": ["napi"], "queues": [
        {"queue": 0, "direction": "from_host", "frames": 65, "bytes": 0, "drops": {"runt": 3},
         "xdp": {}, "batch_histogram": [1, 0, 0, 0, 0, 0, 1], "kicks": 0, "notifications": 0,
         "notifications_suppressed": 0},
        {"queue": 0, "direction": "to_host", "frames": 0, "bytes": 0, "drops": {},
         "xdp": {}, "batch_histogram": [0, 0, 0, 0, 0, 0, 0], "kicks": 0, "notifications": 0,
         "notifications_suppressed": 2}]}])"));
}

TEST(StatsJson, ShowsWorkersMemoryAndCables) {
  const WorkerFigures workers[] = {{.cpu = 2, .breaths = 5, .sleeps = 1}};
  EXPECT_EQ(stats_workers(workers).dump(), R"([{"breaths":5,"cpu":2,"sleeps":1}])");
  const json memory = stats_memory({.guest_regions_bytes = 2048, .frame_pool_bytes = 4096});
  EXPECT_GT(memory["rss_kib"], 0);
  EXPECT_EQ(memory["guest_regions_kib"], 2);
  EXPECT_EQ(memory["frame_pool_kib"], 4);
  OnePort port;
  Port* const ports[] = {&port};
  const LinkFigures links[] = {{"vm0", "p0"}};
  EXPECT_EQ(stats_links(links).dump(), R"([{"a":"vm0","b":"p0"}])");
  EXPECT_EQ(ports_document(ports, links)["ports"][0]["connected_to"], "vm0");
  EXPECT_TRUE(ports_document(ports, {})["ports"][0]["connected_to"].is_null());
}

}  // namespace
}  // namespace sluice
