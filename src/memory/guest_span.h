// GuestSpan: a run of guest memory that is mapped in our process.
//
// The guest may write it at any moment, so there are no references into it: bytes are copied out or
// in, and what was copied out is what gets checked and used. A span is valid as long as the
// GuestMemory it came from, that is for one burst.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/assert.h"
#include "base/prefetch.h"

namespace sluice {

class GuestSpan {
 public:
  GuestSpan() = default;
  GuestSpan(uint8_t* host, size_t bytes) : host_(host), bytes_(bytes) {}

  size_t size() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }

  // Copies `bytes` from `offset` on into our memory. The range lies within the span.
  void copy_out(size_t offset, void* destination, size_t bytes) const {
    SLUICE_ASSERT(offset <= bytes_ && bytes <= bytes_ - offset);
    std::memcpy(destination, host_ + offset, bytes);
    // Foreign memory has been read once and for all: the compiler may not go back to it where the
    // copy is used.
    std::atomic_signal_fence(std::memory_order_acq_rel);
  }
  // Copies `bytes` of our memory to `offset` on. The range lies within the span.
  void copy_in(size_t offset, const void* source, size_t bytes) {
    SLUICE_ASSERT(offset <= bytes_ && bytes <= bytes_ - offset);
    std::memcpy(host_ + offset, source, bytes);
  }
  // The part from `offset` on, `bytes` long.
  GuestSpan subspan(size_t offset, size_t bytes) const {
    SLUICE_ASSERT(offset <= bytes_ && bytes <= bytes_ - offset);
    return GuestSpan(host_ + offset, bytes);
  }
  // For system calls that read or write guest memory on our behalf: the kernel answers EFAULT where
  // a copy of ours would get SIGBUS.
  iovec to_iovec() const { return iovec{host_, bytes_}; }
  void prefetch() const { sluice::prefetch_for_reading(host_); }
  void prefetch_for_writing() const { sluice::prefetch_for_writing(host_); }
  // For SharedWord overlays of rings; `offset` is checked by the caller against size().
  void* address_for_shared_words() const { return host_; }

 private:
  uint8_t* host_ = nullptr;
  size_t bytes_ = 0;
};

// Copies up to `bytes` from `spans`, starting `offset` bytes into them, to `destination`; returns
// how many there were.
size_t copy_out(std::span<const GuestSpan> spans, size_t offset, void* destination, size_t bytes);
// Copies `bytes` of `source` into `spans`, starting `offset` bytes into them; returns how many fit.
size_t copy_in(std::span<GuestSpan> spans, size_t offset, const void* source, size_t bytes);
// The sum of their sizes. Cannot overflow for spans of one chain, which is limited to 2^32 bytes.
size_t total_bytes(std::span<const GuestSpan> spans);

}  // namespace sluice
