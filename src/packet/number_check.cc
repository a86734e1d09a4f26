#include "packet/number_check.h"

#include "base/assert.h"

namespace sluice {

NumberCheck::NumberCheck(uint32_t flow_count, Begin begin) : flows_(flow_count) {
  SLUICE_ASSERT(flow_count > 0);
  for (Flow& flow : flows_) flow.has_begun = begin == Begin::at_zero;
}

bool NumberCheck::saw(uint32_t flow_index, uint64_t number) {
  ++counts_.received;
  if (flow_index >= flows_.size()) {
    ++counts_.bad_flow;
    return false;
  }
  Flow& flow = flows_[flow_index];
  if (!flow.has_begun) {
    flow.has_begun = true;
    flow.first = flow.next = number;
  }
  if (number < flow.next) return saw_behind(flow, number);
  counts_.lost += number - flow.next;
  skip(flow, flow.next, number);
  set(flow, number);
  flow.next = number + 1;
  return true;
}

// Numbers [from, to] have not been seen; bounded by the window.
void NumberCheck::skip(Flow& flow, uint64_t from, uint64_t to) {
  if (to - from >= kWindow) {
    flow.seen.fill(0);
    return;
  }
  for (uint64_t number = from; number <= to; ++number)
    flow.seen[number % kWindow / 64] &= ~(uint64_t{1} << (number % 64));
}

bool NumberCheck::saw_behind(Flow& flow, uint64_t number) {
  if (flow.next - number > kWindow) {
    ++counts_.too_late;
    return true;  // as far as can be told
  }
  if (test(flow, number)) {
    ++counts_.duplicates;
    return false;
  }
  set(flow, number);
  ++counts_.reordered;
  if (number >= flow.first) --counts_.lost;
  return true;
}

}  // namespace sluice
