#include "engine/worker.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.h"

namespace sluice {
namespace {

// In an event's data: a link's number, or the bell.
constexpr uint64_t kBellKey = ~uint64_t{0};
// While some links are hot, the cold ones are asked for every so many breaths: a system call spread
// over a few bursts, and a wait of some microseconds for the cold.
constexpr unsigned kBreathsPerLook = 8;
// How soon a link is looked at whose front end sends no kicks.
constexpr int kUnkickedMilliseconds = 1;
constexpr uint64_t kNsPerMs = 1'000'000;

}  // namespace

Result<std::unique_ptr<Worker>> Worker::create(const WorkerOptions& options, FramePool& pool) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !bell) return fail("cannot make a worker: {}", errno_text(errno));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kBellKey;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, bell.get(), &event) != 0)
    return fail("cannot make a worker: {}", errno_text(errno));
  return std::unique_ptr<Worker>(new Worker(options, pool, std::move(epoll), std::move(bell)));
}

Worker::Worker(const WorkerOptions& options, FramePool& pool, Fd epoll, Fd bell)
    : options_(options), cache_(pool), epoll_(std::move(epoll)), bell_(std::move(bell)) {
  SLUICE_ASSERT(options.batch_frames_max >= 1 && options.batch_frames_max <= kBatchFramesMax);
}

Worker::~Worker() { stop(); }

Result<void> Worker::add_link(PortQueue& a, PortQueue& b, bool carries_b_to_a) {
  SLUICE_ASSERT(!running_);
  links_.push_back(std::make_unique<Link>(a, b, carries_b_to_a));
  for (auto& other : links_) {
    if (other == links_.back() || &other->b() != &b) continue;
    other->shares_b = links_.back()->shares_b = true;
  }
  for (PortQueue* queue : {&a, &b}) {
    if (queue->wake_fd() < 0) continue;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = links_.size() - 1;
    // A queue that several links share wakes the first: that is the one which reads it.
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, queue->wake_fd(), &event) != 0 && errno != EEXIST)
      return fail("cannot watch a queue: {}", errno_text(errno));
  }
  return {};
}

Result<void> Worker::start() {
  SLUICE_ASSERT(!running_);
  hot_count_ = links_.size();
  stopping_.store(false);
  running_ = true;
  thread_ = std::thread([this] { run(); });
  if (options_.cpu >= 0) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<size_t>(options_.cpu), &cpus);
    const int error = ::pthread_setaffinity_np(thread_.native_handle(), sizeof cpus, &cpus);
    if (error != 0) {
      stop();
      return fail("cannot pin a worker to CPU {}: {}", options_.cpu, errno_text(error));
    }
  }
  return {};
}

void Worker::stop() {
  if (!running_) return;
  stopping_.store(true);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
  thread_.join();
  running_ = false;
  for (auto& link : links_) link->release(cache_);
}

bool Worker::owns(const PortQueue& queue) const {
  for (const auto& link : links_) {
    if (&link->a() == &queue || &link->b() == &queue) return true;
  }
  return false;
}

void Worker::set_program(const PortQueue& queue, const XdpSource& source) {
  for (auto& link : links_) {
    if (&link->a() == &queue) link->set_program_of_a(source);
    if (&link->b() == &queue) link->set_program_of_b(source);
  }
}

void Worker::call(const std::function<void()>& change) {
  const std::lock_guard one_caller(callers_mutex_);
  if (!running_) {
    change();
    return;
  }
  std::unique_lock lock(call_mutex_);
  call_ = &change;
  call_waiting_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
  call_done_.wait(lock, [this] { return call_ == nullptr; });
}

