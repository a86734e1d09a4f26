// The other side of a ring that we drive ourselves, for measurements and tests in which both sides
// are ours.
//
//   SplitQueue queue = device_side_of<SplitDriver>(driver_setup, guest_memory);
#pragma once

#include <memory>
#include <type_traits>

#include "virtio/driver_ring.h"
#include "virtio/packed_driver.h"
#include "virtio/packed_queue.h"
#include "virtio/split_queue.h"

namespace sluice {

template <typename Driver>
auto device_side_of(const DriverRingSetup& driver, std::shared_ptr<const GuestMemory> memory) {
  constexpr bool kIsPacked = std::is_same_v<Driver, PackedDriver>;
  std::conditional_t<kIsPacked, PackedQueueSetup, SplitQueueSetup> device;
  device.size = driver.size;
  device.event_idx = driver.event_idx;
  device.indirect = driver.indirect;
  device.in_order = driver.in_order;
  device.descriptors = driver.descriptors;
  if constexpr (kIsPacked) {
    device.driver_event = driver.driver_area;
    device.device_event = driver.device_area;
  } else {
    device.available = driver.driver_area;
    device.used = driver.device_area;
  }
  device.memory = std::move(memory);
  return std::conditional_t<kIsPacked, PackedQueue, SplitQueue>(std::move(device));
}

}  // namespace sluice
