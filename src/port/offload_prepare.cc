#include "port/offload_prepare.h"

#include "packet/checksum.h"

namespace sluice {
namespace {

bool takes_segmentation(const OffloadMeta& offload, const OffloadSet& takes) {
  switch (offload.gso_type) {
    case GsoType::none:
      break;
    case GsoType::tcp4:
      if (!takes.tso4) return false;
      break;
    case GsoType::tcp6:
      if (!takes.tso6) return false;
      break;
    case GsoType::udp_l4:
      if (!takes.uso) return false;
      break;
    case GsoType::udp_fragment:
      return false;
  }
  return !offload.gso_ecn || takes.tso_ecn;
}

}  // namespace

std::optional<DropReason> prepare_offload(Frame& frame, const OffloadSet& takes) {
  OffloadMeta& offload = frame.offload();
  if (!takes_segmentation(offload, takes)) return DropReason::offload_not_negotiated;
  if (takes.csum) return std::nullopt;
  offload.data_valid = false;
  if (!offload.needs_csum) return std::nullopt;
  // A sum over guest memory by reference is for a later floor; it cannot be completed here.
  const size_t field_end = size_t{offload.csum_start} + offload.csum_offset + 2;
  if (frame.tail_kind() == TailKind::spans || field_end > frame.head_bytes())
    return DropReason::offload_not_negotiated;
  complete_checksum(frame);
  return std::nullopt;
}

}  // namespace sluice
