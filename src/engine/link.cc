#include "engine/link.h"

#include <algorithm>

#include "base/clock.h"

namespace sluice {

static_assert(kHeldFramesMax >= kBatchFramesMax, "a burst that was taken must find a place");

Link::Link(PortQueue& a, PortQueue& b, bool carries_b_to_a)
    : a_(a),
      b_(b),
      carries_b_to_a_(carries_b_to_a),
      a_to_b_{.from = a, .to = b, .held = {}},
      b_to_a_{.from = b, .to = a, .held = {}} {}

size_t Link::breathe(FrameCache& cache, XdpPath& path, size_t batch_frames_max,
                     size_t batches_max) {
  size_t moved = 0;
  for (size_t i = 0; i < batches_max && (i == 0 || a_to_b_.has_more); ++i)
    moved += move(a_to_b_, cache, path, batch_frames_max);
  // Chains that are by reference complete before the other direction begins: their spans are read.
  for (size_t i = 0; carries_b_to_a_ && i < batches_max && (i == 0 || b_to_a_.has_more); ++i)
    moved += move(b_to_a_, cache, path, batch_frames_max);
  path.finish_breath();
  b_.finish_breath();
  a_.finish_breath();
  return moved;
}

size_t Link::move(Direction& direction, FrameCache& cache, XdpPath& path, size_t batch_frames_max) {
  size_t moved = 0;
  direction.has_more = false;
  if (!direction.held.empty()) {
    moved = retry_held(direction, cache);
    if (!direction.held.empty()) return moved;
  }
  const size_t room = direction.to.transmit_room();
  direction.no_room = room == 0;
  if (room == 0) return moved;
  FrameBatch batch;
  const Budget budget{.frames = std::min(room, batch_frames_max), .bytes = kBurstBytesMax};
  const bool more = direction.from.receive(batch, budget, cache);
  direction.has_more = more;
  if (batch.empty()) return moved + (more ? 1 : 0);  // all of the burst was dropped: go on
  moved += batch.size();
  if (direction.xdp.program != nullptr) {
    path.run(direction.xdp, direction.from, batch, cache);
    if (batch.empty()) return moved;
  }
  direction.to.transmit(batch);
  settle(direction, batch, cache);
  if (!direction.held.empty()) direction.held_since_ns = monotonic_ns();
  return moved;
}

size_t Link::retry_held(Direction& direction, FrameCache& cache) {
  FrameBatch batch = direction.held;
  const size_t count = batch.size();
  // Asking for room is also when a port takes back what it has sent.
  if (direction.to.transmit_room() > 0) {
    direction.held.clear();
    direction.to.transmit(batch);
    settle(direction, batch, cache);
  }
  const size_t moved = count - direction.held.size();
  if (direction.held.empty()) return moved;
  const uint64_t now_ns = monotonic_ns();
  if (moved > 0) {
    direction.held_since_ns = now_ns;
  } else if (now_ns - direction.held_since_ns > kHeldMillisecondsMax * 1'000'000) {
    for (Frame* frame : direction.held) {
      direction.to.count_transmit_drop(direction.to.full_reason());
      cache.give(frame);
    }
    direction.held.clear();
    return count;
  }
  return moved;
}

// Every frame ends in exactly one place: given back, kept by the port, or held.
void Link::settle(Direction& direction, FrameBatch& batch, FrameCache& cache) {
  for (Frame* frame : batch) {
    switch (frame->result()) {
      case FrameResult::done:
        cache.give(frame);
        break;
      case FrameResult::kept:
        break;
      case FrameResult::dropped:
        direction.to.count_transmit_drop(frame->drop_reason());
        cache.give(frame);
        break;
      case FrameResult::blocked:
        if (frame->tail_kind() == TailKind::spans) {
          // Its payload is the guest's memory, which is not ours after this breath.
          direction.to.count_transmit_drop(direction.to.full_reason());
          cache.give(frame);
        } else {
          frame->set_result(FrameResult::pending);
          direction.held.push(frame);
        }
        break;
      case FrameResult::pending:
        SLUICE_ASSERT(!"a port left a frame without a result");
    }
  }
}

bool Link::arm() {
  const bool a_blocked = !b_to_a_.held.empty() || b_to_a_.no_room;
  const bool b_blocked = !a_to_b_.held.empty() || a_to_b_.no_room;
  const bool late_a = a_.arm(/*wants_frames=*/!b_blocked, /*wants_room=*/a_blocked);
  // A shared queue is armed by the link that carries its frames alone: it would forget the one's
  // wish with the other's. A link that waits for room in it is polled instead.
  if (!carries_b_to_a_) return late_a;
  const bool late_b = b_.arm(/*wants_frames=*/!a_blocked, /*wants_room=*/b_blocked);
  return late_a || late_b;
}

bool Link::must_be_polled() const {
  const bool waits_unarmed = !carries_b_to_a_ && (!a_to_b_.held.empty() || a_to_b_.no_room);
  return waits_unarmed || a_.must_be_polled() || b_.must_be_polled();
}

void Link::disarm() {
  a_.disarm();
  // A shared queue's notifications belong to the link that carries its frames.
  if (carries_b_to_a_) b_.disarm();
}

void Link::release(FrameCache& cache) {
  for (Direction* direction : {&a_to_b_, &b_to_a_}) {
    for (Frame* frame : direction->held) cache.give(frame);
    direction->held.clear();
  }
}

}  // namespace sluice
