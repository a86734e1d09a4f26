#include "port/vm_control_queue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace sluice {
namespace {

// Classes and commands. [virtio 5.1.6.5]
enum Class : uint8_t { kRx = 0, kMac = 1, kVlan = 2, kAnnounce = 3, kMq = 4, kGuestOffloads = 5 };
constexpr uint8_t kRxCommands = 6;
constexpr uint8_t kMacTableSet = 0;
constexpr uint8_t kMacAddressSet = 1;
constexpr uint8_t kMqPairsSet = 0;
constexpr uint8_t kMqRssConfig = 1;
constexpr uint8_t kMqHashConfig = 2;
constexpr uint8_t kOk = 0;
constexpr uint8_t kError = 1;
constexpr size_t kHeaderBytes = 2;

// The longest command we read: MAC tables of some thousand entries. What is longer is refused.
constexpr size_t kCommandBytesMax = 32 * 1024;

template <typename T>
bool read_whole(std::span<const uint8_t> data, T& value) {
  if (data.size() < sizeof value) return false;
  std::memcpy(&value, data.data(), sizeof value);
  return true;
}

}  // namespace

ControlQueue::ControlQueue(ControlCommands& commands)
    : commands_(commands), spans_(kChainSpansMax) {}

void ControlQueue::serve() {
  if (!ring_.usable()) return;
  const bool more = ring_.visit([this](auto& queue) { return serve(queue); });
  ring_.publish_and_notify(counters_);
  if (!ring_.usable()) return;
  // The rest, if there is any, comes with the loop's next round.
  if (more || ring_.visit([](auto& queue) { return queue.enable_kicks(); })) ring_.kick_ourselves();
}

// At most a ring full a call: a guest that never stops sending must not hold the control thread.
template <class Queue>
bool ControlQueue::serve(Queue& queue) {
  for (uint32_t served = 0; served < queue.size(); ++served) {
    Chain chain;
    spans_.clear();
    switch (queue.pop(spans_, chain)) {
      case Pop::chain:
        break;
      case Pop::empty:
        return false;
      case Pop::broken:
        ring_.note_broken();
        return false;
    }
    const bool answerable = chain.writable_bytes() > 0;
    if (answerable) handle(chain);
    queue.complete(std::move(chain), answerable ? 1 : 0);
    if (answerable) continue;
    ring_.break_with(RingFault::wrong_direction);
    return false;
  }
  return true;
}

void ControlQueue::handle(const Chain& chain) {
  std::array<uint8_t, kCommandBytesMax> command;
  const auto readable = spans_.slice(chain.span_first(), chain.readable_count());
  auto writable = spans_.slice(chain.span_first() + chain.readable_count(), chain.writable_count());
  uint8_t answer = kError;
  if (chain.readable_bytes() >= kHeaderBytes && chain.readable_bytes() <= command.size()) {
    const size_t bytes = copy_out(readable, 0, command.data(), chain.readable_bytes());
    if (dispatch({command.data(), bytes})) answer = kOk;
  }
  copy_in(writable, 0, &answer, 1);
  counters_.frames.add(1);
}

bool ControlQueue::dispatch(std::span<const uint8_t> command) {
  const uint8_t command_class = command[0];
  const uint8_t code = command[1];
  const auto data = command.subspan(kHeaderBytes);
  switch (command_class) {
    case kRx:
      return receive_mode(code, data);
    case kMac:
      return mac(code, data);
    case kVlan:
      return vlan(code, data);
    case kAnnounce:
      if (code != 0) return false;
      commands_.control_announced();
      return true;
    case kMq:
      return multiqueue(code, data);
    case kGuestOffloads: {
      uint64_t offloads = 0;
      return code == 0 && read_whole(data, offloads) && commands_.control_guest_offloads(offloads);
    }
    default:
      return false;
  }
}

