// The configuration space of a virtio-net device, as bytes. [virtio 5.1.4]
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

using MacAddress = std::array<uint8_t, 6>;

struct NetConfig {
  MacAddress mac{};
  bool link_up = true;
  bool announce = false;
  uint16_t queue_pairs_max = 1;
  uint16_t mtu_bytes = 1500;
  uint32_t speed_mbits = 0xffffffff;  // unknown
  uint8_t duplex = 1;                 // full
  uint8_t rss_key_bytes_max = 0;      // with RSS or HASH_REPORT
  uint16_t rss_table_entries_max = 0;
  uint32_t hash_types = 0;

  // Copies out the bytes from `offset` on; zeros behind the end.
  void read(uint32_t offset, std::span<uint8_t> out) const;
};

// A stable, locally administered address made from a name, for VMs that were given none.
MacAddress mac_from_name(std::string_view name);

}  // namespace sluice
