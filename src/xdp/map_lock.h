// SpinLock: between writers of a map, for some tens of instructions. Readers never take one.
//
// Whoever waits long gives its processor away: the owner may be a control thread that was put to
// sleep by the scheduler while it held the lock.
//
//   std::lock_guard guard(lock);
#pragma once

#include <sched.h>

#include <cstdint>
#include <mutex>

#include "base/shared_word.h"

namespace sluice {

class SpinLock {
 public:
  void lock() {
    for (uint32_t turns = 0; word_.exchange_acquire(1) != 0; ++turns) {
      while (word_.load_relaxed() != 0 && turns < kTurnsBeforeYield) {
        __builtin_ia32_pause();
        ++turns;
      }
      if (turns >= kTurnsBeforeYield) ::sched_yield();
    }
  }
  void unlock() { word_.store_release(0); }

 private:
  static constexpr uint32_t kTurnsBeforeYield = 1000;
  SharedWord<uint32_t> word_{};
};

}  // namespace sluice
