// What plugs a virtual machine into a VM port: `sluice run --help-qemu NAME`.
#pragma once

#include <string>

#include "control/options.h"

namespace sluice {

// The exact QEMU arguments and the libvirt XML for this port, with a word on what each is for.
std::string qemu_help_text(const VmOptions& vm);

}  // namespace sluice
