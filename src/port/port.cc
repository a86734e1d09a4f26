#include "port/port.h"

#include <bit>

namespace sluice {

void QueueCounters::count_batch(size_t frame_count, size_t byte_count) {
  SLUICE_ASSERT(frame_count > 0 && frame_count <= kBatchFramesMax);
  frames.add(frame_count);
  bytes.add(byte_count);
  batch_histogram[static_cast<size_t>(std::bit_width(frame_count)) - 1].add(1);
}

}  // namespace sluice
