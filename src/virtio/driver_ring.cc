#include "virtio/driver_ring.h"

namespace sluice {

const char* driver_fault_sentence(DriverFault fault) {
  switch (fault) {
    case DriverFault::none:
      return "no fault";
    case DriverFault::used_index_jump:
      return "the used index moved past what was made available";
    case DriverFault::id_out_of_range:
      return "a used id is outside the ring";
    case DriverFault::id_not_outstanding:
      return "a used id was never handed out, or came back twice";
    case DriverFault::too_many_bytes:
      return "a used length is more than the buffer holds";
    case DriverFault::batch_too_long:
      return "a used id stands for more buffers than were used";
  }
  return "?";
}

}  // namespace sluice
