// UnpluggedPort: the end of a cable that is not there.
//
// A VM without a cable still has a driver that waits for its packets to be taken. They are taken,
// and counted at the VM as not_connected.
#pragma once

#include <memory>
#include <vector>

#include "port/port.h"

namespace sluice {

class UnpluggedPort final : public Port {
 public:
  // `source` outlives this port.
  static Result<std::unique_ptr<UnpluggedPort>> create(Port& source);

  std::string_view kind() const override { return "unplugged"; }
  uint32_t queue_count() const override { return static_cast<uint32_t>(queues_.size()); }
  PortQueue& queue(uint32_t index) override { return *queues_[index]; }
  std::pair<std::string_view, std::string_view> direction_names() const override {
    return {"from_nowhere", "to_nowhere"};
  }
  std::vector<std::string> negotiated() const override { return {}; }
  OffloadSet takes() const override { return {}; }
  void set_peer_takes(const OffloadSet&) override {}
  void set_active_queues(const std::vector<bool>&) override {}

 private:
  explicit UnpluggedPort(std::string name) : Port(std::move(name)) {}

  std::vector<std::unique_ptr<PortQueue>> queues_;
};

}  // namespace sluice
