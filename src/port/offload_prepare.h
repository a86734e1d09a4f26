// What a frame still needs before a receiver on a ring can have it: towards a guest, or from a nic
// towards its device.
#pragma once

#include <optional>

#include "base/drop_reason.h"
#include "memory/frame.h"

namespace sluice {

// Does for the receiver what it did not agree to do itself: completes checksums. A reason: the
// frame needs more than can be done here. [virtio 5.1.6.4.1]
std::optional<DropReason> prepare_offload(Frame& frame, const OffloadSet& takes);

}  // namespace sluice
