#include "control/event_loop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <thread>

namespace sluice {
namespace {

std::unique_ptr<EventLoop> new_loop() {
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::create();
  SLUICE_ASSERT(loop);
  return std::move(*loop);
}

Fd ringing_eventfd() { return Fd(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)); }

TEST(EventLoop, CallsBackWhileADescriptorIsReadable) {
  const auto loop = new_loop();
  const Fd fd = ringing_eventfd();
  int calls = 0;
  ASSERT_TRUE(loop->watch(fd.get(), EPOLLIN, [&](uint32_t events) {
    EXPECT_EQ(events, static_cast<uint32_t>(EPOLLIN));
    ++calls;
  }));
  loop->run_once(0);
  loop->run_once(0);
  EXPECT_EQ(calls, 2);
  loop->change_events(fd.get(), 0);
  loop->run_once(0);
  EXPECT_EQ(calls, 2);
  loop->unwatch(fd.get());
  loop->unwatch(fd.get());
}

TEST(EventLoop, RefusesADescriptorThatCannotBeWatched) {
  const auto loop = new_loop();
  EXPECT_FALSE(loop->watch(1'000'000, EPOLLIN, [](uint32_t) {}));
}

TEST(EventLoop, DoesNotCallAWatchThatAnotherCallbackEnded) {
  const auto loop = new_loop();
  const Fd a = ringing_eventfd();
  const Fd b = ringing_eventfd();
  int calls = 0;
  // Both events are fetched at once; whichever comes first ends both.
  const auto end_both = [&](uint32_t) {
    ++calls;
    loop->unwatch(a.get());
    loop->unwatch(b.get());
  };
  ASSERT_TRUE(loop->watch(a.get(), EPOLLIN, end_both));
  ASSERT_TRUE(loop->watch(b.get(), EPOLLIN, end_both));
  loop->run_once(0);
  loop->run_once(0);
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, DoesNotHandAnOldEventToANewWatchOfTheSameNumber) {
  const auto loop = new_loop();
  const Fd a = ringing_eventfd();
  const Fd b = ringing_eventfd();
  int old_calls = 0;
  int new_calls = 0;
  const auto replace = [&](const Fd& other) {
    ++old_calls;
    loop->unwatch(other.get());
    ASSERT_TRUE(loop->watch(other.get(), EPOLLIN, [&](uint32_t) { ++new_calls; }));
  };
  ASSERT_TRUE(loop->watch(a.get(), EPOLLIN, [&](uint32_t) { replace(b); }));
  ASSERT_TRUE(loop->watch(b.get(), EPOLLIN, [&](uint32_t) { replace(a); }));
  loop->run_once(0);
  EXPECT_EQ(old_calls, 1);
  EXPECT_EQ(new_calls, 0);
}

TEST(EventLoop, RunsTimersOnceInTheOrderOfTheirDeadlines) {
  const auto loop = new_loop();
  std::string order;
  loop->add_timer(2'000'000, [&] { order += "b"; });
  loop->add_timer(1'000'000, [&] { order += "a"; });
  const EventLoop::TimerId cancelled = loop->add_timer(1'500'000, [&] { order += "x"; });
  loop->cancel_timer(cancelled);
  loop->add_timer(3'000'000, [&] {
    order += "c";
    loop->stop();
  });
  loop->run();
  loop->cancel_timer(cancelled);
  EXPECT_EQ(order, "abc");
}

TEST(EventLoop, IsNotStarvedByATimerThatSetsItselfAgain) {
  const auto loop = new_loop();
  int rounds = 0;
  std::function<void()> again = [&] {
    ++rounds;
    loop->add_timer(0, again);
  };
  loop->add_timer(0, again);
  loop->run_once(0);
  loop->run_once(0);
  EXPECT_LE(rounds, 2);
}

TEST(EventLoop, LetsATimerCancelAnotherThatIsDueToo) {
  const auto loop = new_loop();
  EventLoop::TimerId second = 0;
  bool second_ran = false;
  loop->add_timer(0, [&] { loop->cancel_timer(second); });
  second = loop->add_timer(0, [&] { second_ran = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  loop->run_once(0);
  EXPECT_FALSE(second_ran);
}

TEST(EventLoop, RunsWhatOtherThreadsPostInOrder) {
  const auto loop = new_loop();
  int next = 0;
  std::thread poster([&] {
    for (int i = 0; i < 1000; ++i) {
      loop->post([&, i] { EXPECT_EQ(next++, i); });
    }
    loop->post([&] { loop->stop(); });
  });
  loop->run();
  poster.join();
  EXPECT_EQ(next, 1000);
}

TEST(EventLoop, StopsBeforeItRuns) {
  const auto loop = new_loop();
  loop->stop();
  loop->run();
}

TEST(EventLoop, HandsOverSignals) {
  const auto loop = new_loop();
  int seen = 0;
  ASSERT_TRUE(loop->watch_signals([&](int signal) {
    seen = signal;
    loop->stop();
  }));
  ASSERT_EQ(raise(SIGTERM), 0);
  loop->run();
  EXPECT_EQ(seen, SIGTERM);
}

}  // namespace
}  // namespace sluice
