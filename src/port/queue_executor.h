// QueueExecutor: how the control thread changes what a worker owns.
//
// Implemented by the engine. A change runs on the worker that owns the queue, between two breaths,
// and the call returns when it has run; afterwards the queue is breathed at least once before it
// may sleep. Called by the control thread only, and never from within a change.
#pragma once

#include <functional>

namespace sluice {

class PortQueue;

class QueueExecutor {
 public:
  virtual ~QueueExecutor() = default;
  virtual void run_between_breaths(PortQueue& queue, const std::function<void()>& change) = 0;
};

}  // namespace sluice
