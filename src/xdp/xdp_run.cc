#include "xdp/xdp_run.h"

#include <linux/bpf.h>

#include "base/assert.h"
#include "base/prefetch.h"

namespace sluice {
namespace {

// Whether a program can be shown the frame.
bool is_showable(const Frame& frame) {
  return frame.is_single() && frame.offload().gso_type == GsoType::none;
}

uint32_t low_address(const uint8_t* pointer) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  SLUICE_ASSERT(address <= UINT32_MAX);
  return static_cast<uint32_t>(address);
}

XdpVerdict dropped(Frame& frame, DropReason reason, XdpVerdict verdict) {
  frame.set_dropped(reason);
  return verdict;
}

// Where nothing was named, and at a socket or a processor, there is no port for certain.
XdpVerdict redirected(Frame& frame, const RedirectTarget& target, RedirectTarget& out) {
  if (target.kind == RedirectTarget::Kind::none || target.kind == RedirectTarget::Kind::no_place)
    return dropped(frame, DropReason::xdp_redirect_failed, XdpVerdict::drop);
  out = target;
  return XdpVerdict::redirect;
}

XdpVerdict judge(Frame& frame, uint32_t returned, RedirectTarget& target) {
  switch (returned) {
    case XDP_DROP:
      return dropped(frame, DropReason::xdp_drop, XdpVerdict::drop);
    case XDP_PASS:
      return XdpVerdict::pass;
    case XDP_TX:
      return XdpVerdict::tx;
    case XDP_REDIRECT:
      return redirected(frame, run_state.redirect, target);
    case XDP_ABORTED:
      return dropped(frame, DropReason::xdp_aborted, XdpVerdict::aborted);
    default:
      return dropped(frame, DropReason::xdp_unknown_verdict, XdpVerdict::unknown);
  }
}

// `engine(context)` runs the program and returns what it returned. A template, so that which engine
// it is was decided before the loop.
template <typename Engine>
void run_frames(FrameBatch& batch, const RunPlace& place, XdpVerdicts& out, Engine engine) {
  xdp_md context{};
  context.ingress_ifindex = place.port_number;
  context.rx_queue_index = place.queue_index;
  RunState& state = run_state;
  state.context = &context;
  state.worker_index = place.worker_index;
  state.port_mtus = place.port_mtus;
  const size_t count = batch.size();
  for (size_t i = 0; i < count; ++i) {
    Frame& frame = *batch[i];
    if (i + 1 < count) prefetch_for_reading(batch[i + 1]->data());
    XdpVerdict verdict{};
    if (!is_showable(frame)) [[unlikely]] {
      verdict = dropped(frame, DropReason::xdp_frame_too_big, XdpVerdict::drop);
    } else {
      if (frame.offload().needs_csum) place.complete_checksum(frame);
      frame.offload() = {};
      const uint32_t chunk = low_address(frame.chunk());
      state.chunk = frame.chunk();
      state.chunk_end = frame.chunk() + kChunkBytes - kTailroomBytes;
      state.redirect.kind = RedirectTarget::Kind::none;
      state.tail_calls = 0;
      context.data = chunk + static_cast<uint32_t>(frame.headroom_bytes());
      context.data_meta = context.data;
      context.data_end = context.data + static_cast<uint32_t>(frame.head_bytes());
      const auto returned = static_cast<uint32_t>(engine(&context));
      frame.set_window(context.data - chunk, context.data_end - context.data);
      verdict = judge(frame, returned, out.targets[i]);
    }
    out.of[i] = verdict;
    ++out.counts[static_cast<size_t>(verdict)];
  }
  state.context = nullptr;
}

uint64_t number_of(const xdp_md* context) { return reinterpret_cast<uint64_t>(context); }

}  // namespace

void run_native_batch(HelperFunction entry, FrameBatch& batch, const RunPlace& place,
                      XdpVerdicts& out) {
  SLUICE_ASSERT(place.complete_checksum != nullptr);
  out.counts = {};
  out.fault = RunFault::none;
  run_frames(batch, place, out,
             [entry](xdp_md* context) { return entry(number_of(context), 0, 0, 0, 0); });
}

void run_batch(const XdpProgram& program, FrameBatch& batch, const RunPlace& place,
               XdpVerdicts& out) {
  const ProgramImage& image = program.program_image();
  if (program.engine() == XdpProgram::Engine::compiled)
    return run_native_batch(program.entry(), batch, place, out);
  SLUICE_ASSERT(place.complete_checksum != nullptr);
  out.counts = {};
  out.fault = RunFault::none;
  if (program.engine() == XdpProgram::Engine::interpreted)
    return run_frames(batch, place, out, [&image](xdp_md* context) {
      return interpret(image, {number_of(context)}).r0;
    });
  run_frames(batch, place, out, [&image, &out](xdp_md* context) -> uint64_t {
    const InterpretedRun run =
        interpret_checked(image, {number_of(context)}, {.regions = {}, .context = context});
    if (run.fault == RunFault::none) return run.r0;
    out.fault = run.fault;
    return XDP_ABORTED;
  });
}

}  // namespace sluice
