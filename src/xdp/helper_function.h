// HelperFunction: what a program's `call <helper id>` reaches.
//
// A helper takes the program's r1…r5 and leaves r0, as the kernel's do; what else it needs (the
// frame, where a redirect goes) it finds in run_state.h. It must keep the contract that the
// kernel's verifier has for that id: the range of the pointer that it returns, when it returns
// null, which memory it may write.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

using HelperFunction = uint64_t (*)(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4,
                                    uint64_t r5);

// One row of a table of helpers. `id` is the kernel's number (enum bpf_func_id).
struct HelperEntry {
  uint32_t id;
  const char* name;  // without "bpf_": "map_lookup_elem"
  HelperFunction function;
};

// Tables by file; standard_helpers() (xdp_program.h) puts them together.
std::span<const HelperEntry> packet_helpers();
std::span<const HelperEntry> map_helpers();

}  // namespace sluice
