// SinkQueue: what the queues have in common that take every frame at once and give none. They never
// wake anybody; what becomes of a frame is up to transmit().
#pragma once

#include "port/port.h"
#include "port/wake_set.h"

namespace sluice {

class SinkQueue : public PortQueue {
 public:
  explicit SinkQueue(WakeSet wake) : wake_(std::move(wake)) {}

  bool receive(FrameBatch&, const Budget&, FrameCache&) noexcept final { return false; }
  void finish_breath() noexcept final {}
  size_t transmit_room() noexcept final { return kBatchFramesMax; }
  bool arm(bool, bool wants_room) noexcept final { return wants_room; }
  void disarm() noexcept final {}
  int wake_fd() const noexcept final { return wake_.fd(); }
  void on_wake() noexcept final {}

 private:
  WakeSet wake_;  // empty: it never fires
};

}  // namespace sluice
