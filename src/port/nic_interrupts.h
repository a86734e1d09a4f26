// NicInterrupts: the thread that handles the transmit interrupts of a nic.
//
// An interrupt here is a call eventfd that a back end wrote and this thread has read. It stands for
// the interrupt of a real NIC: it takes the processor away from whoever runs there, and then lets
// the queue's poll be scheduled. Used by measurements; a daemon's worker watches the eventfds
// itself.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "port/nic_queue.h"

namespace sluice {

class NicInterrupts {
 public:
  // The thread runs on `cpu` only.
  static Result<std::unique_ptr<NicInterrupts>> start(int cpu);
  ~NicInterrupts();
  NicInterrupts(const NicInterrupts&) = delete;
  NicInterrupts& operator=(const NicInterrupts&) = delete;

  // Handles a queue's transmit call until forget_all() has returned.
  Result<void> watch(NicQueue& queue);
  void forget_all();
  uint64_t count() const { return count_.load(); }

 private:
  NicInterrupts(Fd epoll, Fd bell) : epoll_(std::move(epoll)), bell_(std::move(bell)) {}
  void run();

  Fd epoll_;
  Fd bell_;
  std::mutex mutex_;  // held while queues are called, so that forget_all() can wait for that
  std::vector<NicQueue*> queues_;
  std::vector<int> calls_;
  std::atomic<uint64_t> count_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace sluice
