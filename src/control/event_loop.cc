#include "control/event_loop.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/assert.h"
#include "base/clock.h"

namespace sluice {
namespace {

constexpr int kEventsMax = 64;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  loop->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  loop->wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->epoll_ || !loop->wake_) {
    return fail("no event loop: {}: raise the limit of open files (ulimit -n)", errno_text(errno));
  }
  EventLoop* self = loop.get();
  const Result<void> watched = loop->watch(loop->wake_.get(), EPOLLIN, [self](uint32_t) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = ::read(self->wake_.get(), &count, sizeof count);
    self->run_posted_tasks();
  });
  if (!watched) return watched.error();
  return loop;
}

EventLoop::~EventLoop() = default;

Result<void> EventLoop::watch(int fd, uint32_t events, EventCallback callback) {
  SLUICE_ASSERT(fd >= 0);
  SLUICE_ASSERT(!token_of_fd_.contains(fd));
  const uint64_t token = token_next_++;
  epoll_event event{.events = events, .data = {.u64 = token}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return fail("descriptor {} cannot be watched: {}", fd, errno_text(errno));
  }
  watches_.emplace(token, std::make_shared<Watch>(Watch{fd, std::move(callback)}));
  token_of_fd_.emplace(fd, token);
  return {};
}

void EventLoop::change_events(int fd, uint32_t events) {
  const auto found = token_of_fd_.find(fd);
  SLUICE_ASSERT(found != token_of_fd_.end());
  epoll_event event{.events = events, .data = {.u64 = found->second}};
  const int changed = epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  SLUICE_ASSERT(changed == 0);
}

void EventLoop::unwatch(int fd) {
  const auto found = token_of_fd_.find(fd);
  if (found == token_of_fd_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(found->second);
  token_of_fd_.erase(found);
}

EventLoop::TimerId EventLoop::add_timer(uint64_t delay_ns, Task task) {
  const TimerId id = timer_next_++;
  const uint64_t deadline_ns = monotonic_ns() + delay_ns;
  timers_.emplace(std::pair(deadline_ns, id), std::move(task));
  deadline_of_timer_.emplace(id, deadline_ns);
  return id;
}

void EventLoop::cancel_timer(TimerId id) {
  const auto found = deadline_of_timer_.find(id);
  if (found == deadline_of_timer_.end()) return;
  timers_.erase(std::pair(found->second, id));
  deadline_of_timer_.erase(found);
}

Result<void> EventLoop::watch_signals(std::function<void(int)> callback) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return fail("signals cannot be watched: {}", errno_text(errno));
  return watch(signals_.get(), EPOLLIN, [this, callback = std::move(callback)](uint32_t) {
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      callback(static_cast<int>(info.ssi_signo));
    }
  });
}

void EventLoop::post(Task task) {
  {
    const std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the loop is awake already.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void EventLoop::stop() {
  stopping_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void EventLoop::run() {
  while (!stopping_.load(std::memory_order_acquire)) run_once(-1);
}

void EventLoop::run_once(int wait_ms_max) {
  epoll_event events[kEventsMax];
  const int count = epoll_wait(epoll_.get(), events, kEventsMax, wait_ms(wait_ms_max));
  SLUICE_ASSERT(count >= 0 || errno == EINTR);
  run_due_timers();
  for (int i = 0; i < count; ++i) dispatch(events[i].data.u64, events[i].events);
}

void EventLoop::dispatch(uint64_t token, uint32_t events) {
  const auto found = watches_.find(token);
  if (found == watches_.end()) return;
  // Held while it runs: the callback may unwatch itself.
  const std::shared_ptr<Watch> watch = found->second;
  watch->callback(events);
}

// Only timers that are due on entry: one that adds itself again with no delay cannot starve the
// descriptors.
void EventLoop::run_due_timers() {
  const uint64_t now_ns = monotonic_ns();
  const TimerId first_new = timer_next_;
  auto next = timers_.begin();
  while (next != timers_.end() && next->first.first <= now_ns) {
    if (next->first.second >= first_new) {
      ++next;
      continue;
    }
    const Task task = std::move(next->second);
    deadline_of_timer_.erase(next->first.second);
    timers_.erase(next);
    task();
    next = timers_.begin();  // the task may have changed the map
  }
}

void EventLoop::run_posted_tasks() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(posted_mutex_);
    tasks.swap(posted_);
  }
  for (const Task& task : tasks) task();
}

int EventLoop::wait_ms(int wait_ms_max) const {
  if (timers_.empty()) return wait_ms_max;
  const uint64_t deadline_ns = timers_.begin()->first.first;
  const uint64_t now_ns = monotonic_ns();
  if (deadline_ns <= now_ns) return 0;
  // Rounded up: a wait that is too short would spin until the deadline.
  const uint64_t ms = (deadline_ns - now_ns + 999'999) / 1'000'000;
  const int capped = static_cast<int>(std::min<uint64_t>(ms, std::numeric_limits<int>::max()));
  return wait_ms_max < 0 ? capped : std::min(capped, wait_ms_max);
}

}  // namespace sluice
