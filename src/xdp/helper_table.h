// HelperTable: the helpers that programs may call, by their number. Everything that is not in it is
// refused before a program runs.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "xdp/helper_function.h"

namespace sluice {

// Numbers that the engine serves itself, since they need its inside: it enters another program, or
// calls a function of this one.
inline constexpr uint32_t kHelperTailCall = 12;
inline constexpr uint32_t kHelperLoop = 181;
inline constexpr uint32_t kHelperMapLookup = 1;

class HelperTable {
 public:
  // No helper at all but those that the engine serves itself.
  HelperTable() = default;
  HelperTable(std::initializer_list<std::span<const HelperEntry>> lists);

  // Null: not offered, or served by the engine.
  HelperFunction find(uint32_t id) const { return id < kIds ? functions_[id] : nullptr; }
  // find() as a table, for compiled code.
  std::span<const HelperFunction> functions() const { return functions_; }
  bool is_offered(uint32_t id) const {
    return find(id) != nullptr || id == kHelperTailCall || id == kHelperLoop;
  }

 private:
  static constexpr size_t kIds = 256;
  std::array<HelperFunction, kIds> functions_{};
};

// "bpf_fib_lookup (69)"; a number that Debian 12's headers do not know is only a number.
std::string helper_name(uint32_t id);

}  // namespace sluice
