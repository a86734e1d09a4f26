// NumberCheck: what became of frames that carry a number of their flow: lost, out of order, twice.
//
// For each flow it remembers which of the last 1024 numbers have come. A number that was skipped
// counts as lost until it comes after all; then it counts as out of order instead. Memory is
// bounded and made once; whatever is received changes figures only.
//
//   NumberCheck check(flow_count, NumberCheck::Begin::at_zero);
//   check.saw(tag.flow, tag.number);
//   check.counts().lost
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace sluice {

struct NumberCounts {
  uint64_t received = 0;    // frames, all of the following but the lost included
  uint64_t lost = 0;        // numbers that were skipped and have not come since
  uint64_t reordered = 0;   // came behind a higher number
  uint64_t duplicates = 0;  // came once more
  uint64_t too_late = 0;  // so far behind that it cannot be told what they are; stay lost, if lost
  uint64_t bad_flow = 0;  // a flow that is not among ours
};

class NumberCheck {
 public:
  // at_zero: the first number of each flow is 0, and what is missing before the first is lost.
  // at_first_seen: the sender may have begun before us.
  enum class Begin : uint8_t { at_zero, at_first_seen };

  NumberCheck(uint32_t flow_count, Begin begin);

  // False: the number had come before, or its flow is not ours.
  bool saw(uint32_t flow, uint64_t number);
  const NumberCounts& counts() const { return counts_; }

 private:
  static constexpr uint64_t kWindow = 1024;
  struct Flow {
    uint64_t first = 0;  // those before it are not missed
    uint64_t next = 0;   // one behind the highest seen
    bool has_begun = false;
    std::array<uint64_t, kWindow / 64> seen{};  // by number modulo kWindow
  };
  static bool test(const Flow& flow, uint64_t number) {
    return flow.seen[number % kWindow / 64] >> (number % 64) & 1;
  }
  static void set(Flow& flow, uint64_t number) {
    flow.seen[number % kWindow / 64] |= uint64_t{1} << (number % 64);
  }
  static void skip(Flow& flow, uint64_t from, uint64_t to);
  bool saw_behind(Flow& flow, uint64_t number);

  std::vector<Flow> flows_;
  NumberCounts counts_;
};

}  // namespace sluice
