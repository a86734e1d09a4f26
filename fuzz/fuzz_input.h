// What fuzzers take their steps from: an input that is used up bit by bit, and zeros behind it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t bytes) : rest_(data, bytes) {}
  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  uint16_t word() { return static_cast<uint16_t>(byte() | byte() << 8); }
  uint32_t dword() { return word() | static_cast<uint32_t>(word()) << 16; }
  std::vector<uint8_t> bytes(size_t count) {
    std::vector<uint8_t> taken(count);
    const size_t have = std::min(count, rest_.size());
    std::copy_n(rest_.begin(), have, taken.begin());
    rest_ = rest_.subspan(have);
    return taken;
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace sluice
