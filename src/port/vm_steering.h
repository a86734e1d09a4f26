// VmSteering: to which of a VM's receive queues a frame goes, and the hash that it is told with.
//
// What: the guest's own configuration (an indirection table over a hash with its key), or, while it
// has given none, an even spread of flows over the queue pairs that are in use. What not: for VMs
// whose queues are breathed by several workers; a frame may only cross to a queue of the same
// worker.
//
// Written between breaths, read by the worker. [virtio 5.1.6.5.7 Receive-side scaling],
// [virtio 5.1.6.5.6.4 Hash reporting]
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "memory/frame.h"
#include "packet/flow_hash.h"

namespace sluice {

// What the configuration space says about us. [virtio 5.1.4]
inline constexpr uint16_t kRssTableEntriesMax = 128;

// What the guest asked for by the control queue.
struct RssRequest {
  uint32_t hash_types = 0;
  std::span<const uint16_t> table;  // receive queues; a power of two of them, up to the maximum
  uint16_t unclassified_queue = 0;  // for what has no hash
  uint16_t transmit_pairs = 0;
  std::span<const uint8_t> key;  // up to kHashKeyBytes
};
struct HashRequest {
  uint32_t hash_types = 0;
  std::span<const uint8_t> key;
};

class VmSteering {
 public:
  VmSteering() : key_(default_hash_key()) {}

  // By the guest. The caller has checked the numbers.
  void configure(const RssRequest& request);
  void configure(const HashRequest& request);
  // Back to the even spread; with forget() the hash configuration and reports go as well.
  void forget_table() { configured_ = false; }
  void forget();
  // The pairs that frames may be spread over while the guest has not said.
  void set_active(std::span<const uint16_t> pairs);
  // Whether frames are spread at all, and whether they need a hash for their header.
  void set_spreads(bool spreads) { spreads_ = spreads; }
  void set_reports(bool reports) { reports_ = reports; }

  bool is_needed() const { return reports_ || (spreads_ && (configured_ || active_count_ > 1)); }
  bool has_table() const { return configured_; }
  bool spreads() const { return spreads_ && (configured_ || active_count_ > 1); }
  // The receive queue for a frame that came in by the pair `own`; stores the frame's hash.
  uint16_t pick(Frame& frame, uint16_t own) const;

 private:
  ToeplitzKey key_;
  uint32_t hash_types_ = 0;
  bool configured_ = false;
  bool spreads_ = false;
  bool reports_ = false;
  uint16_t unclassified_ = 0;
  uint16_t table_mask_ = 0;
  uint16_t active_count_ = 0;
  std::array<uint16_t, kRssTableEntriesMax> table_{};
  std::array<uint16_t, kQueuePairsMax> active_{};
};

}  // namespace sluice
