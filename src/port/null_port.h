// NullPort: takes every frame and gives none. For measuring the other end of a cable, and for a VM
// whose traffic is to go nowhere.
#pragma once

#include <memory>
#include <vector>

#include "port/port.h"
#include "port/wake_set.h"

namespace sluice {

class NullQueue final : public PortQueue {
 public:
  explicit NullQueue(WakeSet wake) : wake_(std::move(wake)) {}

  bool receive(FrameBatch&, const Budget&, FrameCache&) noexcept override { return false; }
  void transmit(FrameBatch& batch) noexcept override;
  void finish_breath() noexcept override {}
  size_t transmit_room() noexcept override { return kBatchFramesMax; }
  bool arm(bool, bool wants_room) noexcept override { return wants_room; }
  void disarm() noexcept override {}
  int wake_fd() const noexcept override { return wake_.fd(); }
  void on_wake() noexcept override {}

 private:
  WakeSet wake_;  // empty: it never fires
};

class NullPort final : public Port {
 public:
  static Result<std::unique_ptr<NullPort>> create(std::string name, uint32_t queue_count);

  std::string_view kind() const override { return "null"; }
  uint32_t queue_count() const override { return static_cast<uint32_t>(queues_.size()); }
  PortQueue& queue(uint32_t index) override;
  std::pair<std::string_view, std::string_view> direction_names() const override {
    return {"from_null", "to_null"};
  }
  std::vector<std::string> negotiated() const override { return {}; }
  OffloadSet takes() const override { return {true, true, true, true, true}; }
  void set_peer_takes(const OffloadSet&) override {}
  void set_active_queues(const std::vector<bool>&) override {}

 private:
  explicit NullPort(std::string name) : Port(std::move(name)) {}

  std::vector<std::unique_ptr<NullQueue>> queues_;
};

}  // namespace sluice
