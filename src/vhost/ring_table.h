// RingTable: the rings of one front end, as its messages describe them, and which of them run.
//
// What: collects size, addresses, base and descriptors of each ring in whatever order they come,
// and starts a ring in the device once it is complete. What not: messages, replies, or the running
// rings themselves, which are the device's.
//
// A ring is complete when features, memory, size, addresses and a kick are known (a call is not
// needed). What happens to a running ring:
//
//   message                      effect
//   SET_VRING_ADDR, _BASE, _KICK  stop, apply, start
//   SET_VRING_NUM                 stop, apply; the rest of the set-up follows, with a new kick:
//                                 the old addresses do not belong to the new size
//   SET_VRING_CALL, _ERR, _ENABLE passed on, the ring runs on
//   GET_VRING_BASE                stop; the next kick starts it again, with all else as it was
//   new memory, new features      all stop, apply, all start; what is no longer mapped stays
//   stopped
//
// Invariants: a ring index is compared in full before it is used; the device sees ring_start() only
// for stopped rings and ring_stop() only for running ones; it gets copies of the descriptors, ours
// stay here for the next start.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/result.h"
#include "memory/guest_memory.h"
#include "vhost/backend_device.h"

namespace sluice {

struct RingAddresses {
  FrontendAddr descriptors{};
  FrontendAddr available{};
  FrontendAddr used{};
};

class RingTable {
 public:
  // Rings 0 to 2 * queue_pairs_max() of the device: the data rings, and one for control.
  explicit RingTable(BackendDevice& device);
  ~RingTable() { stop_all(); }
  RingTable(const RingTable&) = delete;
  RingTable& operator=(const RingTable&) = delete;

  uint32_t count() const { return static_cast<uint32_t>(rings_.size()); }
  uint32_t running_count() const;

  Result<void> set_size(uint32_t index, uint32_t size);
  Result<void> set_base(uint32_t index, uint32_t base);
  Result<void> set_addresses(uint32_t index, const RingAddresses& addresses);
  // Invalid descriptors mean NOFD: the ring is polled, or the front end polls.
  Result<void> set_kick(uint32_t index, Fd kick);
  Result<void> set_call(uint32_t index, Fd call);
  Result<void> set_error(uint32_t index, Fd error);
  Result<void> set_enabled(uint32_t index, bool enabled);
  // Stops the ring until its next kick and answers where it stopped. [vhost-user GET_VRING_BASE]
  Result<uint32_t> stop_and_get_base(uint32_t index);

  // `features` are sanitized. Tells the device, between the stop and the start of all rings.
  // enabled_from_start: protocol features were not acknowledged. [vhost-user Ring states]
  void set_features(uint64_t features, bool enabled_from_start);
  void set_memory(std::shared_ptr<const GuestMemory> memory);

  // Stops all rings until their next kicks; the rest of their set-up stays.
  void stop_all();
  // The same, and forgets sizes, addresses, bases and what was enabled. [vhost-user RESET_DEVICE]
  void reset_all();
  // The same, and lets go of memory and of all descriptors: the front end has gone.
  void release_all();

 private:
  struct Ring {
    uint32_t index = 0;
    uint32_t size = 0;  // 0: not known yet
    uint32_t base = 0;
    std::optional<RingAddresses> addresses;
    bool kick_known = false;
    Fd kick;
    Fd call;
    Fd error;
    std::optional<bool> enabled;  // by SET_VRING_ENABLE
    bool running = false;
  };
  struct Areas {
    GuestSpan descriptors;
    GuestSpan available;
    GuestSpan used;
  };

  Result<Ring*> ring_at(uint32_t index);
  bool is_enabled(const Ring& ring) const { return ring.enabled.value_or(enabled_from_start_); }
  Result<Areas> translate(const Ring& ring) const;
  void pause(Ring& ring);
  void pause_all();
  void start_if_complete(Ring& ring);
  void start_all_complete();
  void report_start_failure(const Ring& ring, const std::string& reason);

  BackendDevice& device_;
  std::vector<Ring> rings_;
  std::shared_ptr<const GuestMemory> memory_;
  bool features_known_ = false;
  uint64_t features_ = 0;
  bool enabled_from_start_ = true;
  bool missing_memory_reported_ = false;
  RateLimit failure_limit_;
};

}  // namespace sluice
