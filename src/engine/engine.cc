#include "engine/engine.h"

#include <algorithm>

#include "base/log.h"
#include "port/unplugged_port.h"

namespace sluice {
namespace {

// What a port may count on its peer for. Another VM can come and go with other wishes, and only its
// checksums can be completed on the way, so it is taken for the least.
OffloadSet dependable(const Port& port) {
  if (port.kind() == "vm") return OffloadSet{};
  return port.takes();
}

// A program's pointers to a packet have 32 bits.
constexpr const char* kPoolTooHigh =
    "the frame pool found no room below 4 GiB, where alone a program can reach frames: start again "
    "(addresses are drawn anew), or without programs";

}  // namespace

Engine::Engine(EngineOptions options) : options_(std::move(options)) {
  SLUICE_ASSERT(options_.workers >= 1);
}

Engine::~Engine() { stop(); }

void Engine::add(std::unique_ptr<Port> port) {
  SLUICE_ASSERT(!started_);
  port->attach(this, this);
  ports_.push_back(std::move(port));
}

void Engine::connect(Port& a, Port& b) {
  SLUICE_ASSERT(!started_ && &a != &b && peer_of(a) == nullptr && peer_of(b) == nullptr);
  cables_.push_back({&a, &b});
  a.set_peer_takes(dependable(b));
  b.set_peer_takes(dependable(a));
}

Port* Engine::find(std::string_view name) {
  for (const auto& port : ports_) {
    if (port->name() == name) return port.get();
  }
  return nullptr;
}

Port* Engine::peer_of(const Port& port) {
  for (const Cable& cable : cables_) {
    if (cable.a == &port) return cable.b;
    if (cable.b == &port) return cable.a;
  }
  return nullptr;
}

// A sum with one term a user, so that nobody has to guess.
size_t frames_needed(const std::vector<Engine::Cable>& cables, size_t worker_count) {
  size_t frames =
      worker_count * (2 * kBatchFramesMax /*in its cache*/ + kBatchFramesMax /*in a breath*/);
  for (const Engine::Cable& cable : cables) {
    const size_t pairs = std::max(cable.a->queue_count(), cable.b->queue_count());
    frames += pairs * 2 * kHeldFramesMax;  // waiting, both directions
    frames += pairs * 2;                   // one a queue may keep at hand
    frames += pairs * (cable.a->frames_kept_max() + cable.b->frames_kept_max());
  }
  return frames;
}

size_t Engine::slabs_needed() const {
  size_t slabs = options_.workers;
  for (const Cable& cable : cables_)
    slabs += std::max(cable.a->queue_count(), cable.b->queue_count()) * kSlabsPerQueue;
  return slabs;
}

Result<void> Engine::start() {
  SLUICE_ASSERT(!started_);
  if (auto plugged = plug_the_unplugged(); !plugged) return plugged;
  auto pool = FramePool::create({.frame_count = frames_needed(cables_, options_.workers),
                                 .slab_count = slabs_needed(),
                                 .want_hugepages = options_.want_hugepages});
  if (!pool) return fail(pool.error());
  pool_ = std::move(*pool);
  if (options_.want_hugepages && !pool_->has_hugepages())
    log_warning("no hugepages for the frame pool: it uses normal pages");
  for (uint32_t i = 0; i < options_.workers; ++i) {
    const int cpu = options_.cpus.empty() ? -1 : options_.cpus[i % options_.cpus.size()];
    auto worker = Worker::create({.cpu = cpu,
                                  .poll_us = options_.poll_us,
                                  .batch_frames_max = options_.batch_frames_max,
                                  .batches_per_breath = options_.batches_per_breath},
                                 *pool_);
    if (!worker) return fail(worker.error());
    workers_.push_back(std::move(*worker));
  }
  if (auto laid = lay_links(); !laid) return laid;
  lay_redirects();
  if (!first_programs_.empty() && !pool_->below_4gib()) return fail("{}", kPoolTooHigh);
  for (const auto& [port, program] : first_programs_)
    for (auto& worker : workers_) tell_worker(*worker, *port, program);
  started_ = true;
  for (const Cable& cable : cables_) {
    active_queues_changed(*cable.a);
    active_queues_changed(*cable.b);
  }
  for (auto& worker : workers_) {
    if (auto ran = worker->start(); !ran) return ran;
  }
  return {};
}

// A VM's driver waits for its packets to be taken, cable or not; and to any port a program can send.
Result<void> Engine::plug_the_unplugged() {
  for (auto& port : ports_) {
    if (peer_of(*port) != nullptr) continue;
    auto end = UnpluggedPort::create(*port);
    if (!end) return fail(end.error());
    unplugged_.push_back(std::move(*end));
    connect(*port, *unplugged_.back());
  }
  return {};
}

// All links that share a queue go to one worker: a queue has one owner.
Result<void> Engine::lay_links() {
  size_t next_worker = 0;
  for (const Cable& cable : cables_) {
    Port& wide = cable.a->queue_count() >= cable.b->queue_count() ? *cable.a : *cable.b;
    Port& narrow = &wide == cable.a ? *cable.b : *cable.a;
    const bool one_worker = wide.wants_one_worker() || narrow.wants_one_worker() ||
                            narrow.queue_count() == 1 || workers_.size() == 1;
    if (one_worker) {
      wide.queues_share_worker(narrow.queue_count() < wide.queue_count());
      narrow.queues_share_worker(false);
    }
    for (uint32_t i = 0; i < wide.queue_count(); ++i) {
      const uint32_t shared = i % narrow.queue_count();
      Worker& worker = *workers_[(next_worker + (one_worker ? 0 : shared)) % workers_.size()];
      const bool first = i < narrow.queue_count();
      if (auto added = worker.add_link(wide.queue(i), narrow.queue(shared), first); !added)
        return added;
    }
    next_worker += one_worker ? 1 : narrow.queue_count();
  }
  return {};
}

uint32_t Engine::number_of(const Port& port) const {
  for (size_t i = 0; i < ports_.size(); ++i)
    if (ports_[i].get() == &port) return static_cast<uint32_t>(i + 1);
  return 0;
}

// Each worker learns which queues of every port are its own.
void Engine::lay_redirects() {
  for (size_t w = 0; w < workers_.size(); ++w) {
    XdpPorts table;
    table.entries.resize(ports_.size() + 1);
    table.mtus.resize(ports_.size() + 1);
    for (size_t p = 0; p < ports_.size(); ++p) {
      table.mtus[p + 1] = ports_[p]->mtu_bytes();
      for (uint32_t i = 0; i < ports_[p]->queue_count(); ++i)
        if (workers_[w]->owns(ports_[p]->queue(i)))
          table.entries[p + 1].queues.push_back(&ports_[p]->queue(i));
    }
    workers_[w]->set_ports(static_cast<uint32_t>(w), std::move(table));
  }
}

Result<void> Engine::prepare_for_program(Port& port) {
  if (pool_ != nullptr && !pool_->below_4gib()) return fail("{}", kPoolTooHigh);
  return port.bring_whole_frames();
}

void Engine::tell_worker(Worker& worker, Port& port, const XdpProgram* program) {
  for (uint32_t i = 0; i < port.queue_count(); ++i)
    worker.set_program(port.queue(i), {program, number_of(port), i});
}

void Engine::set_program(Port& port, const XdpProgram* program) {
  if (!started_) {
    std::erase_if(first_programs_, [&port](const auto& entry) { return entry.first == &port; });
    if (program != nullptr) first_programs_.emplace_back(&port, program);
  }
  for (auto& worker : workers_) worker->call([&] { tell_worker(*worker, port, program); });
}

void Engine::stop() {
  for (auto& worker : workers_) worker->stop();
  workers_.clear();
  started_ = false;
}

void Engine::run_between_breaths(PortQueue& queue, const std::function<void()>& change) {
  for (auto& worker : workers_) {
    if (!worker->owns(queue)) continue;
    worker->call(change);
    return;
  }
  change();  // nobody breathes it
}

void Engine::takes_changed(Port& port) {
  if (Port* peer = peer_of(port); peer != nullptr && peer->kind() != "vm")
    peer->set_peer_takes(port.takes());
}

// A queue of the peer is active when at least one queue that it is connected with is.
void Engine::active_queues_changed(Port& port) {
  Port* peer = peer_of(port);
  if (peer == nullptr || !started_) return;
  const std::vector<bool> active = port.active_queues();
  std::vector<bool> peer_active(peer->queue_count(), false);
  for (size_t i = 0; i < active.size() && i < peer_active.size(); ++i) peer_active[i] = active[i];
  peer->set_active_queues(peer_active);
}

}  // namespace sluice
