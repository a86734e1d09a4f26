#include "packet/offload_check.h"

#include <algorithm>

namespace sluice {
namespace {

bool gso_allowed(const OffloadMeta& offload, const OffloadSet& allowed) {
  if (offload.gso_ecn && !allowed.tso_ecn) return false;
  switch (offload.gso_type) {
    case GsoType::none:
      return true;
    case GsoType::tcp4:
      return allowed.tso4;
    case GsoType::tcp6:
      return allowed.tso6;
    case GsoType::udp_l4:
      return allowed.uso;
    case GsoType::udp_fragment:
      return false;  // never offered
  }
  return false;
}

}  // namespace

std::optional<DropReason> check_offload(OffloadMeta& offload, size_t packet_bytes,
                                        const OffloadSet& allowed) {
  if (packet_bytes < kPacketBytesMin) return DropReason::runt;
  if (packet_bytes > kPacketBytesMax) return DropReason::oversize;
  // Nobody but us can vouch for a checksum towards the host. [virtio 5.1.6.2]
  size_t header_end = 0;
  if (offload.needs_csum) {
    if (!allowed.csum) return DropReason::offload_not_negotiated;
    const size_t field_end = size_t{offload.csum_start} + offload.csum_offset + 2;
    if (offload.csum_start < kPacketBytesMin || field_end > packet_bytes)
      return DropReason::bad_net_header;
    header_end = field_end;
  }
  if (offload.gso_type != GsoType::none) {
    if (!gso_allowed(offload, allowed)) return DropReason::offload_not_negotiated;
    // A driver MUST set NEEDS_CSUM with a segmentation type. [virtio 5.1.6.2.1]
    if (!offload.needs_csum || offload.gso_size == 0) return DropReason::bad_net_header;
  }
  // The header length is a hint only: it lies between the checksum field and the packet's end.
  offload.header_bytes = static_cast<uint16_t>(std::min(
      std::max<size_t>(offload.header_bytes, header_end), std::min<size_t>(packet_bytes, 65535)));
  return std::nullopt;
}

}  // namespace sluice
