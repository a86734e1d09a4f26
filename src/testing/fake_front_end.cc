#include "testing/fake_front_end.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "virtio/features.h"
#include "virtio/net_header.h"

namespace sluice {
namespace {

Fd make_event() { return Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

// What this VM's driver can do; ~0 as a wish means all of it.
constexpr uint64_t kKnownFeatures =
    feature::version_1 | feature::mrg_rxbuf | feature::event_idx | feature::indirect_desc |
    feature::in_order | feature::csum | feature::guest_csum | feature::host_tso4 |
    feature::host_tso6 | feature::guest_tso4 | feature::guest_tso6 | feature::mac |
    feature::status | feature::mtu | feature::mq | feature::ctrl_vq | feature::ctrl_rx |
    feature::ctrl_vlan | feature::ctrl_mac_addr | feature::ctrl_guest_offloads;

}  // namespace

bool FakeFrontEnd::connect(const std::string& path) {
  close();
  Fd socket = FrontEndChannel::connect(path);
  if (!socket.valid()) return false;
  channel_ = std::make_unique<FrontEndChannel>(std::move(socket));
  uint64_t wanted = options_.wanted_features & kKnownFeatures;
  if (!options_.control_queue) wanted &= ~feature::ctrl_vq;
  const auto acked = channel_->negotiate(wanted);
  if (!acked) return false;
  features_ = *acked;
  header_bytes_ = net_header_bytes(features_);
  guest_ = std::make_unique<FakeGuestMemory>(std::vector<FakeRegion>{
      {.bytes = options_.memory_bytes / 2},
      {.guest_address = options_.memory_bytes / 2, .bytes = options_.memory_bytes / 2}});
  const uint32_t count = 2 * options_.queue_pairs + (options_.control_queue ? 1 : 0);
  for (uint32_t i = 0; i < count; ++i) {
    const FakeDriverOptions shape{.size = options_.ring_size,
                                  .event_idx = (features_ & feature::event_idx) != 0};
    rings_.push_back(
        {std::make_unique<FakeDriver>(*guest_, shape), make_event(), make_event(), make_event()});
  }
  if (!share_memory()) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (!start_ring(i) || !enable_ring(i, true)) return false;
  }
  for (uint32_t pair = 0; pair < options_.queue_pairs; ++pair) refill(pair);
  return true;
}

void FakeFrontEnd::close() {
  channel_.reset();
  rings_.clear();
  guest_.reset();
}

bool FakeFrontEnd::share_memory() {
  std::vector<RegionDescription> regions;
  std::vector<int> fds;
  for (size_t i = 0; i < guest_->region_count(); ++i) {
    regions.push_back(guest_->description(i));
    fds.push_back(guest_->file(i).get());
  }
  return channel_->set_memory(regions, fds);
}

bool FakeFrontEnd::start_ring(uint32_t index) {
  Ring& ring = rings_[index];
  const auto frontend = [](uint64_t address) {
    return FrontendAddr{FakeGuestMemory::frontend_address(address)};
  };
  VringAddresses addresses;
  addresses.index = index;
  addresses.descriptors = frontend(ring.driver->descriptors_address());
  addresses.available = frontend(ring.driver->available_address());
  addresses.used = frontend(ring.driver->used_address());
  return channel_->set_ring_state(Request::set_vring_num, index, options_.ring_size) &&
         channel_->set_ring_state(Request::set_vring_base, index, ring.base) &&
         channel_->set_ring_addresses(addresses) &&
         channel_->set_ring_file(Request::set_vring_err, index, ring.error.get()) &&
         channel_->set_ring_file(Request::set_vring_call, index,
                                 options_.calls ? ring.call.get() : -1) &&
         channel_->set_ring_file(Request::set_vring_kick, index,
                                 options_.kicks ? ring.kick.get() : -1);
}

bool FakeFrontEnd::stop_ring(uint32_t index) {
  const auto base = channel_->get_ring_base(index);
  if (base) rings_[index].base = *base;
  return base.has_value();
}

bool FakeFrontEnd::enable_ring(uint32_t index, bool enabled) {
  return channel_->set_ring_state(Request::set_vring_enable, index, enabled ? 1 : 0);
}

void FakeFrontEnd::kick(uint32_t index) {
  const uint64_t one = 1;
  if (!options_.kicks) return;
  [[maybe_unused]] const ssize_t written = ::write(rings_[index].kick.get(), &one, sizeof one);
}

void FakeFrontEnd::kick_if_wanted(uint32_t index) {
  if (driver(index).kick_wanted()) kick(index);
}

bool FakeFrontEnd::send(uint32_t pair, std::span<const uint8_t> packet,
                        const OffloadMeta& offload) {
  const uint32_t index = 2 * pair + 1;
  driver(index).take_all_used();
  const NetHeaderBytes header = build_net_header(offload, 0);
  std::vector<uint8_t> all(header.begin(), header.begin() + static_cast<ptrdiff_t>(header_bytes_));
  all.insert(all.end(), packet.begin(), packet.end());
  if (!driver(index).offer(ChainBuilder{}.readable(std::span<const uint8_t>(all)))) return false;
  kick_if_wanted(index);
  return true;
}

std::optional<FakeFrontEnd::Packet> FakeFrontEnd::receive(uint32_t pair) {
  FakeDriver& ring = driver(2 * pair);
  auto first = ring.take_used();
  if (!first) return std::nullopt;
  Packet packet;
  NetHeaderBytes header{};
  if (first->data.size() >= header_bytes_) {
    std::memcpy(header.data(), first->data.data(), header_bytes_);
    if (header_bytes_ == kNetHeaderBytes)
      std::memcpy(&packet.buffers, &header[kNumBuffersOffset], 2);
    packet.offload = parse_net_header(header).value_or(OffloadMeta{});
    packet.bytes.assign(first->data.begin() + static_cast<ptrdiff_t>(header_bytes_),
                        first->data.end());
  }
  for (uint16_t i = 1; i < packet.buffers; ++i) {  // published together, so they are there
    const auto next = ring.take_used();
    if (!next) return std::nullopt;
    packet.bytes.insert(packet.bytes.end(), next->data.begin(), next->data.end());
  }
  if (ring.outstanding() <= options_.ring_size / 2) refill(pair);
  return packet;
}

void FakeFrontEnd::refill(uint32_t pair) {
  FakeDriver& ring = driver(2 * pair);
  while (ring.offer(ChainBuilder{}.writable(options_.buffer_bytes))) {
  }
  kick_if_wanted(2 * pair);
}

std::optional<uint8_t> FakeFrontEnd::command(std::span<const uint8_t> words, int milliseconds) {
  const uint32_t index = ring_count() - 1;
  FakeDriver& ring = driver(index);
  if (!ring.offer(ChainBuilder{}.readable(words).writable(1))) return std::nullopt;
  kick(index);
  for (int i = 0; i < milliseconds; ++i) {
    if (const auto used = ring.take_used())
      return used->data.empty() ? std::nullopt : std::optional<uint8_t>(used->data[0]);
    ::usleep(1000);
  }
  return std::nullopt;
}

}  // namespace sluice
