// What the fuzzers of both halves of vhost-user share: descriptors to hand over, and a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/log.h"
#include "fuzz_input.h"
#include "vhost/session_test_kit.h"

namespace sluice {

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
inline std::vector<int> some_things(FuzzInput& input, uint8_t control) {
  std::vector<int> fds;
  for (int count = control & 3; count > 0; --count)
    fds.push_back(things()[input.byte() % things().size()].get());
  if ((control & 0x40) != 0) fds.resize(12, things()[0].get());
  return fds;
}

// One run of either fuzzer: talk(input) leaves no descriptor open.
template <typename Talk>
void run_without_a_leak(const uint8_t* data, size_t bytes, Talk talk) {
  set_log_level(LogLevel::error);
  things();
  const size_t open_before = open_descriptor_count();
  talk(FuzzInput(data, std::min<size_t>(bytes, 4096)));
  SLUICE_ASSERT(open_descriptor_count() == open_before);
}

}  // namespace sluice
