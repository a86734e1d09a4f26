// The two formats of a virtqueue. [virtio 2.7], [virtio 2.8]
#pragma once

#include <cstdint>

namespace sluice {

enum class RingFormat : uint8_t { split, packed };

}  // namespace sluice
