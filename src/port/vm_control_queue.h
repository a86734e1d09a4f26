// ControlQueue: the control virtqueue of a VM, served by the control thread. [virtio 5.1.6.5]
//
// Front ends either keep this queue (QEMU) or hand it over (User-Mode Linux). What is harmless is
// answered OK, what is malformed or unknown ERR; a chain without a byte for the answer breaks the
// ring, as there is no way to say anything.
#pragma once

#include <cstdint>
#include <span>

#include "port/device_ring.h"
#include "port/net_config.h"
#include "port/vm_steering.h"

namespace sluice {

// What commands do; the VM port implements it. Each returns whether it was carried out.
class ControlCommands {
 public:
  virtual ~ControlCommands() = default;
  virtual bool control_queue_pairs(uint16_t pairs) = 0;
  virtual bool control_guest_offloads(uint64_t offloads) = 0;
  virtual bool control_rss(const RssRequest& request) = 0;
  virtual bool control_hash(const HashRequest& request) = 0;
  virtual bool control_mac(const MacAddress& mac) = 0;
  virtual void control_announced() = 0;
};

// What the driver asked for; kept for those who look, filtering is best effort. [virtio 5.1.6.5.1]
struct ReceiveModes {
  bool promiscuous = true;
  bool all_multicast = false;
  bool all_unicast = false;
  bool no_multicast = false;
  bool no_unicast = false;
  bool no_broadcast = false;
  uint32_t mac_filter_entries = 0;
  uint32_t vlan_entries = 0;
};

class ControlQueue {
 public:
  explicit ControlQueue(ControlCommands& commands);

  DeviceRing& ring() { return ring_; }
  // Handles every command that is there, at most a ring full; call it after a kick and after a
  // start.
  void serve();
  const ReceiveModes& modes() const { return modes_; }
  void forget_modes() { modes_ = ReceiveModes{}; }
  const QueueCounters& counters() const { return counters_; }

 private:
  template <class Queue>
  bool serve(Queue& queue);
  void handle(const Chain& chain);
  bool dispatch(std::span<const uint8_t> command);
  bool receive_mode(uint8_t command, std::span<const uint8_t> data);
  bool mac(uint8_t command, std::span<const uint8_t> data);
  bool vlan(uint8_t command, std::span<const uint8_t> data);
  bool multiqueue(uint8_t command, std::span<const uint8_t> data);
  bool rss(std::span<const uint8_t> data);
  bool hash(std::span<const uint8_t> data);

  ControlCommands& commands_;
  DeviceRing ring_;
  SpanList spans_;
  QueueCounters counters_;
  ReceiveModes modes_;
};

}  // namespace sluice
