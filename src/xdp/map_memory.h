// The memory of maps, and how values are copied into and out of it.
//
// Everything that a map will ever need is mapped when it is made. Values begin at multiples of 8
// and have room up to the next one, as in the kernel; therefore they are copied in whole words,
// and a counter that a program reads meanwhile is never half of the old and half of the new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/result.h"
#include "base/shared_word.h"

namespace sluice {

// Zeroed pages of our own, or pages of a file.
class MapMemory {
 public:
  // `populate`: no page fault later, on the data path. Without it, memory that is never used is
  // never taken (BPF_F_NO_PREALLOC).
  static Result<MapMemory> create(size_t bytes, bool populate);
  // What the caller mapped; it is unmapped with this object.
  static MapMemory adopt(void* address, size_t bytes) { return {address, bytes}; }

  MapMemory() = default;
  MapMemory(MapMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MapMemory& operator=(MapMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  MapMemory(const MapMemory&) = delete;
  MapMemory& operator=(const MapMemory&) = delete;
  ~MapMemory();

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  MapMemory(void* address, size_t bytes) : data_(static_cast<uint8_t*>(address)), bytes_(bytes) {}
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
// What a value takes in memory, and one copy of it in the kernel's system calls.
constexpr size_t value_stride(size_t value_size) { return round_up(value_size, 8); }
// Values that a worker's area of per-CPU values has room for: with strides of 8 bytes, each area
// begins a cache line, and all areas together are one row of values.
constexpr size_t area_entries(size_t entries) { return round_up(entries, 8); }

inline SharedWord<uint64_t>* words_at(void* aligned) {
  return static_cast<SharedWord<uint64_t>*>(aligned);
}
inline const SharedWord<uint64_t>* words_at(const void* aligned) {
  return static_cast<const SharedWord<uint64_t>*>(aligned);
}

// Word `index` of `bytes` bytes that need not be aligned, zeros behind the end.
inline uint64_t private_word(const void* from, size_t bytes, size_t index) {
  uint64_t word = 0;
  const size_t begin = index * 8;
  if (begin + 8 <= bytes) {
    std::memcpy(&word, static_cast<const uint8_t*>(from) + begin, 8);
  } else {
    std::memcpy(&word, static_cast<const uint8_t*>(from) + begin, bytes - begin);
  }
  return word;
}

// Both halves of a product: a cheap mix in which each bit of the input reaches each of the result.
inline uint64_t mix_words(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Into a value, whose padding becomes zero.
inline void copy_in(uint8_t* value, const void* from, size_t bytes) {
  SharedWord<uint64_t>* words = words_at(value);
  for (size_t i = 0; i < value_stride(bytes) / 8; ++i) {
    words[i].store_relaxed(private_word(from, bytes, i));
  }
}
// Out of a value; `to` need not be aligned.
inline void copy_out(void* to, const uint8_t* value, size_t bytes) {
  const SharedWord<uint64_t>* words = words_at(value);
  for (size_t begin = 0; begin < bytes; begin += 8) {
    const uint64_t word = words[begin / 8].load_relaxed();
    std::memcpy(static_cast<uint8_t*>(to) + begin, &word, bytes - begin < 8 ? bytes - begin : 8);
  }
}
inline void clear_value(uint8_t* value, size_t bytes) {
  SharedWord<uint64_t>* words = words_at(value);
  for (size_t i = 0; i < value_stride(bytes) / 8; ++i) words[i].store_relaxed(0);
}

}  // namespace sluice
