#include "port/tap_interface.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/fd.h"

namespace sluice {
namespace {

// The socket through which interface ioctls go; it belongs to the calling thread's namespace.
Fd ioctl_socket() { return Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

ifreq request_for(const std::string& name) {
  SLUICE_ASSERT(name.size() < IFNAMSIZ);
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// True when one of the process's descriptors is a TAP queue of `name`: tun writes the interface's
// name into fdinfo.
bool process_holds(const std::filesystem::path& process, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator at(process / "fd", error), end; !error && at != end;
       at.increment(error)) {  // bounded by the process's descriptor limit
    std::error_code ignored;
    if (fs::read_symlink(at->path(), ignored) != "/dev/net/tun") continue;
    std::ifstream info(process / "fdinfo" / at->path().filename());
    for (std::string line; std::getline(info, line);)
      if (line == "iff:\t" + name) return true;
  }
  return false;
}

}  // namespace

bool is_interface_name(const std::string& name) {
  if (name.empty() || name.size() >= IFNAMSIZ || name == "." || name == "..") return false;
  for (const char c : name)
    if (c == '/' || c == ':' || std::isspace(static_cast<unsigned char>(c))) return false;
  return true;
}

uint32_t interface_index(const std::string& name) { return ::if_nametoindex(name.c_str()); }

InterfaceDriver interface_driver(const std::string& name) {
  const Fd socket = ioctl_socket();
  ifreq request = request_for(name);
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  request.ifr_data = reinterpret_cast<char*>(&info);
  if (::ioctl(socket.get(), SIOCETHTOOL, &request) != 0) return {};
  return {std::string(info.driver, ::strnlen(info.driver, sizeof info.driver)),
          std::string(info.bus_info, ::strnlen(info.bus_info, sizeof info.bus_info))};
}

Result<uint32_t> interface_mtu(const std::string& name) {
  const Fd socket = ioctl_socket();
  ifreq request = request_for(name);
  if (::ioctl(socket.get(), SIOCGIFMTU, &request) != 0)
    return fail("cannot read the MTU of {}: {}", name, errno_text(errno));
  return static_cast<uint32_t>(request.ifr_mtu);
}

Result<void> set_interface_mtu(const std::string& name, uint32_t mtu_bytes) {
  const Fd socket = ioctl_socket();
  ifreq request = request_for(name);
  request.ifr_mtu = static_cast<int>(mtu_bytes);
  if (::ioctl(socket.get(), SIOCSIFMTU, &request) != 0)
    return fail("cannot set mtu={} on {}: {}", mtu_bytes, name, errno_text(errno));
  return {};
}

Result<void> set_interface_up(const std::string& name) {
  const Fd socket = ioctl_socket();
  ifreq request = request_for(name);
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0)
    return fail("cannot read the flags of {}: {}", name, errno_text(errno));
  if (request.ifr_flags & IFF_UP) return {};
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
    return fail("cannot set {} up: {}", name, errno_text(errno));
  return {};
}

Result<void> join_bridge(const std::string& name, const std::string& bridge) {
  if (interface_index(bridge) == 0)
    return fail("bridge={} does not exist: create it first, with ip link add {} type bridge",
                bridge, bridge);
  const Fd socket = ioctl_socket();
  ifreq request = request_for(bridge);
  request.ifr_ifindex = static_cast<int>(interface_index(name));
  if (::ioctl(socket.get(), SIOCBRADDIF, &request) == 0) return {};
  switch (errno) {
    case EBUSY:
      return fail(
          "{} is a port of a bridge or bond already: take it out first, with ip link set "
          "{} nomaster, or leave bridge= away",
          name, name);
    case EOPNOTSUPP:
      return fail(
          "bridge={} is no bridge: name an interface that was made with ip link add NAME "
          "type bridge",
          bridge);
    default:
      return fail("cannot put {} into bridge {}: {}", name, bridge, errno_text(errno));
  }
}

std::string tap_holders(const std::string& name) {
  namespace fs = std::filesystem;
  std::string holders;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {  // bounded by the number of processes
    const std::string pid = at->path().filename();
    if (!std::isdigit(static_cast<unsigned char>(pid.front()))) continue;
    if (!process_holds(at->path(), name)) continue;
    if (!holders.empty()) holders += ", ";
    holders += fmt::format("process {} ({})", pid, first_line(at->path() / "comm"));
  }
  return holders;
}

Result<void> run_in_netns(const std::string& netns, const std::function<void()>& work) {
  const std::string path = netns.find('/') == std::string::npos ? "/run/netns/" + netns : netns;
  const Fd target(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!target) {
    const int error = errno;
    if (error == ENOENT)
      return fail(
          "netns={}: there is no {}: create it first, with ip netns add NAME, or give a "
          "path such as /proc/PID/ns/net",
          netns, path);
    return fail("netns={}: cannot open {}: {}", netns, path, errno_text(error));
  }
  int error = 0;
  std::thread([&] {
    if (::setns(target.get(), CLONE_NEWNET) == 0)
      work();
    else
      error = errno;
  }).join();
  if (error == 0) return {};
  if (error == EPERM)
    return fail("netns={}: entering a network namespace needs CAP_SYS_ADMIN: run as root", netns);
  if (error == EINVAL) return fail("netns={}: {} is no network namespace", netns, path);
  return fail("netns={}: cannot enter {}: {}", netns, path, errno_text(error));
}

}  // namespace sluice
