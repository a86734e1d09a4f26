// MapRef: what the code of a program knows of a map that it names.
//
// The program's registers hold `map` where the kernel's would hold its struct bpf_map; helpers cast
// it back. The other two are short cuts: an array whose values lie side by side is looked up
// without a call, and a tail call finds its program without one.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace sluice {

class XdpMap;

// Value `i` of an array lies at base + i * stride, for i < max_entries, as long as the map lives.
struct ArrayLayout {
  uint8_t* base = nullptr;
  uint32_t value_size = 0;  // bytes
  uint32_t stride = 0;      // bytes; what the kernel uses: value_size rounded up to 8
  uint32_t max_entries = 0;
};

// A program that a tail call can reach; the interpreter and the JIT each know how to enter it.
class TailTarget {
 public:
  virtual ~TailTarget() = default;
  const void* jit_entry = nullptr;  // behind the prologue; null: interpret it
  const void* image = nullptr;      // the ProgramImage, for the interpreter
};

// The slots of a prog array; null: empty. A slot's target stays valid until every worker has passed
// a breath after it was taken out.
struct ProgramSlots {
  const std::atomic<const TailTarget*>* slots = nullptr;
  uint32_t max_entries = 0;
};

struct MapRef {
  XdpMap* map = nullptr;
  uint32_t key_size = 0;                 // bytes
  uint32_t value_size = 0;               // bytes
  std::optional<ArrayLayout> array;      // only for arrays that are not per CPU
  std::optional<ProgramSlots> programs;  // only for prog arrays
  // Where the values of any other map lie, all copies, for the checked interpreter; none where a
  // lookup gives no memory.
  std::optional<ArrayLayout> values = {};
};

}  // namespace sluice
