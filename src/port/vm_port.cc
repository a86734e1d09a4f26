#include "port/vm_port.h"

#include <algorithm>

#include "base/log.h"
#include "virtio/features.h"

namespace sluice {
namespace {

constexpr uint64_t kAlwaysOffered =
    feature::version_1 | feature::any_layout | feature::indirect_desc | feature::event_idx |
    feature::in_order | feature::mrg_rxbuf | feature::mac | feature::status | feature::ctrl_vq |
    feature::ctrl_rx | feature::ctrl_vlan | feature::ctrl_rx_extra | feature::ctrl_mac_addr |
    feature::guest_announce | feature::speed_duplex;

OffloadSet offloads_of_guest(uint64_t features) {
  return {.csum = (features & feature::guest_csum) != 0,
          .tso4 = (features & feature::guest_tso4) != 0,
          .tso6 = (features & feature::guest_tso6) != 0,
          .tso_ecn = (features & feature::guest_ecn) != 0,
          .uso = (features & feature::guest_uso4) && (features & feature::guest_uso6)};
}

// The offloads that the control queue can switch. [virtio 5.1.6.5.6]
constexpr uint64_t kSwitchableOffloads = feature::guest_csum | feature::guest_tso4 |
                                         feature::guest_tso6 | feature::guest_ecn |
                                         feature::guest_uso4 | feature::guest_uso6;

uint64_t offload_features(const OffloadSet& peer) {
  if (!peer.csum) return 0;
  uint64_t bits = feature::csum | feature::guest_csum | feature::ctrl_guest_offloads;
  if (peer.tso4) bits |= feature::host_tso4 | feature::guest_tso4;
  if (peer.tso6) bits |= feature::host_tso6 | feature::guest_tso6;
  if (peer.tso_ecn) bits |= feature::host_ecn | feature::guest_ecn;
  if (peer.uso) bits |= feature::host_uso | feature::guest_uso4 | feature::guest_uso6;
  return bits;
}

// What lets a guest send frames that are still to be cut.
constexpr uint64_t kSendsSegments = feature::host_tso4 | feature::host_tso6 | feature::host_ecn |
                                    feature::host_uso | feature::host_ufo;
// Ethernet and two VLAN tags around what an MTU counts.
constexpr size_t kFrameHeaderBytes = 14 + 8;

VmQueue::Side side_of(uint32_t index) {
  return index % 2 == 0 ? VmQueue::Side::to_guest : VmQueue::Side::from_guest;
}

}  // namespace

Result<std::unique_ptr<VmPort>> VmPort::create(const VmPortOptions& options) {
  SLUICE_ASSERT(options.queue_pairs >= 1 && options.queue_pairs <= kQueuePairsMax);
  auto bell = FaultBell::create();
  if (!bell) return fail(bell.error());
  auto wake = WakeSet::create();
  if (!wake) return fail(wake.error());
  std::unique_ptr<VmPort> port(
      new VmPort(options, std::make_unique<FaultBell>(std::move(*bell)), std::move(*wake)));
  for (uint32_t i = 0; i < options.queue_pairs; ++i) {
    auto queue = VmQueue::create(port->bell_.get());
    if (!queue) return fail(queue.error());
    port->queues_.push_back(std::move(*queue));
  }
  port->carries_.resize(options.queue_pairs);
  return port;
}

VmPort::VmPort(const VmPortOptions& options, std::unique_ptr<FaultBell> bell, WakeSet control_wake)
    : Port(options.name),
      options_(options),
      bell_(std::move(bell)),
      control_wake_(std::move(control_wake)),
      control_(*this) {
  if (options_.mac == MacAddress{}) options_.mac = mac_from_name(options.name);
  config_.mac = options_.mac;
  config_.queue_pairs_max = static_cast<uint16_t>(options.queue_pairs);
  if (options.mtu_bytes != 0) config_.mtu_bytes = options.mtu_bytes;
  if (options.rss) {
    config_.rss_key_bytes_max = kHashKeyBytes;
    config_.rss_table_entries_max = kRssTableEntriesMax;
    config_.hash_types = flow_type::kAll;
  }
}

void VmPort::queues_share_worker(bool peer_is_narrower) {
  // A peer with as many queues has steered already (a TAP does by itself), unless we are asked to.
  steering_.set_spreads(options_.rss || peer_is_narrower);
  for (size_t i = 0; i < queues_.size(); ++i)
    queues_[i]->steer(&steering_, queues_, static_cast<uint16_t>(i));
}

std::vector<std::string> VmPort::negotiated() const {
  return connected_ ? feature_names(features_) : std::vector<std::string>{};
}

uint64_t VmPort::offered_features() const {
  uint64_t bits = kAlwaysOffered;
  if (queues_.size() > 1) bits |= feature::mq;
  if (options_.rss) bits |= feature::rss | feature::hash_report;
  if (options_.packed) bits |= feature::ring_packed;
  if (options_.mtu_bytes != 0) bits |= feature::mtu;
  if (options_.offload) bits |= offload_features(peer_takes_);
  if (brings_whole_frames_) bits &= ~kSendsSegments;
  return bits;
}

Result<void> VmPort::bring_whole_frames() {
  if (options_.mtu_bytes + kFrameHeaderBytes > kFrameDataBytesMax)
    return fail("its mtu={} lets frames through that a program cannot see whole: at most {}",
                options_.mtu_bytes, kFrameDataBytesMax - kFrameHeaderBytes);
  if (connected_ && (features_ & kSendsSegments) != 0)
    return fail(
        "its guest has been allowed to send packets that are still to be segmented, and a "
        "program sees whole frames only: start with --xdp, or the VM with offload=off");
  brings_whole_frames_ = true;
  return {};
}

std::vector<bool> VmPort::active_queues() const {
  std::vector<bool> active = carries_;
  for (size_t i = 0; i < active.size(); ++i) {
    if (pairs_in_use_ != 0 && i >= pairs_in_use_) active[i] = false;
  }
  return active;
}

// The worker reads it, so it changes between breaths; all queues are breathed by one.
void VmPort::change_steering(const std::function<void()>& what) {
  change(0, [&](VmQueue&, VmQueue::Side) { what(); });
}

void VmPort::tell_active_queues() {
  std::vector<uint16_t> pairs;
  const std::vector<bool> active = active_queues();
  for (size_t i = 0; i < active.size(); ++i) {
    if (active[i]) pairs.push_back(static_cast<uint16_t>(i));
  }
  change_steering([&] { steering_.set_active(pairs); });
  if (listener_ != nullptr) listener_->active_queues_changed(*this);
}

// ---- Session ------------------------------------------------------------------------------------

void VmPort::session_opened() { log_info("{}: front end connected", name()); }

void VmPort::session_closed() {
  connected_ = false;
  features_ = 0;
  pairs_in_use_ = 0;
  // What the last driver asked for went with it.
  config_.mac = options_.mac;
  control_.forget_modes();
  change_steering([this] { steering_.forget(); });
  for (uint32_t i = 0; i < queues_.size(); ++i)
    change(2 * i, [](VmQueue& queue, VmQueue::Side) { queue.set_front_end_connected(false); });
  apply_guest_takes(OffloadSet{});
  tell_active_queues();
}

void VmPort::features_negotiated(uint64_t features) {
  connected_ = true;
  features_ = features;
  for (uint32_t i = 0; i < queues_.size(); ++i)
    change(2 * i, [](VmQueue& queue, VmQueue::Side) { queue.set_front_end_connected(true); });
  change_steering([this] { steering_.set_reports((features_ & feature::hash_report) != 0); });
  apply_guest_takes(offloads_of_guest(features));
}

void VmPort::apply_guest_takes(const OffloadSet& takes) {
  guest_takes_ = takes;
  for (uint32_t i = 0; i < queues_.size(); ++i)
    change(2 * i, [&](VmQueue& queue, VmQueue::Side) { queue.set_guest_takes(takes); });
  if (listener_ != nullptr) listener_->takes_changed(*this);
}

// ---- Rings --------------------------------------------------------------------------------------

bool VmPort::is_control(uint32_t index) const {
  if (!(features_ & feature::ctrl_vq)) return false;
  const uint32_t pairs_known = (features_ & (feature::mq | feature::rss)) ? queue_count() : 1;
  return index == 2 * pairs_known;
}

void VmPort::change(uint32_t index, const std::function<void(VmQueue&, VmQueue::Side)>& what) {
  VmQueue& queue = *queues_[index / 2];
  const auto apply = [&] {
    what(queue, side_of(index));
    carries_[index / 2] = queue.ring(VmQueue::Side::to_guest).can_carry() || queue.awaits_restart();
  };
  if (executor_ == nullptr) {
    apply();
  } else {
    executor_->run_between_breaths(queue, apply);
  }
}

Result<void> VmPort::ring_start(RingStart start) {
  const uint32_t index = start.index;
  if (is_control(index)) {
    control_.ring().start(std::move(start));
    const Fd& kick = control_.ring().kick();
    if (kick.valid()) {
      if (auto added = control_wake_.add(kick.get(), EPOLLIN, 0); !added) {
        control_.ring().stop();
        return added;
      }
    }
    // The driver that has this queue tells how many pairs it uses; until then it is one.
    if ((features_ & (feature::mq | feature::rss)) && pairs_in_use_ == 0) pairs_in_use_ = 1;
    tell_active_queues();
    control_.serve();
    return {};
  }
  if (index >= 2 * queue_count()) return fail("ring {} is none of this device", index);
  Result<void> started;
  change(index, [&](VmQueue& queue, VmQueue::Side side) {
    started = queue.start(side, std::move(start));
  });
  if (started) tell_active_queues();
  return started;
}

uint32_t VmPort::ring_stop(uint32_t index) {
  if (is_control(index)) {
    if (control_.ring().kick().valid()) control_wake_.remove(control_.ring().kick().get());
    return control_.ring().stop();
  }
  if (index >= 2 * queue_count()) return 0;
  uint32_t base = 0;
  change(index, [&](VmQueue& queue, VmQueue::Side side) { base = queue.stop(side); });
  tell_active_queues();
  return base;
}

void VmPort::ring_set_enabled(uint32_t index, bool enabled) {
  if (is_control(index)) {
    control_.ring().set_enabled(enabled);
    return;
  }
  if (index >= 2 * queue_count()) return;
  change(index, [&](VmQueue& queue, VmQueue::Side side) { queue.ring(side).set_enabled(enabled); });
  tell_active_queues();
}

void VmPort::ring_set_call(uint32_t index, Fd call) {
  if (is_control(index)) {
    control_.ring().set_call(std::move(call));
    return;
  }
  if (index >= 2 * queue_count()) return;
  change(index,
         [&](VmQueue& queue, VmQueue::Side side) { queue.ring(side).set_call(std::move(call)); });
}

void VmPort::ring_set_error(uint32_t index, Fd error) {
  if (is_control(index)) {
    control_.ring().set_error(std::move(error));
    return;
  }
  if (index >= 2 * queue_count()) return;
  change(index,
         [&](VmQueue& queue, VmQueue::Side side) { queue.ring(side).set_error(std::move(error)); });
}

// ---- Configuration and the control queue
// ----------------------------------------------------------

void VmPort::read_config(uint32_t offset, std::span<uint8_t> out) const {
  config_.read(offset, out);
}

Result<void> VmPort::write_config(uint32_t offset, std::span<const uint8_t> bytes) {
  // Only the MAC is writable, and only by drivers older than the control queue's command.
  // [virtio 5.1.4.2]
  if (offset >= config_.mac.size() || bytes.size() > config_.mac.size() - offset)
    return fail("configuration bytes {} to {} are read-only", offset, offset + bytes.size());
  std::copy(bytes.begin(), bytes.end(), config_.mac.begin() + offset);
  return {};
}

Result<void> VmPort::set_mtu(uint16_t mtu_bytes) {
  if (mtu_bytes < 68) return fail("an MTU of {} is below IPv4's minimum of 68", mtu_bytes);
  config_.mtu_bytes = mtu_bytes;
  return {};
}

void VmPort::on_control_kick() {
  QueueCounters ignored;
  uint32_t key = 0;
  uint32_t events = 0;
  while (control_wake_.next(key, events)) {  // one descriptor, and it is read empty here
    control_.ring().drain_kick(ignored);
    if (!(events & EPOLLIN)) break;
  }
  const bool was_usable = control_.ring().usable();
  control_.serve();
  if (was_usable && !control_.ring().usable()) {
    log_warning("{}: control queue broken: {}", name(),
                ring_fault_sentence(control_.ring().take_new_fault()));
    control_wake_.remove(control_.ring().kick().get());
  }
}

bool VmPort::control_queue_pairs(uint16_t pairs) {
  if (pairs == 0 || pairs > queue_count() || !(features_ & feature::mq)) return false;
  pairs_in_use_ = pairs;
  // Asking for pairs ends what an indirection table said. [virtio 5.1.6.5.5.1]
  change_steering([this] { steering_.forget_table(); });
  log_info("{}: guest uses {} of {} queue pairs", name(), pairs, queue_count());
  tell_active_queues();
  return true;
}

bool VmPort::control_rss(const RssRequest& request) {
  if (!(features_ & feature::rss) || (request.hash_types & ~flow_type::kAll) != 0) return false;
  if (request.transmit_pairs == 0 || request.transmit_pairs > queue_count()) return false;
  if (request.unclassified_queue >= queue_count()) return false;
  uint32_t pairs = std::max<uint32_t>(request.transmit_pairs, request.unclassified_queue + 1u);
  for (const uint16_t queue : request.table) {  // at most kRssTableEntriesMax
    if (queue >= queue_count()) return false;
    pairs = std::max(pairs, queue + 1u);
  }
  pairs_in_use_ = pairs;
  change_steering([&] { steering_.configure(request); });
  log_info("{}: guest spreads its flows over a table of {} entries, {} queue pairs", name(),
           request.table.size(), pairs);
  tell_active_queues();
  return true;
}

bool VmPort::control_hash(const HashRequest& request) {
  if (!(features_ & feature::hash_report) || (request.hash_types & ~flow_type::kAll) != 0)
    return false;
  change_steering([&] { steering_.configure(request); });
  return true;
}

bool VmPort::control_guest_offloads(uint64_t offloads) {
  if (!(features_ & feature::ctrl_guest_offloads)) return false;
  // Only what was negotiated can be switched. [virtio 5.1.6.5.6.2]
  if ((offloads & ~(features_ & kSwitchableOffloads)) != 0) return false;
  apply_guest_takes(offloads_of_guest(sanitize_features(offloads, features_)));
  return true;
}

bool VmPort::control_mac(const MacAddress& mac) {
  config_.mac = mac;
  return true;
}

bool VmPort::on_fault() {
  bell_->silence();
  const std::vector<bool> carried = carries_;
  bool vanished = false;
  for (uint32_t i = 0; i < queues_.size(); ++i) {
    for (uint32_t index : {2 * i, 2 * i + 1}) {
      RingFault fault = RingFault::none;
      change(index, [&](VmQueue& queue, VmQueue::Side side) {
        fault = queue.ring(side).take_new_fault();
      });
      if (fault == RingFault::none) continue;
      vanished |= fault == RingFault::memory_vanished;
      log_warning("{}: queue {} {} stopped: {}; it works again when the guest resets the device",
                  name(), i, side_of(index) == VmQueue::Side::to_guest ? "to_guest" : "from_guest",
                  ring_fault_sentence(fault));
    }
  }
  if (carries_ != carried) tell_active_queues();
  return vanished;
}

}  // namespace sluice
