#include "port/tap_opener.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/limits.h"
#include "base/uapi.h"
#include "port/tap_interface.h"

namespace sluice {
namespace {

constexpr const char* kTunDevice = "/dev/net/tun";

Failure cannot_open_tun(int error) {
  switch (error) {
    case ENOENT:
      return fail("there is no {}: load the module (modprobe tun), or give it to this container",
                  kTunDevice);
    case ENODEV:
    case ENXIO:
      return fail("{} is there and the kernel has no TUN/TAP behind it: modprobe tun", kTunDevice);
    case EACCES:
    case EPERM:
      return fail("{} may not be opened by this user: run as root, or allow it the device",
                  kTunDevice);
    default:
      return fail("cannot open {}: {}", kTunDevice, errno_text(error));
  }
}

Result<Fd> open_device(const char* path) {
  Fd fd(::open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return cannot_open_tun(errno);
  return fd;
}

ifreq tun_request(const std::string& ifname, unsigned flags) {
  SLUICE_ASSERT(ifname.size() < IFNAMSIZ);
  ifreq request{};
  std::memcpy(request.ifr_name, ifname.data(), ifname.size());
  request.ifr_flags = static_cast<short>(flags);
  return request;
}

unsigned flags_of(const ifreq& request) { return static_cast<uint16_t>(request.ifr_flags); }

Failure wrong_kind(const TapSpec& spec, const InterfaceDriver& driver) {
  if (driver.driver == "tun")
    return fail("{}: {} is a TUN (layer 3), no TAP: choose another ifname", spec.name, spec.ifname);
  return fail("{}: interface {} exists and is no TAP (driver: {}): choose another ifname",
              spec.name, spec.ifname, driver.driver.empty() ? "unknown" : driver.driver);
}

// Why TUNSETIFF refused. `queue` is the number of queues that were attached before.
Failure cannot_attach(const TapSpec& spec, bool existed, size_t queue, int error) {
  const std::string& ifname = spec.ifname;
  const InterfaceDriver driver = existed ? interface_driver(ifname) : InterfaceDriver{};
  if (existed && driver.driver != "tun") return wrong_kind(spec, driver);
  if (driver.bus == "tun") return wrong_kind(spec, driver);
  switch (error) {
    case EPERM:
      if (existed)
        return fail(
            "{}: {} belongs to another user: run as root, or as the user it was made for "
            "(ip tuntap add {} mode tap user NAME)",
            spec.name, ifname, ifname);
      return fail(
          "{}: creating {} needs CAP_NET_ADMIN: run as root, or let root create it for this "
          "user with ip tuntap add {} mode tap{} user NAME",
          spec.name, ifname, ifname, spec.queues > 1 ? " multi_queue" : "");
    case EBUSY: {
      const std::string holders = tap_holders(ifname);
      return fail("{}: {} is in use by {}: stop it, or choose another ifname", spec.name, ifname,
                  holders.empty() ? "a process that cannot be seen from here" : holders);
    }
    case EINVAL:
      if (existed && spec.queues > 1)
        return fail(
            "{}: {} exists with a single queue and {} are asked for: use queues=1, or make "
            "it again with ip tuntap add {} mode tap multi_queue",
            spec.name, ifname, spec.queues, ifname);
      return fail("{}: the kernel refuses to make {} with these flags: choose another ifname",
                  spec.name, ifname);
    case E2BIG:
      return fail(
          "{}: {} takes no more than {} further queues: lower queues=, or stop who uses the "
          "others ({})",
          spec.name, ifname, queue, tap_holders(ifname));
    default:
      return fail("{}: cannot attach to {}: {}", spec.name, ifname, errno_text(error));
  }
}

bool kernel_takes(int fd, const OffloadSet& offloads) {
  return ::ioctl(fd, TUNSETOFFLOAD, static_cast<unsigned long>(tun_offload_flags(offloads))) == 0;
}

// One by one, as a kernel that lacks one refuses the whole set; left at none.
OffloadSet probe_offloads(int fd) {
  OffloadSet found;
  found.csum = kernel_takes(fd, {.csum = true});
  if (found.csum) {
    found.tso4 = kernel_takes(fd, {.csum = true, .tso4 = true});
    found.tso6 = kernel_takes(fd, {.csum = true, .tso6 = true});
    if (found.tso4 || found.tso6)
      found.tso_ecn =
          kernel_takes(fd, {.csum = true, .tso4 = found.tso4, .tso6 = found.tso6, .tso_ecn = true});
    found.uso = kernel_takes(fd, {.csum = true, .uso = true});
  }
  (void)kernel_takes(fd, {});
  return found;
}

// What the kernel says about an attached descriptor.
Result<void> read_back(const TapSpec& spec, TapHandles& handles) {
  ifreq request{};
  if (::ioctl(handles.queues[0].get(), TUNGETIFF, &request) != 0)
    return fail("{}: cannot read the flags of {}: {}", spec.name, spec.ifname, errno_text(errno));
  const unsigned flags = flags_of(request);
  handles.ifname = std::string(request.ifr_name, ::strnlen(request.ifr_name, IFNAMSIZ));
  handles.napi = flags & IFF_NAPI;
  handles.vnet_hdr = flags & IFF_VNET_HDR;
  handles.multi_queue = flags & IFF_MULTI_QUEUE;
  handles.one_queue = flags & IFF_ONE_QUEUE;
  handles.persistent = flags & IFF_PERSIST;
  if (!handles.vnet_hdr)
    return fail(
        "{}: {} is used without the virtio-net header: attach nobody else to it, or make it "
        "with vnet_hdr",
        spec.name, handles.ifname);
  return {};
}

Result<void> set_header(const TapSpec& spec, const TapHandles& handles) {
  if (spec.header_bytes == 0) return {};
  for (const Fd& fd : handles.queues) {
    int header_bytes = static_cast<int>(spec.header_bytes);
    if (::ioctl(fd.get(), TUNSETVNETHDRSZ, &header_bytes) != 0)
      return fail("{}: the kernel refuses a header of {} bytes on {}: {}", spec.name,
                  spec.header_bytes, handles.ifname, errno_text(errno));
    int little_endian = 1;
    // A little-endian kernel without the ioctl has the right order already.
    if (::ioctl(fd.get(), TUNSETVNETLE, &little_endian) != 0 &&
        std::endian::native != std::endian::little)
      return fail("{}: the kernel cannot use little-endian headers on {}: {}", spec.name,
                  handles.ifname, errno_text(errno));
  }
  return {};
}

// What is common to created, attached and macvtap queues, once they are open.
Result<void> finish(const TapSpec& spec, TapHandles& handles) {
  if (auto done = read_back(spec, handles); !done) return done;
  if (auto done = set_header(spec, handles); !done) return done;
  handles.offloads = probe_offloads(handles.queues[0].get());
  return {};
}

Result<void> set_up_interface(const TapSpec& spec, TapHandles& handles) {
  if (spec.mtu != 0)
    if (auto done = set_interface_mtu(handles.ifname, spec.mtu); !done)
      return fail("{}: {}", spec.name, done.error().text);
  if (!spec.bridge.empty())
    if (auto done = join_bridge(handles.ifname, spec.bridge); !done)
      return fail("{}: {}", spec.name, done.error().text);
  // An existing interface's state is its owner's choice.
  if (!handles.existing)
    if (auto done = set_interface_up(handles.ifname); !done)
      return fail("{}: {}", spec.name, done.error().text);
  if (auto mtu = interface_mtu(handles.ifname)) handles.mtu = *mtu;
  if (spec.persist && !handles.persistent) {
    if (::ioctl(handles.queues[0].get(), TUNSETPERSIST, 1UL) != 0)
      return fail("{}: persist=on: cannot make {} persistent: {}", spec.name, handles.ifname,
                  errno_text(errno));
    handles.persistent = true;
  }
  return {};
}

Result<TapHandles> open_tun(const TapSpec& spec) {
  Result<Fd> first = open_device(kTunDevice);
  if (!first) return first.error();
  unsigned offered = 0;
  if (::ioctl(first->get(), TUNGETFEATURES, &offered) != 0)
    return fail("{}: {} does not tell its features: {}", spec.name, kTunDevice, errno_text(errno));
  const std::optional<bool> napi = choose_napi(spec.napi, offered & IFF_NAPI);
  if (!napi)
    return fail("{}: napi=on: this kernel offers no IFF_NAPI (it needs Linux 4.15): use napi=auto",
                spec.name);
  if (!(offered & IFF_VNET_HDR))
    return fail("{}: this kernel's TAP has no virtio-net header: use a newer kernel", spec.name);
  unsigned flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (offered & IFF_ONE_QUEUE);
  if (*napi) flags |= IFF_NAPI;
  if (spec.queues > 1) flags |= IFF_MULTI_QUEUE;

  TapHandles handles;
  handles.name = spec.name;
  handles.existing = interface_index(spec.ifname) != 0;
  std::string ifname = spec.ifname;  // the kernel replaces a %d in it
  for (uint32_t queue = 0; queue < spec.queues; ++queue) {
    Result<Fd> fd = queue == 0 ? std::move(first) : open_device(kTunDevice);
    if (!fd) return fd.error();
    ifreq request = tun_request(ifname, flags);
    int error = ::ioctl(fd->get(), TUNSETIFF, &request) == 0 ? 0 : errno;
    if (error == EINVAL && handles.existing && spec.queues == 1) {
      // It may have been made for several queues: then one of them is ours.
      request = tun_request(ifname, flags | IFF_MULTI_QUEUE);
      error = ::ioctl(fd->get(), TUNSETIFF, &request) == 0 ? 0 : EINVAL;
    }
    if (error != 0) return cannot_attach(spec, handles.existing, queue, error);
    ifname = std::string(request.ifr_name, ::strnlen(request.ifr_name, IFNAMSIZ));
    handles.queues.push_back(std::move(*fd));
  }
  if (auto done = finish(spec, handles); !done) return done.error();
  if (auto done = set_up_interface(spec, handles); !done) return done.error();
  return handles;
}

// A macvtap is made by ip link; its queues are opens of /dev/tapN, N its index.
Result<TapHandles> open_macvtap(const TapSpec& spec) {
  const uint32_t index = interface_index(spec.ifname);
  if (index == 0)
    return fail(
        "{}: there is no interface {}: create it first, with ip link add link LOWER name {} "
        "type macvtap mode bridge",
        spec.name, spec.ifname, spec.ifname);
  const std::string path = fmt::format("/dev/tap{}", index);
  TapHandles handles;
  handles.name = spec.name;
  handles.macvtap = true;
  handles.existing = true;
  for (uint32_t queue = 0; queue < spec.queues; ++queue) {
    Fd fd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    const int error = errno;
    if (!fd && (error == ENOENT || error == ENXIO || error == ENODEV))
      return fail(
          "{}: there is no device {} for {}: it is no macvtap, or its device node is "
          "missing here (make it with mknod, numbers in /sys/class/net/{}/macvtap/tap{}/dev)",
          spec.name, path, spec.ifname, spec.ifname, index);
    if (!fd && (error == EACCES || error == EPERM))
      return fail("{}: {} may not be opened by this user: run as root, or give it the device",
                  spec.name, path);
    if (!fd && (error == EBUSY || error == E2BIG))
      return fail(
          "{}: {} takes no more than {} further queues: lower queues=, or stop who uses the "
          "others",
          spec.name, spec.ifname, queue);
    if (!fd) return fail("{}: cannot open {}: {}", spec.name, path, errno_text(error));
    ifreq request = tun_request(
        spec.ifname, IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (spec.queues > 1 ? IFF_MULTI_QUEUE : 0));
    if (::ioctl(fd.get(), TUNSETIFF, &request) != 0)
      return fail("{}: {} is no macvtap's device: {}", spec.name, path, errno_text(errno));
    handles.queues.push_back(std::move(fd));
  }
  if (auto done = finish(spec, handles); !done) return done.error();
  if (auto done = set_up_interface(spec, handles); !done) return done.error();
  return handles;
}

// Checks one descriptor that was handed in; its interface's name, or why it cannot be used.
Result<std::string> check_handed_in(const TapSpec& spec, int fd) {
  ifreq request{};
  if (::ioctl(fd, TUNGETIFF, &request) != 0) {
    const int error = errno;
    if (error == EBADF)
      return fail(
          "{}: fd={}: no such descriptor: whoever starts this program must let it be "
          "inherited",
          spec.name, fd);
    if (error == EBADFD)
      return fail("{}: fd={}: {} without an interface: attach it first (TUNSETIFF)", spec.name, fd,
                  kTunDevice);
    return fail("{}: fd={}: is no TAP: hand in a descriptor of {} after TUNSETIFF", spec.name, fd,
                kTunDevice);
  }
  const std::string ifname(request.ifr_name, ::strnlen(request.ifr_name, IFNAMSIZ));
  if (!(flags_of(request) & IFF_TAP))
    return fail("{}: fd={}: {} is a TUN (layer 3), no TAP", spec.name, fd, ifname);
  if (!(flags_of(request) & IFF_VNET_HDR))
    return fail("{}: fd={}: {} was attached without IFF_VNET_HDR: attach it with that flag",
                spec.name, fd, ifname);
  // IFF_NO_PI cannot be read back: its bit is also that of IFF_NOFILTER, which is nearly always
  // set.
  return ifname;
}

Result<TapHandles> adopt(const TapSpec& spec) {
  std::string ifname;
  for (const int fd : spec.fds) {  // all are checked before any is touched
    Result<std::string> found = check_handed_in(spec, fd);
    if (!found) return found.error();
    if (!ifname.empty() && *found != ifname)
      return fail("{}: fd={}: belongs to {}, the others to {}: hand in queues of one TAP",
                  spec.name, fd, *found, ifname);
    ifname = *found;
  }
  TapHandles handles;
  handles.name = spec.name;
  handles.existing = true;
  for (const int fd : spec.fds) {
    if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
        ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
      const int error = errno;
      for (Fd& taken : handles.queues) taken.release();
      return fail("{}: fd={}: cannot be made non-blocking: {}", spec.name, fd, errno_text(error));
    }
    handles.queues.emplace_back(fd);
  }
  if (auto done = finish(spec, handles); !done) {
    for (Fd& taken : handles.queues) taken.release();  // on failure they stay the caller's
    return done.error();
  }
  return handles;
}

Result<void> check_spec(const TapSpec& spec) {
  const char* const name = spec.name.c_str();
  if (spec.ifname.empty() == spec.fds.empty())
    return usage_failure("{}: exactly one of ifname= and fd= is needed", name);
  if (!spec.ifname.empty() && !is_interface_name(spec.ifname))
    return usage_failure(
        "{}: ifname={}: an interface name has 1 to 15 characters, no / or : or "
        "space",
        name, spec.ifname);
  if (!spec.bridge.empty() && !is_interface_name(spec.bridge))
    return usage_failure("{}: bridge={}: an interface name has 1 to 15 characters", name,
                         spec.bridge);
  if (spec.queues > kQueuePairsMax)
    return usage_failure("{}: queues={}: 1 to {} are allowed", name, spec.queues, kQueuePairsMax);
  if (spec.mtu != 0 && (spec.mtu < 68 || spec.mtu > 65521))
    return usage_failure("{}: mtu={}: 68 to 65521 are allowed", name, spec.mtu);
  if (spec.macvtap && spec.napi == NapiChoice::on)
    return usage_failure("{}: napi=on: macvtap has no IFF_NAPI, only TAP has", name);
  if (spec.macvtap && (spec.persist || !spec.bridge.empty()))
    return usage_failure(
        "{}: persist= and bridge= are for TAP: a macvtap stays until ip link del, "
        "and its mode is set by ip link",
        name);
  if (spec.fds.empty()) return {};
  if (!spec.netns.empty() || !spec.bridge.empty() || spec.mtu != 0 || spec.persist)
    return usage_failure(
        "{}: netns=, bridge=, mtu= and persist= need ifname=; with fd= whoever "
        "opened the TAP has set them",
        name);
  if (spec.napi != NapiChoice::automatic)
    return usage_failure("{}: napi= needs ifname=; with fd= whoever opened the TAP has chosen",
                         name);
  if (spec.queues != 0 && spec.queues != spec.fds.size())
    return usage_failure("{}: queues={} and {} descriptors in fd=: leave queues= away", name,
                         spec.queues, spec.fds.size());
  if (spec.fds.size() > kQueuePairsMax)
    return usage_failure("{}: fd=: at most {} descriptors are allowed", name, kQueuePairsMax);
  if (std::set<int>(spec.fds.begin(), spec.fds.end()).size() != spec.fds.size())
    return usage_failure("{}: fd=: the same descriptor twice", name);
  return {};
}

}  // namespace

std::vector<std::string> offload_names(const OffloadSet& offloads) {
  std::vector<std::string> names;
  if (offloads.csum) names.emplace_back("csum");
  if (offloads.tso4) names.emplace_back("tso4");
  if (offloads.tso6) names.emplace_back("tso6");
  if (offloads.tso_ecn) names.emplace_back("tso_ecn");
  if (offloads.uso) names.emplace_back("uso");
  return names;
}

unsigned tun_offload_flags(const OffloadSet& offloads) {
  if (!offloads.csum) return 0;
  unsigned flags = TUN_F_CSUM;
  if (offloads.tso4) flags |= TUN_F_TSO4;
  if (offloads.tso6) flags |= TUN_F_TSO6;
  if (offloads.tso_ecn && (offloads.tso4 || offloads.tso6)) flags |= TUN_F_TSO_ECN;
  if (offloads.uso) flags |= TUN_F_USO4 | TUN_F_USO6;
  return flags;
}

std::optional<bool> choose_napi(NapiChoice choice, bool kernel_offers) {
  switch (choice) {
    case NapiChoice::on:
      return kernel_offers ? std::optional<bool>(true) : std::nullopt;
    case NapiChoice::off:
      return false;
    case NapiChoice::automatic:
      return kernel_offers;
  }
  return false;
}

std::vector<std::string> TapHandles::negotiated() const {
  std::vector<std::string> names;
  if (napi) names.emplace_back("napi");
  if (vnet_hdr) names.emplace_back("vnet_hdr");
  if (multi_queue) names.emplace_back("multi_queue");
  if (one_queue) names.emplace_back("one_queue");
  if (persistent) names.emplace_back("persistent");
  if (existing) names.emplace_back("existing");
  return names;
}

std::string TapHandles::describe() const {
  const std::vector<std::string> offered = offload_names(offloads);
  return fmt::format("{}: {} {}, {} queue{}: {}; the kernel takes {}", name,
                     macvtap ? "macvtap" : "tap", ifname, queues.size(),
                     queues.size() == 1 ? "" : "s", fmt::join(negotiated(), ", "),
                     offered.empty() ? "no offloads" : fmt::format("{}", fmt::join(offered, ", ")));
}

Result<TapHandles> open_tap(const TapSpec& wanted) {
  if (auto checked = check_spec(wanted); !checked) return checked.error();
  TapSpec spec = wanted;
  if (spec.queues == 0) spec.queues = spec.fds.empty() ? 1 : static_cast<uint32_t>(spec.fds.size());
  if (!spec.fds.empty()) return adopt(spec);
  const auto open_here = [&spec] { return spec.macvtap ? open_macvtap(spec) : open_tun(spec); };
  if (spec.netns.empty()) return open_here();
  std::optional<Result<TapHandles>> opened;
  if (auto entered = run_in_netns(spec.netns, [&] { opened.emplace(open_here()); }); !entered)
    return fail("{}: {}", spec.name, entered.error().text);
  return std::move(*opened);
}

}  // namespace sluice
