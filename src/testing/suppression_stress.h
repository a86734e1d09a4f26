// The stress that notification suppression has to stand: a driver and a device, each in a thread of
// its own, that sleep on eventfds whenever they find nothing to do.
//
// Between deciding to sleep and sleeping each side has to say so, fence, and look again; if one
// does not, both end up asleep with work on the ring. That is seen for certain, not by a timeout:
// both threads wait, nobody else would wake them, and neither eventfd is readable.
//
// The same stress runs in a binary whose device side has no fence (SLUICE_MUTANT_NO_FENCE), where
// it has to stall: that proves that it can.
#pragma once

#include <cstdint>

#include "testing/bell.h"
#include "virtio/ring_format.h"

namespace sluice {

struct StressOptions {
  RingFormat format = RingFormat::split;
  uint64_t chains = 200'000;
  uint32_t ring_size = 256;
  uint32_t outstanding_max = 1;  // 1 is the sharpest: no later chain heals a lost wake-up
  bool event_idx = true;
  uint16_t start_index = 65'000;  // as FakeDriverOptions has it
  // How often each side looks at its eventfd before it sleeps on it: many rounds, or true sleep.
  uint32_t looks_before_sleep = 3000;
  uint32_t seconds_max = 5;  // ends the stress early; 0: never
};

struct StressResult {
  uint64_t completed = 0;
  StressEnd end = StressEnd::done;
  bool wrong_payload = false;         // what came back is not what was sent
  bool wrong_order_of_calls = false;  // the device broke the ring, or gave a chain back twice
  uint64_t kicks = 0;
  uint64_t interrupts = 0;
  uint64_t device_sleeps = 0;
  uint64_t driver_sleeps = 0;
};

StressResult run_suppression_stress(const StressOptions& options);

}  // namespace sluice
