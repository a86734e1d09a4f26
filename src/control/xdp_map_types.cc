#include "control/xdp_map_types.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>

#include "base/fd.h"
#include "xdp/btf_format.h"

namespace sluice {

void MapTypes::Free::operator()(btf* types) const { btf__free(types); }

MapTypes::MapTypes(uint32_t kernel_id) {
  if (kernel_id == 0) return;
  const Fd map(bpf_map_get_fd_by_id(kernel_id));
  bpf_map_info info{};
  uint32_t bytes = sizeof info;
  if (!map || bpf_obj_get_info_by_fd(map.get(), &info, &bytes) != 0 || info.btf_id == 0) return;
  types_.reset(btf__load_from_kernel_by_id(info.btf_id));
  key_type_ = info.btf_key_type_id;
  value_type_ = info.btf_value_type_id;
}

std::string MapTypes::text(uint32_t type, std::span<const uint8_t> bytes) const {
  if (types_ && type != 0) {
    if (const auto typed = format_typed(*types_, type, bytes)) return *typed;
  }
  return format_bytes(bytes);
}

}  // namespace sluice
