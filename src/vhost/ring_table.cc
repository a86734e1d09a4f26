#include "vhost/ring_table.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>

#include "virtio/features.h"
#include "virtio/packed_layout.h"
#include "virtio/split_layout.h"

namespace sluice {
namespace {

// What one area of a ring has to be: for split rings the descriptor table, the available and the
// used ring; for packed ones the descriptor ring and the event suppression structures of the driver
// and of the device, which vhost-user passes in the same places.
struct AreaRule {
  const char* name;
  uint64_t bytes;
  uint64_t alignment;       // of the address that the front end says
  uint64_t load_alignment;  // of our own, for the words that we load at once
};
using AreaRules = std::array<AreaRule, 3>;

// [virtio 2.7], [virtio 2.8.10.1]
AreaRules rules_of(uint64_t features, uint32_t size) {
  if (features & feature::ring_packed)
    return {{{"descriptor ring", packed_descriptors_bytes(size), 16, 8},
             {"driver's event suppression", kPackedEventBytes, 4, 4},
             {"device's event suppression", kPackedEventBytes, 4, 4}}};
  return {{{"descriptor table", split_descriptors_bytes(size), 16, 8},
           {"available ring", split_available_bytes(size), 2, 2},
           {"used ring", split_used_bytes(size), 4, 4}}};
}

std::array<FrontendAddr, 3> in_order_of_rules(const RingAddresses& addresses) {
  return {addresses.descriptors, addresses.available, addresses.used};
}

Result<void> check_alignment(const RingAddresses& addresses, const AreaRules& rules) {
  const auto all = in_order_of_rules(addresses);
  for (size_t i = 0; i < rules.size(); ++i) {
    if (raw(all[i]) % rules[i].alignment != 0)
      return fail("the {} at {:#x} is not aligned to {} bytes", rules[i].name, raw(all[i]),
                  rules[i].alignment);
  }
  return {};
}

Result<void> check_size(uint64_t features, uint32_t index, uint32_t size) {
  if (size == 0 || size > kRingSizeMax)
    return fail("ring {} cannot have {} descriptors: 1 to {} are possible", index, size,
                kRingSizeMax);
  // Packed rings may have any size. [virtio 2.8.10.1]
  if (!(features & feature::ring_packed) && !std::has_single_bit(size))
    return fail("ring {} cannot have {} descriptors: a power of two up to {} is possible", index,
                size, kRingSizeMax);
  return {};
}

// A copy for the device; invalid stays invalid.
Result<Fd> duplicate(const Fd& fd) {
  if (!fd) return Fd();
  Fd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail("copying a descriptor failed: {}", errno_text(errno));
  return copy;
}

}  // namespace

RingTable::RingTable(BackendDevice& device) : device_(device) {
  const uint32_t pairs = device.queue_pairs_max();
  SLUICE_ASSERT(pairs >= 1 && pairs <= kQueuePairsMax);
  rings_.resize(size_t{2} * pairs + 1);
  for (uint32_t i = 0; i < rings_.size(); ++i) rings_[i].index = i;
}

uint32_t RingTable::running_count() const {
  uint32_t running = 0;
  for (const Ring& ring : rings_) running += ring.running ? 1 : 0;
  return running;
}

Result<RingTable::Ring*> RingTable::ring_at(uint32_t index) {
  if (index >= rings_.size())
    return fail(
        "ring {} does not exist, there are {}; give the VM port as many queues as the VM has",
        index, rings_.size());
  return &rings_[index];
}

Result<void> RingTable::set_size(uint32_t index, uint32_t size) {
  auto ring = ring_at(index);
  if (!ring) return fail(ring.error());
  if (auto checked = check_size(features_, index, size); !checked) return checked;
  if ((*ring)->running) {
    pause(**ring);
    (*ring)->kick_known = false;
    (*ring)->kick.reset();
  }
  (*ring)->size = size;
  start_if_complete(**ring);
  return {};
}

Result<void> RingTable::set_base(uint32_t index, uint32_t base) {
  auto ring = ring_at(index);
  if (!ring) return fail(ring.error());
  // A packed ring's base has both positions with their wrap counters, all 32 bits of it. What is
  // beyond the ring is found when it starts, since the size may not be known yet.
  if (!(features_ & feature::ring_packed) && base > UINT16_MAX)
    return fail("ring {} cannot begin at {}: 65535 is the last", index, base);
  pause(**ring);
  (*ring)->base = base;
  start_if_complete(**ring);
  return {};
}

Result<void> RingTable::set_addresses(uint32_t index, const RingAddresses& addresses) {
  auto found = ring_at(index);
  if (!found) return fail(found.error());
  Ring& ring = **found;
  if (auto aligned = check_alignment(addresses, rules_of(features_, ring.size)); !aligned)
    return fail("ring {}: {}", index, aligned.error().text);
  if (ring.size != 0 && memory_ != nullptr) {
    Ring trial;
    trial.index = index;
    trial.size = ring.size;
    trial.addresses = addresses;
    if (auto areas = translate(trial); !areas)
      return fail("ring {}: {}", index, areas.error().text);
  }
  pause(ring);
  ring.addresses = addresses;
  start_if_complete(ring);
  return {};
}

Result<void> RingTable::set_kick(uint32_t index, Fd kick) {
  auto ring = ring_at(index);
  if (!ring) return fail(ring.error());
  pause(**ring);
  (*ring)->kick = std::move(kick);
  (*ring)->kick_known = true;
  start_if_complete(**ring);
  if (memory_ == nullptr && !missing_memory_reported_) {
    missing_memory_reported_ = true;
    log_warning(
        "{}: ring {} waits for guest memory; if none comes, start the VM with shared memory "
        "(QEMU: memory-backend-memfd with share=on)",
        device_.device_name(), index);
  }
  return {};
}

Result<void> RingTable::set_call(uint32_t index, Fd call) {
  auto ring = ring_at(index);
  if (!ring) return fail(ring.error());
  if ((*ring)->running) {
    auto copy = duplicate(call);
    if (!copy) return fail(copy.error());
    device_.ring_set_call(index, std::move(*copy));
  }
  (*ring)->call = std::move(call);
  return {};
}

Result<void> RingTable::set_error(uint32_t index, Fd error) {
  auto ring = ring_at(index);
  if (!ring) return fail(ring.error());
  if ((*ring)->running) {
    auto copy = duplicate(error);
    if (!copy) return fail(copy.error());
    device_.ring_set_error(index, std::move(*copy));
  }
  (*ring)->error = std::move(error);
  return {};
}

Result<void> RingTable::set_enabled(uint32_t index, bool enabled) {
  auto ring = ring_at(index);
  if (!ring) return fail(ring.error());
  (*ring)->enabled = enabled;
  if ((*ring)->running) device_.ring_set_enabled(index, enabled);
  return {};
}

Result<uint32_t> RingTable::stop_and_get_base(uint32_t index) {
  auto ring = ring_at(index);
  if (!ring) return fail(ring.error());
  pause(**ring);
  (*ring)->kick_known = false;
  (*ring)->kick.reset();
  return (*ring)->base;
}

void RingTable::set_features(uint64_t features, bool enabled_from_start) {
  if (features_known_ && features == features_ && enabled_from_start == enabled_from_start_) return;
  pause_all();
  features_ = features;
  features_known_ = true;
  enabled_from_start_ = enabled_from_start;
  // Without protocol features no SET_VRING_ENABLE can follow; one from before must not last.
  if (enabled_from_start) {
    for (Ring& ring : rings_) ring.enabled.reset();
  }
  device_.features_negotiated(features);
  start_all_complete();
}

void RingTable::set_memory(std::shared_ptr<const GuestMemory> memory) {
  // When this returns no worker uses the old snapshot any more, so its mappings may go.
  pause_all();
  memory_ = std::move(memory);
  start_all_complete();
}

void RingTable::stop_all() {
  for (Ring& ring : rings_) {
    pause(ring);
    ring.kick_known = false;
    ring.kick.reset();
  }
}

void RingTable::reset_all() {
  stop_all();
  for (Ring& ring : rings_) {
    ring.size = 0;
    ring.base = 0;
    ring.addresses.reset();
    ring.enabled.reset();
  }
}

void RingTable::release_all() {
  reset_all();
  memory_.reset();
  for (Ring& ring : rings_) {
    ring.call.reset();
    ring.error.reset();
  }
}

Result<RingTable::Areas> RingTable::translate(const Ring& ring) const {
  SLUICE_ASSERT(memory_ != nullptr);
  SLUICE_ASSERT(ring.size != 0 && ring.addresses.has_value());
  // Size, addresses and base may have come before the features that say what they have to be.
  if (auto checked = check_size(features_, ring.index, ring.size); !checked)
    return fail(checked.error());
  const AreaRules rules = rules_of(features_, ring.size);
  if (auto aligned = check_alignment(*ring.addresses, rules); !aligned)
    return fail(aligned.error());
  if ((features_ & feature::ring_packed) && (ring.base & 0x7fff) >= ring.size)
    return fail("it cannot begin at descriptor {} of {}", ring.base & 0x7fff, ring.size);
  const auto addresses = in_order_of_rules(*ring.addresses);
  Areas areas;
  GuestSpan* const spans[] = {&areas.descriptors, &areas.available, &areas.used};
  for (size_t i = 0; i < rules.size(); ++i) {
    const auto span = memory_->translate(addresses[i], rules[i].bytes);
    if (!span)
      return fail("the {} ({} bytes at {:#x}) is not in one region of guest memory", rules[i].name,
                  rules[i].bytes, raw(addresses[i]));
    // A region may begin anywhere in its file, so our own address is checked too.
    if (reinterpret_cast<uintptr_t>(span->address_for_shared_words()) % rules[i].load_alignment !=
        0)
      return fail("the {} lies at an odd place of its file", rules[i].name);
    *spans[i] = *span;
  }
  return areas;
}

void RingTable::pause(Ring& ring) {
  if (!ring.running) return;
  ring.base = device_.ring_stop(ring.index);
  ring.running = false;
  log_debug("{}: ring {} stopped at {}", device_.device_name(), ring.index, ring.base);
}

void RingTable::pause_all() {
  for (Ring& ring : rings_) pause(ring);
}

void RingTable::start_all_complete() {
  for (Ring& ring : rings_) start_if_complete(ring);
}

void RingTable::start_if_complete(Ring& ring) {
  if (ring.running || !features_known_ || memory_ == nullptr || ring.size == 0 || !ring.addresses ||
      !ring.kick_known)
    return;
  auto areas = translate(ring);
  if (!areas) return report_start_failure(ring, areas.error().text);
  auto kick = duplicate(ring.kick);
  if (!kick) return report_start_failure(ring, kick.error().text);
  auto call = duplicate(ring.call);
  if (!call) return report_start_failure(ring, call.error().text);
  auto error = duplicate(ring.error);
  if (!error) return report_start_failure(ring, error.error().text);
  RingStart start;
  start.index = ring.index;
  start.size = ring.size;
  start.base = ring.base;
  start.features = features_;
  start.descriptors = areas->descriptors;
  start.available = areas->available;
  start.used = areas->used;
  start.memory = memory_;
  start.kick = std::move(*kick);
  start.call = std::move(*call);
  start.error = std::move(*error);
  start.enabled = is_enabled(ring);
  if (auto started = device_.ring_start(std::move(start)); !started)
    return report_start_failure(ring, started.error().text);
  ring.running = true;
  log_debug("{}: ring {} started at {} with {} descriptors, {}", device_.device_name(), ring.index,
            ring.base, ring.size, is_enabled(ring) ? "enabled" : "disabled");
}

void RingTable::report_start_failure(const Ring& ring, const std::string& reason) {
  if (failure_limit_.admit())
    log_warning("{}: ring {} stays stopped: {}", device_.device_name(), ring.index, reason);
  // The descriptor is non-blocking; whether the front end hears it is its own affair.
  const uint64_t one = 1;
  if (ring.error && ::write(ring.error.get(), &one, sizeof one) < 0) return;
}

}  // namespace sluice
