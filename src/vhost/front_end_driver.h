// FrontEndDriver: what a vhost-user front-end session drives. A nic port implements it.
//
// The mirror of backend_device.h. The session speaks the protocol; the driver owns the memory, the
// rings and their eventfds, and fills the rings once they run. All calls come from the control
// thread. One session after the other; between two of them everything is made anew.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "memory/address.h"

namespace sluice {

// What was negotiated, and what the configuration space says where the back end serves it.
struct FrontEndAgreement {
  uint64_t features = 0;           // virtio features, sanitized; without protocol_features
  uint64_t protocol_features = 0;  // 0: the back end knows none
  uint32_t queue_pairs = 1;        // that may be set up: no more than wanted, and than it has
  bool has_control_queue = false;  // set up a ring more, behind all pairs that the *device* has
  uint32_t control_index = 0;      // its vring index, when there is one
  std::optional<std::array<uint8_t, 6>> mac;
  std::optional<uint16_t> mtu_bytes;
};

// A ring as the back end is told of it.
struct FrontEndRing {
  uint32_t index = 0;
  uint32_t size = 0;
  uint32_t base = 0;  // kFreshBase of the driver's class
  FrontendAddr descriptors{};
  FrontendAddr driver_area{};
  FrontendAddr device_area{};
  // Copies for the session to send; the driver keeps its own.
  Fd kick;
  Fd call;
  Fd error;
};

// Memory in one region, and the rings in it.
struct FrontEndLayout {
  Fd memory;  // a copy of the memfd
  uint64_t memory_bytes = 0;
  GuestAddr guest_address{};
  FrontendAddr frontend_address{};
  std::vector<FrontEndRing> rings;
};

class FrontEndDriver {
 public:
  virtual ~FrontEndDriver() = default;

  virtual const std::string& driver_name() const = 0;  // for log lines: "nic0"
  // Virtio features that the driver can use, and those without which it does not want to start
  // (ring_packed where the operator asked for it).
  virtual uint64_t wanted_features() const = 0;
  virtual uint64_t required_features() const = 0;
  virtual uint32_t queue_pairs_wanted() const = 0;

  // Makes memory and rings for what was agreed. The session then tells the back end about them.
  virtual Result<FrontEndLayout> agreed(const FrontEndAgreement& agreement) = 0;
  // All rings are set up and enabled: fill them.
  virtual void session_ready() = 0;
  // The back end has gone, or the session was closed; `reason` is a sentence, empty when it was
  // us. No ring is touched by the back end through this session any more, but the back end may
  // still have the memory mapped.
  virtual void session_closed(const std::string& reason) = 0;
  // The configuration space has changed and was read again: the MAC and the MTU may be others, all
  // else is as it was agreed. [vhost-user CONFIG_CHANGE_MSG]
  virtual void config_changed(const FrontEndAgreement& agreement) = 0;
};

}  // namespace sluice
