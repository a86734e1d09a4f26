// sluice guest: a nic and a TAP, connected: an interface of the host that behaves like a VM.
#include <cstdio>

#include "control/daemon.h"
#include "control/option_schema.h"
#include "sluice_words.h"

namespace sluice {
namespace {

constexpr std::string_view kHelp =
    R"(sluice guest: an interface of the host that behaves like a VM's

  sluice guest --socket /run/sluice/vm0.sock --ifname guest0
  sluice guest --socket /run/sluice/vm0.sock --ifname eth0 --netns blue --packed

  --socket PATH    the vhost-user socket of a back end (sluice, DPDK, OVS, ...); needed
  --ifname IF      the TAP interface, created and removed; needed
  --netns NS       its network namespace, a name of `ip netns` or a path
  --mac MAC        its address (default: the one that the device names)
  --mode MODE      client (default) connects to the back end, server waits for it
  --queues N       queue pairs, and queues of the TAP (default 1)
  --ring-size N    descriptors of each ring (default 256)
  --packed         packed rings, and no others
  --tx MODE        napi (default) or inline: when sent buffers are taken back
  --offload on|off leave checksums and segmentation to the device (default on)
  --poll-us N      microseconds of looking for more work before it sleeps (default 50)
  --cpus LIST      where its worker runs
  --control PATH   the socket of `sluice stats` (default /run/sluice/guest.sock)
  -v, --verbose    log every message

It is short for `sluice run --nic nic0,... --tap t0,... --connect nic0:t0`. What the interface sends
arrives at the back end as a guest's packets do, offloads included. It prints a line with `ready`,
connects again when the back end was restarted, and ends with SIGINT or SIGTERM.
)";

struct Guest {
  std::string socket, ifname, netns, mac, mode = "client", queues = "1", ring_size = "256",
                                          tx = "napi", offload = "on", poll_us, cpus,
                                          control = "/run/sluice/guest.sock";
  bool packed = false, verbose = false, wants_help = false;
};

Result<Guest> parse(const Arguments& arguments) {
  Guest guest;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  const std::pair<const char*, std::string*> texts[] = {
      {"--socket", &guest.socket},       {"--ifname", &guest.ifname},
      {"--netns", &guest.netns},         {"--mac", &guest.mac},
      {"--mode", &guest.mode},           {"--queues", &guest.queues},
      {"--ring-size", &guest.ring_size}, {"--tx", &guest.tx},
      {"--offload", &guest.offload},     {"--poll-us", &guest.poll_us},
      {"--cpus", &guest.cpus},           {"--control", &guest.control}};
  for (const auto& [name, text] : texts) app.add_option(name, *text);
  app.add_flag("--packed", guest.packed);
  app.add_flag("-v,--verbose", guest.verbose);
  app.add_flag("-h,--help", guest.wants_help);
  if (auto parsed = parse_words(app, arguments, "guest"); !parsed) return parsed.error();
  if (guest.wants_help) return guest;
  if (!app.remaining().empty()) return unknown_word(app.remaining().front(), "guest");
  if (guest.socket.empty())
    return usage_failure("no back end: give --socket PATH of its vhost-user socket");
  if (guest.ifname.empty())
    return usage_failure("no interface: give --ifname NAME, it is created and removed");
  return guest;
}

Arguments run_arguments(const Guest& guest) {
  std::string nic = fmt::format(
      "nic0,socket={},mode={},queues={},ring-size={},packed={},tx={},offload={}",
      in_list(guest.socket), in_list(guest.mode), in_list(guest.queues), in_list(guest.ring_size),
      guest.packed ? "on" : "off", in_list(guest.tx), in_list(guest.offload));
  std::string tap =
      fmt::format("t0,ifname={},queues={}", in_list(guest.ifname), in_list(guest.queues));
  if (!guest.netns.empty()) tap += ",netns=" + in_list(guest.netns);
  if (!guest.mac.empty()) tap += ",mac=" + in_list(guest.mac);
  Arguments words = {"--nic",     nic,       "--tap",     tap,
                     "--connect", "nic0:t0", "--control", guest.control};
  if (!guest.poll_us.empty()) words.insert(words.end(), {"--poll-us", guest.poll_us});
  if (!guest.cpus.empty()) words.insert(words.end(), {"--cpus", guest.cpus});
  if (guest.verbose) words.emplace_back("-v");
  return words;
}

}  // namespace

int cmd_guest(const Arguments& arguments) {
  const Result<Guest> guest = parse(arguments);
  if (!guest) return report_failure("guest", guest.error());
  if (guest->wants_help) {
    fmt::print("{}", kHelp);
    return kExitFine;
  }
  Result<RunRequest> request = parse_run_arguments(run_arguments(*guest));
  if (!request) return report_failure("guest", in_own_words(request.error()));
  request->options.nics[0].mac_to_peer = guest->mac.empty();
  set_log_level(guest->verbose ? LogLevel::debug : LogLevel::info);
  const Result<void> ran = run_daemon(request->options);
  return ran ? kExitFine : report_failure("guest", ran.error());
}

}  // namespace sluice
