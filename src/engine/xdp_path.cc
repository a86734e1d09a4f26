#include "engine/xdp_path.h"

#include <algorithm>
#include <cstring>

#include "packet/checksum.h"
#include "xdp/map.h"

namespace sluice {
namespace {

// Copies what a program saw of a frame. Null: the pool has no frame.
Frame* copy_of(Frame& frame, FrameCache& cache) {
  Frame* copy = cache.take();
  if (copy == nullptr) return nullptr;
  copy->set_window(frame.headroom_bytes(), frame.head_bytes());
  std::memcpy(copy->data(), frame.data(), frame.head_bytes());
  return copy;
}

}  // namespace

void XdpPath::set_worker(uint32_t worker_index, XdpPorts ports) {
  worker_index_ = worker_index;
  ports_ = std::move(ports);
  size_t queues = 1;
  for (const auto& entry : ports_.entries) queues += entry.queues.size();
  touched_.reserve(queues);
}

PortQueue* XdpPath::queue_of(uint32_t port_number, uint32_t queue_index) const {
  if (port_number >= ports_.entries.size()) return nullptr;
  const auto& queues = ports_.entries[port_number].queues;
  return queues.empty() ? nullptr : queues[queue_index % queues.size()];
}

// Every frame ends in exactly one place: in the batch again, sent, or given back and counted.
void XdpPath::run(const XdpSource& source, PortQueue& from, FrameBatch& batch, FrameCache& cache) {
  run_batch(*source.program, batch,
            {.port_number = source.port_number,
             .queue_index = source.queue_index,
             .worker_index = worker_index_,
             .port_mtus = ports_.mtus,
             .complete_checksum = complete_checksum},
            verdicts_);
  for (size_t i = 0; i < kXdpVerdictCount; ++i)
    if (verdicts_.counts[i] > 0) from.count_verdict(i, verdicts_.counts[i]);
  if (verdicts_.count(XdpVerdict::pass) == batch.size()) return;
  if (verdicts_.count(XdpVerdict::aborted) + verdicts_.count(XdpVerdict::unknown) > 0)
    trace(source);
  FrameBatch passed, back, redirected;
  RedirectTarget targets[kBatchFramesMax];
  for (size_t i = 0; i < batch.size(); ++i) {
    Frame* frame = batch[i];
    switch (verdicts_.of[i]) {
      case XdpVerdict::pass:
        passed.push(frame);
        break;
      case XdpVerdict::tx:
        back.push(frame);
        break;
      case XdpVerdict::redirect:
        targets[redirected.size()] = verdicts_.targets[i];
        redirected.push(frame);
        break;
      default:
        from.count_receive_drop(frame->drop_reason());
        cache.give(frame);
    }
  }
  batch = passed;
  if (!back.empty()) send(from, back, cache);
  if (!redirected.empty()) redirect_all(source, from, redirected, targets, cache);
}

// The one place where a worker speaks of packets, as the kernel's own trace point does; rarely.
void XdpPath::trace(const XdpSource& source) {
  if (!trace_limit_.admit()) return;
  log_warning(
      "port number {}: XDP program {}: {} frames of a batch aborted, {} with a verdict that "
      "is none{}{}",
      source.port_number, source.program->name(), verdicts_.count(XdpVerdict::aborted),
      verdicts_.count(XdpVerdict::unknown), verdicts_.fault == RunFault::none ? "" : ": ",
      verdicts_.fault == RunFault::none ? "" : name_of(verdicts_.fault));
}

// Frames for one port go together, in their order. Bounded: each round sends at least one frame.
void XdpPath::redirect_all(const XdpSource& source, PortQueue& from, FrameBatch& frames,
                           const RedirectTarget* targets, FrameCache& cache) {
  std::array<bool, kBatchFramesMax> is_sent{};
  for (size_t first = 0; first < frames.size(); ++first) {
    if (is_sent[first]) continue;
    if (targets[first].kind == RedirectTarget::Kind::broadcast) {
      broadcast(*frames[first], targets[first], source, from, cache);
      continue;
    }
    PortQueue* to = queue_of(targets[first].port, source.queue_index);
    FrameBatch together;
    for (size_t i = first; i < frames.size(); ++i) {
      if (is_sent[i] || targets[i].kind != targets[first].kind ||
          targets[i].port != targets[first].port)
        continue;
      is_sent[i] = true;
      if (to != nullptr) {
        together.push(frames[i]);
        continue;
      }
      from.count_receive_drop(DropReason::xdp_redirect_failed);
      cache.give(frames[i]);
    }
    if (to != nullptr) send(*to, together, cache);
  }
}

// A copy for each port that the map holds; the last could take the frame itself, but a broadcast is
// rare and a copy is short.
void XdpPath::broadcast(Frame& frame, const RedirectTarget& target, const XdpSource& source,
                        PortQueue& from, FrameCache& cache) {
  const uint32_t slots = target.map != nullptr ? target.map->port_slots() : 0;
  size_t copies = 0;
  for (uint32_t i = 0; i < slots; ++i) {  // bounded by the map
    const uint32_t number = target.map->port_at(i);
    if (number == 0 || (target.exclude_ingress && number == source.port_number)) continue;
    PortQueue* to = queue_of(number, source.queue_index);
    Frame* copy = to != nullptr ? copy_of(frame, cache) : nullptr;
    if (copy == nullptr) {
      from.count_receive_drop(DropReason::xdp_redirect_failed);
      continue;
    }
    FrameBatch one;
    one.push(copy);
    send(*to, one, cache);
    ++copies;
  }
  if (copies == 0) from.count_receive_drop(DropReason::xdp_redirect_failed);
  cache.give(&frame);
}

void XdpPath::send(PortQueue& to, FrameBatch& frames, FrameCache& cache) {
  if (std::find(touched_.begin(), touched_.end(), &to) == touched_.end()) touched_.push_back(&to);
  // Asking for room is also when a port takes back what it has sent.
  if (to.transmit_room() > 0) {
    to.transmit(frames);
  } else {
    for (Frame* frame : frames) frame->set_result(FrameResult::blocked);
  }
  for (Frame* frame : frames) {
    switch (frame->result()) {
      case FrameResult::kept:
        continue;
      case FrameResult::dropped:
        to.count_transmit_drop(frame->drop_reason());
        break;
      case FrameResult::blocked:
        to.count_transmit_drop(to.full_reason());
        break;
      case FrameResult::done:
        break;
      case FrameResult::pending:
        SLUICE_ASSERT(!"a port left a frame without a result");
    }
    cache.give(frame);
  }
}

void XdpPath::finish_breath() {
  for (PortQueue* queue : touched_) queue->finish_breath();
  touched_.clear();
}

}  // namespace sluice
