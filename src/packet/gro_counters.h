// What merging did, and why packets stopped growing: figures by name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/shared_word.h"

namespace sluice {

// Why a packet that others could have joined takes no more. The first group ends it after a frame
// that has joined it, the second before a frame that has not.
// X(name, sentence)
#define SLUICE_GRO_ENDS(X)                                                              \
  X(push, "its last frame asks to be delivered at once, or ends the stream")            \
  X(short_segment, "its last frame carries less than the first")                        \
  X(full, "64 KiB or a batch's worth of frames are reached, or would be exceeded")      \
  X(batch_end, "the batch is over, or it has been held for long enough")                \
  X(capacity, "too many packets or frames are held: the oldest goes")                   \
  X(larger_segment, "the next frame carries more than the first")                       \
  X(header_differs, "the next frame's header differs where those of one packet cannot") \
  X(identification, "the next frame's IPv4 identification does not continue it")        \
  X(sequence, "the next frame's TCP sequence number does not continue it")              \
  X(no_payload, "the next frame carries nothing: a pure ACK, an empty datagram")        \
  X(control, "the next frame carries SYN, RST, URG or CWR")                             \
  X(no_checksum, "the next frame is UDP without a checksum")                            \
  X(bad_checksum, "a checksum is wrong")                                                \
  X(not_mergeable, "the next frame is a fragment, has IP options, or is no single frame")

enum class GroEnd : uint8_t {
#define SLUICE_GRO_ENUM(name, sentence) name,
  SLUICE_GRO_ENDS(SLUICE_GRO_ENUM)
#undef SLUICE_GRO_ENUM
};

inline constexpr std::string_view kGroEndNames[] = {
#define SLUICE_GRO_NAME(name, sentence) #name,
    SLUICE_GRO_ENDS(SLUICE_GRO_NAME)
#undef SLUICE_GRO_NAME
};
inline constexpr size_t kGroEndCount = sizeof(kGroEndNames) / sizeof(kGroEndNames[0]);

// Written by the worker, read by anyone at any time.
struct GroCounters {
  Counter packets;                         // made of more than one frame
  Counter frames;                          // in those packets
  std::array<Counter, kGroEndCount> ends;  // of packets that could have grown, merged or not
};

}  // namespace sluice
