#include "port/vm_from_guest.h"

#include <algorithm>
#include <cstring>

#include "packet/offload_check.h"
#include "virtio/features.h"

namespace sluice {
namespace {

// What a big packet keeps in its frame: room for any headers that a program or the kernel wants to
// see; the rest stays in guest memory.
constexpr size_t kSpanHeadBytes = 256;
// A burst goes on while the longest chain still finds room: this much beyond that is enough for 64
// chains of any usual driver.
constexpr size_t kBurstSpansMax = kChainSpansMax + kBatchFramesMax * kPacketSpansMax;

}  // namespace

// What one receive() works with.
struct VmFromGuest::Burst {
  FrameBatch& batch;
  FrameCache& cache;
  QueueCounters& counters;
  size_t bytes = 0;
};

VmFromGuest::VmFromGuest() : spans_(kBurstSpansMax) {}

void VmFromGuest::started(uint64_t features) {
  header_bytes_ = net_header_bytes(features);
  header_bytes_read_ = std::min(header_bytes_, kNetHeaderBytes);
  in_order_ = features & feature::in_order;
  guest_may_ask_ = {.csum = (features & feature::csum) != 0,
                    .tso4 = (features & feature::host_tso4) != 0,
                    .tso6 = (features & feature::host_tso6) != 0,
                    .tso_ecn = (features & feature::host_ecn) != 0,
                    .uso = (features & feature::host_uso) != 0};
}

bool VmFromGuest::receive(FrameBatch& batch, const Budget& budget, FrameCache& cache,
                          QueueCounters& counters) {
  Burst burst{.batch = batch, .cache = cache, .counters = counters};
  const bool more = ring_.visit([&](auto& queue) {
    return ring_.enabled() ? receive_burst(queue, burst, budget) : discard_burst(queue, counters);
  });
  if (batch.empty()) return more;
  counters.count_batch(batch.size(), burst.bytes);
  return more;
}

template <class Queue>
size_t VmFromGuest::pop_burst(Queue& queue, size_t chains_max, Pop& end) {
  size_t count = 0;
  end = Pop::chain;
  while (count < chains_max && spans_.room() >= kChainSpansMax && end == Pop::chain)
    count +=
        queue.pop_batch(spans_, &chains_[count], static_cast<uint16_t>(chains_max - count), end);
  return count;
}

// Returns whether there may be more on the ring.
template <class Queue>
bool VmFromGuest::receive_burst(Queue& queue, Burst& burst, const Budget& budget) {
  Pop end;
  const size_t count = pop_burst(queue, std::min(budget.frames, kBatchFramesMax), end);
  bool broken = end == Pop::broken;
  size_t done = 0;
  for (; done < count && burst.bytes < budget.bytes; ++done) {
    Frame* frame = burst.cache.take();
    if (frame == nullptr) break;  // the chains wait in their ring
    Chain& chain = chains_[done];
    bool by_reference = false;
    const TakeIn taken = take_in(chain, *frame, burst, by_reference);
    finish_chain(queue, chain, by_reference);
    if (taken == TakeIn::frame) [[likely]] {
      burst.bytes += frame->packet_bytes();
      burst.batch.push(frame);
      continue;
    }
    burst.cache.give(frame);
    if (taken == TakeIn::broken) {
      queue.mark_broken(RingFault::wrong_direction);
      broken = true;
      ++done;
      break;
    }
  }
  const bool left_some = done < count;
  for (size_t i = count; i-- > done;) queue.unpop(std::move(chains_[i]));
  if (pending_count_ == 0) spans_.clear();
  if (broken) ring_.note_broken();
  return !broken && (left_some || end == Pop::chain);
}

// A ring that is started but disabled: its packets are taken and discarded. [vhost-user]
template <class Queue>
bool VmFromGuest::discard_burst(Queue& queue, QueueCounters& counters) {
  Pop end;
  const size_t count = pop_burst(queue, kBatchFramesMax, end);
  for (size_t i = 0; i < count; ++i) queue.complete(std::move(chains_[i]), 0);
  spans_.clear();
  counters.count_drop(DropReason::ring_disabled, count);
  if (end == Pop::broken) ring_.note_broken();
  return end == Pop::chain;
}

// Copied chains complete at once; those whose memory is still referred to wait, and with IN_ORDER
// all behind them do. [virtio 2.7.9]
template <class Queue>
void VmFromGuest::finish_chain(Queue& queue, Chain& chain, bool by_reference) {
  if (by_reference || (pending_count_ > 0 && in_order_)) [[unlikely]] {
    SLUICE_ASSERT(pending_count_ < pending_.size());
    pending_[pending_count_++] = std::move(chain);
    return;
  }
  queue.complete(std::move(chain), 0);
}

void VmFromGuest::complete_referenced() {
  if (pending_count_ == 0) return;
  ring_.visit([this](auto& queue) {
    for (size_t i = 0; i < pending_count_; ++i) queue.complete(std::move(pending_[i]), 0);
  });
  pending_count_ = 0;
  spans_.clear();
}

// One chain into one frame.
VmFromGuest::TakeIn VmFromGuest::take_in(Chain& chain, Frame& frame, Burst& burst,
                                         bool& by_reference) {
  if (chain.writable_count() > 0) [[unlikely]]
    return TakeIn::broken;
  std::optional<DropReason> drop;
  // Chains shorter than the header wrap around to far more than any packet has.
  const size_t packet_bytes = size_t{chain.readable_bytes()} - header_bytes_;
  if (packet_bytes - kPacketBytesMin <= kFrameDataBytesMax - kPacketBytesMin) [[likely]] {
    drop = copy_whole(chain, frame, packet_bytes);
  } else {
    drop = copy_head(chain, frame, packet_bytes);
    if (!drop) drop = attach_tail(chain, frame, burst.cache, by_reference);
  }
  if (!drop) [[likely]]
    return TakeIn::frame;
  by_reference = false;
  burst.counters.count_drop(*drop);
  return TakeIn::dropped;
}

// The usual packet: it fits a frame, and lies in one piece, or in two that are header and packet.
std::optional<DropReason> VmFromGuest::copy_whole(const Chain& chain, Frame& frame,
                                                  size_t packet_bytes) {
  const auto spans = spans_.slice(chain.span_first(), chain.readable_count());
  NetHeaderBytes wire{};
  if (spans[0].size() == header_bytes_ + packet_bytes) [[likely]] {
    spans[0].copy_out(0, wire.data(), header_bytes_read_);
    spans[0].copy_out(header_bytes_, frame.data(), packet_bytes);
  } else if (spans[0].size() == header_bytes_ && spans[1].size() == packet_bytes) {
    spans[0].copy_out(0, wire.data(), header_bytes_read_);
    spans[1].copy_out(0, frame.data(), packet_bytes);
  } else {
    copy_out(spans, 0, wire.data(), header_bytes_read_);
    copy_out(spans, header_bytes_, frame.data(), packet_bytes);
  }
  frame.set_single(packet_bytes);
  return take_header(wire, frame);
}

// The net header, and the first bytes of a packet that does not fit its frame; or why it is none.
std::optional<DropReason> VmFromGuest::copy_head(const Chain& chain, Frame& frame,
                                                 size_t packet_bytes) {
  if (chain.readable_bytes() <= header_bytes_) return DropReason::bad_net_header;
  if (packet_bytes < kPacketBytesMin) return DropReason::runt;
  if (packet_bytes > kPacketBytesMax) return DropReason::oversize;
  const auto spans = spans_.slice(chain.span_first(), chain.readable_count());
  NetHeaderBytes wire{};
  copy_out(spans, 0, wire.data(), header_bytes_read_);
  copy_out(spans, header_bytes_, frame.data(), kSpanHeadBytes);
  frame.set_span_tail(kSpanHeadBytes, {}, packet_bytes - kSpanHeadBytes);
  return take_header(wire, frame);
}

// What the header asks for, checked against the packet.
std::optional<DropReason> VmFromGuest::take_header(const NetHeaderBytes& wire, Frame& frame) {
  if (asks_for_nothing(wire)) [[likely]]
    return std::nullopt;
  const auto offload = parse_net_header(wire);
  if (!offload) return DropReason::offload_not_negotiated;
  frame.offload() = *offload;
  frame.offload().data_valid = false;  // means nothing in this direction [virtio 5.1.6.2]
  return check_offload(frame.offload(), frame.packet_bytes(), guest_may_ask_);
}

// What the frame does not keep: by reference when it is in few enough pieces, else copied to a
// slab.
std::optional<DropReason> VmFromGuest::attach_tail(const Chain& chain, Frame& frame,
                                                   FrameCache& cache, bool& by_reference) {
  const auto spans = spans_.slice(chain.span_first(), chain.readable_count());
  size_t skip = header_bytes_ + frame.head_bytes();
  const size_t head_bytes = frame.head_bytes();
  const size_t tail_bytes = frame.tail_bytes();
  size_t first = 0;
  while (first < spans.size() && skip >= spans[first].size()) skip -= spans[first++].size();
  if (spans.size() - first <= kPacketSpansMax) {
    spans[first] = spans[first].subspan(skip, spans[first].size() - skip);
    frame.set_span_tail(head_bytes, spans.subspan(first), tail_bytes);
    by_reference = true;
    return std::nullopt;
  }
  Slab* slab = cache.take_slab();
  if (slab == nullptr) {
    frame.set_single(head_bytes);
    return DropReason::no_frame;
  }
  copy_out(spans.subspan(first), skip, slab->data, tail_bytes);
  frame.set_slab_tail(head_bytes, slab, tail_bytes);
  return std::nullopt;
}

}  // namespace sluice
