// NicPort: a virtio-net device somewhere else, as a port: the driver side of virtio-net over
// vhost-user. With a TAP at the other end of its cable a host's netdev becomes a VM.
//
// It is the FrontEndDriver that a front-end session drives (control thread) and owns one NicQueue
// for each queue pair (workers). Memory and rings are made for each session anew. While there is no
// back end, frames towards it are dropped as no_back_end.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "port/net_config.h"
#include "port/nic_control.h"
#include "port/nic_interrupts.h"
#include "port/nic_queue.h"
#include "port/port.h"
#include "port/queue_executor.h"
#include "vhost/front_end_driver.h"

namespace sluice {

struct NicPortOptions {
  std::string name;
  uint32_t queue_pairs = 1;
  uint32_t ring_size = 256;  // a power of two unless packed
  bool packed = false;       // packed rings, or no rings
  bool offload = true;       // checksums and segmentation left to the device, and taken from it
  TransmitMode transmit_mode = TransmitMode::napi;
  int interrupt_cpu = -1;  // a thread of its own handles transmit interrupts there; -1: the worker
};

class NicPort final : public Port, public FrontEndDriver {
 public:
  static Result<std::unique_ptr<NicPort>> create(const NicPortOptions& options);
  ~NicPort() override;

  // Port
  void attach(QueueExecutor* executor, PortListener* listener) override {
    executor_ = executor;
    listener_ = listener;
  }
  std::string_view kind() const override { return "nic"; }
  uint32_t queue_count() const override { return static_cast<uint32_t>(queues_.size()); }
  PortQueue& queue(uint32_t index) override { return *queues_[index]; }
  std::pair<std::string_view, std::string_view> direction_names() const override {
    return {"from_device", "to_device"};
  }
  std::vector<std::string> negotiated() const override;
  OffloadSet takes() const override { return device_takes_; }
  void set_peer_takes(const OffloadSet& peer) override { peer_takes_ = peer; }
  Result<void> bring_whole_frames() override;
  void set_active_queues(const std::vector<bool>&) override {}
  std::vector<bool> active_queues() const override;

  // FrontEndDriver
  const std::string& driver_name() const override { return name(); }
  uint64_t wanted_features() const override;
  uint64_t required_features() const override;
  uint32_t queue_pairs_wanted() const override { return queue_count(); }
  Result<FrontEndLayout> agreed(const FrontEndAgreement& agreement) override;
  void session_ready() override;
  void session_closed(const std::string& reason) override;
  void config_changed(const FrontEndAgreement& agreement) override;

  bool is_ready() const { return ready_; }
  const std::optional<FrontEndAgreement>& agreement() const { return agreement_; }
  // Transmit interrupts that the handler's thread has taken; without one the queues' counters of
  // wake-ups say how many there were.
  uint64_t interrupts() const;
  // Frames sent that the device has not used yet. Control thread.
  size_t frames_with_device();

  // For the control thread's loop: readable when a worker found a fault of the device; fault_text()
  // is then the sentence, once, and the session has to end.
  int fault_fd() const { return bell_->fd(); }
  std::optional<std::string> take_fault();
  // The control queue's call, or -1; on_control_event() reads it.
  int control_fd() const { return control_ ? control_->call_fd() : -1; }
  void on_control_event();

 private:
  NicPort(const NicPortOptions& options, std::unique_ptr<FaultBell> bell);
  // What was made for a session and waits to be installed.
  struct Staged {
    std::unique_ptr<NicPair> pair;
    NicEvents receive;
    NicEvents transmit;
  };
  Result<void> stage_pair(uint32_t pair, FrontEndLayout& layout);
  Result<void> stage_control(FrontEndLayout& layout);
  void change(NicQueue& queue, const std::function<void()>& what);
  void remove_all();
  void tell();

  NicPortOptions options_;
  std::unique_ptr<FaultBell> bell_;
  std::unique_ptr<NicInterrupts> interrupts_;
  std::vector<std::unique_ptr<NicQueue>> queues_;
  QueueExecutor* executor_ = nullptr;
  PortListener* listener_ = nullptr;
  OffloadSet peer_takes_;
  bool brings_whole_frames_ = false;
  OffloadSet device_takes_;
  std::optional<FrontEndAgreement> agreement_;
  std::unique_ptr<NicMemory> memory_;  // outlives the pairs
  std::vector<Staged> staged_;
  std::unique_ptr<NicControl> control_;
  bool ready_ = false;
  RateLimit end_limit_;  // back ends may come and go at any pace
};

}  // namespace sluice
