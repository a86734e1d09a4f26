// Numbered frames: what a generator sends, so that whoever receives them knows what is missing.
//
// An Ethernet frame with IPv4 and UDP or TCP, valid in every length and checksum; behind its
// transport header a tag of 18 bytes says to which flow it belongs, which of that flow it is
// (counted from 0) and when it was made; the rest is filler. Flows differ by their source port. The
// addresses are those that are set aside for benchmarks. [RFC 2544 C.2.2]
//
//   NumberedFrames frames({.frame_bytes = 64});
//   frames.write(frame.data(), {.flow = 3, .number = 17, .time_ns = now});
//   …
//   if (const auto tag = read_tag(bytes)) …tag->number…
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

struct FrameTag {
  uint16_t flow = 0;
  uint64_t number = 0;  // 48 bits
  uint64_t time_ns = 0;
  bool operator==(const FrameTag&) const = default;
};

inline constexpr size_t kFrameTagBytes = 18;
// Ethernet, IPv4, the transport header, and the tag. UDP: the smallest Ethernet frame there is.
inline constexpr size_t kNumberedUdpBytesMin = 14 + 20 + 8 + kFrameTagBytes;
inline constexpr size_t kNumberedTcpBytesMin = 14 + 20 + 20 + kFrameTagBytes;
static_assert(kNumberedUdpBytesMin == 60);
// Source ports from 1024 on.
inline constexpr uint32_t kNumberedFlowsMax = 65536 - 1024;

struct NumberedFrameSpec {
  size_t frame_bytes = 64;  // without the frame check sequence
  bool tcp = false;
  std::array<uint8_t, 6> source_mac{0x02, 0, 0, 0, 0, 0x01};
  std::array<uint8_t, 6> destination_mac{0x02, 0, 0, 0, 0, 0x02};
};

class NumberedFrames {
 public:
  // frame_bytes is at least what the transport needs (above).
  explicit NumberedFrames(const NumberedFrameSpec& spec);

  size_t frame_bytes() const { return template_.size(); }
  // Writes frame_bytes() bytes.
  void write(uint8_t* out, const FrameTag& tag) const;

 private:
  std::vector<uint8_t> template_;  // without port, number and transport checksum
  uint64_t sum_ = 0;               // of what the transport checksum covers in it, as a number
  bool tcp_;
};

// The tag of a numbered frame, or nullopt: it is somebody else's. Reads only `bytes`; addresses and
// ports may have been exchanged on the way.
std::optional<FrameTag> read_tag(std::span<const uint8_t> bytes);

// Whether a numbered frame's transport checksum is right; `bytes` is the whole frame.
bool has_right_checksum(std::span<const uint8_t> bytes);

// Sends a frame back to where it came from: the two link addresses change places.
void swap_link_addresses(std::span<uint8_t> bytes);

}  // namespace sluice
