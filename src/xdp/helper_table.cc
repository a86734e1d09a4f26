#include "xdp/helper_table.h"

#include <fmt/format.h>
#include <linux/bpf.h>

#include "base/assert.h"

namespace sluice {
namespace {

constexpr const char* kHelperNames[] = {
#define SLUICE_HELPER_NAME(name) "bpf_" #name
    __BPF_FUNC_MAPPER(SLUICE_HELPER_NAME)
#undef SLUICE_HELPER_NAME
};

}  // namespace

HelperTable::HelperTable(std::initializer_list<std::span<const HelperEntry>> lists) {
  for (const auto& list : lists)
    for (const HelperEntry& entry : list) {
      SLUICE_ASSERT(entry.id < kIds && functions_[entry.id] == nullptr);
      functions_[entry.id] = entry.function;
    }
}

std::string helper_name(uint32_t id) {
  if (id == 0 || id >= std::size(kHelperNames)) return fmt::format("number {}", id);
  return fmt::format("{} ({})", kHelperNames[id], id);
}

}  // namespace sluice
