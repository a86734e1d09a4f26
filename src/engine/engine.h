// Engine: the ports, the cables between them and the workers that breathe them.
//
// Owned and driven by the control thread. Ports and cables are laid before start(); afterwards the
// engine carries changes to the workers (QueueExecutor) and tells a port what its peer negotiated
// (PortListener).
//
//   auto engine = Engine::create({.workers = 1});
//   engine->add(std::move(vm)); engine->add(std::move(tap));
//   engine->connect("vm0", "t0");
//   engine->start();
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "engine/worker.h"
#include "port/port.h"
#include "port/queue_executor.h"

namespace sluice {

struct EngineOptions {
  uint32_t workers = 1;
  std::vector<int> cpus;  // worker i runs on cpus[i % size]; empty: not pinned
  uint32_t poll_us = 50;
  uint32_t batch_frames_max = kBatchFramesMax;
  uint32_t batches_per_breath = 1;  // see WorkerOptions
  bool want_hugepages = false;
};

class Engine final : public QueueExecutor, public PortListener {
 public:
  explicit Engine(EngineOptions options);
  ~Engine() override;

  void add(std::unique_ptr<Port> port);
  // A patch cable, both directions. Queue i of the one is connected with queue i of the other; when
  // one has more, they share the other's. Ports and their cables are known to be free and
  // different.
  void connect(Port& a, Port& b);
  Result<void> start();
  void stop();

  Port* find(std::string_view name);
  const std::vector<std::unique_ptr<Port>>& ports() const { return ports_; }
  struct Cable {
    Port* a;
    Port* b;
  };
  const std::vector<Cable>& cables() const { return cables_; }
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
  const FramePool* pool() const { return pool_.get(); }

  // XDP programs. A port's number is what a program takes for an ifindex; it does not change.
  uint32_t number_of(const Port& port) const;
  uint32_t worker_count() const { return options_.workers; }
  // Whether a program can run on what the port brings, from now on. Refused with a sentence.
  Result<void> prepare_for_program(Port& port);
  // Runs it on what the port brings from the next breath on; null: none. When this returns, no
  // worker runs the one before any more. Before start() it is there from the first breath on.
  void set_program(Port& port, const XdpProgram* program);

  // QueueExecutor
  void run_between_breaths(PortQueue& queue, const std::function<void()>& change) override;
  // PortListener
  void takes_changed(Port& port) override;
  void active_queues_changed(Port& port) override;

 private:
  Port* peer_of(const Port& port);
  Result<void> plug_the_unplugged();
  Result<void> lay_links();
  void lay_redirects();
  void tell_worker(Worker& worker, Port& port, const XdpProgram* program);
  size_t slabs_needed() const;

  EngineOptions options_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::unique_ptr<Port>> unplugged_;  // ends for VMs without a cable; shown nowhere
  std::vector<Cable> cables_;
  std::unique_ptr<FramePool> pool_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::pair<Port*, const XdpProgram*>> first_programs_;  // set before start()
  bool started_ = false;
};

}  // namespace sluice
