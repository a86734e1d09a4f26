#include "port/vm_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "memory/sigbus.h"
#include "packet/checksum.h"
#include "virtio/features.h"

namespace sluice {
namespace {

// Keys in the wake set.
constexpr uint32_t kFromGuestKick = 0;
constexpr uint32_t kToGuestKick = 1;
// How many packets ahead a chain's descriptors are asked for.
constexpr unsigned kPrefetchChains = 4;
// What a big packet keeps in its frame: room for any headers that a program or the kernel wants to
// see; the rest stays in guest memory.
constexpr size_t kSpanHeadBytes = 256;
// One chain in the making, and what a burst of chains by reference keeps: at worst one span a byte
// of net header and head, and the tail.
constexpr size_t kFromSpansMax =
    kChainSpansMax + kBatchFramesMax * (kNetHeaderBytes + kSpanHeadBytes + kPacketSpansMax);

}  // namespace

Result<FaultBell> FaultBell::create() {
  FaultBell bell;
  bell.event_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell.event_) return fail("eventfd: {}", errno_text(errno));
  return bell;
}

void FaultBell::ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

void FaultBell::silence() {
  uint64_t value = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &value, sizeof value);
}

Result<std::unique_ptr<VmQueue>> VmQueue::create(FaultBell* bell) {
  auto wake = WakeSet::create();
  if (!wake) return fail(wake.error());
  return std::unique_ptr<VmQueue>(new VmQueue(std::move(*wake), bell));
}

VmQueue::VmQueue(WakeSet wake, FaultBell* bell)
    : bell_(bell), wake_(std::move(wake)), from_spans_(kFromSpansMax), to_spans_(kChainSpansMax) {}

Result<void> VmQueue::start(Side side, RingStart start) {
  const uint64_t features = start.features;
  DeviceRing& target = ring(side);
  SLUICE_ASSERT(!target.running());
  target.start(std::move(start));
  if (target.kick().valid()) {
    const uint32_t key = side == Side::from_guest ? kFromGuestKick : kToGuestKick;
    if (auto added = wake_.add(target.kick().get(), EPOLLIN, key); !added) {
      target.stop();
      return added;
    }
  }
  if (side == Side::from_guest) {
    from_header_bytes_ = net_header_bytes(features);
    in_order_ = features & feature::in_order;
    guest_may_ask_ = {.csum = (features & feature::csum) != 0,
                      .tso4 = (features & feature::host_tso4) != 0,
                      .tso6 = (features & feature::host_tso6) != 0,
                      .tso_ecn = (features & feature::host_ecn) != 0,
                      .uso = (features & feature::host_uso) != 0};
  } else {
    to_header_bytes_ = net_header_bytes(features);
    merges_buffers_ = features & feature::mrg_rxbuf;
    blocked_at_available_ = 0;
    restart_until_ns_ = 0;
  }
  trips_seen_ = sigbus_trip_count();
  return {};
}

uint32_t VmQueue::stop(Side side) {
  SLUICE_ASSERT(pending_count_ == 0);  // we are between breaths
  DeviceRing& target = ring(side);
  if (side == Side::to_guest && target.can_carry() && front_end_connected_)
    restart_until_ns_ = monotonic_ns() + kHeldMillisecondsMax * 1'000'000;
  if (target.running() && target.kick().valid()) wake_.remove(target.kick().get());
  return target.stop();
}

// ---- From the guest ---------------------------------------------------------------------------

bool VmQueue::receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept {
  if (!from_guest_.usable()) return false;
  if (!from_guest_.enabled()) return discard_burst();
  from_guest_.queue().prefetch_next(kPrefetchChains);
  size_t bytes = 0;
  bool more = false;
  // Bounded by chains, not by frames: a flood of chains that make no frame ends a burst, too.
  for (size_t chains = 0; chains < budget.frames && bytes < budget.bytes; ++chains) {
    if (!receive_one(batch, cache, bytes, more)) break;
  }
  drop_if_vanished(batch, cache);
  if (batch.empty()) return more;
  received_.frames.add(batch.size());
  received_.bytes.add(bytes);
  received_.count_batch(batch.size());
  return more;
}

// Takes one chain. Returns false when the burst ends; `more` says whether it ended for lack of
// room.
bool VmQueue::receive_one(FrameBatch& batch, FrameCache& cache, size_t& bytes, bool& more) {
  more = true;
  Frame* frame = cache.take();
  if (frame == nullptr) return false;  // the chain waits in its ring
  Chain chain;
  switch (from_guest_.queue().pop(from_spans_, chain)) {
    case Pop::chain:
      break;
    case Pop::empty:
      cache.give(frame);
      more = false;
      return false;
    case Pop::broken:
      cache.give(frame);
      note_fault(from_guest_);
      more = false;
      return false;
  }
  bool by_reference = false;
  const TakeIn taken = take_in(chain, *frame, cache, by_reference);
  finish_chain(std::move(chain), by_reference);
  if (taken != TakeIn::frame) {
    cache.give(frame);
    if (taken == TakeIn::dropped) return true;
    break_ring(from_guest_, RingFault::wrong_direction);
    more = false;
    return false;
  }
  bytes += frame->packet_bytes();
  batch.push(frame);
  return true;
}

