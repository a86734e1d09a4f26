// Whether a frame and the offloads asked for it agree. Pure.
//
// Offload fields come from a guest or from a kernel header and are never trusted: lengths are
// checked against the frame, hints are clamped, and what was not negotiated is refused.
// [virtio 5.1.6.2]
#pragma once

#include <optional>

#include "base/drop_reason.h"
#include "memory/frame.h"

namespace sluice {

// Checks what is asked for a packet of `packet_bytes`. Mends what is only a hint (header_bytes).
// nullopt: agrees.
std::optional<DropReason> check_offload(OffloadMeta& offload, size_t packet_bytes,
                                        const OffloadSet& allowed);

}  // namespace sluice
