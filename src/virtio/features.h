// Feature bits of virtio 1.2 that a net device and its rings know, and their names.
//
// Protocol feature bits of vhost-user are in vhost/message.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// X(bit, name) [virtio 5.1.3], [virtio 6], [vhost-user VHOST_USER_F_PROTOCOL_FEATURES]
#define SLUICE_VIRTIO_FEATURES(X) \
  X(0, csum)                      \
  X(1, guest_csum)                \
  X(2, ctrl_guest_offloads)       \
  X(3, mtu)                       \
  X(5, mac)                       \
  X(7, guest_tso4)                \
  X(8, guest_tso6)                \
  X(9, guest_ecn)                 \
  X(10, guest_ufo)                \
  X(11, host_tso4)                \
  X(12, host_tso6)                \
  X(13, host_ecn)                 \
  X(14, host_ufo)                 \
  X(15, mrg_rxbuf)                \
  X(16, status)                   \
  X(17, ctrl_vq)                  \
  X(18, ctrl_rx)                  \
  X(19, ctrl_vlan)                \
  X(20, ctrl_rx_extra)            \
  X(21, guest_announce)           \
  X(22, mq)                       \
  X(23, ctrl_mac_addr)            \
  X(24, notify_on_empty)          \
  X(26, log_all)                  \
  X(27, any_layout)               \
  X(28, indirect_desc)            \
  X(29, event_idx)                \
  X(30, protocol_features)        \
  X(32, version_1)                \
  X(33, access_platform)          \
  X(34, ring_packed)              \
  X(35, in_order)                 \
  X(36, order_platform)           \
  X(38, notification_data)        \
  X(40, ring_reset)               \
  X(54, guest_uso4)               \
  X(55, guest_uso6)               \
  X(56, host_uso)                 \
  X(57, hash_report)              \
  X(60, rss)                      \
  X(63, speed_duplex)

namespace feature {
#define SLUICE_FEATURE_MASK(bit, name) inline constexpr uint64_t name = uint64_t{1} << (bit);
SLUICE_VIRTIO_FEATURES(SLUICE_FEATURE_MASK)
#undef SLUICE_FEATURE_MASK
}  // namespace feature

// The names of the bits that are set, in the order of the bits; unknown ones follow, as "bit_<n>".
std::vector<std::string> feature_names(uint64_t features);

// The same for any table of bits; vhost/message.h has another.
struct BitName {
  unsigned bit;
  std::string_view name;
};
std::vector<std::string> bit_names(uint64_t bits, std::span<const BitName> known);

// What is left of `acked` when bits that were not offered, and bits whose prerequisites are
// missing, are taken away: the state of a device never depends on the others. [virtio 5.1.3.1]
uint64_t sanitize_features(uint64_t acked, uint64_t offered);

}  // namespace sluice