bool ControlQueue::multiqueue(uint8_t command, std::span<const uint8_t> data) {
  switch (command) {
    case kMqPairsSet: {
      uint16_t pairs = 0;
      return read_whole(data, pairs) && commands_.control_queue_pairs(pairs);
    }
    case kMqRssConfig:
      return rss(data);
    case kMqHashConfig:
      return hash(data);
    default:
      return false;
  }
}

// [virtio 5.1.6.5.7]: hash types, table mask, the queue for the rest, the table, transmit queues,
// and the key with its length. Every length is checked before what it measures is looked at.
bool ControlQueue::rss(std::span<const uint8_t> data) {
  RssRequest request;
  uint16_t mask = 0;
  constexpr size_t kFixedBytes = 4 + 2 + 2;
  if (data.size() < kFixedBytes) return false;
  std::memcpy(&request.hash_types, &data[0], 4);
  std::memcpy(&mask, &data[4], 2);
  std::memcpy(&request.unclassified_queue, &data[6], 2);
  const size_t entries = size_t{mask} + 1;
  if (entries > kRssTableEntriesMax || !std::has_single_bit(entries)) return false;
  data = data.subspan(kFixedBytes);
  if (data.size() < 2 * entries + 2 + 1) return false;
  std::array<uint16_t, kRssTableEntriesMax> table;
  std::memcpy(table.data(), data.data(), 2 * entries);
  request.table = std::span(table).first(entries);
  std::memcpy(&request.transmit_pairs, &data[2 * entries], 2);
  const size_t key_bytes = data[2 * entries + 2];
  data = data.subspan(2 * entries + 2 + 1);
  if (key_bytes > kHashKeyBytes || data.size() < key_bytes) return false;
  request.key = data.first(key_bytes);
  return commands_.control_rss(request);
}

// [virtio 5.1.6.5.6.4]: hash types, eight reserved bytes, and the key with its length.
bool ControlQueue::hash(std::span<const uint8_t> data) {
  HashRequest request;
  constexpr size_t kFixedBytes = 4 + 8 + 1;
  if (data.size() < kFixedBytes) return false;
  std::memcpy(&request.hash_types, &data[0], 4);
  const size_t key_bytes = data[12];
  data = data.subspan(kFixedBytes);
  if (key_bytes > kHashKeyBytes || data.size() < key_bytes) return false;
  request.key = data.first(key_bytes);
  return commands_.control_hash(request);
}

bool ControlQueue::receive_mode(uint8_t command, std::span<const uint8_t> data) {
  if (command >= kRxCommands || data.empty()) return false;
  bool* const modes[kRxCommands] = {&modes_.promiscuous, &modes_.all_multicast,
                                    &modes_.all_unicast, &modes_.no_multicast,
                                    &modes_.no_unicast,  &modes_.no_broadcast};
  *modes[command] = data[0] != 0;
  return true;
}

bool ControlQueue::mac(uint8_t command, std::span<const uint8_t> data) {
  if (command == kMacAddressSet) {
    MacAddress address;
    if (data.size() < address.size()) return false;
    std::memcpy(address.data(), data.data(), address.size());
    return commands_.control_mac(address);
  }
  if (command != kMacTableSet) return false;
  uint32_t total = 0;
  for (int table = 0; table < 2; ++table) {  // unicast, then multicast
    uint32_t entries = 0;
    if (!read_whole(data, entries)) return false;
    data = data.subspan(sizeof entries);
    if (entries > data.size() / 6) return false;
    data = data.subspan(size_t{entries} * 6);
    total += entries;
  }
  modes_.mac_filter_entries = total;
  return true;
}

bool ControlQueue::vlan(uint8_t command, std::span<const uint8_t> data) {
  uint16_t id = 0;
  if (command > 1 || !read_whole(data, id) || id > 4095) return false;
  if (command == 0) {
    modes_.vlan_entries = std::min<uint32_t>(modes_.vlan_entries + 1, 4096);
  } else if (modes_.vlan_entries > 0) {
    --modes_.vlan_entries;
  }
  return true;
}

}  // namespace sluice
