// Which flow a packet belongs to, as a number: the Toeplitz hash over addresses and ports, for
// receive-side scaling and for steering of our own.
//
// What: finds IPv4, IPv6, TCP and UDP headers behind up to two VLAN tags, decides by the enabled
// types which fields are hashed, and hashes them. What not: state, or IPv6 extension headers (those
// packets are hashed by their addresses). Fragments have no ports that could be relied on, so they
// are hashed by addresses, too. Pure; reads nothing behind the bytes that it is given.
//
//   const ToeplitzKey key(key_bytes);
//   const FlowHash hash = hash_flow({frame.data(), frame.head_bytes()}, flow_type::kAll, key);
//
// [virtio 5.1.6.4.3 Hash calculation for incoming packets]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

// What can be hashed; the values are those of the configuration space. [virtio 5.1.6.4.3.1]
namespace flow_type {
inline constexpr uint32_t kIpv4 = 1 << 0;
inline constexpr uint32_t kTcpv4 = 1 << 1;
inline constexpr uint32_t kUdpv4 = 1 << 2;
inline constexpr uint32_t kIpv6 = 1 << 3;
inline constexpr uint32_t kTcpv6 = 1 << 4;
inline constexpr uint32_t kUdpv6 = 1 << 5;
inline constexpr uint32_t kAll = 0x3f;
}  // namespace flow_type

// What was hashed, as a net header reports it. [virtio 5.1.6.4.3.3]
enum class HashReport : uint8_t { none, ipv4, tcpv4, udpv4, ipv6, tcpv6, udpv6 };

struct FlowHash {
  uint32_t value = 0;
  HashReport report = HashReport::none;
};

inline constexpr size_t kHashKeyBytes = 40;
// The longest input: two IPv6 addresses and two ports.
inline constexpr size_t kHashInputBytesMax = 36;

// A key, worked out in advance: one table lookup for four bits of input.
class ToeplitzKey {
 public:
  // Up to kHashKeyBytes; what is missing is zero.
  explicit ToeplitzKey(std::span<const uint8_t> key);
  // At most kHashInputBytesMax.
  uint32_t hash(std::span<const uint8_t> input) const;

 private:
  std::array<std::array<uint32_t, 16>, 2 * kHashInputBytesMax> tables_;
};

// The key that we use where nobody gave one: the one of the published test vectors.
const std::array<uint8_t, kHashKeyBytes>& default_hash_key();

// `packet` begins with its Ethernet header and may be cut behind its transport header's ports.
// report none: nothing in it is of an enabled type, and the value is 0.
FlowHash hash_flow(std::span<const uint8_t> packet, uint32_t enabled_types, const ToeplitzKey& key);

}  // namespace sluice
