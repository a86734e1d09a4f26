// Opening TAP and macvtap queues: everything about them that needs a capability, in one place that
// hands back descriptors (docs/adr: privileged actions go through small openers).
//
// What it does: opens one descriptor a queue, negotiates the flags with the kernel (IFF_NAPI as
// asked; VNET_HDR, ONE_QUEUE, NO_PI; MULTI_QUEUE when there are several queues or the interface has
// them), sets header size and byte order, probes the offloads one by one and leaves them off, and
// sets a TAP up that it created. What it does not: move packets, or keep anything open besides the
// descriptors it returns. A TAP that it created goes away with the last of them, unless persist=on.
//
//   Result<TapHandles> tap = open_tap({.name = "t0", .ifname = "tap0", .queues = 4});
//   if (!tap) return fail(tap.error());
//   log_info("{}", tap->describe());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "port/port.h"

namespace sluice {

enum class NapiChoice : uint8_t { automatic, on, off };

// What the operator wants, one field a key of `--tap NAME,key=value,…`.
struct TapSpec {
  std::string name{};      // the port's name: how sentences call it
  std::string ifname{};    // exactly one of ifname and fds
  std::vector<int> fds{};  // handed in, one a queue; owned by the handles after success
  uint32_t queues = 0;     // 0: as many as fds, else 1
  NapiChoice napi = NapiChoice::automatic;
  std::string netns{};  // empty: where we are
  bool persist = false;
  std::string bridge{};  // empty: none
  uint32_t mtu = 0;      // 0: as it is
  bool macvtap = false;
  // The size of the header in front of each frame; 0 leaves the kernel's choice to whoever uses the
  // descriptors.
  uint32_t header_bytes = 12;
};

struct TapHandles {
  std::string name;
  std::string ifname;
  std::vector<Fd> queues;
  bool macvtap = false;
  // What was agreed, by the name that negotiated() shows.
  bool napi = false;
  bool vnet_hdr = false;
  bool multi_queue = false;
  bool one_queue = false;
  bool persistent = false;
  bool existing = false;  // it was there before, or its descriptors were handed in
  // Offloads that TUNSETOFFLOAD takes; all are off when the handles are returned.
  OffloadSet offloads;
  std::optional<uint32_t> mtu;  // unknown when descriptors were handed in

  std::vector<std::string> negotiated() const;
  // One line: "t0: tap0, 4 queues: napi, vnet_hdr, multi_queue; offloads csum, tso4".
  std::string describe() const;
};

// Names of the offloads that are set: "csum", "tso4", "tso6", "tso_ecn", "uso".
std::vector<std::string> offload_names(const OffloadSet& offloads);
// The argument of TUNSETOFFLOAD for this set. The kernel takes segmentation only with csum, ECN
// only with TSO and USO only for both families; what lacks its condition is left out.
unsigned tun_offload_flags(const OffloadSet& offloads);

// The policy of napi=: whether IFF_NAPI is to be asked for. nullopt: `on`, and the kernel has it
// not.
std::optional<bool> choose_napi(NapiChoice choice, bool kernel_offers);

Result<TapHandles> open_tap(const TapSpec& spec);

}  // namespace sluice
