// Words that two sides touch at once: a guest and us, or two of our threads.
//
// What this is: the only place with raw __atomic built-ins. Every access names its ordering, so a
// reader of the ring code sees which side pairs with which. What it is not: a lock, or a promise
// about what the other side writes; a guest may store anything at any time, therefore each foreign
// word is loaded once into private memory and the copy is checked and used.
//
// SharedWord<T> is laid over memory that somebody else owns (never constructed by us there), so it
// has the size and alignment of T and no constructor of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace sluice {

template <typename T>
class SharedWord {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Plain single-copy read or write: no ordering with other words.
  T load_relaxed() const { return __atomic_load_n(&word_, __ATOMIC_RELAXED); }
  void store_relaxed(T value) { __atomic_store_n(&word_, value, __ATOMIC_RELAXED); }
  // Everything that the other side wrote before its release store is visible after this load.
  T load_acquire() const { return __atomic_load_n(&word_, __ATOMIC_ACQUIRE); }
  // Everything that we wrote before is visible to whoever loads this value with acquire.
  void store_release(T value) { __atomic_store_n(&word_, value, __ATOMIC_RELEASE); }
#if defined(__SANITIZE_THREAD__)
  // What we wrote before is visible to whoever loads this word with acquire, whose value stays. For
  // thread sanitizer only, which does not see that a wider store covers the word.
  void release_unchanged() { __atomic_fetch_or(&word_, T{0}, __ATOMIC_RELEASE); }
#endif

  // Between threads of ours only: a foreign side is never asked to take part in one of these.
  // Taking: what the last owner wrote before its store_release is visible after it.
  T exchange_acquire(T value) { return __atomic_exchange_n(&word_, value, __ATOMIC_ACQUIRE); }
  // For counters and sets of bits that many threads write; no ordering with other words.
  T fetch_add_relaxed(T amount) { return __atomic_fetch_add(&word_, amount, __ATOMIC_RELAXED); }
  T fetch_or_relaxed(T bits) { return __atomic_fetch_or(&word_, bits, __ATOMIC_RELAXED); }

 private:
  T word_;
};
static_assert(sizeof(SharedWord<uint16_t>) == 2 && alignof(SharedWord<uint16_t>) == 2);

// The full fence (store -> load) that notification suppression needs on both sides: we publish an
// index, then look at the suppression word; the driver writes its suppression word, then looks at
// the index. Without the fence each side may read the old value and both sleep.
// [virtio 2.7.7.2], [virtio 2.7.10]
//
// Thread sanitizer does not model stand-alone fences, so under it this is a sequentially consistent
// read-modify-write. SLUICE_MUTANT_NO_FENCE removes the fence in one test binary, which must then
// stall: that proves that the stress test sees what it is meant to see.
inline void full_fence() {
#if defined(SLUICE_MUTANT_NO_FENCE)
  std::atomic_signal_fence(std::memory_order_seq_cst);
#elif defined(__SANITIZE_THREAD__)
  static std::atomic<uint32_t> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// A counter with one writing thread and any number of reading ones. It is never decremented and
// wraps after 2^64.
class Counter {
 public:
  void add(uint64_t amount) {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace sluice
