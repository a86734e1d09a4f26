// Worker: a thread that breathes.
//
// It takes bursts from each hot link, and when a link has had nothing to do for poll_us, arms it:
// then the link costs nothing until its descriptor fires. With no hot link left the worker sleeps
// in one epoll. Changes come as calls from the control thread and run between two breaths; the data
// path itself takes no lock, makes no allocation and waits for nobody.
//
//   Worker worker({.cpu = 2, .poll_us = 50}, pool);
//   worker.add_link(queue_a, queue_b, true);
//   worker.start();
//   worker.call([&] { …change what the links' queues own… });   // returns when it has run
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "engine/link.h"

namespace sluice {

struct WorkerOptions {
  int cpu = -1;  // -1: wherever the kernel puts it
  uint32_t poll_us = 50;
  uint32_t batch_frames_max = kBatchFramesMax;
  // Batches that a link moves each way before it publishes and notifies. More than 1 only for ports
  // whose frames do not lie in a guest's memory: a VM port bounds what one breath takes by one
  // batch.
  uint32_t batches_per_breath = 1;
};

struct WorkerCounters {
  Counter breaths;
  Counter sleeps;
};

class Worker {
 public:
  static Result<std::unique_ptr<Worker>> create(const WorkerOptions& options, FramePool& pool);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Before start().
  Result<void> add_link(PortQueue& a, PortQueue& b, bool carries_b_to_a);
  Result<void> start();
  // Ends the thread after its current breath; held frames go back to the pool.
  void stop();

  // Before start(): where redirected frames can go.
  void set_ports(uint32_t worker_index, XdpPorts ports) {
    path_.set_worker(worker_index, std::move(ports));
  }
  // Which program runs on what comes from `queue`, if it is ours. Before start(), or in a call().
  void set_program(const PortQueue& queue, const XdpSource& source);

  // Runs `change` between two breaths and returns when it has run; every link is hot afterwards.
  // From any thread but the worker's own. Before start() and after stop() it runs at once.
  void call(const std::function<void()>& change);
  bool owns(const PortQueue& queue) const;

  const WorkerCounters& counters() const { return counters_; }
  int cpu() const { return options_.cpu; }

 private:
  Worker(const WorkerOptions& options, FramePool& pool, Fd epoll, Fd bell);
  void run();
  void run_call();
  size_t breathe_hot_links(uint64_t now_ns);
  void cool(Link& link, uint64_t now_ns);
  void heat(Link& link, uint64_t now_ns);
  void heat_sharers(Link& link, uint64_t now_ns);
  void heat_due(uint64_t now_ns);
  void wait(int timeout_ms);
  int sleep_milliseconds() const;

  WorkerOptions options_;
  FrameCache cache_;
  XdpPath path_;
  Fd epoll_;
  Fd bell_;  // wakes the sleeper: a call is waiting, or the end
  std::vector<std::unique_ptr<Link>> links_;
  size_t hot_count_ = 0;
  WorkerCounters counters_;

  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> call_waiting_{false};
  std::mutex call_mutex_;
  std::condition_variable call_done_;
  const std::function<void()>* call_ = nullptr;  // guarded by call_mutex_
  std::mutex callers_mutex_;                     // one call at a time
  bool running_ = false;
};

}  // namespace sluice
