// Every reason for which a frame can leave the pipeline unsent. A drop has a name, and the name has
// a sentence: this list is what `sluice stats` shows and what docs/stats.md explains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// X(name, sentence)
#define SLUICE_DROP_REASONS(X)                                                    \
  X(runt, "shorter than an Ethernet header")                                      \
  X(oversize, "longer than 64 KiB of payload and its headers")                    \
  X(bad_net_header, "virtio-net header missing or contradicting the frame")       \
  X(offload_not_negotiated, "asks for an offload that was not negotiated")        \
  X(bad_chain, "descriptor chain with the wrong direction or too little room")    \
  X(ring_disabled, "the guest's ring is stopped or disabled")                     \
  X(no_front_end, "no front end, or none whose driver has negotiated yet")        \
  X(no_back_end, "no back end, or none that has negotiated yet")                  \
  X(bad_device_buffer, "the device used receive buffers against the rules")       \
  X(no_guest_buffer, "the guest offered no buffer in time")                       \
  X(guest_buffer_too_small, "larger than the guest's buffers and it merges none") \
  X(no_frame, "the frame pool is empty")                                          \
  X(guest_memory_gone, "guest memory vanished while it was read")                 \
  X(port_full, "the destination took nothing in time")                            \
  X(port_down, "the destination interface is down")                               \
  X(port_rejected, "the kernel refused the frame or its header")                  \
  X(port_error, "the destination failed otherwise")                               \
  X(not_connected, "the port has no patch cable")                                 \
  X(xdp_drop, "an XDP program dropped it")                                        \
  X(xdp_aborted, "an XDP program gave up on it")                                  \
  X(xdp_unknown_verdict, "an XDP program returned a number that is no verdict")   \
  X(xdp_frame_too_big, "larger than what an XDP program can be shown")            \
  X(xdp_redirect_failed, "an XDP program redirected it to where no port is")

namespace sluice {

enum class DropReason : uint8_t {
#define SLUICE_DROP_ENUM(name, sentence) name,
  SLUICE_DROP_REASONS(SLUICE_DROP_ENUM)
#undef SLUICE_DROP_ENUM
};

inline constexpr std::string_view kDropReasonNames[] = {
#define SLUICE_DROP_NAME(name, sentence) #name,
    SLUICE_DROP_REASONS(SLUICE_DROP_NAME)
#undef SLUICE_DROP_NAME
};
inline constexpr std::string_view kDropReasonSentences[] = {
#define SLUICE_DROP_SENTENCE(name, sentence) sentence,
    SLUICE_DROP_REASONS(SLUICE_DROP_SENTENCE)
#undef SLUICE_DROP_SENTENCE
};
inline constexpr size_t kDropReasonCount = sizeof(kDropReasonNames) / sizeof(kDropReasonNames[0]);

}  // namespace sluice
