#include "port/vm_steering.h"

#include <algorithm>
#include <bit>

namespace sluice {

void VmSteering::configure(const RssRequest& request) {
  SLUICE_ASSERT(std::has_single_bit(request.table.size()));
  SLUICE_ASSERT(request.table.size() <= table_.size());
  std::ranges::copy(request.table, table_.begin());
  table_mask_ = static_cast<uint16_t>(request.table.size() - 1);
  unclassified_ = request.unclassified_queue;
  hash_types_ = request.hash_types;
  key_ = ToeplitzKey(request.key);
  configured_ = true;
}

void VmSteering::configure(const HashRequest& request) {
  hash_types_ = request.hash_types;
  key_ = ToeplitzKey(request.key);
}

void VmSteering::forget() {
  configured_ = false;
  reports_ = false;
  hash_types_ = 0;
  key_ = ToeplitzKey(default_hash_key());
}

void VmSteering::set_active(std::span<const uint16_t> pairs) {
  active_count_ = static_cast<uint16_t>(std::min(pairs.size(), active_.size()));
  std::copy_n(pairs.begin(), active_count_, active_.begin());
}

uint16_t VmSteering::pick(Frame& frame, uint16_t own) const {
  const std::span<const uint8_t> head(frame.data(), frame.head_bytes());
  // Without a word of the guest flows are told apart as well as we can, and nothing is reported.
  const bool own_spread = spreads_ && !configured_;
  const FlowHash hash =
      hash_flow(head, own_spread && hash_types_ == 0 ? flow_type::kAll : hash_types_, key_);
  if (reports_ && hash_types_ != 0)
    frame.set_flow_hash(hash.value, static_cast<uint8_t>(hash.report));
  if (!spreads_) return own;
  if (configured_)
    return hash.report == HashReport::none ? unclassified_ : table_[hash.value & table_mask_];
  if (active_count_ == 0) return own;
  // The upper bits of a product: even over any number of pairs, and no division.
  return active_[(uint64_t{hash.value} * active_count_) >> 32];
}

}  // namespace sluice
