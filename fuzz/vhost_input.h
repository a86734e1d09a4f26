// What the fuzzers of both halves of vhost-user share: an input that is taken from bit by bit, and
// descriptors to hand over.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "vhost/session_test_kit.h"

namespace sluice {

// Takes values off the front of the input; zeros when it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t bytes) : rest_(data, bytes) {}
  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
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

// Made once: what the peer keeps open is not counted against us.
inline const std::vector<Fd>& things() {
  static const std::vector<Fd> all = [] {
    std::vector<Fd> made;
    made.push_back(make_event());
    made.push_back(make_memory(TestFrontEnd::kMemoryBytes));
    made.push_back(make_memory(100));
    int pair[2];
    SLUICE_ASSERT(::pipe2(pair, O_CLOEXEC) == 0);
    made.emplace_back(pair[0]);
    made.emplace_back(pair[1]);
    SLUICE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    made.emplace_back(pair[0]);
    made.emplace_back(pair[1]);
    return made;
  }();
  return all;
}

// None to three of them, or, with bit 6, more than a message may have.
inline std::vector<int> some_things(Input& input, uint8_t control) {
  std::vector<int> fds;
  for (int count = control & 3; count > 0; --count)
    fds.push_back(things()[input.byte() % things().size()].get());
  if ((control & 0x40) != 0) fds.resize(12, things()[0].get());
  return fds;
}

}  // namespace sluice