void Worker::run_call() {
  const std::lock_guard lock(call_mutex_);
  call_waiting_.store(false, std::memory_order_relaxed);
  if (call_ == nullptr) return;
  (*call_)();
  call_ = nullptr;
  // Whatever changed, each link looks at it before it may sleep.
  const uint64_t now_ns = monotonic_ns();
  for (auto& link : links_) {
    if (!link->hot) link->disarm();
    link->hot = true;
    link->last_work_ns = now_ns;
  }
  hot_count_ = links_.size();
  call_done_.notify_all();
}

void Worker::run() {
  ::pthread_setname_np(::pthread_self(), "sluice-worker");
  unsigned breaths_since_look = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (call_waiting_.load(std::memory_order_acquire)) [[unlikely]]
      run_call();
    if (hot_count_ == 0) {
      counters_.sleeps.add(1);
      wait(sleep_milliseconds());
      breaths_since_look = 0;
      continue;
    }
    const size_t moved = breathe_hot_links(monotonic_ns());
    counters_.breaths.add(1);
    if (hot_count_ < links_.size() && (moved == 0 || ++breaths_since_look >= kBreathsPerLook)) {
      wait(0);
      breaths_since_look = 0;
    }
  }
}

size_t Worker::breathe_hot_links(uint64_t now_ns) {
  size_t moved = 0;
  for (auto& link : links_) {
    if (!link->hot) continue;
    const size_t count =
        link->breathe(cache_, path_, options_.batch_frames_max, options_.batches_per_breath);
    if (count > 0) {
      link->last_work_ns = now_ns;
      moved += count;
    } else if (now_ns - link->last_work_ns >= uint64_t{options_.poll_us} * 1000) {
      cool(*link, now_ns);
    }
  }
  return moved;
}

void Worker::cool(Link& link, uint64_t now_ns) {
  if (link.arm()) {
    // There is work after all: it is taken with the next breath, notifications suppressed again.
    link.disarm();
    heat_sharers(link, now_ns);
    return;
  }
  link.hot = false;
  link.cold_since_ns = now_ns;
  --hot_count_;
}

void Worker::heat(Link& link, uint64_t now_ns) {
  if (link.hot) return;
  link.disarm();
  link.hot = true;
  link.last_work_ns = now_ns;
  ++hot_count_;
  heat_sharers(link, now_ns);
}

// Disarming a shared queue silences what the other links that share it wait for, so they look, too.
void Worker::heat_sharers(Link& link, uint64_t now_ns) {
  if (!link.shares_b) return;
  for (auto& other : links_) {
    if (&other->b() == &link.b() && !other->hot) heat(*other, now_ns);
  }
}

// Those whom nobody wakes look for themselves when their time is up, however busy others are.
void Worker::heat_due(uint64_t now_ns) {
  for (auto& link : links_) {
    if (link->hot) continue;
    const uint64_t cold_ns = now_ns - link->cold_since_ns;
    const bool unkicked = link->must_be_polled() && cold_ns >= kUnkickedMilliseconds * kNsPerMs;
    const bool waited = link->has_held() && cold_ns >= kHeldMillisecondsMax * kNsPerMs;
    if (unkicked || waited) heat(*link, now_ns);
  }
}

// How long to sleep at most: for ever, unless somebody will not wake us.
int Worker::sleep_milliseconds() const {
  int timeout_ms = -1;
  for (const auto& link : links_) {
    if (link->must_be_polled()) return kUnkickedMilliseconds;
    if (link->has_held()) timeout_ms = static_cast<int>(kHeldMillisecondsMax);
  }
  return timeout_ms;
}

void Worker::wait(int timeout_ms) {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
  const uint64_t now_ns = monotonic_ns();
  for (int i = 0; i < count; ++i) {  // at most 64
    if (events[i].data.u64 == kBellKey) {
      uint64_t value = 0;
      [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &value, sizeof value);
      continue;
    }
    Link& link = *links_[events[i].data.u64];
    link.a().on_wake();
    link.b().on_wake();
    heat(link, now_ns);
    heat_sharers(link, now_ns);
  }
  heat_due(now_ns);
}

}  // namespace sluice
