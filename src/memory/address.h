// Two kinds of foreign address, neither of which is a pointer.
//
// GuestAddr: guest-physical, what descriptors carry. FrontendAddr: an address in the front end's
// own process, what SET_VRING_ADDR carries. Neither converts to the other or to a pointer except
// through GuestMemory, together with a length.
#pragma once

#include <cstdint>

namespace sluice {

enum class GuestAddr : uint64_t {};
enum class FrontendAddr : uint64_t {};

constexpr uint64_t raw(GuestAddr address) { return static_cast<uint64_t>(address); }
constexpr uint64_t raw(FrontendAddr address) { return static_cast<uint64_t>(address); }

}  // namespace sluice
