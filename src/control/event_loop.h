// EventLoop: the control thread's loop over descriptors, timers, signals and posted functions.
//
// What it is: one epoll, level-triggered, for a few dozen descriptors at human pace. What it is
// not: part of the data path; workers have an epoll of their own.
//
// Invariants: all methods but post() and stop() belong to the thread that calls run(). A callback
// may watch, unwatch and cancel anything, itself included; after unwatch() returns, that watch's
// callback is not called again, not even for an event that was fetched already. Descriptors stay
// the caller's: unwatch before closing.
//
//   Result<std::unique_ptr<EventLoop>> made = EventLoop::create();
//   EventLoop& loop = **made;
//   loop.watch(fd, EPOLLIN, [&](uint32_t events) { … });
//   loop.add_timer(100'000'000, [&] { … });           // once, in 100 ms
//   loop.watch_signals([&](int) { loop.stop(); });    // before other threads start
//   loop.run();
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sluice {

class EventLoop {
 public:
  using EventCallback = std::function<void(uint32_t events)>;
  using Task = std::function<void()>;
  using TimerId = uint64_t;  // never 0

  static Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Calls `callback` while one of `events` (EPOLLIN, …) is there, and for EPOLLHUP and EPOLLERR.
  Result<void> watch(int fd, uint32_t events, EventCallback callback);
  void change_events(int fd, uint32_t events);
  // Nothing happens when the descriptor is not watched.
  void unwatch(int fd);

  // One shot. Cancelling a timer that has fired does nothing.
  TimerId add_timer(uint64_t delay_ns, Task task);
  void cancel_timer(TimerId id);

  // Blocks SIGINT and SIGTERM in the calling thread (threads started later inherit that) and hands
  // them to `callback` instead.
  Result<void> watch_signals(std::function<void(int signal)> callback);

  // From any thread: `task` runs in the loop's thread, soon. Tasks posted by one thread keep their
  // order. Tasks that never ran are destroyed with the loop.
  void post(Task task);

  // Until stop(), which may be called from any thread and also before run().
  void run();
  void stop();
  // Waits at most `wait_ms_max` for something to happen, and handles what has.
  void run_once(int wait_ms_max);

 private:
  struct Watch {
    int fd;
    EventCallback callback;
  };

  EventLoop() = default;
  void dispatch(uint64_t token, uint32_t events);
  void run_due_timers();
  void run_posted_tasks();
  int wait_ms(int wait_ms_max) const;

  Fd epoll_;
  Fd wake_;  // eventfd of post() and stop()
  Fd signals_;
  // A token is never used again, so an event of a descriptor that was closed and opened anew cannot
  // reach the wrong callback.
  uint64_t token_next_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> watches_;
  std::unordered_map<int, uint64_t> token_of_fd_;
  TimerId timer_next_ = 1;
  std::map<std::pair<uint64_t, TimerId>, Task> timers_;  // by deadline in ns
  std::unordered_map<TimerId, uint64_t> deadline_of_timer_;
  std::mutex posted_mutex_;
  std::vector<Task> posted_;
  std::atomic<bool> stopping_{false};
};

}  // namespace sluice
