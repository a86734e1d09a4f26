#include "testing/front_end_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "virtio/features.h"

namespace sluice {
namespace {

constexpr int kReplyMilliseconds = 10'000;
constexpr uint64_t kProtocolFeatures = protocol_feature::mq | protocol_feature::reply_ack |
                                       protocol_feature::mtu | protocol_feature::config |
                                       protocol_feature::configure_mem_slots |
                                       protocol_feature::status | protocol_feature::reset_device;

bool read_all(int fd, void* out, size_t bytes) {
  auto* at = static_cast<uint8_t*>(out);
  while (bytes > 0) {  // bounded: each round reads something, or ends
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, kReplyMilliseconds) != 1) return false;
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

Fd FrontEndChannel::connect(const std::string& path) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Fd();
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return Fd();
  return socket;
}

bool FrontEndChannel::send(uint32_t request, uint32_t flags, std::span<const uint8_t> payload,
                           std::span<const int> fds) {
  const MessageHeader header{request, flags, static_cast<uint32_t>(payload.size())};
  std::vector<uint8_t> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 64)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    SLUICE_ASSERT(fds.size() <= 64);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

std::optional<std::vector<uint8_t>> FrontEndChannel::receive_reply() {
  MessageHeader header;
  if (!read_all(socket_.get(), &header, sizeof header)) return std::nullopt;
  if (header.payload_bytes > kPayloadBytesMax) return std::nullopt;
  std::vector<uint8_t> payload(header.payload_bytes);
  if (!read_all(socket_.get(), payload.data(), payload.size())) return std::nullopt;
  return payload;
}

std::optional<uint64_t> FrontEndChannel::get_u64(Request request) {
  if (!send(static_cast<uint32_t>(request), kFlagsVersion, {})) return std::nullopt;
  const auto payload = receive_reply();
  if (!payload || payload->size() != sizeof(uint64_t)) return std::nullopt;
  uint64_t value = 0;
  std::memcpy(&value, payload->data(), sizeof value);
  return value;
}

bool FrontEndChannel::request(Request request, std::span<const uint8_t> payload,
                              std::span<const int> fds) {
  const uint32_t flags = kFlagsVersion | (reply_ack_ ? kFlagsNeedReply : 0);
  if (!send(static_cast<uint32_t>(request), flags, payload, fds)) return false;
  if (!reply_ack_) return true;
  const auto reply = receive_reply();
  if (!reply || reply->size() != sizeof(uint64_t)) return false;
  uint64_t status = 1;
  std::memcpy(&status, reply->data(), sizeof status);
  return status == 0;
}

std::optional<uint64_t> FrontEndChannel::negotiate(uint64_t wanted, bool protocol_features) {
  const auto offered = get_u64(Request::get_features);
  if (!offered || !request(Request::set_owner, {})) return std::nullopt;
  uint64_t acked = wanted & *offered;
  if (protocol_features && (*offered & feature::protocol_features)) {
    acked |= feature::protocol_features;
    const auto protocol = get_u64(Request::get_protocol_features);
    if (!protocol || !set_u64(Request::set_protocol_features, *protocol & kProtocolFeatures))
      return std::nullopt;
    reply_ack_ = *protocol & protocol_feature::reply_ack;
  }
  if (!set_u64(Request::set_features, acked)) return std::nullopt;
  return acked;
}

bool FrontEndChannel::set_memory(std::span<const RegionDescription> regions,
                                 std::span<const int> fds) {
  std::vector<uint8_t> payload(8 + regions.size() * sizeof(WireRegion));
  const auto count = static_cast<uint32_t>(regions.size());
  std::memcpy(payload.data(), &count, sizeof count);
  for (size_t i = 0; i < regions.size(); ++i) {
    const WireRegion wire{raw(regions[i].guest_address), regions[i].bytes,
                          raw(regions[i].frontend_address), regions[i].mmap_offset};
    std::memcpy(payload.data() + 8 + i * sizeof wire, &wire, sizeof wire);
  }
  return request(Request::set_mem_table, payload, fds);
}

bool FrontEndChannel::set_ring_state(Request request, uint32_t index, uint32_t value) {
  return this->request(request, bytes_of(VringState{index, value}));
}

bool FrontEndChannel::set_ring_addresses(const VringAddresses& addresses) {
  return request(Request::set_vring_addr, bytes_of(addresses));
}

bool FrontEndChannel::set_ring_file(Request request, uint32_t index, int fd) {
  constexpr uint64_t kNoFd = 0x100;
  const uint64_t payload = index | (fd < 0 ? kNoFd : 0);
  const int fds[] = {fd};
  return this->request(request, bytes_of(payload),
                       fd < 0 ? std::span<const int>{} : std::span<const int>(fds));
}

std::optional<uint32_t> FrontEndChannel::get_ring_base(uint32_t index) {
  if (!send(static_cast<uint32_t>(Request::get_vring_base), kFlagsVersion,
            bytes_of(VringState{index, 0})))
    return std::nullopt;
  const auto payload = receive_reply();
  if (!payload || payload->size() != sizeof(VringState)) return std::nullopt;
  VringState state;
  std::memcpy(&state, payload->data(), sizeof state);
  return state.value;
}

}  // namespace sluice
