#include "virtio/features.h"

#include <fmt/format.h>

namespace sluice {
namespace {

struct Dependency {
  uint64_t feature;
  uint64_t needs_one_of;
};

// A row takes its feature away when none of the others is there. Rows stand after the rows that can
// take their prerequisites away. [virtio 5.1.3.1]
constexpr Dependency kDependencies[] = {
    {feature::ring_packed, feature::version_1},
    {feature::in_order, feature::version_1},
    {feature::guest_tso4, feature::guest_csum},
    {feature::guest_tso6, feature::guest_csum},
    {feature::guest_ecn, feature::guest_tso4 | feature::guest_tso6},
    {feature::guest_ufo, feature::guest_csum},
    {feature::guest_uso4, feature::guest_csum},
    {feature::guest_uso6, feature::guest_csum},
    {feature::host_tso4, feature::csum},
    {feature::host_tso6, feature::csum},
    {feature::host_ecn, feature::host_tso4 | feature::host_tso6},
    {feature::host_ufo, feature::csum},
    {feature::host_uso, feature::csum},
    {feature::ctrl_rx, feature::ctrl_vq},
    {feature::ctrl_vlan, feature::ctrl_vq},
    {feature::guest_announce, feature::ctrl_vq},
    {feature::mq, feature::ctrl_vq},
    {feature::ctrl_mac_addr, feature::ctrl_vq},
    {feature::ctrl_guest_offloads, feature::ctrl_vq},
    {feature::ctrl_rx_extra, feature::ctrl_vq},
    {feature::rss, feature::ctrl_vq},
    {feature::hash_report, feature::ctrl_vq},
};

}  // namespace

std::vector<std::string> feature_names(uint64_t features) {
  static constexpr BitName kNames[] = {
#define SLUICE_FEATURE_NAME(bit, name) {bit, #name},
      SLUICE_VIRTIO_FEATURES(SLUICE_FEATURE_NAME)
#undef SLUICE_FEATURE_NAME
  };
  return bit_names(features, kNames);
}

std::vector<std::string> bit_names(uint64_t bits, std::span<const BitName> known) {
  std::vector<std::string> names;
  for (const BitName& each : known) {
    if ((bits >> each.bit) & 1) names.emplace_back(each.name);
    bits &= ~(uint64_t{1} << each.bit);
  }
  for (unsigned bit = 0; bit < 64; ++bit) {
    if ((bits >> bit) & 1) names.push_back(fmt::format("bit_{}", bit));
  }
  return names;
}

uint64_t sanitize_features(uint64_t acked, uint64_t offered) {
  uint64_t left = acked & offered;
  for (const Dependency& row : kDependencies) {
    if ((left & row.needs_one_of) == 0) left &= ~row.feature;
  }
  return left;
}

}  // namespace sluice
