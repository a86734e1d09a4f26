// An XdpObject on its way from `sluice xdp attach` to the daemon: JSON for what has a name, and
// descriptors for the instructions (a memfd), the kernel's copies of the programs and the maps.
//
// So the client needs the capabilities and the daemon none.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "control/xdp_object.h"

namespace sluice {

struct WiredObject {
  nlohmann::json description;
  Fd instructions;       // owned here until it is sent
  std::vector<int> fds;  // in the order that object_from_wire() expects
};

Result<WiredObject> object_to_wire(const XdpObject& object);

// Takes the descriptors out of `fds`. Everything is foreign: counts and sizes are checked, what the
// maps and programs are is asked of the kernel later (xdp_attachment.h).
Result<XdpObject> object_from_wire(const nlohmann::json& description, std::vector<Fd>& fds);

}  // namespace sluice
