// The helpers that read and write text: trace_printk, snprintf, strncmp.
//
// A format is the kernel's: %d %i %u %x %X with l or ll, %c, %s, %p (hashed) and %px, each with
// flags and a width, and %%; anything else is -EINVAL. A string that cannot be read is an empty
// one: no pointer that a program has may stop us. trace_printk writes to our log, a few lines a
// second and worker and no more, since a guest's packets decide how often a program calls it.
#pragma once

#include <cstdint>

namespace sluice {

uint64_t helper_trace_printk(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5);
uint64_t helper_snprintf(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5);
uint64_t helper_strncmp(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5);

}  // namespace sluice