VmQueue::TakeIn VmQueue::take_in(Chain& chain, Frame& frame, FrameCache& cache,
                                 bool& by_reference) {
  if (chain.writable_count() > 0) return TakeIn::broken;
  std::optional<DropReason> drop = copy_head(chain, frame);
  if (!drop && frame.packet_bytes() > frame.head_bytes())
    drop = attach_tail(chain, frame, cache, by_reference);
  if (!drop) drop = check_offload(frame.offload(), frame.packet_bytes(), guest_may_ask_);
  if (!drop) return TakeIn::frame;
  by_reference = false;
  received_.count_drop(*drop);
  return TakeIn::dropped;
}

// The net header, and as many of the packet's first bytes as the frame keeps.
std::optional<DropReason> VmQueue::copy_head(Chain& chain, Frame& frame) {
  if (chain.readable_bytes() <= from_header_bytes_) return DropReason::bad_net_header;
  const size_t packet_bytes = chain.readable_bytes() - from_header_bytes_;
  if (packet_bytes < kPacketBytesMin) return DropReason::runt;
  if (packet_bytes > kPacketBytesMax) return DropReason::oversize;
  const auto spans = from_spans_.slice(chain.span_first(), chain.readable_count());
  const size_t head_bytes = packet_bytes <= kFrameDataBytesMax ? packet_bytes : kSpanHeadBytes;
  NetHeaderBytes wire{};
  if (spans[0].size() >= from_header_bytes_ + head_bytes) [[likely]] {
    spans[0].copy_out(0, wire.data(), from_header_bytes_);
    spans[0].copy_out(from_header_bytes_, frame.data(), head_bytes);
  } else {
    copy_out(spans, 0, wire.data(), from_header_bytes_);
    copy_out(spans, from_header_bytes_, frame.data(), head_bytes);
  }
  frame.set_single(head_bytes);
  const auto offload = parse_net_header(wire);
  if (!offload) return DropReason::offload_not_negotiated;
  frame.offload() = *offload;
  frame.offload().data_valid = false;  // means nothing in this direction [virtio 5.1.6.2]
  if (head_bytes < packet_bytes) frame.set_span_tail(head_bytes, {}, packet_bytes - head_bytes);
  return std::nullopt;
}

