#include "control/option_schema.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sluice {
namespace {

// The kernel's bound for a TAP's MTU (65535 less an Ethernet header), and the smallest IPv4 MTU.
constexpr uint64_t kTapMtuBytesMax = 65521;
constexpr uint64_t kMtuBytesMin = 68;
constexpr uint64_t kMtuBytesMax = 65535;
constexpr uint64_t kPollMicrosecondsMax = 1'000'000;
constexpr uint64_t kWorkersMax = 64;

VmOptions& vm(RunOptions& options) { return options.vms.back(); }
TapOptions& tap(RunOptions& options) { return options.taps.back(); }
MacvtapOptions& macvtap(RunOptions& options) { return options.macvtaps.back(); }
NicOptions& nic(RunOptions& options) { return options.nics.back(); }

NapiMode napi_mode(std::string_view word) {
  if (word == "on") return NapiMode::on;
  if (word == "off") return NapiMode::off;
  return NapiMode::automatic;
}

const KeySchema kVmKeys[] = {
    {"socket", ValueKind::path, "PATH",
     "the vhost-user socket, shared with one front end (required)",
     [](RunOptions& o, OptionValue v) { vm(o).socket_path = std::move(v.text); }},
    {"mode",
     ValueKind::word,
     "server|client",
     "server (default) listens on the socket; client connects to it, again and again for ever",
     [](RunOptions& o, OptionValue v) {
       vm(o).side = v.text == "client" ? SocketSide::client : SocketSide::server;
     },
     0,
     0,
     {"server", "client"}},
    {"queues", ValueKind::number, "N", "queue pairs offered to the guest (default 1)",
     [](RunOptions& o, OptionValue v) { vm(o).queue_pairs = static_cast<uint32_t>(v.number); }, 1,
     kQueuePairsMax},
    {"mac", ValueKind::mac, "MAC", "the guest's MAC address, if its VMM leaves it to us",
     [](RunOptions& o, OptionValue v) { vm(o).mac = v.mac; }},
    {"mtu", ValueKind::number, "N", "the MTU that the guest is told",
     [](RunOptions& o, OptionValue v) { vm(o).mtu_bytes = static_cast<uint16_t>(v.number); },
     kMtuBytesMin, kMtuBytesMax},
    {"socket-mode", ValueKind::permissions, "MODE",
     "who may open a socket that we listen on (default 0660)",
     [](RunOptions& o, OptionValue v) { vm(o).socket_mode = static_cast<uint32_t>(v.number); }, 0,
     0777},
    {"socket-group", ValueKind::text, "GROUP", "the group of a socket that we listen on",
     [](RunOptions& o, OptionValue v) { vm(o).socket_group = std::move(v.text); }},
    {"rss",
     ValueKind::word,
     "on|off",
     "offer receive-side scaling and hash reports (default off); its queues share a worker",
     [](RunOptions& o, OptionValue v) { vm(o).rss = v.text == "on"; },
     0,
     0,
     {"on", "off"}},
    {"packed",
     ValueKind::word,
     "on|off",
     "offer packed rings to the guest, beside split ones (default on)",
     [](RunOptions& o, OptionValue v) { vm(o).packed = v.text == "on"; },
     0,
     0,
     {"on", "off"}},
    {"offload",
     ValueKind::word,
     "on|off",
     "offer checksum and segmentation offloads to the guest (default on)",
     [](RunOptions& o, OptionValue v) { vm(o).offload = v.text == "on"; },
     0,
     0,
     {"on", "off"}},
};

const KeySchema kTapKeys[] = {
    {"ifname", ValueKind::interface, "IF", "the TAP interface: attached to, or created and removed",
     [](RunOptions& o, OptionValue v) { tap(o).ifname = std::move(v.text); }},
    {"fd", ValueKind::descriptors, "N[:N…]", "instead of ifname: TAP queues that are open already",
     [](RunOptions& o, OptionValue v) { tap(o).fds = std::move(v.numbers); }},
    {"queues", ValueKind::number, "N", "queues of the TAP (default 1, or the number of fds)",
     [](RunOptions& o, OptionValue v) { tap(o).queues = static_cast<uint32_t>(v.number); }, 1,
     kQueuePairsMax},
    {"napi",
     ValueKind::word,
     "auto|on|off",
     "let the kernel receive our frames in NAPI, with GRO (default auto)",
     [](RunOptions& o, OptionValue v) { tap(o).napi = napi_mode(v.text); },
     0,
     0,
     {"auto", "on", "off"}},
    {"netns", ValueKind::text, "NS", "the network namespace of the interface: a name or a path",
     [](RunOptions& o, OptionValue v) { tap(o).netns = std::move(v.text); }},
    {"persist",
     ValueKind::word,
     "on|off",
     "leave the interface behind when we end (default off)",
     [](RunOptions& o, OptionValue v) { tap(o).persist = v.text == "on"; },
     0,
     0,
     {"on", "off"}},
    {"bridge", ValueKind::interface, "BR", "a bridge that the interface is put into",
     [](RunOptions& o, OptionValue v) { tap(o).bridge = std::move(v.text); }},
    {"mtu", ValueKind::number, "N", "the interface's MTU",
     [](RunOptions& o, OptionValue v) { tap(o).mtu_bytes = static_cast<uint32_t>(v.number); },
     kMtuBytesMin, kTapMtuBytesMax},
    {"mac", ValueKind::mac, "MAC", "the interface's MAC address",
     [](RunOptions& o, OptionValue v) { tap(o).mac = v.mac; }},
};

const KeySchema kMacvtapKeys[] = {
    {"ifname", ValueKind::interface, "IF", "an existing macvtap interface (required)",
     [](RunOptions& o, OptionValue v) { macvtap(o).ifname = std::move(v.text); }},
    {"queues", ValueKind::number, "N", "queues that are opened (default 1)",
     [](RunOptions& o, OptionValue v) { macvtap(o).queues = static_cast<uint32_t>(v.number); }, 1,
     kQueuePairsMax},
    {"netns", ValueKind::text, "NS", "the network namespace of the interface: a name or a path",
     [](RunOptions& o, OptionValue v) { macvtap(o).netns = std::move(v.text); }},
};

const KeySchema kNicKeys[] = {
    {"socket", ValueKind::path, "PATH", "the vhost-user socket of a back end (required)",
     [](RunOptions& o, OptionValue v) { nic(o).socket_path = std::move(v.text); }},
    {"mode",
     ValueKind::word,
     "client|server",
     "client (default) connects to the back end, again and again for ever; server waits for it",
     [](RunOptions& o, OptionValue v) {
       nic(o).side = v.text == "server" ? SocketSide::server : SocketSide::client;
     },
     0,
     0,
     {"client", "server"}},
    {"queues", ValueKind::number, "N", "queue pairs asked for (default 1)",
     [](RunOptions& o, OptionValue v) { nic(o).queue_pairs = static_cast<uint32_t>(v.number); }, 1,
     kQueuePairsMax},
    {"ring-size", ValueKind::number, "N", "descriptors of each ring (default 256)",
     [](RunOptions& o, OptionValue v) { nic(o).ring_size = static_cast<uint32_t>(v.number); }, 2,
     kRingSizeMax},
    {"packed",
     ValueKind::word,
     "on|off",
     "packed rings, and no others (default off: split rings)",
     [](RunOptions& o, OptionValue v) { nic(o).packed = v.text == "on"; },
     0,
     0,
     {"on", "off"}},
    {"tx",
     ValueKind::word,
     "napi|inline",
     "when sent buffers are taken back: from a poll (default), or inside transmit",
     [](RunOptions& o, OptionValue v) {
       nic(o).transmit = v.text == "inline" ? NicTransmit::inline_reclaim : NicTransmit::napi;
     },
     0,
     0,
     {"napi", "inline"}},
    {"offload",
     ValueKind::word,
     "on|off",
     "leave checksums and segmentation to the device, and take them from it (default on)",
     [](RunOptions& o, OptionValue v) { nic(o).offload = v.text == "on"; },
     0,
     0,
     {"on", "off"}},
};

Result<void> finish_nic(RunOptions& options) {
  const NicOptions& entry = nic(options);
  if (entry.socket_path.empty())
    return usage_failure("{}: no socket: say where the back end is, socket=/run/sluice/vm0.sock",
                         entry.origin.text);
  if (!entry.packed && !std::has_single_bit(entry.ring_size))
    return usage_failure("{}: ring-size={} is no power of two: split rings need one; or packed=on",
                         entry.origin.text, entry.ring_size);
  return {};
}

const KeySchema kXdpKeys[] = {
    {"object", ValueKind::text, "FILE", "the object file (ELF, made for BPF)",
     [](RunOptions& o, OptionValue v) { o.programs.back().object_path = std::move(v.text); }},
    {"program", ValueKind::text, "NAME", "which of its programs (default: the only XDP one)",
     [](RunOptions& o, OptionValue v) { o.programs.back().program = std::move(v.text); }},
};

Result<void> finish_vm(RunOptions& options) {
  const VmOptions& entry = vm(options);
  if (entry.socket_path.empty()) {
    return usage_failure(
        "{}: no socket: say where the front end meets us, "
        "socket=/run/sluice/{}.sock",
        entry.origin.text, entry.name);
  }
  return {};
}

// A descriptor that was handed in has been set up by whoever opened it.
Result<void> finish_tap(RunOptions& options) {
  TapOptions& entry = tap(options);
  const std::string& where = entry.origin.text;
  if (entry.ifname.empty() && entry.fds.empty()) {
    return usage_failure("{}: no interface: give ifname=NAME, or fd=N for an open TAP", where);
  }
  if (entry.fds.empty()) {
    if (entry.queues == 0) entry.queues = 1;
    return {};
  }
  if (!entry.ifname.empty()) {
    return usage_failure("{}: ifname={} and fd={} exclude each other: give only one", where,
                         entry.ifname, fmt::join(entry.fds, ":"));
  }
  if (entry.queues != 0 && entry.queues != entry.fds.size()) {
    return usage_failure("{}: queues={} but fd={} names {}: give one descriptor for each queue",
                         where, entry.queues, fmt::join(entry.fds, ":"), entry.fds.size());
  }
  entry.queues = static_cast<uint32_t>(entry.fds.size());
  if (entry.napi != NapiMode::automatic) {
    return usage_failure(
        "{}: napi={} cannot be chosen for fd={}: it was decided when the "
        "descriptor was opened; allowed is auto",
        where, entry.napi == NapiMode::on ? "on" : "off", fmt::join(entry.fds, ":"));
  }
  if (!entry.netns.empty() || entry.persist) {
    return usage_failure("{}: {} does nothing for fd={}: leave it to whoever opened the descriptor",
                         where, entry.persist ? "persist=on" : "netns=" + entry.netns,
                         fmt::join(entry.fds, ":"));
  }
  return {};
}

Result<void> finish_macvtap(RunOptions& options) {
  const MacvtapOptions& entry = macvtap(options);
  if (entry.ifname.empty()) {
    return usage_failure("{}: no interface: give ifname=NAME of an existing macvtap",
                         entry.origin.text);
  }
  return {};
}

Result<void> finish_xdp(RunOptions& options) {
  const XdpOptions& entry = options.programs.back();
  if (entry.object_path.empty())
    return usage_failure("{}: no program: give object=FILE, an object file for BPF",
                         entry.origin.text);
  return {};
}

Result<void> finish_nothing(RunOptions&) { return {}; }

const ListSchema kLists[] = {
    {"vm", "a VM port: the back end of a vhost-user network device",
     "--vm vm0,socket=/run/sluice/vm0.sock,queues=2", kVmKeys,
     [](RunOptions& o, std::string name, Origin origin) {
       o.vms.emplace_back().name = std::move(name);
       o.vms.back().origin = std::move(origin);
     },
     finish_vm},
    {"tap", "a TAP interface of the host", "--tap t0,ifname=tap0,netns=blue", kTapKeys,
     [](RunOptions& o, std::string name, Origin origin) {
       o.taps.emplace_back().name = std::move(name);
       o.taps.back().queues = 0;  // not said; finish_tap() decides
       o.taps.back().origin = std::move(origin);
     },
     finish_tap},
    {"macvtap", "a macvtap interface of the host", "--macvtap m0,ifname=macvtap0", kMacvtapKeys,
     [](RunOptions& o, std::string name, Origin origin) {
       o.macvtaps.emplace_back().name = std::move(name);
       o.macvtaps.back().origin = std::move(origin);
     },
     finish_macvtap},
    {"nic", "the driver side of virtio-net: plugs into any vhost-user back end",
     "--nic nic0,socket=/run/sluice/vm0.sock,packed=on", kNicKeys,
     [](RunOptions& o, std::string name, Origin origin) {
       o.nics.emplace_back().name = std::move(name);
       o.nics.back().origin = std::move(origin);
     },
     finish_nic},
    {"null",
     "a port that takes every frame and brings none",
     "--null n0",
     {},
     [](RunOptions& o, std::string name, Origin origin) {
       o.nulls.emplace_back().name = std::move(name);
       o.nulls.back().origin = std::move(origin);
     },
     finish_nothing},
    {"xdp", "an XDP program that runs on each frame which a port brings",
     "--xdp vm0,object=/usr/lib/bpf/filter.o", kXdpKeys,
     [](RunOptions& o, std::string name, Origin origin) {
       o.programs.emplace_back().port = std::move(name);
       o.programs.back().origin = std::move(origin);
     },
     finish_xdp},
};

const KeySchema kValues[] = {
    {"batch", ValueKind::number, "N", "frames taken from a queue at once (default 64)",
     [](RunOptions& o, OptionValue v) { o.batch_frames = static_cast<uint32_t>(v.number); }, 1,
     kBatchFramesMax},
    {"poll-us", ValueKind::number, "N",
     "microseconds of looking for more work before a worker sleeps (default 50)",
     [](RunOptions& o, OptionValue v) { o.poll_us = static_cast<uint32_t>(v.number); }, 0,
     kPollMicrosecondsMax},
    {"workers", ValueKind::number, "N", "threads that carry frames (default 1)",
     [](RunOptions& o, OptionValue v) { o.workers = static_cast<uint32_t>(v.number); }, 1,
     kWorkersMax},
    {"cpus", ValueKind::cpus, "LIST", "CPUs of the workers, in turn (default: the kernel's choice)",
     [](RunOptions& o, OptionValue v) { o.cpus = std::move(v.numbers); }},
    {"control", ValueKind::path, "PATH",
     "the socket of `sluice stats` (default /run/sluice/control.sock)",
     [](RunOptions& o, OptionValue v) { o.control_path = std::move(v.text); }},
    {"xdp-unverified",
     ValueKind::word,
     "WORD",
     "a program that the kernel's verifier cannot be asked about: refuse, or interpret (checked "
     "and "
     "slow)",
     [](RunOptions& o, OptionValue v) { o.runs_unverified = v.text == "interpret"; },
     0,
     0,
     {"refuse", "interpret"}},
    {"hugepages", ValueKind::flag, "", "put frames into huge pages, if the host has free ones",
     [](RunOptions& o, OptionValue v) { o.hugepages = v.number != 0; }},
    {"verbose", ValueKind::flag, "", "log every message of a front end (also -v)",
     [](RunOptions& o, OptionValue v) { o.verbose = v.number != 0; }},
};

}  // namespace

std::span<const ListSchema> list_schemas() { return kLists; }
std::span<const KeySchema> value_schemas() { return kValues; }

const ListSchema* find_list_schema(std::string_view name) {
  const auto found = std::ranges::find(kLists, name, &ListSchema::name);
  return found == std::end(kLists) ? nullptr : &*found;
}

const KeySchema* find_key(std::span<const KeySchema> keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &KeySchema::name);
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace sluice
