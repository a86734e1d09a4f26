// CodePages: machine code in pages of its own, never writable and executable at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/result.h"

namespace sluice {

class CodePages {
 public:
  CodePages() = default;
  // Copies position-independent code into fresh pages and makes them executable.
  static Result<CodePages> from(std::span<const uint8_t> code);
  CodePages(CodePages&& other) noexcept { swap(other); }
  CodePages& operator=(CodePages&& other) noexcept {
    swap(other);
    return *this;
  }
  ~CodePages();

  const uint8_t* begin() const { return static_cast<const uint8_t*>(memory_); }
  size_t bytes() const { return bytes_; }

 private:
  void swap(CodePages& other) {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace sluice
