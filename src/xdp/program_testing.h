// For tests: instructions by what they do, and memory below 4 GiB.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "xdp/program_image.h"

namespace sluice {

inline Instruction mov(uint8_t to, int32_t value) {
  return {BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value};
}
inline Instruction add_register(uint8_t to, uint8_t from) {
  return {BPF_ALU64 | BPF_ADD | BPF_X, to, from, 0, 0};
}
inline uint8_t size_code(int bytes) {
  return bytes == 1 ? BPF_B : bytes == 2 ? BPF_H : bytes == 4 ? BPF_W : BPF_DW;
}
inline Instruction load(int bytes, uint8_t to, uint8_t from, int16_t offset) {
  return {static_cast<uint8_t>(BPF_LDX | BPF_MEM | size_code(bytes)), to, from, offset, 0};
}
inline Instruction store_number(int bytes, uint8_t at, int16_t offset, int32_t value) {
  return {static_cast<uint8_t>(BPF_ST | BPF_MEM | size_code(bytes)), at, 0, offset, value};
}
inline Instruction store(int bytes, uint8_t at, int16_t offset, uint8_t from) {
  return {static_cast<uint8_t>(BPF_STX | BPF_MEM | size_code(bytes)), at, from, offset, 0};
}
inline Instruction call_helper(int32_t id) { return {BPF_JMP | BPF_CALL, 0, 0, 0, id}; }
inline Instruction call_function(int32_t distance) {
  return {BPF_JMP | BPF_CALL, 0, 1, 0, distance};
}
inline Instruction jump_to(int16_t distance) { return {BPF_JMP | BPF_JA, 0, 0, distance, 0}; }
inline Instruction jump_if(uint8_t operation, uint8_t reg, int32_t value, int16_t distance) {
  return {static_cast<uint8_t>(BPF_JMP | operation | BPF_K), reg, 0, distance, value};
}
inline Instruction exit_now() { return {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}; }
// Two instructions: the address of a map, by its index.
inline std::vector<Instruction> load_map(uint8_t to, int32_t index) {
  return {{BPF_LD | BPF_DW | BPF_IMM, to, uint8_t(WideImmediate::map), 0, index}, {}};
}

inline const HelperTable& no_helpers() {
  static const HelperTable table;
  return table;
}

inline ProgramImage checked(const std::vector<Instruction>& code,
                            const HelperTable& helpers = no_helpers(),
                            std::span<const MapRef> maps = {}) {
  Result<ProgramImage> image = check_image({code, maps}, helpers);
  EXPECT_TRUE(image) << (image ? "" : image.error().text);
  return image ? std::move(*image) : ProgramImage{};
}

// 64 KiB that a 32-bit pointer reaches.
class LowMemory {
 public:
  LowMemory()
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0)) {}
  ~LowMemory() {
    if (*this) munmap(memory_, kBytes);
  }
  LowMemory(const LowMemory&) = delete;
  LowMemory& operator=(const LowMemory&) = delete;
  explicit operator bool() const { return memory_ != MAP_FAILED; }
  uint8_t* data() const { return static_cast<uint8_t*>(memory_); }
  uint32_t address() const { return static_cast<uint32_t>(reinterpret_cast<uint64_t>(memory_)); }
  static constexpr size_t kBytes = 65536;

 private:
  void* memory_;
};

}  // namespace sluice
