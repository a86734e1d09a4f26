// The messages of BackendSession that carry something. Each function checks all of its message
// before it changes anything.
#include <fcntl.h>
#include <fmt/ranges.h>

#include <array>

#include "vhost/backend_session.h"
#include "vhost/descriptor_kind.h"
#include "virtio/features.h"

namespace sluice {
namespace {

constexpr std::string_view kShareMemory =
    "start the VM with shared memory (QEMU: memory-backend-memfd with share=on; libvirt: "
    "<memoryBacking> with <access mode='shared'/>)";

// [virtio 5.1.4.1]: what IPv4 needs at least, and the largest IP packet.
constexpr uint64_t kMtuBytesMin = 68;
constexpr uint64_t kMtuBytesMax = 65535;

}  // namespace

Result<void> BackendSession::set_features(std::span<const uint8_t> payload) {
  auto acked = parse_u64(payload);
  if (!acked) return fail(acked.error());
  const uint64_t offered = device_.offered_features();
  const uint64_t unknown = *acked & ~(offered | feature::protocol_features);
  if (unknown != 0 && refusal_limit_.admit())
    log_warning("{}: features were acknowledged that were not offered, and are off: {}",
                device_.device_name(), fmt::join(feature_names(unknown), " "));
  features_ = sanitize_features(*acked, offered) & ~feature::protocol_features;
  // Without the protocol features bit rings are enabled from the start. [vhost-user Ring states]
  rings_.set_features(features_, (*acked & feature::protocol_features) == 0);
  return {};
}

Result<void> BackendSession::set_protocol_features(std::span<const uint8_t> payload) {
  auto acked = parse_u64(payload);
  if (!acked) return fail(acked.error());
  const uint64_t unknown = *acked & ~kOfferedProtocolFeatures;
  if (unknown != 0 && refusal_limit_.admit())
    log_warning("{}: protocol features were acknowledged that were not offered, and are off: {}",
                device_.device_name(), fmt::join(protocol_feature_names(unknown), " "));
  protocol_features_ = *acked & kOfferedProtocolFeatures;
  return {};
}

Result<void> BackendSession::set_mem_table(ReceivedMessage& message) {
  auto regions = parse_memory_table(message.payload);
  if (!regions) return fail(regions.error());
  if (regions->empty() || message.fds.empty())
    return fail("no shareable guest memory came with it: {}", kShareMemory);
  if (regions->size() != message.fds.size())
    return fail("{} regions came with {} file descriptors", regions->size(), message.fds.size());
  GuestMemory::Builder builder;
  for (size_t i = 0; i < regions->size(); ++i) {  // bounded by kMemoryTableRegionsMax
    if (auto added = builder.add((*regions)[i], message.fds[i]); !added) return added;
  }
  memory_ = builder.build();
  rings_.set_memory(memory_);
  return {};
}

Result<void> BackendSession::add_mem_reg(ReceivedMessage& message) {
  auto region = parse_memory_region(message.payload);
  if (!region) return fail(region.error());
  if (message.fds.empty()) return fail("no file descriptor came with it: {}", kShareMemory);
  // QEMU 7.2 says the same again for each queue pair.
  if (memory_ != nullptr && memory_->contains(*region, message.fds[0])) return {};
  GuestMemory::Builder builder =
      memory_ != nullptr ? GuestMemory::Builder(*memory_) : GuestMemory::Builder();
  if (auto added = builder.add(*region, message.fds[0]); !added) return added;
  memory_ = builder.build();
  rings_.set_memory(memory_);
  return {};
}

// QEMU sends a descriptor along, others do not; it is not needed. [vhost-user REM_MEM_REG]
Result<void> BackendSession::rem_mem_reg(std::span<const uint8_t> payload) {
  auto region = parse_memory_region(payload);
  if (!region) return fail(region.error());
  if (memory_ == nullptr) return fail("no memory region has been added yet");
  GuestMemory::Builder builder(*memory_);
  // What is gone already is fine: QEMU 7.2 removes a region once for each queue pair.
  if (!builder.remove(*region)) return {};
  memory_ = builder.build();
  rings_.set_memory(memory_);
  return {};
}

Result<void> BackendSession::set_vring_addr(std::span<const uint8_t> payload) {
  auto wire = parse_vring_addresses(payload);
  if (!wire) return fail(wire.error());
  return rings_.set_addresses(wire->index, {wire->descriptors, wire->available, wire->used});
}

Result<void> BackendSession::set_vring_file(Request request, ReceivedMessage& message) {
  auto file = parse_vring_file(message.payload);
  if (!file) return fail(file.error());
  // Also before the descriptor is looked at, so that the reason names the ring.
  if (file->index >= rings_.count())
    return fail(
        "ring {} does not exist, there are {}; give the VM port as many queues as the VM has",
        file->index, rings_.count());
  if (file->no_fd != message.fds.empty())
    return fail(
        "{} for ring {}",
        file->no_fd ? "a descriptor came that is said not to come" : "the descriptor is missing",
        file->index);
  Fd fd = message.fds.empty() ? Fd() : std::move(message.fds[0]);
  if (fd) {
    auto usable = request == Request::set_vring_kick ? prepare_kick(fd) : prepare_signal(fd);
    if (!usable) return fail("ring {}: {}", file->index, usable.error().text);
  }
  if (request == Request::set_vring_kick) return rings_.set_kick(file->index, std::move(fd));
  if (request == Request::set_vring_call) return rings_.set_call(file->index, std::move(fd));
  return rings_.set_error(file->index, std::move(fd));
}

Result<void> BackendSession::set_vring_enable(std::span<const uint8_t> payload) {
  auto state = parse_vring_state(payload);
  if (!state) return fail(state.error());
  if (state->value > 1) return fail("{} is neither on nor off", state->value);
  return rings_.set_enabled(state->index, state->value == 1);
}

Result<void> BackendSession::get_vring_base(std::span<const uint8_t> payload) {
  auto state = parse_vring_state(payload);
  if (!state) return fail(state.error());
  auto base = rings_.stop_and_get_base(state->index);
  if (!base) return fail(base.error());
  return reply(build_vring_state_reply(Request::get_vring_base, {state->index, *base}));
}

Result<void> BackendSession::net_set_mtu(std::span<const uint8_t> payload) {
  auto mtu_bytes = parse_u64(payload);
  if (!mtu_bytes) return fail(mtu_bytes.error());
  if (*mtu_bytes < kMtuBytesMin || *mtu_bytes > kMtuBytesMax)
    return fail("an MTU of {} bytes is not between {} and {}", *mtu_bytes, kMtuBytesMin,
                kMtuBytesMax);
  return device_.set_mtu(static_cast<uint16_t>(*mtu_bytes));
}

Result<void> BackendSession::set_backend_req_fd(ReceivedMessage& message) {
  Fd fd = std::move(message.fds[0]);  // check_request() wants exactly one
  if (descriptor_kind(fd) != DescriptorKind::socket) return fail("its descriptor is no socket");
  backend_channel_ = std::move(fd);
  return {};
}

Result<void> BackendSession::get_config(std::span<const uint8_t> payload) {
  auto access = parse_config_access(payload);
  if (!access) {
    // This request has a way to say no: an empty payload. [vhost-user GET_CONFIG]
    if (refusal_limit_.admit())
      log_warning("{}: GET_CONFIG refused: {}", device_.device_name(), access.error().text);
    return reply(build_reply(Request::get_config, {}));
  }
  std::array<uint8_t, kConfigBytesMax> bytes{};
  const auto wanted = std::span(bytes).first(access->bytes.size());
  device_.read_config(access->offset, wanted);
  return reply(build_config_reply({access->offset, access->flags, wanted}));
}

Result<void> BackendSession::set_config(std::span<const uint8_t> payload) {
  auto access = parse_config_access(payload);
  if (!access) return fail(access.error());
  return device_.write_config(access->offset, access->bytes);
}

Result<void> BackendSession::set_status(std::span<const uint8_t> payload) {
  auto status = parse_u64(payload);
  if (!status) return fail(status.error());
  if (*status > UINT8_MAX) return fail("a device status of {:#x} has more than 8 bits", *status);
  status_ = *status;
  // Zero is the reset of the device: its rings are no more. [virtio 2.1.2]
  if (status_ == 0) rings_.stop_all();
  return {};
}

}  // namespace sluice
