// run_batch: one XDP program over a batch of frames, and a verdict for each.
//
// What is shown to a program is the packet as it would come from a wire: whole, in one buffer, its
// checksums complete.
//   - A frame with a tail, or with segmentation still to do, is not shown to it: it is dropped as
//     xdp_frame_too_big. Where a program runs, segmentation should not be offered to the guest.
//   - A checksum that is still to be completed is completed first, by the place's own function
//     (this folder knows no checksums). A program may change or move what the sum covers, or
//     correct the sum for what it changed, as for any packet; afterwards nobody could tell what
//     is left to do. So nothing is, and nothing is claimed to be verified either.
//
// Afterwards each frame has the program's window (adjust_head, adjust_tail); metadata in front of
// it ends here. A frame that is to be dropped has its drop_reason(); giving it back, or counting
// it, is the caller's. So is what `pass`, `tx` and `redirect` mean at a port: the target of a
// redirect is certain to be a port's number or a broadcast, not to be there.
//
// Frames must lie below 4 GiB (FramePool::below_4gib): a program's pointers have 32 bits.
//
//   XdpVerdicts verdicts;
//   run_batch(program, batch, {.port_number = 2, .complete_checksum = complete_checksum},
//   verdicts); for (size_t i = 0; i < batch.size(); ++i)
//     if (verdicts.of[i] == XdpVerdict::tx) back.push(batch[i]);
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/limits.h"
#include "memory/frame.h"
#include "xdp/interpreter.h"
#include "xdp/run_state.h"
#include "xdp/xdp_program.h"

namespace sluice {

// From `drop` on, the frame is dropped.
enum class XdpVerdict : uint8_t { pass, tx, redirect, drop, aborted, unknown };
inline constexpr size_t kXdpVerdictCount = 6;
inline bool is_drop(XdpVerdict verdict) { return verdict >= XdpVerdict::drop; }

// Where the batch is: the same for all its frames.
struct RunPlace {
  uint32_t port_number = 0;  // ingress_ifindex
  uint32_t queue_index = 0;  // rx_queue_index
  uint32_t worker_index = 0;
  std::span<const uint32_t> port_mtus{};  // as in RunState
  // Does what offload().needs_csum asks for. Never null.
  void (*complete_checksum)(Frame& frame) = nullptr;
};

struct XdpVerdicts {
  std::array<XdpVerdict, kBatchFramesMax> of;           // for each frame of the batch
  std::array<RedirectTarget, kBatchFramesMax> targets;  // only where the verdict is redirect
  std::array<uint32_t, kXdpVerdictCount> counts{};      // how many frames have which
  RunFault fault = RunFault::none;  // the last one, under the checked interpreter

  uint32_t count(XdpVerdict verdict) const { return counts[static_cast<size_t>(verdict)]; }
};

void run_batch(const XdpProgram& program, FrameBatch& batch, const RunPlace& place,
               XdpVerdicts& out);
// The same with any function that has a compiled program's form: what native code would cost.
void run_native_batch(HelperFunction entry, FrameBatch& batch, const RunPlace& place,
                      XdpVerdicts& out);

}  // namespace sluice
