// What has to be asked of or done to a network interface around the opening of a TAP: does it
// exist, what is it, set it up, give it an MTU, join a bridge. And the way into a network
// namespace.
//
// All of it is set-up: it may block and allocate, and it works in the calling thread's network
// namespace. Nothing here reads /sys, whose mount shows one namespace only.
//
//   run_in_netns("blue", [&] { result = set_interface_up("tap0"); });
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace sluice {

// 1 to 15 bytes, no '/', no white space: what the kernel takes as a name.
bool is_interface_name(const std::string& name);

// 0 when there is no such interface.
uint32_t interface_index(const std::string& name);
// The driver and its bus as ethtool -i shows them: {"tun", "tap"}; empty when it does not say.
struct InterfaceDriver {
  std::string driver;
  std::string bus;
};
InterfaceDriver interface_driver(const std::string& name);

Result<uint32_t> interface_mtu(const std::string& name);
Result<void> set_interface_mtu(const std::string& name, uint32_t mtu_bytes);
Result<void> set_interface_up(const std::string& name);
Result<void> join_bridge(const std::string& name, const std::string& bridge);

// Which processes hold a TAP of this name, for a sentence: "process 12 (qemu-system-x86)"; empty
// when none is seen. Names repeat between namespaces, so it is a hint.
std::string tap_holders(const std::string& name);

// Runs `work` in a short-lived thread inside the namespace, so that this process stays where it is.
// `netns` is a name under /run/netns or a path.
Result<void> run_in_netns(const std::string& netns, const std::function<void()>& work);

}  // namespace sluice
