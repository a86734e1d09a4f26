// The words of the vhost-user protocol: requests, feature bits, payloads, and what each may carry.
//
// What: a pure codec. Bytes in, checked values out; values in, bytes out. What not: sockets, file
// descriptors (only their number), or any state; whether a ring index exists is the session's
// question.
//
// Invariants: nothing is read past the payload's end, and every parse function looks at the whole
// payload's size before at its content. A Failure's text is a sentence without the peer's name.
//
//   Result<MessageHeader> header = parse_header(bytes);
//   Result<const RequestRow*> row = check_request(*header, fd_count);
//   if (row && (*row)->request == Request::set_vring_num) {
//     Result<VringState> state = parse_vring_state(payload);
//
// On the wire all is little-endian and packed, as are the machines that we run on.
// [vhost-user Message Specification]
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "memory/guest_memory.h"

namespace sluice {

static_assert(std::endian::native == std::endian::little, "messages are used as they lie");

// [vhost-user Front-end message types]
enum class Request : uint32_t {
  get_features = 1,
  set_features = 2,
  set_owner = 3,
  reset_owner = 4,
  set_mem_table = 5,
  set_log_base = 6,
  set_log_fd = 7,
  set_vring_num = 8,
  set_vring_addr = 9,
  set_vring_base = 10,
  get_vring_base = 11,
  set_vring_kick = 12,
  set_vring_call = 13,
  set_vring_err = 14,
  get_protocol_features = 15,
  set_protocol_features = 16,
  get_queue_num = 17,
  set_vring_enable = 18,
  send_rarp = 19,
  net_set_mtu = 20,
  set_backend_req_fd = 21,
  iotlb_msg = 22,
  set_vring_endian = 23,
  get_config = 24,
  set_config = 25,
  create_crypto_session = 26,
  close_crypto_session = 27,
  postcopy_advise = 28,
  postcopy_listen = 29,
  postcopy_end = 30,
  get_inflight_fd = 31,
  set_inflight_fd = 32,
  gpu_set_socket = 33,
  reset_device = 34,
  vring_kick = 35,
  get_max_mem_slots = 36,
  add_mem_reg = 37,
  rem_mem_reg = 38,
  set_status = 39,
  get_status = 40,
  get_shared_object = 41,
  set_device_state_fd = 42,
  check_device_state = 43,
  get_shmem_config = 44,
};
inline constexpr uint32_t kRequestMax = 44;

// What a back end sends of its own accord. [vhost-user Back-end message types]
enum class BackendRequest : uint32_t {
  iotlb_msg = 1,
  config_change_msg = 2,
  vring_host_notifier_msg = 3,
  vring_call = 4,
  vring_err = 5,
};

// X(bit, name) [vhost-user Protocol features]
#define SLUICE_PROTOCOL_FEATURES(X) \
  X(0, mq)                          \
  X(1, log_shmfd)                   \
  X(2, rarp)                        \
  X(3, reply_ack)                   \
  X(4, mtu)                         \
  X(5, backend_req)                 \
  X(6, cross_endian)                \
  X(7, crypto_session)              \
  X(8, pagefault)                   \
  X(9, config)                      \
  X(10, backend_send_fd)            \
  X(11, host_notifier)              \
  X(12, inflight_shmfd)             \
  X(13, reset_device)               \
  X(14, inband_notifications)       \
  X(15, configure_mem_slots)        \
  X(16, status)                     \
  X(17, xen_mmap)                   \
  X(18, shared_object)              \
  X(19, device_state)               \
  X(20, get_vring_base_inflight)    \
  X(21, gpa_addresses)              \
  X(22, shmem)                      \
  X(23, get_vring_base_skip_drain)

namespace protocol_feature {
#define SLUICE_PROTOCOL_FEATURE_MASK(bit, name) \
  inline constexpr uint64_t name = uint64_t{1} << (bit);
SLUICE_PROTOCOL_FEATURES(SLUICE_PROTOCOL_FEATURE_MASK)
#undef SLUICE_PROTOCOL_FEATURE_MASK
}  // namespace protocol_feature

// The names of the bits that are set, in the order of the bits; unknown ones follow, as "bit_<n>".
std::vector<std::string> protocol_feature_names(uint64_t features);

// [vhost-user Header]
struct MessageHeader {
  uint32_t request = 0;
  uint32_t flags = 0;
  uint32_t payload_bytes = 0;

