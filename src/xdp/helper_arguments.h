// Of what kind each helper's arguments are: what the kernel's verifier knows of them, for programs
// that it has not seen.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

enum class ArgumentKind : uint8_t {
  any,
  context,        // the xdp_md itself
  map,            // one of the program's maps
  key,            // as many bytes as a key of that map has, readable
  value,          // as many as a value has, readable…
  value_out,      // …or writable
  bytes,          // readable, as many as the next argument says…
  bytes_or_null,  // …or null
  bytes_out,      // writable, as many as the next argument says
  word_out,       // 4 writable bytes
};

// Null: the helper is not for unverified programs.
const std::array<ArgumentKind, 5>* argument_kinds(uint32_t helper_id);

}  // namespace sluice
