#include "port/net_config.h"

#include <cstring>
#include <string_view>

namespace sluice {

void NetConfig::read(uint32_t offset, std::span<uint8_t> out) const {
  std::array<uint8_t, 24> space{};
  std::memcpy(&space[0], mac.data(), mac.size());
  const uint16_t status = static_cast<uint16_t>((link_up ? 1 : 0) | (announce ? 2 : 0));
  std::memcpy(&space[6], &status, 2);
  std::memcpy(&space[8], &queue_pairs_max, 2);
  std::memcpy(&space[10], &mtu_bytes, 2);
  std::memcpy(&space[12], &speed_mbits, 4);
  space[16] = duplex;
  space[17] = rss_key_bytes_max;
  std::memcpy(&space[18], &rss_table_entries_max, 2);
  std::memcpy(&space[20], &hash_types, 4);
  for (size_t i = 0; i < out.size(); ++i) {  // bounded by the message, 256 bytes
    const uint64_t at = uint64_t{offset} + i;
    out[i] = at < space.size() ? space[at] : 0;
  }
}

MacAddress mac_from_name(std::string_view name) {
  // FNV-1a: spreads short names well, and stays the same from run to run.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  MacAddress mac;
  for (size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<uint8_t>(hash >> (8 * i));
  mac[0] = static_cast<uint8_t>((mac[0] & 0xfc) | 0x02);  // locally administered, unicast
  return mac;
}

}  // namespace sluice
