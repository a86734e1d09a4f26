#include "control/daemon.h"

#include <signal.h>
#include <sys/stat.h>

#include <cstdio>

#include "base/log.h"
#include "control/stats_json.h"
#include "port/null_port.h"
#include "port/tap_port.h"

namespace sluice {
namespace {

NapiChoice napi_choice(NapiMode mode) {
  switch (mode) {
    case NapiMode::automatic:
      return NapiChoice::automatic;
    case NapiMode::on:
      return NapiChoice::on;
    case NapiMode::off:
      return NapiChoice::off;
  }
  return NapiChoice::automatic;
}

TapSpec spec_of(const TapOptions& options) {
  return {.name = options.name,
          .ifname = options.ifname,
          .fds = options.fds,
          .queues = options.queues,
          .napi = napi_choice(options.napi),
          .netns = options.netns,
          .persist = options.persist,
          .bridge = options.bridge,
          .mtu = options.mtu_bytes.value_or(0)};
}

TapSpec spec_of(const MacvtapOptions& options) {
  return {.name = options.name,
          .ifname = options.ifname,
          .fds = {},
          .queues = options.queues,
          .netns = options.netns,
          .bridge = {},
          .macvtap = true};
}

EngineOptions engine_options(const RunOptions& options) {
  EngineOptions engine{.workers = options.workers,
                       .cpus = {},
                       .poll_us = options.poll_us,
                       .batch_frames_max = options.batch_frames,
                       .want_hugepages = options.hugepages};
  for (const uint32_t cpu : options.cpus) engine.cpus.push_back(static_cast<int>(cpu));
  return engine;
}

std::vector<Port*> pointers(const Engine& engine) {
  std::vector<Port*> all;
  for (const auto& port : engine.ports()) all.push_back(port.get());
  return all;
}

std::vector<LinkFigures> link_figures(const RunOptions& options) {
  std::vector<LinkFigures> links;
  for (const ConnectOptions& cable : options.connections) links.push_back({cable.a, cable.b});
  return links;
}

// The queue pairs of the port at the other end of the cable: what a port of no fixed size takes.
uint32_t pairs_of_peer(const RunOptions& options, Engine& engine, const std::string& name) {
  for (const ConnectOptions& cable : options.connections) {
    if (cable.a != name && cable.b != name) continue;
    const Port* peer = engine.find(cable.a == name ? cable.b : cable.a);
    if (peer != nullptr) return peer->queue_count();
  }
  return 1;
}

}  // namespace

Daemon::Daemon(const RunOptions& options) : options_(options) {}

Daemon::~Daemon() {
  control_.reset();
  // Sessions stop their rings through the workers, so these go later, and the ports last.
  endpoints_.clear();
  nic_endpoints_.clear();
  if (engine_) engine_->stop();
  if (!loop_) return;
  for (const Vm& vm : vms_) {
    loop_->unwatch(vm.port->control_fd());
    loop_->unwatch(vm.port->fault_fd());
  }
}

Result<std::unique_ptr<Daemon>> Daemon::create(const RunOptions& options) {
  std::unique_ptr<Daemon> daemon(new Daemon(options));
  if (auto built = daemon->build(); !built) return built.error();
  return daemon;
}

Result<void> Daemon::build() {
  // A front end that closes its side must not end us.
  ::signal(SIGPIPE, SIG_IGN);
  auto loop = EventLoop::create();
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  // Before any thread starts, so that all of them inherit the blocked signals.
  if (auto watched = loop_->watch_signals([this](int) { loop_->stop(); }); !watched) return watched;
  engine_ = std::make_unique<Engine>(engine_options(options_));
  if (auto added = add_ports(); !added) return added;
  for (const ConnectOptions& cable : options_.connections) {
    Port* a = engine_->find(cable.a);
    Port* b = engine_->find(cable.b);
    SLUICE_ASSERT(a != nullptr && b != nullptr);  // check_run_options() has seen to that
    engine_->connect(*a, *b);
  }
  if (auto attached = attach_programs(); !attached) return attached;
  if (auto started = engine_->start(); !started) return started;
  return open_sockets();
}

// Before the first breath, so that no frame passes without its program.
Result<void> Daemon::attach_programs() {
  xdp_ = std::make_unique<XdpManager>(*engine_, options_.runs_unverified);
  for (const XdpOptions& wanted : options_.programs) {
    auto object = load_xdp_object({.path = wanted.object_path,
                                   .program = wanted.program,
                                   .may_be_unverified = options_.runs_unverified});
    if (!object) return fail("{}: {}", wanted.origin.text, object.error().text);
    auto attached = xdp_->attach(wanted.port, std::move(*object), AttachKind::at_start);
    if (!attached) return fail("{}: {}", wanted.origin.text, attached.error().text);
  }
  return {};
}

Result<void> Daemon::add_ports() {
  for (const VmOptions& vm : options_.vms) {
    if (auto added = add_vm(vm); !added) return added;
  }
  for (const TapOptions& tap : options_.taps) {
    if (auto added = add_tap(spec_of(tap), tap.origin); !added) return added;
    if (!tap.mac) continue;
    auto& port = dynamic_cast<TapPort&>(*engine_->find(tap.name));
    if (auto set = port.set_mac(*tap.mac); !set)
      return fail("{}: {}", tap.origin.text, set.error().text);
  }
  for (const MacvtapOptions& macvtap : options_.macvtaps) {
    if (auto added = add_tap(spec_of(macvtap), macvtap.origin); !added) return added;
  }
  for (const NicOptions& nic : options_.nics) {
    if (auto added = add_nic(nic); !added) return added;
  }
  for (const NullOptions& null : options_.nulls) {
    auto port = NullPort::create(null.name, pairs_of_peer(options_, *engine_, null.name));
    if (!port) return fail("{}: {}", null.origin.text, port.error().text);
    engine_->add(std::move(*port));
  }
  return {};
}

Result<void> Daemon::add_vm(const VmOptions& options) {
  auto port = VmPort::create({.name = options.name,
                              .queue_pairs = options.queue_pairs,
                              .mac = options.mac.value_or(MacAddress{}),
                              .mtu_bytes = options.mtu_bytes.value_or(0),
                              .rss = options.rss,
                              .packed = options.packed,
                              .offload = options.offload});
  if (!port) return fail("{}: {}", options.origin.text, port.error().text);
  vms_.push_back({port->get(), &options});
  engine_->add(std::move(*port));
  return {};
}

Result<void> Daemon::add_nic(const NicOptions& options) {
  auto port = NicPort::create(nic_port_options(options));
  if (!port) return fail("{}: {}", options.origin.text, port.error().text);
  nics_.push_back({port->get(), &options});
  engine_->add(std::move(*port));
  return {};
}

// A host interface that stands for a VM has the VM's address.
void Daemon::give_mac_to_peer(const NicPort& port) {
  if (!port.agreement() || !port.agreement()->mac) return;
  for (const Engine::Cable& cable : engine_->cables()) {
    Port* peer = cable.a == &port ? cable.b : cable.b == &port ? cable.a : nullptr;
    auto* tap = dynamic_cast<TapPort*>(peer);
    if (tap == nullptr) continue;
    if (auto set = tap->set_mac(*port.agreement()->mac); !set)
      log_warning("{}: {}", tap->name(), set.error().text);
  }
}

Result<void> Daemon::add_tap(const TapSpec& spec, const Origin& origin) {
  auto port = TapPort::open(spec);
  if (!port)
    return Failure{fmt::format("{}: {}", origin.text, port.error().text), port.error().is_usage};
  log_info("{}", (*port)->description());
  engine_->add(std::move(*port));
  return {};
}

Result<void> Daemon::open_sockets() {
  // The folder of the default paths is ours to make; any other is the operator's. If it cannot be
  // made, the socket's own message says so.
  if (options_.control_path == kControlPathDefault)
    ::mkdir(std::string(kControlPathDefault.substr(0, kControlPathDefault.rfind('/'))).c_str(),
            0755);
  auto control = ControlSocket::open(*loop_, options_.control_path, *this);
  if (!control) return control.error();
  control_ = std::move(*control);
  for (const Vm& vm : vms_) {
    auto endpoint = VmEndpoint::open(*loop_, *vm.options, *vm.port);
    if (!endpoint) return endpoint.error();
    endpoints_.push_back(std::move(*endpoint));
    if (auto watched = watch_vm(*vm.port, *endpoints_.back()); !watched) return watched;
  }
  for (const Nic& nic : nics_) {
    auto endpoint = NicEndpoint::open(*loop_, *nic.options, *nic.port);
    if (!endpoint) return endpoint.error();
    nic_endpoints_.push_back(std::move(*endpoint));
    NicPort* port = nic.port;
    if (nic.options->mac_to_peer)
      nic_endpoints_.back()->on_ready([this, port] { give_mac_to_peer(*port); });
  }
  return {};
}

Result<void> Daemon::watch_vm(VmPort& port, VmEndpoint& endpoint) {
  auto kicks =
      loop_->watch(port.control_fd(), EPOLLIN, [&port](uint32_t) { port.on_control_kick(); });
  if (!kicks) return kicks;
  return loop_->watch(port.fault_fd(), EPOLLIN, [&port, &endpoint](uint32_t) {
    if (port.on_fault())
      endpoint.drop_front_end("the file behind its memory was truncated while in use");
  });
}

void Daemon::run() { loop_->run(); }

std::string Daemon::ready_line() const {
  std::string line = "ready:";
  for (const VmOptions& vm : options_.vms)
    line +=
        fmt::format(" {} {} {};", vm.name,
                    vm.side == SocketSide::server ? "listens on" : "connects to", vm.socket_path);
  for (const NicOptions& nic : options_.nics)
    line +=
        fmt::format(" {} {} {};", nic.name,
                    nic.side == SocketSide::server ? "listens on" : "connects to", nic.socket_path);
  return line + fmt::format(" control socket {}", options_.control_path);
}

nlohmann::json Daemon::stats() const {
  nlohmann::json document = stats_document();
  document["ports"] = stats_ports(pointers(*engine_));
  std::vector<WorkerFigures> workers;
  for (const auto& worker : engine_->workers()) {
    workers.push_back({.cpu = worker->cpu(),
                       .breaths = worker->counters().breaths.get(),
                       .sleeps = worker->counters().sleeps.get()});
  }
  document["workers"] = stats_workers(workers);
  MemoryFigures memory{.frame_pool_bytes = engine_->pool()->bytes()};
  for (const auto& endpoint : endpoints_) {
    const BackendSession* session = endpoint->session();
    if (session != nullptr && session->memory() != nullptr)
      memory.guest_regions_bytes += session->memory()->total_bytes();
  }
  document["memory"] = stats_memory(memory);
  document["links"] = stats_links(link_figures(options_));
  return document;
}

nlohmann::json Daemon::ports() const {
  return ports_document(pointers(*engine_), link_figures(options_));
}

Result<void> run_daemon(const RunOptions& options) {
  auto daemon = Daemon::create(options);
  if (!daemon) return daemon.error();
  fmt::print("{}\n", (*daemon)->ready_line());
  std::fflush(stdout);  // a script waits for this line
  (*daemon)->run();
  log_info("stopped by a signal");
  return {};
}

}  // namespace sluice
