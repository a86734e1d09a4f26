// Bell, Jitter and watch_stress: what stress tests of two threads that wake one another share.
//
//   Bell call(3000);
//   …one thread: call.wait();   …another: call.ring();
//   …a watchdog: watch_stress(call, kick, {…}) until it is over, both sleep for good, or time is
//   up.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/fd.h"

namespace sluice {

// An eventfd that one thread waits for. Whoever waits tries for a while before it sleeps, so that a
// round of the stress costs microseconds.
class Bell {
 public:
  explicit Bell(uint32_t looks_before_sleep)
      : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), looks_before_sleep_(looks_before_sleep) {}

  void ring() {
    rings.store(rings.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    wake();
  }
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
  }
  void wait() {
    sleeps.store(sleeps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    for (uint32_t looks = 0; looks < looks_before_sleep_; ++looks) {
      if (take()) return;
    }
    naps_.fetch_add(1);  // odd: asleep
    pollfd wanted{event_.get(), POLLIN, 0};
    ::poll(&wanted, 1, -1);
    naps_.fetch_add(1);  // before the event is taken, or the watchdog would see neither
    take();
  }
  // For the watchdog: odd while the waiter sleeps.
  uint64_t naps() const { return naps_.load(); }
  bool is_readable() const {
    pollfd wanted{event_.get(), POLLIN, 0};
    return ::poll(&wanted, 1, 0) > 0;
  }

  std::atomic<uint64_t> rings{0};
  std::atomic<uint64_t> sleeps{0};

 private:
  bool take() {
    uint64_t value = 0;
    return ::read(event_.get(), &value, sizeof value) == sizeof value;
  }
  Fd event_;
  uint32_t looks_before_sleep_;
  std::atomic<uint64_t> naps_{0};
};

// A pause below a microsecond, another each time: lets the two sides meet at every relative moment.
class Jitter {
 public:
  explicit Jitter(uint32_t seed) : state_(seed) {}
  uint32_t next() {  // anything but 0
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return state_;
  }
  void pause() {
    for (uint32_t i = next() % 512; i > 0; --i) std::atomic_signal_fence(std::memory_order_seq_cst);
  }

 private:
  uint32_t state_;
};

// Whether both wait for their bells while nobody is left to ring them. While both sleep nobody can,
// so what is seen between the two looks holds.
inline bool both_sleep_for_good(const Bell& one, const Bell& other) {
  const uint64_t one_naps = one.naps(), other_naps = other.naps();
  return one_naps % 2 == 1 && other_naps % 2 == 1 && !one.is_readable() && !other.is_readable() &&
         one.naps() == one_naps && other.naps() == other_naps;
}

enum class StressEnd {
  done,     // all that was wanted
  early,    // time was up; nothing wrong was seen
  stalled,  // both sleep, and nobody is left to wake them
  stuck,    // somebody runs, but nothing has come of it for kStuckSeconds
};

constexpr const char* stress_end_words(StressEnd end) {
  switch (end) {
    case StressEnd::done:
      return "done";
    case StressEnd::early:
      return "ended early, for lack of time";
    case StressEnd::stalled:
      return "both sides sleep";
    case StressEnd::stuck:
      return "nothing has moved for long, and somebody is awake";
  }
  return "";
}

// How long a stress may show nothing before it is called stuck. A crowded machine gives a thread no
// time for seconds on end; this has to be longer.
inline constexpr uint32_t kStuckSeconds = 30;

// Watches a stress from a thread of its own until `done`. How much is done in `seconds_max` (0: no
// bound) is the machine's affair, so an end for lack of time is no failure.
inline StressEnd watch_stress(const Bell& one, const Bell& other, const std::atomic<bool>& done,
                              const std::atomic<uint64_t>& completed, uint32_t seconds_max) {
  constexpr uint64_t kSecond_ns = 1'000'000'000;
  const uint64_t begin_ns = monotonic_ns();
  uint64_t seen = 0, seen_ns = begin_ns;
  while (!done.load()) {
    ::usleep(2000);
    if (both_sleep_for_good(one, other) && !done.load()) return StressEnd::stalled;
    const uint64_t now_ns = monotonic_ns(), now = completed.load();
    if (now != seen) {
      seen = now;
      seen_ns = now_ns;
    }
    if (now_ns - seen_ns > kStuckSeconds * kSecond_ns) return StressEnd::stuck;
    if (seconds_max > 0 && now_ns - begin_ns > seconds_max * kSecond_ns) return StressEnd::early;
  }
  return StressEnd::done;
}

}  // namespace sluice
