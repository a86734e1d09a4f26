// What the operator asked for, from the command line and from a TOML file.
//
// Both are parsed with one schema (control/option_schema.h), so that a key has the same name, the
// same range and the same sentence in either:
//
//   --vm vm0,socket=/run/a.sock,queues=2     [[vm]]
//                                            name = "vm0"
//                                            socket = "/run/a.sock"
//                                            queues = 2
//   --connect vm0:t0                         connect = ["vm0:t0"]
//                                            or [[connect]] with a = "vm0" and b = "t0"
//
// A comma inside a value of a list is written twice (",,"), as in QEMU. Everything that can be
// known to be wrong before anything starts is refused here with one line; what the kernel says
// later (no such namespace, no permission) is not ours to know yet.
//
// Not here: options of features that do not exist yet. They are refused as unknown.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/result.h"

namespace sluice {

using MacAddress = std::array<uint8_t, 6>;

inline constexpr std::string_view kControlPathDefault = "/run/sluice/control.sock";
inline constexpr uint32_t kPollMicrosecondsDefault = 50;

// Where an option was written: "--vm vm0", or "sluice.toml line 3: [[vm]] vm0". For messages; two
// options are equal when they ask for the same, wherever they stand.
struct Origin {
  std::string text;
  bool operator==(const Origin&) const { return true; }
};

enum class SocketSide : uint8_t { server, client };  // whether we listen or connect
enum class NapiMode : uint8_t { automatic, on, off };

struct VmOptions {
  std::string name;
  std::string socket_path;
  SocketSide side = SocketSide::server;
  uint32_t queue_pairs = 1;
  std::optional<MacAddress> mac;
  std::optional<uint16_t> mtu_bytes;
  uint32_t socket_mode = 0660;  // permission bits of a socket that we listen on
  std::string socket_group;     // empty: as created
  bool rss = false;             // offer receive-side scaling and hash reports
  bool packed = true;           // offer packed rings, beside split ones
  bool offload = true;          // offer checksum and segmentation offloads
  Origin origin;
  bool operator==(const VmOptions&) const = default;
};

struct TapOptions {
  std::string name;
  std::string ifname;    // exactly one of ifname and fds is given
  std::vector<int> fds;  // open TAP queues that were handed in, one a queue
  uint32_t queues = 1;
  NapiMode napi = NapiMode::automatic;
  std::string netns;  // a name of `ip netns`, or a path; empty: our own
  bool persist = false;
  std::string bridge;
  std::optional<uint32_t> mtu_bytes;
  std::optional<MacAddress> mac;
  Origin origin;
  bool operator==(const TapOptions&) const = default;
};

struct MacvtapOptions {
  std::string name;
  std::string ifname;
  uint32_t queues = 1;
  std::string netns;
  Origin origin;
  bool operator==(const MacvtapOptions&) const = default;
};

enum class NicTransmit : uint8_t { napi, inline_reclaim };

// The driver side of virtio-net: plugs into a vhost-user back end.
struct NicOptions {
  std::string name;
  std::string socket_path;
  SocketSide side = SocketSide::client;
  uint32_t queue_pairs = 1;
  uint32_t ring_size = 256;
  bool packed = false;
  bool offload = true;
  NicTransmit transmit = NicTransmit::napi;
  int interrupt_cpu = -1;    // a thread of its own handles transmit interrupts there
  bool mac_to_peer = false;  // a TAP at the other end takes the device's address
  Origin origin;
  bool operator==(const NicOptions&) const = default;
};

struct NullOptions {
  std::string name;
  Origin origin;
  bool operator==(const NullOptions&) const = default;
};

// An XDP program on what a port brings.
struct XdpOptions {
  std::string port;
  std::string object_path;
  std::string program;  // empty: the only one of the object
  Origin origin;
  bool operator==(const XdpOptions&) const = default;
};

// A patch cable between two ports.
struct ConnectOptions {
  std::string a;
  std::string b;
  Origin origin;
  bool operator==(const ConnectOptions&) const = default;
};

struct RunOptions {
  std::vector<VmOptions> vms;
  std::vector<TapOptions> taps;
  std::vector<MacvtapOptions> macvtaps;
  std::vector<NicOptions> nics;
  std::vector<NullOptions> nulls;
  std::vector<XdpOptions> programs;
  bool runs_unverified = false;  // programs that no verifier has seen, in the checked interpreter
  std::vector<ConnectOptions> connections;
  uint32_t batch_frames = kBatchFramesMax;
  uint32_t poll_us = kPollMicrosecondsDefault;
  uint32_t workers = 1;
  std::vector<int> cpus;  // worker n runs on cpus[n % size]; empty: where the kernel likes
  std::string control_path{kControlPathDefault};
  bool hugepages = false;
  bool verbose = false;
  bool operator==(const RunOptions&) const = default;
};

// What `sluice run` was asked for. The options have been checked unless help was asked for.
struct RunRequest {
  RunOptions options;
  bool wants_help = false;
  std::string help_qemu_port;         // --help-qemu NAME
  std::vector<std::string> warnings;  // allowed, but probably not what was meant
};

// The words after `sluice run`. The file named by --config is read first; single values on the
// command line win over it, ports and cables add to it.
Result<RunRequest> parse_run_arguments(const std::vector<std::string>& arguments);

// One "NAME,key=value,…" of --tap, as `sluice tap` takes it too. `option` is how messages call it.
Result<TapOptions> parse_tap_list(std::string_view option, std::string_view list);

// One "PORT,object=FILE,…" of --xdp, as `sluice xdp attach` takes it too.
Result<XdpOptions> parse_xdp_list(std::string_view option, std::string_view list);

// Adds what a TOML text says to `options`. `file_name` is for messages.
Result<void> parse_config_text(std::string_view text, std::string_view file_name,
                               RunOptions& options);
// Adds one list option ("vm", "tap", "macvtap", "null", "connect") to `options`.
Result<void> parse_list_option(std::string_view kind, std::string_view list, RunOptions& options);

// Everything that concerns more than one option: names given twice, cables to nowhere. Returns
// warnings.
Result<std::vector<std::string>> check_run_options(const RunOptions& options);

// The text of `sluice run --help`: examples first, then every option and key of the schema.
std::string run_help_text();
// The keys of one kind ("tap") with their sentences, for the help of other commands.
std::string list_help_text(std::string_view kind);

}  // namespace sluice
