// How the fakes touch memory that another thread reads: atomic words over plain bytes, and a
// store-to-load fence of their own. On purpose not base/shared_word.h: the fence here is never
// compiled out, since a mutant is about the side that is tested.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice {

inline std::atomic_ref<uint16_t> word16(uint8_t* at) {
  return std::atomic_ref<uint16_t>(*reinterpret_cast<uint16_t*>(at));
}
inline std::atomic_ref<uint32_t> word32(uint8_t* at) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(at));
}
inline std::atomic_ref<uint64_t> word64(uint8_t* at) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at));
}

// Thread sanitizer does not model fences that stand alone.
inline void fake_fence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<uint32_t> word{0};
  word.fetch_add(1);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace sluice
