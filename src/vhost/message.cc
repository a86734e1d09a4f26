#include "vhost/message.h"

#include <fmt/format.h>

#include <cstring>

#include "virtio/features.h"

namespace sluice {
namespace {

namespace pf = protocol_feature;

// [vhost-user Front-end message types]. What no protocol feature guards and what we do not serve is
// refused by the session.
constexpr RequestRow kRequests[] = {
    // request, name, payload min, max, fds min, max, own reply, needs
    {Request::get_features, "GET_FEATURES", 0, 0, 0, 0, true, 0},
    {Request::set_features, "SET_FEATURES", 8, 8, 0, 0, false, 0},
    {Request::set_owner, "SET_OWNER", 0, 0, 0, 0, false, 0},
    {Request::reset_owner, "RESET_OWNER", 0, 0, 0, 0, false, 0},
    {Request::set_mem_table, "SET_MEM_TABLE", 8, kMemoryTableBytesMax, 0, kMemoryTableRegionsMax,
     false, 0},
    {Request::set_log_base, "SET_LOG_BASE", 8, 16, 0, 1, true, pf::log_shmfd},
    {Request::set_log_fd, "SET_LOG_FD", 0, 8, 0, 1, false, pf::log_shmfd},
    {Request::set_vring_num, "SET_VRING_NUM", 8, 8, 0, 0, false, 0},
    {Request::set_vring_addr, "SET_VRING_ADDR", 40, 40, 0, 0, false, 0},
    {Request::set_vring_base, "SET_VRING_BASE", 8, 8, 0, 0, false, 0},
    {Request::get_vring_base, "GET_VRING_BASE", 8, 8, 0, 0, true, 0},
    {Request::set_vring_kick, "SET_VRING_KICK", 8, 8, 0, 1, false, 0},
    {Request::set_vring_call, "SET_VRING_CALL", 8, 8, 0, 1, false, 0},
    {Request::set_vring_err, "SET_VRING_ERR", 8, 8, 0, 1, false, 0},
    {Request::get_protocol_features, "GET_PROTOCOL_FEATURES", 0, 0, 0, 0, true, 0},
    {Request::set_protocol_features, "SET_PROTOCOL_FEATURES", 8, 8, 0, 0, false, 0},
    {Request::get_queue_num, "GET_QUEUE_NUM", 0, 0, 0, 0, true, pf::mq},
    {Request::set_vring_enable, "SET_VRING_ENABLE", 8, 8, 0, 0, false, 0},
    {Request::send_rarp, "SEND_RARP", 8, 8, 0, 0, false, pf::rarp},
    {Request::net_set_mtu, "NET_SET_MTU", 8, 8, 0, 0, false, pf::mtu},
    {Request::set_backend_req_fd, "SET_BACKEND_REQ_FD", 0, 0, 1, 1, false, pf::backend_req},
    {Request::iotlb_msg, "IOTLB_MSG", 25, 32, 0, 0, false, 0},
    {Request::set_vring_endian, "SET_VRING_ENDIAN", 8, 8, 0, 0, false, pf::cross_endian},
    {Request::get_config, "GET_CONFIG", kConfigHeaderBytes, kConfigHeaderBytes + kConfigBytesMax, 0,
     0, true, pf::config},
    {Request::set_config, "SET_CONFIG", kConfigHeaderBytes, kConfigHeaderBytes + kConfigBytesMax, 0,
     0, false, pf::config},
    {Request::create_crypto_session, "CREATE_CRYPTO_SESSION", 0, kPayloadBytesMax, 0, 0, true,
     pf::crypto_session},
    {Request::close_crypto_session, "CLOSE_CRYPTO_SESSION", 8, 8, 0, 0, false, pf::crypto_session},
    {Request::postcopy_advise, "POSTCOPY_ADVISE", 0, 0, 0, 0, true, pf::pagefault},
    {Request::postcopy_listen, "POSTCOPY_LISTEN", 0, 0, 0, 0, false, pf::pagefault},
    {Request::postcopy_end, "POSTCOPY_END", 0, 0, 0, 0, true, pf::pagefault},
    {Request::get_inflight_fd, "GET_INFLIGHT_FD", 20, 24, 0, 0, true, pf::inflight_shmfd},
    {Request::set_inflight_fd, "SET_INFLIGHT_FD", 20, 24, 1, 1, false, pf::inflight_shmfd},
    {Request::gpu_set_socket, "GPU_SET_SOCKET", 0, 0, 1, 1, false, 0},
    {Request::reset_device, "RESET_DEVICE", 0, 0, 0, 0, false, pf::reset_device},
    {Request::vring_kick, "VRING_KICK", 8, 8, 0, 0, false, pf::inband_notifications},
    {Request::get_max_mem_slots, "GET_MAX_MEM_SLOTS", 0, 0, 0, 0, true, pf::configure_mem_slots},
    {Request::add_mem_reg, "ADD_MEM_REG", 40, 40, 0, 1, false, pf::configure_mem_slots},
    {Request::rem_mem_reg, "REM_MEM_REG", 40, 40, 0, 1, false, pf::configure_mem_slots},
    {Request::set_status, "SET_STATUS", 8, 8, 0, 0, false, pf::status},
    {Request::get_status, "GET_STATUS", 0, 0, 0, 0, true, pf::status},
    {Request::get_shared_object, "GET_SHARED_OBJECT", 16, 16, 0, 0, true, pf::shared_object},
    {Request::set_device_state_fd, "SET_DEVICE_STATE_FD", 8, 8, 1, 1, true, pf::device_state},
    {Request::check_device_state, "CHECK_DEVICE_STATE", 0, 0, 0, 0, true, pf::device_state},
    {Request::get_shmem_config, "GET_SHMEM_CONFIG", 0, 0, 0, 0, true, pf::shmem},
};
static_assert(sizeof(kRequests) / sizeof(kRequests[0]) == kRequestMax);
static_assert(
    [] {
      for (uint32_t i = 0; i < kRequestMax; ++i) {
        if (static_cast<uint32_t>(kRequests[i].request) != i + 1) return false;
      }
      return true;
    }(),
    "find_request() indexes the table by the request's number");

template <typename T>
Result<T> load_exactly(std::span<const uint8_t> payload) {
  if (payload.size() != sizeof(T))
    return fail("payload of {} bytes where {} belong", payload.size(), sizeof(T));
  T value;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

RegionDescription to_description(const WireRegion& wire) {
  return {GuestAddr{wire.guest_address}, wire.bytes, FrontendAddr{wire.frontend_address},
          wire.mmap_offset};
}

std::vector<uint8_t> build_message(uint32_t request, uint32_t flags,
                                   std::span<const uint8_t> payload) {
  const MessageHeader header{request, flags, static_cast<uint32_t>(payload.size())};
  std::vector<uint8_t> message(kHeaderBytes + payload.size());
  std::memcpy(message.data(), &header, kHeaderBytes);
  if (!payload.empty()) std::memcpy(message.data() + kHeaderBytes, payload.data(), payload.size());
  return message;
}

template <typename T>
std::span<const uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

}  // namespace

std::vector<std::string> protocol_feature_names(uint64_t features) {
  static constexpr BitName kNames[] = {
#define SLUICE_PROTOCOL_FEATURE_NAME(bit, name) {bit, #name},
      SLUICE_PROTOCOL_FEATURES(SLUICE_PROTOCOL_FEATURE_NAME)
#undef SLUICE_PROTOCOL_FEATURE_NAME
  };
  return bit_names(features, kNames);
}

const RequestRow* find_request(uint32_t request) {
  if (request == 0 || request > kRequestMax) return nullptr;
  return &kRequests[request - 1];
}

std::string request_name(uint32_t request) {
  const RequestRow* row = find_request(request);
  return row != nullptr ? std::string(row->name) : fmt::format("request {}", request);
}

namespace {

Result<MessageHeader> parse_any_header(std::span<const uint8_t> bytes) {
  auto header = load_exactly<MessageHeader>(bytes);
  if (!header) return header;
  if ((header->flags & kFlagsVersionMask) != kFlagsVersion)
    return fail("{} with protocol version {}, only version {} exists",
                request_name(header->request), header->flags & kFlagsVersionMask, kFlagsVersion);
  if (header->payload_bytes > kPayloadBytesMax)
    return fail("{} announces a payload of {} bytes, the limit is {}",
                request_name(header->request), header->payload_bytes, kPayloadBytesMax);
  return header;
}

}  // namespace

Result<MessageHeader> parse_header(std::span<const uint8_t> bytes) {
  auto header = parse_any_header(bytes);
  if (header && (header->flags & kFlagsReply) != 0)
    return fail("{} is marked as a reply, but nothing was asked", request_name(header->request));
  return header;
}

Result<MessageHeader> parse_reply_header(std::span<const uint8_t> bytes) {
  auto header = parse_any_header(bytes);
  if (header && (header->flags & kFlagsReply) == 0)
    return fail("{} came where an answer belongs", request_name(header->request));
  return header;
}

Result<const RequestRow*> check_request(const MessageHeader& header, size_t fd_count) {
  const RequestRow* row = find_request(header.request);
  if (row == nullptr) return fail("unknown request {}", header.request);
  const uint32_t bytes = header.payload_bytes;
  if (bytes < row->payload_bytes_min || bytes > row->payload_bytes_max) {
    if (row->payload_bytes_min == row->payload_bytes_max)
      return fail("payload of {} bytes where {} belong", bytes, row->payload_bytes_min);
    return fail("payload of {} bytes where {} to {} belong", bytes, row->payload_bytes_min,
                row->payload_bytes_max);
  }
  if (fd_count > row->fds_max)
    return fail("{} file descriptors came along, at most {} may", fd_count, row->fds_max);
  if (fd_count < row->fds_min)
    return fail("{} file descriptors came along, at least {} must", fd_count, row->fds_min);
  return row;
}

Result<uint64_t> parse_u64(std::span<const uint8_t> payload) {
  return load_exactly<uint64_t>(payload);
}

Result<VringState> parse_vring_state(std::span<const uint8_t> payload) {
  return load_exactly<VringState>(payload);
}

Result<VringFile> parse_vring_file(std::span<const uint8_t> payload) {
  constexpr uint64_t kIndexMask = 0xff;
  constexpr uint64_t kNoFd = 0x100;
  auto word = load_exactly<uint64_t>(payload);
  if (!word) return fail(word.error());
  // The bits above are reserved; were they ignored, ring 0x10001 would be taken for ring 1.
  if ((*word & ~(kIndexMask | kNoFd)) != 0)
    return fail("{:#x} is no ring index with or without the no-descriptor bit", *word);
  return VringFile{static_cast<uint32_t>(*word & kIndexMask), (*word & kNoFd) != 0};
}

Result<VringAddresses> parse_vring_addresses(std::span<const uint8_t> payload) {
  return load_exactly<VringAddresses>(payload);
}

Result<std::vector<RegionDescription>> parse_memory_table(std::span<const uint8_t> payload) {
  uint32_t count = 0;
  if (payload.size() < 8 || payload.size() > kMemoryTableBytesMax)
    return fail("payload of {} bytes is no memory table", payload.size());
  std::memcpy(&count, payload.data(), sizeof count);
  if (count > kMemoryTableRegionsMax)
    return fail("a memory table of {} regions, the limit is {}", count, kMemoryTableRegionsMax);
  // Cannot overflow: count has just been bounded.
  if (payload.size() < 8 + count * sizeof(WireRegion))
    return fail("a memory table of {} regions does not fit in {} bytes", count, payload.size());
  std::vector<RegionDescription> regions;
  for (uint32_t i = 0; i < count; ++i) {  // bounded by kMemoryTableRegionsMax
    WireRegion wire;
    std::memcpy(&wire, payload.data() + 8 + i * sizeof wire, sizeof wire);
    regions.push_back(to_description(wire));
  }
  return regions;
}

Result<RegionDescription> parse_memory_region(std::span<const uint8_t> payload) {
  struct Padded {
    uint64_t padding;
    WireRegion region;
  };
  static_assert(sizeof(Padded) == 40);
  auto padded = load_exactly<Padded>(payload);
  if (!padded) return fail(padded.error());
  return to_description(padded->region);
}

Result<ConfigAccess> parse_config_access(std::span<const uint8_t> payload) {
  struct Head {
    uint32_t offset;
    uint32_t bytes;
    uint32_t flags;
  };
  static_assert(sizeof(Head) == kConfigHeaderBytes);
  if (payload.size() < sizeof(Head))
    return fail("payload of {} bytes is no access to the configuration", payload.size());
  auto head = load_exactly<Head>(payload.first(sizeof(Head)));
  if (!head) return fail(head.error());
  const auto rest = payload.subspan(sizeof(Head));
  if (head->bytes != rest.size())
    return fail("an access to {} bytes of the configuration carries {}", head->bytes, rest.size());
  if (head->bytes > kConfigBytesMax || head->offset > kConfigBytesMax - head->bytes)
    return fail("an access to {} bytes at {} of the configuration, which ends at {}", head->bytes,
                head->offset, kConfigBytesMax);
  return ConfigAccess{head->offset, head->flags, rest};
}

std::vector<uint8_t> build_reply(Request request, std::span<const uint8_t> payload) {
  return build_message(static_cast<uint32_t>(request), kFlagsVersion | kFlagsReply, payload);
}

std::vector<uint8_t> build_u64_reply(Request request, uint64_t value) {
  return build_reply(request, bytes_of(value));
}

std::vector<uint8_t> build_vring_state_reply(Request request, VringState state) {
  return build_reply(request, bytes_of(state));
}

std::vector<uint8_t> build_config_reply(const ConfigAccess& access) {
  const uint32_t head[3] = {access.offset, static_cast<uint32_t>(access.bytes.size()),
                            access.flags};
  std::vector<uint8_t> payload(sizeof head);
  std::memcpy(payload.data(), head, sizeof head);
  payload.insert(payload.end(), access.bytes.begin(), access.bytes.end());
  return build_reply(Request::get_config, payload);
}

std::vector<uint8_t> build_request(Request request, std::span<const uint8_t> payload,
                                   bool needs_reply) {
  return build_message(static_cast<uint32_t>(request),
                       kFlagsVersion | (needs_reply ? kFlagsNeedReply : 0), payload);
}

std::vector<uint8_t> build_backend_request(BackendRequest request) {
  return build_message(static_cast<uint32_t>(request), kFlagsVersion, {});
}

}  // namespace sluice
