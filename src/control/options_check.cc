// What concerns several options of a run at once.
#include <algorithm>
#include <map>
#include <set>

#include "control/option_schema.h"

namespace sluice {
namespace {

struct NamedPort {
  std::string_view name;
  std::string_view where;
  bool is_null = false;
};

std::vector<NamedPort> all_ports(const RunOptions& options) {
  std::vector<NamedPort> ports;
  for (const auto& port : options.vms) ports.push_back({port.name, port.origin.text});
  for (const auto& port : options.taps) ports.push_back({port.name, port.origin.text});
  for (const auto& port : options.macvtaps) ports.push_back({port.name, port.origin.text});
  for (const auto& port : options.nics) ports.push_back({port.name, port.origin.text});
  for (const auto& port : options.nulls) ports.push_back({port.name, port.origin.text, true});
  return ports;
}

// Things of which there is one on the host, each with the option that took it first.
class Claims {
 public:
  Result<void> claim(std::string_view what, std::string_view value, std::string_view where) {
    const auto [place, is_new] =
        owners_.emplace(std::pair(std::string(what), std::string(value)), std::string(where));
    if (is_new) return {};
    return usage_failure("{}: {} {} is used by {} already: each port needs one of its own", where,
                         what, printable(value), place->second);
  }

 private:
  std::map<std::pair<std::string, std::string>, std::string> owners_;
};

Result<void> check_names(const std::vector<NamedPort>& ports) {
  Claims claims;
  for (const NamedPort& port : ports) {
    const Result<void> claimed = claims.claim("name", port.name, port.where);
    if (!claimed) return claimed;
  }
  return {};
}

Result<void> check_sockets(const RunOptions& options) {
  Claims claims;
  for (const VmOptions& vm : options.vms) {
    const Result<void> claimed = claims.claim("socket", vm.socket_path, vm.origin.text);
    if (!claimed) return claimed;
    if (vm.side == SocketSide::server && vm.socket_path == options.control_path) {
      return usage_failure("{}: socket={} is the control socket: choose another, or --control PATH",
                           vm.origin.text, vm.socket_path);
    }
  }
  for (const NicOptions& nic : options.nics) {
    const Result<void> claimed = claims.claim("socket", nic.socket_path, nic.origin.text);
    if (!claimed) return claimed;
  }
  return {};
}

// The same interface name may exist once in each namespace.
Result<void> check_interfaces(const RunOptions& options) {
  Claims claims;
  const auto in_netns = [](const std::string& ifname, const std::string& netns) {
    return netns.empty() ? ifname : fmt::format("{} in netns {}", ifname, netns);
  };
  for (const TapOptions& tap : options.taps) {
    if (!tap.ifname.empty()) {
      const Result<void> claimed =
          claims.claim("interface", in_netns(tap.ifname, tap.netns), tap.origin.text);
      if (!claimed) return claimed;
    }
    for (const int fd : tap.fds) {
      const Result<void> claimed = claims.claim("fd", fmt::format("{}", fd), tap.origin.text);
      if (!claimed) return claimed;
    }
  }
  for (const MacvtapOptions& macvtap : options.macvtaps) {
    const Result<void> claimed =
        claims.claim("interface", in_netns(macvtap.ifname, macvtap.netns), macvtap.origin.text);
    if (!claimed) return claimed;
  }
  return {};
}

Result<void> check_cables(const RunOptions& options, const std::vector<NamedPort>& ports,
                          std::map<std::string_view, std::string_view>& cable_of) {
  std::vector<std::string_view> names;
  for (const NamedPort& port : ports) names.push_back(port.name);
  for (const ConnectOptions& cable : options.connections) {
    const std::string& where = cable.origin.text;
    for (const std::string_view name : {std::string_view(cable.a), std::string_view(cable.b)}) {
      if (std::ranges::find(names, name) != names.end()) continue;
      return usage_failure("{}: there is no port {}{} (ports: {})", where, name,
                           did_you_mean(name, names),
                           names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    }
    if (cable.a == cable.b) {
      return usage_failure("{}: port {} cannot be connected to itself: name two ports", where,
                           cable.a);
    }
    for (const std::string_view name : {std::string_view(cable.a), std::string_view(cable.b)}) {
      const auto [place, is_new] = cable_of.emplace(name, where);
      if (is_new) continue;
      return usage_failure("{}: port {} has a cable already ({}): a port takes one", where, name,
                           place->second);
    }
  }
  return {};
}

Result<void> check_programs(const RunOptions& options, const std::vector<NamedPort>& ports) {
  Claims claims;
  std::vector<std::string_view> names;
  for (const NamedPort& port : ports) names.push_back(port.name);
  for (const XdpOptions& program : options.programs) {
    const std::string& where = program.origin.text;
    if (std::ranges::find(names, program.port) == names.end())
      return usage_failure("{}: there is no port {}{} (ports: {})", where, program.port,
                           did_you_mean(program.port, names), fmt::join(names, ", "));
    const Result<void> claimed = claims.claim("port", program.port, where);
    if (!claimed) return claimed;
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> check_run_options(const RunOptions& options) {
  const std::vector<NamedPort> ports = all_ports(options);
  if (ports.empty()) {
    return usage_failure("no ports: give at least one, like {} (sluice run --help has examples)",
                         list_schemas()[0].example);
  }
  if (options.vms.size() > kVmPortsMax) {
    return usage_failure("--vm: {} VM ports are more than {}: start several daemons",
                         options.vms.size(), kVmPortsMax);
  }
  std::map<std::string_view, std::string_view> cable_of;
  Result<void> checked = check_names(ports);
  if (checked) checked = check_sockets(options);
  if (checked) checked = check_interfaces(options);
  if (checked) checked = check_cables(options, ports, cable_of);
  if (checked) checked = check_programs(options, ports);
  if (!checked) return checked.error();

  std::vector<std::string> warnings;
  for (const NamedPort& port : ports) {
    if (port.is_null || cable_of.contains(port.name)) continue;
    warnings.push_back(fmt::format(
        "port {} has no cable, its frames are dropped: --connect {}:PORT", port.name, port.name));
  }
  return warnings;
}

}  // namespace sluice