  bool needs_reply() const;
};
inline constexpr size_t kHeaderBytes = 12;
static_assert(sizeof(MessageHeader) == kHeaderBytes);
inline constexpr uint32_t kFlagsVersionMask = 0x3;
inline constexpr uint32_t kFlagsVersion = 0x1;
inline constexpr uint32_t kFlagsReply = 0x4;
inline constexpr uint32_t kFlagsNeedReply = 0x8;
inline bool MessageHeader::needs_reply() const { return (flags & kFlagsNeedReply) != 0; }

// The largest payload of a known request has 268 bytes; a page leaves room for unknown ones, which
// are refused, not mistaken for an attack.
inline constexpr size_t kPayloadBytesMax = 4096;
// [vhost-user Communication]
inline constexpr size_t kMessageFdsMax = 8;
// [vhost-user Virtio device config space]
inline constexpr size_t kConfigBytesMax = 256;

// What one request may carry and what it is answered with.
struct RequestRow {
  Request request;
  std::string_view name;  // as the specification writes it
  uint32_t payload_bytes_min;
  uint32_t payload_bytes_max;
  uint8_t fds_min;
  uint8_t fds_max;
  bool has_own_reply;  // answered always; the others only by REPLY_ACK
  uint64_t needs;      // protocol feature that must have been offered; 0: none
};

// The row of a request; nullptr when the specification has none.
const RequestRow* find_request(uint32_t request);
// "SET_VRING_NUM", or "request 77" for unknown ones.
std::string request_name(uint32_t request);

// The first kHeaderBytes of a message. Refuses what makes the rest of the stream unreadable:
// another version, the reply flag, a payload over kPayloadBytesMax.
Result<MessageHeader> parse_header(std::span<const uint8_t> bytes);
// The same for an answer, which has to carry the reply flag.
Result<MessageHeader> parse_reply_header(std::span<const uint8_t> bytes);
// Whether the request exists and carries as much as it may. `fd_count` includes surplus ones.
Result<const RequestRow*> check_request(const MessageHeader& header, size_t fd_count);

// --- Payloads -------------------------------------------------------------------------------

// [vhost-user A vring state description]
struct VringState {
  uint32_t index = 0;
  uint32_t value = 0;
};
static_assert(sizeof(VringState) == 8);

// SET_VRING_KICK, _CALL and _ERR. [vhost-user A vring descriptor index]
struct VringFile {
  uint32_t index = 0;
  bool no_fd = false;
};

// [vhost-user A vring address description]
struct VringAddresses {
  uint32_t index = 0;
  uint32_t flags = 0;  // bit 0: log writes to the used ring
  FrontendAddr descriptors{};
  FrontendAddr used{};
  FrontendAddr available{};
  GuestAddr log{};
};
static_assert(sizeof(VringAddresses) == 40);

// [vhost-user Memory region description]
struct WireRegion {
  uint64_t guest_address = 0;
  uint64_t bytes = 0;
  uint64_t frontend_address = 0;
  uint64_t mmap_offset = 0;
};
static_assert(sizeof(WireRegion) == 32);
inline constexpr size_t kMemoryTableBytesMax = 8 + kMemoryTableRegionsMax * sizeof(WireRegion);

// GET_CONFIG and SET_CONFIG; `bytes` is a view into the payload.
struct ConfigAccess {
  uint32_t offset = 0;
  uint32_t flags = 0;
  std::span<const uint8_t> bytes;
};
inline constexpr size_t kConfigHeaderBytes = 12;

Result<uint64_t> parse_u64(std::span<const uint8_t> payload);
Result<VringState> parse_vring_state(std::span<const uint8_t> payload);
Result<VringFile> parse_vring_file(std::span<const uint8_t> payload);
Result<VringAddresses> parse_vring_addresses(std::span<const uint8_t> payload);
// None to kMemoryTableRegionsMax regions. Bytes behind the last one are allowed: User-Mode Linux
// always sends its whole structure.
Result<std::vector<RegionDescription>> parse_memory_table(std::span<const uint8_t> payload);
// ADD_MEM_REG and REM_MEM_REG. [vhost-user Single memory region description]
Result<RegionDescription> parse_memory_region(std::span<const uint8_t> payload);
Result<ConfigAccess> parse_config_access(std::span<const uint8_t> payload);

// A whole reply: header and payload. [vhost-user Front-end message types]
std::vector<uint8_t> build_reply(Request request, std::span<const uint8_t> payload);
std::vector<uint8_t> build_u64_reply(Request request, uint64_t value);
std::vector<uint8_t> build_vring_state_reply(Request request, VringState state);
std::vector<uint8_t> build_config_reply(const ConfigAccess& access);
// A whole request of a front end. `needs_reply`: REPLY_ACK was agreed, and an ack is wanted.
std::vector<uint8_t> build_request(Request request, std::span<const uint8_t> payload,
                                   bool needs_reply);
// A message of ours on the back-end request channel, without payload and without a reply.
std::vector<uint8_t> build_backend_request(BackendRequest request);

}  // namespace sluice