// What the frame does not keep: by reference when it is in few enough pieces, else copied to a
// slab.
std::optional<DropReason> VmQueue::attach_tail(Chain& chain, Frame& frame, FrameCache& cache,
                                               bool& by_reference) {
  const auto spans = from_spans_.slice(chain.span_first(), chain.readable_count());
  size_t skip = from_header_bytes_ + frame.head_bytes();
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

// Copied chains complete at once; those whose memory is still referred to wait for finish_breath(),
// and with IN_ORDER all behind them do. [virtio 2.7.9]
void VmQueue::finish_chain(Chain&& chain, bool by_reference) {
  if (!by_reference) from_spans_.truncate(chain.span_first());
  if (by_reference || (in_order_ && pending_count_ > 0)) {
    SLUICE_ASSERT(pending_count_ < pending_.size());
    pending_[pending_count_++] = std::move(chain);
    return;
  }
  from_guest_.queue().complete(std::move(chain), 0);
}

// A ring that is started but disabled: its packets are taken and discarded. [vhost-user]
bool VmQueue::discard_burst() {
  for (size_t chains = 0; chains < kBatchFramesMax; ++chains) {
    Chain chain;
    switch (from_guest_.queue().pop(from_spans_, chain)) {
      case Pop::chain:
        break;
      case Pop::empty:
        return false;
      case Pop::broken:
        note_fault(from_guest_);
        return false;
    }
    from_spans_.truncate(chain.span_first());
    from_guest_.queue().complete(std::move(chain), 0);
    received_.count_drop(DropReason::ring_disabled);
  }
  return true;
}

// If a page went away under the copies, what was copied is not what the guest sent.
void VmQueue::drop_if_vanished(FrameBatch& batch, FrameCache& cache) {
  const uint64_t trips = sigbus_trip_count();
  if (trips == trips_seen_) [[likely]]
    return;
  trips_seen_ = trips;
  if (!from_guest_.queue().memory().vanished()) return;
  for (Frame* frame : batch) {
    cache.give(frame);
    received_.count_drop(DropReason::guest_memory_gone);
  }
  batch.clear();
  break_ring(from_guest_, RingFault::memory_vanished);
  if (to_guest_.usable()) break_ring(to_guest_, RingFault::memory_vanished);
}

void VmQueue::break_ring(DeviceRing& ring, RingFault fault) {
  ring.queue().mark_broken(fault);
  note_fault(ring);
}

void VmQueue::note_fault(DeviceRing& ring) {
  // A ring that lies in memory which is gone reads as zeros: that is the fault, not what zeros say.
  if (ring.queue().memory().vanished()) ring.queue().mark_broken(RingFault::memory_vanished);
  ring.signal_error();
  // Its kicks wake nobody any more: a broken queue costs no time.
  if (ring.kick().valid()) wake_.remove(ring.kick().get());
  bell_->ring();
}

// ---- To the guest -----------------------------------------------------------------------------

void VmQueue::transmit(FrameBatch& batch) noexcept {
  size_t sent = 0;
  size_t bytes = 0;
  bool blocked = false;
  for (Frame* frame : batch) {
    if (!to_guest_.can_carry() && !awaits_restart()) {
      frame->set_dropped(front_end_connected_ ? DropReason::ring_disabled
                                              : DropReason::no_front_end);
      continue;
    }
    if (blocked || awaits_restart()) {
      frame->set_result(FrameResult::blocked);
      continue;
    }
    const FrameResult result = send_one(*frame);
    if (result != FrameResult::dropped) frame->set_result(result);
    blocked = result == FrameResult::blocked;
    if (result != FrameResult::done) continue;
    ++sent;
    bytes += frame->packet_bytes();
  }
  if (sent == 0) return;
  transmitted_.frames.add(sent);
  transmitted_.bytes.add(bytes);
  transmitted_.count_batch(sent);
}

// Sends a frame, or says why not: for `dropped` the reason is set in the frame.
FrameResult VmQueue::send_one(Frame& frame) {
  if (const auto drop = prepare_for_guest(frame)) {
    frame.set_dropped(*drop);
    return FrameResult::dropped;
  }
  to_spans_.clear();
  size_t chain_count = 0;
  switch (gather(to_header_bytes_ + frame.packet_bytes(), chain_count)) {
    case Gather::ok:
      break;
    case Gather::no_room:
      ungather(chain_count);
      return FrameResult::blocked;
    case Gather::too_small:
      ungather(chain_count);
      frame.set_dropped(DropReason::guest_buffer_too_small);
      return FrameResult::dropped;
    case Gather::broken:
      ungather(chain_count);
      frame.set_dropped(DropReason::ring_disabled);
      return FrameResult::dropped;
  }
  fill(frame, chain_count);
  if (sigbus_trip_count() != trips_seen_ && to_guest_.queue().memory().vanished())
    break_ring(to_guest_, RingFault::memory_vanished);
  return FrameResult::done;
}

// Does for the guest what it did not agree to do itself. [virtio 5.1.6.4.1]
std::optional<DropReason> VmQueue::prepare_for_guest(Frame& frame) const {
  OffloadMeta& offload = frame.offload();
  switch (offload.gso_type) {
    case GsoType::none:
      break;
    case GsoType::tcp4:
      if (!guest_takes_.tso4) return DropReason::offload_not_negotiated;
      break;
    case GsoType::tcp6:
      if (!guest_takes_.tso6) return DropReason::offload_not_negotiated;
      break;
    case GsoType::udp_l4:
      if (!guest_takes_.uso) return DropReason::offload_not_negotiated;
      break;
    case GsoType::udp_fragment:
      return DropReason::offload_not_negotiated;
  }
  if (offload.gso_ecn && !guest_takes_.tso_ecn) return DropReason::offload_not_negotiated;
  if (guest_takes_.csum) return std::nullopt;
  offload.data_valid = false;
  if (!offload.needs_csum) return std::nullopt;
  // A sum over guest memory by reference is for a later floor; it cannot be completed here.
  const size_t field_end = size_t{offload.csum_start} + offload.csum_offset + 2;
  if (frame.tail_kind() == TailKind::spans || field_end > frame.head_bytes())
    return DropReason::offload_not_negotiated;
  complete_checksum(frame);
  return std::nullopt;
}

// Pops writable chains until they hold `need_bytes`.
VmQueue::Gather VmQueue::gather(size_t need_bytes, size_t& chain_count) {
  SplitQueue& queue = to_guest_.queue();
  size_t have_bytes = 0;
  size_t skipped = 0;
  while (have_bytes < need_bytes) {
    if (chain_count == kMergedBuffersMax) return Gather::too_small;
    Chain chain;
    switch (queue.pop(to_spans_, chain)) {
      case Pop::chain:
        break;
      case Pop::empty:
        // Waiting for more is of use only while the ring has room for more.
        return chain_count == queue.size() ? Gather::too_small : Gather::no_room;
      case Pop::broken:
        note_fault(to_guest_);
        return Gather::broken;
    }
    const bool readable = chain.readable_count() > 0;
    const uint32_t bytes = chain.writable_bytes();
    if (!readable && chain_count == 0 && bytes < to_header_bytes_) {
      // The header cannot begin there: give the buffer back unused. [virtio 5.1.6.3.1]
      to_spans_.truncate(chain.span_first());
      queue.complete(std::move(chain), 0);
      transmitted_.count_drop(DropReason::bad_chain);
      if (++skipped >= queue.size()) return Gather::no_room;
      continue;
    }
    gathered_[chain_count++] = std::move(chain);
    if (readable) {
      ungather(std::exchange(chain_count, 0));
      break_ring(to_guest_, RingFault::wrong_direction);
      return Gather::broken;
    }
    have_bytes += bytes;
    if (!merges_buffers_ && have_bytes < need_bytes) return Gather::too_small;
  }
  return Gather::ok;
}

void VmQueue::ungather(size_t chain_count) {
  while (chain_count > 0) to_guest_.queue().unpop(std::move(gathered_[--chain_count]));
  if (to_guest_.usable()) blocked_at_available_ = to_guest_.queue().available_count();
}

void VmQueue::fill(Frame& frame, size_t chain_count) {
  const NetHeaderBytes wire = build_net_header(frame.offload(), static_cast<uint16_t>(chain_count));
  auto spans = to_spans_.all();
  copy_in(spans, 0, wire.data(), to_header_bytes_);
  size_t at = to_header_bytes_;
  at += copy_in(spans, at, frame.data(), frame.head_bytes());
  if (frame.tail_kind() == TailKind::slab) {
    at += copy_in(spans, at, frame.slab()->data, frame.tail_bytes());
  } else if (frame.tail_kind() == TailKind::spans) {
    for (const GuestSpan& span : frame.spans()) {  // bounded by kPacketSpansMax
      // From one guest's memory to another's: the bytes are looked at by nobody in between.
      const iovec piece = span.to_iovec();
      at += copy_in(spans, at, piece.iov_base, piece.iov_len);
    }
  }
  size_t left = to_header_bytes_ + frame.packet_bytes();
  SLUICE_ASSERT(at == left);
  for (size_t i = 0; i < chain_count; ++i) {
    const size_t written = std::min<size_t>(left, gathered_[i].writable_bytes());
    left -= written;
    to_guest_.queue().complete(std::move(gathered_[i]), static_cast<uint32_t>(written));
  }
}

size_t VmQueue::transmit_room() noexcept {
  // A ring that cannot carry takes everything, to drop it by name; one that may come back nothing.
  if (!to_guest_.can_carry()) return awaits_restart() ? 0 : kBatchFramesMax;
  const size_t available = to_guest_.queue().available_count();
  // The next buffer is room, however many were too few for a bigger packet before.
  if (available == 0) blocked_at_available_ = 0;
  return std::min(available, kBatchFramesMax);
}

// ---- Breath and sleep -------------------------------------------------------------------------

void VmQueue::finish_breath() noexcept {
  for (size_t i = 0; i < pending_count_; ++i)
    from_guest_.queue().complete(std::move(pending_[i]), 0);
  pending_count_ = 0;
  from_spans_.clear();
  if (from_guest_.running()) from_guest_.publish_and_notify(received_);
  if (to_guest_.running()) to_guest_.publish_and_notify(transmitted_);
  if (restart_until_ns_ != 0 && monotonic_ns() >= restart_until_ns_) [[unlikely]] {
    restart_until_ns_ = 0;
    bell_->ring();
  }
}

bool VmQueue::arm(bool wants_frames, bool wants_room) noexcept {
  bool late_find = false;
  if (wants_frames && from_guest_.usable()) late_find |= from_guest_.queue().enable_kicks();
  if (wants_room && to_guest_.can_carry()) {
    SplitQueue& queue = to_guest_.queue();
    late_find |= queue.enable_kicks(std::min(blocked_at_available_, queue.available_count()));
  }
  return late_find;
}

void VmQueue::disarm() noexcept {
  if (from_guest_.usable()) from_guest_.queue().disable_kicks();
  if (to_guest_.usable()) to_guest_.queue().disable_kicks();
}

void VmQueue::on_wake() noexcept {
  uint32_t key = 0;
  uint32_t events = 0;
  for (int i = 0; i < 2 && wake_.next(key, events); ++i) {  // two descriptors at most
    if (key == kFromGuestKick) from_guest_.drain_kick(received_);
    if (key == kToGuestKick) to_guest_.drain_kick(transmitted_);
  }
}

bool VmQueue::must_be_polled() const noexcept {
  return from_guest_.must_be_polled() || to_guest_.must_be_polled() || awaits_restart();
}

}  // namespace sluice
