// NullPort: takes every frame and gives none. For measuring the other end of a cable, and for a VM
// whose traffic is to go nowhere.
#pragma once

#include <memory>
#include <vector>

#include "port/port.h"
#include "port/sink_queue.h"

namespace sluice {

class NullQueue final : public SinkQueue {
 public:
  using SinkQueue::SinkQueue;
  void transmit(FrameBatch& batch) noexcept override;
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
