// What kind of thing a foreign file descriptor is, before it is used as a kick, call or error
// signal.
//
// A front end may send any descriptor. A kick must be an eventfd; a call or error signal may also
// be a pipe or a socket (User-Mode Linux sends one end of a socket pair): one write of eight bytes
// reaches all of them.
#pragma once

#include "base/fd.h"
#include "base/result.h"

namespace sluice {

enum class DescriptorKind : uint8_t { event, pipe, socket, other };

DescriptorKind descriptor_kind(const Fd& fd);

// Checks the kind and makes the descriptor non-blocking. The Failure says what is accepted.
Result<void> prepare_kick(const Fd& fd);
Result<void> prepare_signal(const Fd& fd);

}  // namespace sluice
