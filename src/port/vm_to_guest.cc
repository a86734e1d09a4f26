#include "port/vm_to_guest.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "port/offload_prepare.h"
#include "virtio/features.h"

namespace sluice {
namespace {

// A batch's plan goes on while the longest chain still finds room.
constexpr size_t kPlanSpansMax = 2 * kChainSpansMax;
// How many buffers are counted when they were too few: a ring full at most.
constexpr uint16_t kAvailableLook = kRingSizeMax;

}  // namespace

VmToGuest::VmToGuest() : spans_(kPlanSpansMax) {}

void VmToGuest::started(uint64_t features) {
  header_bytes_ = net_header_bytes(features);
  merges_buffers_ = features & feature::mrg_rxbuf;
  blocked_at_available_ = 0;
}

void VmToGuest::transmit(FrameBatch& batch, QueueCounters& counters) {
  ring_.visit([&](auto& queue) { send(queue, batch, counters); });
}

template <class Queue>
void VmToGuest::send(Queue& queue, FrameBatch& batch, QueueCounters& counters) {
  size_t sent = 0;
  size_t bytes = 0;
  bool blocked = false;
  for (Frame* frame : batch) {
    if (blocked) {
      frame->set_result(FrameResult::blocked);
      continue;
    }
    if (gathered_count_ + kMergedBuffersMax > kGatheredMax || spans_.room() < kChainSpansMax)
      fill_planned(queue);
    const FrameResult result = plan(queue, *frame, counters);
    if (result != FrameResult::dropped) frame->set_result(result);
    blocked = result == FrameResult::blocked;
    if (result != FrameResult::done) continue;
    ++sent;
    bytes += frame->packet_bytes();
  }
  fill_planned(queue);
  if (queue.broken()) ring_.note_broken();
  if (sent == 0) return;
  counters.count_batch(sent, bytes);
}

// Finds the buffers for a frame, or says why not: for `dropped` the reason is set in the frame.
template <class Queue>
FrameResult VmToGuest::plan(Queue& queue, Frame& frame, QueueCounters& counters) {
  if (const auto drop = prepare_offload(frame, guest_takes_)) {
    frame.set_dropped(*drop);
    return FrameResult::dropped;
  }
  Planned planned{.frame = &frame};
  Gather gathered = gather(queue, planned, counters);
  if (gathered == Gather::fill_first) {
    fill_planned(queue);
    planned = {.frame = &frame};
    gathered = gather(queue, planned, counters);
  }
  switch (gathered) {
    case Gather::ok:
      planned_[planned_count_++] = planned;
      return FrameResult::done;
    case Gather::no_room:
      ungather(queue, planned);
      return FrameResult::blocked;
    case Gather::too_small:
      ungather(queue, planned);
      frame.set_dropped(DropReason::guest_buffer_too_small);
      return FrameResult::dropped;
    case Gather::broken:
      ungather(queue, planned);
      frame.set_dropped(DropReason::ring_disabled);
      return FrameResult::dropped;
    case Gather::fill_first:
      break;
  }
  SLUICE_ASSERT(!"nothing is planned any more");
  return FrameResult::blocked;
}

// Pops writable chains until they hold the packet and its header.
template <class Queue>
VmToGuest::Gather VmToGuest::gather(Queue& queue, Planned& planned, QueueCounters& counters) {
  const size_t need_bytes = header_bytes_ + planned.frame->packet_bytes();
  size_t have_bytes = 0;
  size_t skipped = 0;
  planned.chain_first = static_cast<uint32_t>(gathered_count_);
  planned.span_first = static_cast<uint32_t>(spans_.size());
  while (have_bytes < need_bytes) {
    if (planned.chain_count == kMergedBuffersMax) return Gather::too_small;
    Chain chain;
    switch (queue.pop(spans_, chain)) {
      case Pop::chain:
        break;
      case Pop::empty:
        // Waiting for more is of use only while the ring has room for more.
        return planned.chain_count == queue.size() ? Gather::too_small : Gather::no_room;
      case Pop::broken:
        return Gather::broken;
    }
    const bool readable = chain.readable_count() > 0;
    const uint32_t bytes = chain.writable_bytes();
    if (!readable && planned.chain_count == 0 && bytes < header_bytes_) [[unlikely]] {
      // The header cannot begin there: give the buffer back unused, and in its turn.
      // [virtio 5.1.6.3.1]
      spans_.truncate(chain.span_first());
      if (planned_count_ > 0) {
        queue.unpop(std::move(chain));
        return Gather::fill_first;
      }
      queue.complete(std::move(chain), 0);
      counters.count_drop(DropReason::bad_chain);
      if (++skipped >= queue.size()) return Gather::no_room;
      continue;
    }
    gathered_[gathered_count_++] = std::move(chain);
    ++planned.chain_count;
    if (readable) [[unlikely]] {
      queue.mark_broken(RingFault::wrong_direction);
      return Gather::broken;
    }
    have_bytes += bytes;
    if (!merges_buffers_ && have_bytes < need_bytes) return Gather::too_small;
  }
  planned.span_count = static_cast<uint32_t>(spans_.size()) - planned.span_first;
  spans_.slice(planned.span_first, 1)[0].prefetch_for_writing();
  return Gather::ok;
}

template <class Queue>
void VmToGuest::ungather(Queue& queue, const Planned& planned) {
  while (gathered_count_ > planned.chain_first)
    queue.unpop(std::move(gathered_[--gathered_count_]));
  spans_.truncate(planned.span_first);
  // Whoever waits, waits for more than these.
  blocked_at_available_ = queue.available_count(kAvailableLook);
}

template <class Queue>
void VmToGuest::fill_planned(Queue& queue) {
  for (size_t i = 0; i < planned_count_; ++i) {
    const Planned& planned = planned_[i];
    copy_packet(planned);
    size_t left = header_bytes_ + planned.frame->packet_bytes();
    for (size_t j = 0; j < planned.chain_count; ++j) {
      Chain& chain = gathered_[planned.chain_first + j];
      const size_t written = std::min<size_t>(left, chain.writable_bytes());
      left -= written;
      queue.complete(std::move(chain), static_cast<uint32_t>(written));
    }
  }
  planned_count_ = 0;
  gathered_count_ = 0;
  spans_.clear();
}

// The header as the guest expects it; returns it in a place of the longest one.
std::array<uint8_t, kNetHeaderBytesHash> VmToGuest::header_of(const Planned& planned) const {
  const Frame& frame = *planned.frame;
  std::array<uint8_t, kNetHeaderBytesHash> header;
  const NetHeaderBytes plain =
      build_net_header(frame.offload(), static_cast<uint16_t>(planned.chain_count));
  std::memcpy(header.data(), plain.data(), plain.size());
  if (header_bytes_ == kNetHeaderBytesHash) {
    const HashReportBytes report = build_hash_report(
        frame.flow_hash_kind() == 0 ? 0 : frame.flow_hash(), frame.flow_hash_kind());
    std::memcpy(header.data() + kNetHeaderBytes, report.data(), report.size());
  }
  return header;
}

void VmToGuest::copy_packet(const Planned& planned) {
  const Frame& frame = *planned.frame;
  const auto header = header_of(planned);
  auto spans = spans_.slice(planned.span_first, planned.span_count);
  const size_t head_end = header_bytes_ + frame.head_bytes();
  if (spans[0].size() >= head_end) [[likely]] {
    spans[0].copy_in(0, header.data(), header_bytes_);
    spans[0].copy_in(header_bytes_, frame.data(), frame.head_bytes());
  } else {
    copy_in(spans, 0, header.data(), header_bytes_);
    copy_in(spans, header_bytes_, frame.data(), frame.head_bytes());
  }
  size_t at = head_end;
  if (!frame.is_single()) [[unlikely]] {
    at = header_bytes_;
    bool is_head = true;  // that one is there
    // Also from one guest's memory to another's: the bytes are looked at by nobody in between.
    for_each_part(frame, [&](const uint8_t* bytes, size_t count) {
      at += std::exchange(is_head, false) ? count : copy_in(spans, at, bytes, count);
    });
  }
  SLUICE_ASSERT(at == header_bytes_ + frame.packet_bytes());
}

size_t VmToGuest::room() {
  const size_t available = ring_.visit([](auto& queue) -> size_t {
    // Packed rings do not say how much there is, and need not.
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(queue)>, PackedQueue>)
      return queue.has_available() ? kBatchFramesMax : 0;
    else
      return queue.available_count(kBatchFramesMax);
  });
  // The next buffer is room, however many were too few for a bigger packet before.
  if (available == 0) blocked_at_available_ = 0;
  return std::min(available, kBatchFramesMax);
}

bool VmToGuest::arm() {
  return ring_.visit([this](auto& queue) {
    return queue.enable_kicks(queue.available_count(blocked_at_available_));
  });
}

}  // namespace sluice
