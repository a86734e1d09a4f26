// NicMemory: the memory that a nic shares with its back end: rings and buffers in one region, a
// sealed memfd.
//
// The back end may write all of it at any time, so nothing in it is read twice, and nothing that
// decides something is kept in it. It cannot be made shorter, by either side. Guest-physical
// addresses begin at 0 with a page that is not used; front-end addresses are our own.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/result.h"
#include "memory/address.h"
#include "memory/guest_span.h"

namespace sluice {

class NicMemory {
 public:
  static Result<NicMemory> create(uint64_t bytes);
  NicMemory() = default;
  NicMemory(NicMemory&& other) noexcept { *this = static_cast<NicMemory&&>(other); }
  NicMemory& operator=(NicMemory&& other) noexcept;
  ~NicMemory();

  // The next free range. That the sum was right is asserted.
  GuestAddr take(uint64_t bytes, uint64_t alignment);
  uint8_t* at(GuestAddr address) const { return begin_ + raw(address); }
  GuestSpan span(GuestAddr address, uint64_t bytes) const {
    SLUICE_ASSERT(raw(address) <= bytes_ && bytes <= bytes_ - raw(address));
    return GuestSpan(at(address), bytes);
  }
  FrontendAddr frontend(GuestAddr address) const {
    return FrontendAddr{reinterpret_cast<uint64_t>(at(address))};
  }
  const Fd& file() const { return file_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Fd file_;
  uint8_t* begin_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t next_ = 4096;
};

}  // namespace sluice
