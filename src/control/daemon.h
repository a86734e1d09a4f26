// Daemon: `sluice run`, put together: ports, cables and workers from the options, a socket for each
// VM, the control socket, and the loop of the control thread.
//
//   auto daemon = Daemon::create(options);
//   if (!daemon) return report(daemon.error());
//   (*daemon)->run();   // until SIGINT or SIGTERM
//
// Nothing listens before everything else is in place, and what was created is gone afterwards.
#pragma once

#include <memory>
#include <vector>

#include "control/control_socket.h"
#include "control/event_loop.h"
#include "control/nic_endpoint.h"
#include "control/options.h"
#include "control/vm_endpoint.h"
#include "control/xdp_manager.h"
#include "engine/engine.h"
#include "port/tap_opener.h"
#include "port/vm_port.h"

namespace sluice {

class Daemon final : public StatsSource {
 public:
  static Result<std::unique_ptr<Daemon>> create(const RunOptions& options);
  ~Daemon() override;
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Serves until a signal says stop.
  void run();
  // One line for the operator, with the word "ready", when every socket listens.
  std::string ready_line() const;

  // StatsSource
  nlohmann::json stats() const override;
  nlohmann::json ports() const override;
  std::optional<nlohmann::json> command(const std::string& name, const nlohmann::json& request,
                                        std::vector<Fd>& fds) override {
    return xdp_->command(name, request, fds);
  }

 private:
  explicit Daemon(const RunOptions& options);
  Result<void> build();
  Result<void> add_ports();
  Result<void> add_vm(const VmOptions& options);
  Result<void> add_tap(const TapSpec& spec, const Origin& origin);
  Result<void> attach_programs();
  Result<void> open_sockets();
  Result<void> add_nic(const NicOptions& options);
  void give_mac_to_peer(const NicPort& port);
  Result<void> watch_vm(VmPort& port, VmEndpoint& endpoint);

  RunOptions options_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<XdpManager> xdp_;
  struct Vm {
    VmPort* port;
    const VmOptions* options;
  };
  std::vector<Vm> vms_;
  struct Nic {
    NicPort* port;
    const NicOptions* options;
  };
  std::vector<Nic> nics_;
  std::vector<std::unique_ptr<VmEndpoint>> endpoints_;
  std::vector<std::unique_ptr<NicEndpoint>> nic_endpoints_;
  std::unique_ptr<ControlSocket> control_;
};

// The whole of `sluice run`: makes a daemon, prints its ready line on standard output, and serves
// until a signal ends it.
Result<void> run_daemon(const RunOptions& options);

}  // namespace sluice
