// Assertions for our own mistakes, never for what a guest, a peer or a user sends.
//
// SLUICE_ASSERT stays on in every build: a violated invariant in a data path that handles foreign
// memory is worth an abort. Code that foreign data can reach uses counters and results instead;
// fuzzers run with assertions on to prove it.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace sluice {

[[noreturn]] inline void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "sluice: internal error: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace sluice

#define SLUICE_ASSERT(expression)                                  \
  do {                                                             \
    if (!(expression)) [[unlikely]]                                \
      ::sluice::assertion_failed(#expression, __FILE__, __LINE__); \
  } while (false)
