// VmPort: a virtual machine, as a port. The device side of virtio-net over vhost-user.
//
// It is the BackendDevice that a vhost-user session drives (control thread) and owns one VmQueue
// for each queue pair (workers). What is offered to the guest follows from the options and from
// what the connected port takes; what the guest then negotiates is told to that port through the
// listener.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "port/net_config.h"
#include "port/port.h"
#include "port/queue_executor.h"
#include "port/vm_control_queue.h"
#include "port/vm_queue.h"
#include "vhost/backend_device.h"

namespace sluice {

struct VmPortOptions {
  std::string name;
  uint32_t queue_pairs = 1;
  MacAddress mac{};        // all zero: made from the name
  uint16_t mtu_bytes = 0;  // 0: not offered
  bool rss = false;        // receive-side scaling and hash reports offered
  bool packed = true;      // packed rings offered, beside split ones
  bool offload = true;     // checksum and segmentation offload offered when the peer takes them
};

class VmPort final : public Port, public BackendDevice, private ControlCommands {
 public:
  static Result<std::unique_ptr<VmPort>> create(const VmPortOptions& options);

  // Port
  void attach(QueueExecutor* executor, PortListener* listener) override {
    executor_ = executor;
    listener_ = listener;
  }
  std::string_view kind() const override { return "vm"; }
  uint32_t queue_count() const override { return static_cast<uint32_t>(queues_.size()); }
  PortQueue& queue(uint32_t index) override { return *queues_[index]; }
  std::pair<std::string_view, std::string_view> direction_names() const override {
    return {"from_guest", "to_guest"};
  }
  std::vector<std::string> negotiated() const override;
  OffloadSet takes() const override { return guest_takes_; }
  void set_peer_takes(const OffloadSet& peer) override { peer_takes_ = peer; }
  void set_active_queues(const std::vector<bool>&) override {}  // the guest decides
  Result<void> bring_whole_frames() override;
  uint32_t mtu_bytes() const override {
    return options_.mtu_bytes != 0 ? options_.mtu_bytes : Port::mtu_bytes();
  }
  void queues_share_worker(bool peer_is_narrower) override;
  bool wants_one_worker() const override { return options_.rss; }
  std::vector<bool> active_queues() const override;

  // BackendDevice
  const std::string& device_name() const override { return name(); }
  uint64_t offered_features() const override;
  uint32_t queue_pairs_max() const override { return queue_count(); }
  void session_opened() override;
  void session_closed() override;
  void features_negotiated(uint64_t features) override;
  Result<void> ring_start(RingStart start) override;
  uint32_t ring_stop(uint32_t index) override;
  void ring_set_enabled(uint32_t index, bool enabled) override;
  void ring_set_call(uint32_t index, Fd call) override;
  void ring_set_error(uint32_t index, Fd error) override;
  void read_config(uint32_t offset, std::span<uint8_t> out) const override;
  Result<void> write_config(uint32_t offset, std::span<const uint8_t> bytes) override;
  Result<void> set_mtu(uint16_t mtu_bytes) override;

  // For the control thread's loop: readable when the control queue was kicked.
  int control_fd() const { return control_wake_.fd(); }
  void on_control_kick();
  // Readable when a worker found a fault. on_fault() logs each once and returns true when the front
  // end's session has to end because its memory vanished.
  int fault_fd() const { return bell_->fd(); }
  bool on_fault();
  const ReceiveModes& receive_modes() const { return control_.modes(); }

 private:
  VmPort(const VmPortOptions& options, std::unique_ptr<FaultBell> bell, WakeSet control_wake);
  // The control queue's index: behind the queue pairs that the driver knows. [virtio 5.1.2]
  bool is_control(uint32_t index) const;
  void change(uint32_t index, const std::function<void(VmQueue&, VmQueue::Side)>& what);
  void apply_guest_takes(const OffloadSet& takes);
  void tell_active_queues();
  void change_steering(const std::function<void()>& what);

  bool control_queue_pairs(uint16_t pairs) override;
  bool control_guest_offloads(uint64_t offloads) override;
  bool control_rss(const RssRequest& request) override;
  bool control_hash(const HashRequest& request) override;
  bool control_mac(const MacAddress& mac) override;
  void control_announced() override { config_.announce = false; }

  VmPortOptions options_;
  std::unique_ptr<FaultBell> bell_;
  std::vector<std::unique_ptr<VmQueue>> queues_;
  std::vector<bool> carries_;  // which to_guest rings run, as of the last change
  WakeSet control_wake_;
  ControlQueue control_;
  QueueExecutor* executor_ = nullptr;
  PortListener* listener_ = nullptr;
  NetConfig config_;
  bool connected_ = false;
  uint64_t features_ = 0;
  OffloadSet peer_takes_;
  bool brings_whole_frames_ = false;  // no segmentation is offered to the guest for what it sends
  OffloadSet guest_takes_;
  VmSteering steering_;
  uint32_t pairs_in_use_ = 0;  // what the driver said by the control queue; 0: it said nothing
};

}  // namespace sluice
