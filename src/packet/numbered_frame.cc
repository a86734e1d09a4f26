#include "packet/numbered_frame.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "packet/checksum.h"

namespace sluice {
namespace {

constexpr size_t kLinkBytes = 14;
constexpr size_t kNetworkBytes = 20;
constexpr size_t kTransport = kLinkBytes + kNetworkBytes;
constexpr size_t kUdpBytes = 8;
constexpr size_t kTcpBytes = 20;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint16_t kPortFirst = 1024;
constexpr uint16_t kDestinationPort = 9;  // discard
constexpr uint16_t kTagMagic = 0x51ce;
constexpr uint64_t kNumberMask = (uint64_t{1} << 48) - 1;

void put16(uint8_t* out, uint64_t value) {
  out[0] = static_cast<uint8_t>(value >> 8);
  out[1] = static_cast<uint8_t>(value);
}
void put32(uint8_t* out, uint64_t value) {
  put16(out, value >> 16);
  put16(out + 2, value);
}
void put64(uint8_t* out, uint64_t value) {
  const uint64_t swapped = __builtin_bswap64(value);
  std::memcpy(out, &swapped, sizeof swapped);
}
// The sum of a number's 32-bit halves, to be folded.
uint64_t half_sum(uint64_t value) { return (value >> 32) + (value & 0xffffffff); }
uint64_t get16(const uint8_t* in) { return static_cast<uint64_t>(in[0] << 8 | in[1]); }
uint64_t get32(const uint8_t* in) { return get16(in) << 16 | get16(in + 2); }

size_t checksum_field(bool tcp) { return kTransport + (tcp ? 16 : 6); }
size_t tag_offset(bool tcp) { return kTransport + (tcp ? kTcpBytes : kUdpBytes); }

// Addresses, protocol and length, which the transport checksum covers, too.
uint64_t pseudo_sum(const uint8_t* frame, size_t transport_bytes, uint8_t protocol) {
  uint8_t rest[4] = {0, protocol, 0, 0};
  put16(rest + 2, transport_bytes);
  return checksum_add(checksum_add(0, frame + kLinkBytes + 12, 8), rest, sizeof rest);
}

void put_network(uint8_t* out, size_t bytes, uint8_t protocol) {
  const uint8_t header[kNetworkBytes] = {0x45, 0,        0, 0, 0,   0,  0x40, 0,
                                         64,   protocol, 0, 0,  // checksum
                                         198,  18,       0, 1, 198, 19, 0,    1};
  std::memcpy(out, header, sizeof header);
  put16(out + 2, bytes);
  const auto sum = static_cast<uint16_t>(~checksum_fold(checksum_add(0, out, kNetworkBytes)));
  std::memcpy(out + 10, &sum, sizeof sum);
}

// The transport of a numbered frame, or nullopt: it is no such frame.
std::optional<bool> transport_is_tcp(std::span<const uint8_t> bytes) {
  if (bytes.size() < kNumberedUdpBytesMin) return std::nullopt;
  if (get16(&bytes[12]) != 0x0800 || bytes[kLinkBytes] != 0x45) return std::nullopt;
  const uint8_t protocol = bytes[kLinkBytes + 9];
  if (protocol == kProtocolUdp) return false;
  if (protocol != kProtocolTcp || bytes.size() < kNumberedTcpBytesMin) return std::nullopt;
  return true;
}

}  // namespace

NumberedFrames::NumberedFrames(const NumberedFrameSpec& spec)
    : template_(spec.frame_bytes), tcp_(spec.tcp) {
  SLUICE_ASSERT(spec.frame_bytes >= (spec.tcp ? kNumberedTcpBytesMin : kNumberedUdpBytesMin));
  SLUICE_ASSERT(spec.frame_bytes <= 65535 + kLinkBytes);
  uint8_t* frame = template_.data();
  std::copy(spec.destination_mac.begin(), spec.destination_mac.end(), frame);
  std::copy(spec.source_mac.begin(), spec.source_mac.end(), frame + 6);
  put16(frame + 12, 0x0800);
  const size_t transport_bytes = spec.frame_bytes - kTransport;
  const uint8_t protocol = tcp_ ? kProtocolTcp : kProtocolUdp;
  put_network(frame + kLinkBytes, spec.frame_bytes - kLinkBytes, protocol);
  uint8_t* transport = frame + kTransport;
  put16(transport + 2, kDestinationPort);
  if (tcp_) {
    transport[12] = kTcpBytes / 4 << 4;
    transport[13] = 0x10;  // ACK, as in the middle of a stream
    put16(transport + 14, 0xffff);
  } else {
    put16(transport + 4, transport_bytes);
  }
  const size_t tag = tag_offset(tcp_);
  put16(frame + tag, kTagMagic);
  for (size_t i = tag + kFrameTagBytes; i < template_.size(); ++i)
    frame[i] = static_cast<uint8_t>(i);
  const uint64_t sum = pseudo_sum(frame, transport_bytes, protocol);
  const uint16_t folded = checksum_fold(checksum_add(sum, transport, transport_bytes));
  sum_ = get16(reinterpret_cast<const uint8_t*>(&folded));
}

// One a frame at full rate: the sum is taken from the values while they are in registers, as
// numbers; which way round the bytes of a ones' complement sum are added does not matter.
// [RFC 1071 2(B)]
void NumberedFrames::write(uint8_t* out, const FrameTag& tag) const {
  std::memcpy(out, template_.data(), template_.size());
  uint8_t* transport = out + kTransport;
  const uint64_t port = uint64_t{kPortFirst} + tag.flow;
  const uint64_t flow_and_number = uint64_t{tag.flow} << 48 | (tag.number & kNumberMask);
  put16(transport, port);
  uint64_t sum = sum_ + port + half_sum(flow_and_number) + half_sum(tag.time_ns);
  if (tcp_) {
    // Each frame goes on where the one before it ended.
    const auto sequence =
        static_cast<uint32_t>(tag.number * (template_.size() - kTransport - kTcpBytes));
    put32(transport + 4, sequence);
    sum += sequence;
  }
  uint8_t* words = out + tag_offset(tcp_) + 2;
  put64(words, flow_and_number);
  put64(words + 8, tag.time_ns);
  const auto result = static_cast<uint16_t>(~checksum_fold(sum));
  // Zero would mean that there is none. [RFC 768]
  put16(out + checksum_field(tcp_), result == 0 && !tcp_ ? 0xffff : result);
}

std::optional<FrameTag> read_tag(std::span<const uint8_t> bytes) {
  const auto is_tcp = transport_is_tcp(bytes);
  if (!is_tcp) return std::nullopt;
  const uint8_t* tag = &bytes[tag_offset(*is_tcp)];
  if (get16(tag) != kTagMagic) return std::nullopt;
  return FrameTag{.flow = static_cast<uint16_t>(get16(tag + 2)),
                  .number = (get16(tag + 4) << 32 | get32(tag + 6)) & kNumberMask,
                  .time_ns = get32(tag + 10) << 32 | get32(tag + 14)};
}

bool has_right_checksum(std::span<const uint8_t> bytes) {
  const auto is_tcp = transport_is_tcp(bytes);
  if (!is_tcp) return false;
  // What IP says of its length: behind it there may be padding.
  const size_t packet_bytes = get16(&bytes[kLinkBytes + 2]);
  if (packet_bytes + kLinkBytes > bytes.size()) return false;
  if (packet_bytes < kNetworkBytes + (*is_tcp ? kTcpBytes : kUdpBytes)) return false;
  const size_t transport_bytes = packet_bytes - kNetworkBytes;
  const uint64_t sum =
      pseudo_sum(bytes.data(), transport_bytes, *is_tcp ? kProtocolTcp : kProtocolUdp);
  return checksum_fold(checksum_add(sum, &bytes[kTransport], transport_bytes)) == 0xffff;
}

void swap_link_addresses(std::span<uint8_t> bytes) {
  if (bytes.size() < kLinkBytes) return;
  std::swap_ranges(bytes.begin(), bytes.begin() + 6, bytes.begin() + 6);
}

}  // namespace sluice
