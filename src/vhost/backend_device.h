// BackendDevice: what a vhost-user back-end session drives. A VM port implements it.
//
// The session speaks the protocol and owns its state (features, memory table, ring addresses, file
// descriptors); the device owns the running rings. All calls come from the control thread, and when
// one returns it has taken effect: for a running ring that means that its worker has passed between
// two breaths, so a reply may be sent (REPLY_ACK) and an old memory snapshot may be let go.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "memory/guest_memory.h"

namespace sluice {

// Everything that a ring needs to run. Each area has been translated with the length that `size`
// and the features ask for, and its alignment has been checked. [virtio 2.7]
struct RingStart {
  uint32_t index = 0;  // vhost-user vring index: 2n = to_guest, 2n+1 = from_guest, last = control
  uint32_t size = 0;   // descriptors; a power of two for split rings
  uint32_t base = 0;   // where to go on [vhost-user SET_VRING_BASE]
  uint64_t features = 0;  // negotiated, sanitized; ring_packed says which format it has
  GuestSpan descriptors;  // 16 * size
  GuestSpan available;    // 6 + 2 * size; of packed rings the driver's event suppression, 4
  GuestSpan used;         // 6 + 8 * size; of packed rings the device's event suppression, 4
  std::shared_ptr<const GuestMemory> memory;
  Fd kick;   // invalid: the front end does not kick, the ring is polled (NOFD)
  Fd call;   // invalid: the front end polls
  Fd error;  // may be invalid
  bool enabled = false;
};

class BackendDevice {
 public:
  virtual ~BackendDevice() = default;

  // A name for log lines: "vm0".
  virtual const std::string& device_name() const = 0;
  // Virtio feature bits offered, without protocol_features, which the session adds.
  virtual uint64_t offered_features() const = 0;
  // Queue pairs offered. GET_QUEUE_NUM answers twice this: QEMU compares it with its pairs, Cloud
  // Hypervisor with its data rings.
  virtual uint32_t queue_pairs_max() const = 0;

  virtual void session_opened() = 0;
  // All rings have been stopped by the session before this.
  virtual void session_closed() = 0;
  // `features` are sanitized; called before any ring of the new set starts.
  virtual void features_negotiated(uint64_t features) = 0;

  // Starts a stopped ring. On refusal the ring stays stopped.
  virtual Result<void> ring_start(RingStart start) = 0;
  // Stops the ring: nothing of it is touched afterwards, all chains taken have been given back or
  // un-taken. Returns the base to resume from. Stopping a stopped ring returns its last base.
  virtual uint32_t ring_stop(uint32_t index) = 0;
  virtual void ring_set_enabled(uint32_t index, bool enabled) = 0;
  virtual void ring_set_call(uint32_t index, Fd call) = 0;
  virtual void ring_set_error(uint32_t index, Fd error) = 0;

  // Device configuration space. Reading past its end gives zeros. [virtio 5.1.4]
  virtual void read_config(uint32_t offset, std::span<uint8_t> out) const = 0;
  virtual Result<void> write_config(uint32_t offset, std::span<const uint8_t> bytes) = 0;
  // [vhost-user NET_SET_MTU]
  virtual Result<void> set_mtu(uint16_t mtu_bytes) = 0;
};

}  // namespace sluice
