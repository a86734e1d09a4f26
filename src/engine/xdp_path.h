// XdpPath: what a worker does with a batch on which an XDP program runs, between its source and its
// destination.
//
// Frames that pass stay in the batch. Those for tx leave by the queue that they came from, those
// redirected by the queue of the named port that this worker owns; a port all of whose queues
// belong to other workers is out of reach, and counted so. What a destination has no room for is
// dropped and counted under its name for it: the program's decision is not taken back, and nothing
// waits.
//
//   XdpPath path(worker_index, table);
//   path.run({&program, 2, 0}, source, batch, cache);   // program of port number 2, its queue 0
//   …the link forwards what is left of the batch…
//   path.finish_breath();                               // others that got frames publish them
#pragma once

#include <cstdint>
#include <vector>

#include "base/log.h"
#include "memory/frame_pool.h"
#include "port/port.h"
#include "xdp/xdp_run.h"

namespace sluice {

// A program on one queue of a port. No program: the batch goes its way.
struct XdpSource {
  const XdpProgram* program = nullptr;
  uint32_t port_number = 0;
  uint32_t queue_index = 0;
};

// By the number of a port, counted from 1: what programs take for an ifindex. Laid before the
// workers start.
struct XdpPorts {
  struct Entry {
    std::vector<PortQueue*> queues;  // those that this worker owns
  };
  std::vector<Entry> entries;  // by number; the first is nobody
  std::vector<uint32_t> mtus;  // by number: what check_mtu answers from
};

class XdpPath {
 public:
  void set_worker(uint32_t worker_index, XdpPorts ports);

  void run(const XdpSource& source, PortQueue& from, FrameBatch& batch, FrameCache& cache);
  void finish_breath();

 private:
  void redirect_all(const XdpSource& source, PortQueue& from, FrameBatch& frames,
                    const RedirectTarget* targets, FrameCache& cache);
  void broadcast(Frame& frame, const RedirectTarget& target, const XdpSource& source,
                 PortQueue& from, FrameCache& cache);
  void trace(const XdpSource& source);
  void send(PortQueue& to, FrameBatch& frames, FrameCache& cache);
  PortQueue* queue_of(uint32_t port_number, uint32_t queue_index) const;

  uint32_t worker_index_ = 0;
  XdpPorts ports_;
  std::vector<PortQueue*> touched_;  // have room for every queue
  XdpVerdicts verdicts_;
  RateLimit trace_limit_;  // what programs abort, a guest can cause again and again
};

}  // namespace sluice
