// Hints to the cache. They change no value and may be given for any address.
#pragma once

namespace sluice {

// The line will be read.
inline void prefetch_for_reading(const void* line) { __builtin_prefetch(line); }

// The line will be written: it is fetched and taken from other CPUs' caches. The builtin does not
// say so for the baseline x86-64, though every such CPU takes the instruction, at worst as no
// operation; the plain fetch in its place leaves the line shared, and the write then waits.
inline void prefetch_for_writing(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace sluice
