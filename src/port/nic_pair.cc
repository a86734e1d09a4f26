#include "port/nic_pair.h"

#include <algorithm>
#include <cstring>

#include "base/prefetch.h"
#include "packet/offload_check.h"
#include "port/offload_prepare.h"
#include "virtio/features.h"
#include "virtio/packed_driver.h"
#include "virtio/split_driver.h"

namespace sluice {
namespace {

constexpr uint32_t kPageBytes = 4096;
// A receive buffer for any packet, where buffers are not merged.
constexpr uint32_t kLargeBufferBytes = 68 * 1024;
static_assert(kLargeBufferBytes >= kPacketBytesMax + kNetHeaderBytesHash);
// Buffers lie a page and a line apart: a page apart, the first lines of all of them, which are what
// small frames use, would share a few sets of both sides' caches.
constexpr uint32_t kCacheLineBytes = 64;
constexpr uint32_t kTransmitStrideBytes = kPageBytes + kCacheLineBytes;
// Buffers of one packet: a whole one in pages.
constexpr size_t kPacketBuffersMax = (kPacketBytesMax + kNetHeaderBytesHash) / kPageBytes + 1;
// How few free descriptors make room() look for sent buffers: a batch and a large packet.
constexpr size_t kLowWater = kBatchFramesMax + kPacketBuffersMax;
// What a large packet keeps in its frame's chunk.
constexpr size_t kHeadBytes = 256;

uint32_t receive_buffer_bytes(uint64_t features) {
  constexpr uint64_t kLarge = feature::guest_tso4 | feature::guest_tso6 | feature::guest_uso4 |
                              feature::guest_uso6 | feature::mtu;
  return !(features & feature::mrg_rxbuf) && (features & kLarge) ? kLargeBufferBytes : kPageBytes;
}

template <typename Ring>
uint64_t ring_bytes(uint32_t size) {
  // Each area on a page of its own: alignment is no question, and no line is shared.
  const auto pages = [](uint64_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  };
  return pages(Ring::descriptors_bytes(size)) + pages(Ring::driver_area_bytes(size)) +
         pages(Ring::device_area_bytes(size));
}

OffloadSet device_takes(uint64_t features) {
  return {.csum = (features & feature::csum) != 0,
          .tso4 = (features & feature::host_tso4) != 0,
          .tso6 = (features & feature::host_tso6) != 0,
          .tso_ecn = (features & feature::host_ecn) != 0,
          .uso = (features & feature::host_uso) != 0};
}

OffloadSet device_may_ask(uint64_t features) {
  return {.csum = (features & feature::guest_csum) != 0,
          .tso4 = (features & feature::guest_tso4) != 0,
          .tso6 = (features & feature::guest_tso6) != 0,
          .tso_ecn = (features & feature::guest_ecn) != 0,
          .uso = (features & feature::guest_uso4) && (features & feature::guest_uso6)};
}

// A ring with the areas it lies in.
template <typename Ring>
struct PlacedRing {
  PlacedRing(const NicPairSetup& setup, NicMemory& memory)
      : descriptors(memory.take(Ring::descriptors_bytes(setup.ring_size), kPageBytes)),
        driver_area(memory.take(Ring::driver_area_bytes(setup.ring_size), kPageBytes)),
        device_area(memory.take(Ring::device_area_bytes(setup.ring_size), kPageBytes)),
        ring({.size = setup.ring_size,
              .event_idx = (setup.features & feature::event_idx) != 0,
              .indirect = false,
              .in_order = (setup.features & feature::in_order) != 0,
              .descriptors = memory.span(descriptors, Ring::descriptors_bytes(setup.ring_size)),
              .driver_area = memory.span(driver_area, Ring::driver_area_bytes(setup.ring_size)),
              .device_area = memory.span(device_area, Ring::device_area_bytes(setup.ring_size)),
              .tables = {}}) {}
  FrontEndRing describe(const NicMemory& memory) const {
    FrontEndRing told;
    told.size = ring.size();
    told.base = Ring::kFreshBase;
    told.descriptors = memory.frontend(descriptors);
    told.driver_area = memory.frontend(driver_area);
    told.device_area = memory.frontend(device_area);
    return told;
  }

  GuestAddr descriptors, driver_area, device_area;
  Ring ring;
};

template <typename Ring>
class NicPairOf final : public NicPair {
 public:
  NicPairOf(const NicPairSetup& setup, NicMemory& memory)
      : memory_(memory),
        header_bytes_(net_header_bytes(setup.features)),
        merges_(setup.features & feature::mrg_rxbuf),
        vouches_(setup.features & feature::guest_csum),
        takes_(device_takes(setup.features)),
        may_ask_(device_may_ask(setup.features)),
        receive_bytes_(receive_buffer_bytes(setup.features)),
        receive_stride_(receive_bytes_ + kCacheLineBytes),
        receive_(setup, memory),
        transmit_(setup, memory),
        reclaim_(transmit_.ring, setup.mode),
        receive_buffers_(memory.take(uint64_t{receive_stride_} * setup.ring_size, kPageBytes)),
        transmit_buffers_(
            memory.take(uint64_t{kTransmitStrideBytes} * setup.ring_size, kPageBytes)),
        next_buffer_(std::make_unique<uint16_t[]>(setup.ring_size)),
        free_buffers_(std::make_unique<uint16_t[]>(setup.ring_size)),
        free_count_(setup.ring_size) {
    for (uint32_t i = 0; i < setup.ring_size; ++i) free_buffers_[i] = static_cast<uint16_t>(i);
  }

  FrontEndRing describe_receive() const override { return receive_.describe(memory_); }
  FrontEndRing describe_transmit() const override { return transmit_.describe(memory_); }

  void fill() override {
    for (uint32_t token = 0; token < receive_.ring.size(); ++token)
      post_receive(static_cast<uint16_t>(token));
    receive_.ring.publish();
    refilled_ = true;
  }

  bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache,
               QueueCounters& counters) override;
  void transmit(FrameBatch& batch, QueueCounters& counters) override;

  size_t room() override {
    const bool few = free_count_ < std::min<size_t>(kLowWater, receive_.ring.size() / 2 + 1);
    if (reclaim_.stopped() || few)
      reclaim_.poll([this](const UsedBuffer& used) { release(used.token); }, transmit_.ring.size());
    if (reclaim_.stopped()) return 0;
    if (free_count_ > 0) return std::min(free_count_, kBatchFramesMax);
    // With inline_reclaim the next transmit call takes back what there is.
    if (reclaim_.mode() == TransmitMode::inline_reclaim) return 1;
    reclaim_.stop();
    return 0;
  }

  size_t frames_with_device() override {
    reclaim_.stop();  // so that poll() takes back in either mode
    reclaim_.poll([this](const UsedBuffer& used) { release(used.token); }, transmit_.ring.size());
    return transmit_.ring.outstanding();
  }

  Kicks finish() override {
    Kicks kicks;
    if (refilled_) {
      refilled_ = false;
      receive_.ring.publish();
      kicks.receive = receive_.ring.device_wants_kick();
    }
    if (!sent_) return kicks;
    sent_ = false;
    kicks.transmit = reclaim_.kick_due();
    // Whoever polls finds by itself what has come back, so the answer is not needed here.
    reclaim_.arm();
    return kicks;
  }

  bool arm(bool wants_frames, bool wants_room) override {
    bool late_find = false;
    if (wants_frames) late_find |= receive_.ring.enable_callbacks();
    if (wants_room) {
      reclaim_.stop();
      late_find |= reclaim_.arm();
    }
    return late_find;
  }
  void disarm() override { receive_.ring.disable_callbacks(); }

  const char* fault() const override {
    if (receive_.ring.broken()) return driver_fault_sentence(receive_.ring.fault());
    if (transmit_.ring.broken()) return driver_fault_sentence(transmit_.ring.fault());
    return nullptr;
  }
  const TransmitCounters& transmit_counters() const override { return reclaim_.counters(); }

 private:
  // What was taken off the receive ring for one packet.
  struct Arrived {
    std::array<UsedBuffer, kPacketBuffersMax> buffers;
    size_t count = 0;
    size_t bytes = 0;  // with the header
  };
  enum class Taken : uint8_t { packet, nothing, bad };

  GuestAddr receive_address(uint16_t token) const {
    return GuestAddr{raw(receive_buffers_) + uint64_t{receive_stride_} * token};
  }
  GuestAddr transmit_address(uint16_t buffer) const {
    return GuestAddr{raw(transmit_buffers_) + uint64_t{kTransmitStrideBytes} * buffer};
  }
  void post_receive(uint16_t token) {
    const BufferPiece piece{receive_address(token), receive_bytes_};
    const bool added = receive_.ring.add({}, {&piece, 1}, token);
    SLUICE_ASSERT(added);  // as many descriptors as buffers
    refilled_ = true;
  }
  void give_back(const Arrived& arrived) {
    for (size_t i = 0; i < arrived.count; ++i) post_receive(arrived.buffers[i].token);
  }
  Taken take_packet(Arrived& arrived, NetHeaderBytes& header);
  std::optional<DropReason> make_frame(const Arrived& arrived, const NetHeaderBytes& header,
                                       Frame& frame, FrameCache& cache);
  void copy_out_of(const Arrived& arrived, size_t from, uint8_t* destination, size_t bytes) const;

  // A sent chain's buffers, which are linked from its token on.
  void release(uint16_t token) {
    uint16_t buffer = token;
    for (size_t i = 0; i < kPacketBuffersMax; ++i) {
      free_buffers_[free_count_++] = buffer;
      const uint16_t next = next_buffer_[buffer];
      if (next == buffer) return;
      buffer = next;
    }
  }
  // The device has read these lines last, and its cache has them: asked for all at once, they come
  // over while the first frames are copied.
  void prefetch_buffers(size_t count) const {
    for (size_t i = 0; i < std::min(count, free_count_); ++i) {
      const uint8_t* place = memory_.at(transmit_address(free_buffers_[free_count_ - 1 - i]));
      prefetch_for_writing(place);
      prefetch_for_writing(place + kCacheLineBytes);
    }
  }
  // In pieces of constant size, for speed. What is written behind a legacy header, the frame's
  // first bytes replace.
  void put_header(uint8_t* place, const OffloadMeta& offload) const {
    const NetHeaderBytes header = build_net_header(offload, 0);
    std::memcpy(place, header.data(), header.size());
    if (header_bytes_ == kNetHeaderBytesHash)
      std::memset(place + header.size(), 0, kNetHeaderBytesHash - kNetHeaderBytes);
  }
  bool send(const Frame& frame);
  bool send_small(const Frame& frame);
  bool send_large(const Frame& frame);

  NicMemory& memory_;
  size_t header_bytes_;
  bool merges_;
  bool vouches_;
  OffloadSet takes_;
  OffloadSet may_ask_;
  uint32_t receive_bytes_;
  uint32_t receive_stride_;
  PlacedRing<Ring> receive_;
  PlacedRing<Ring> transmit_;
  TransmitReclaim<Ring> reclaim_;
  GuestAddr receive_buffers_;
  GuestAddr transmit_buffers_;
  std::unique_ptr<uint16_t[]> next_buffer_;  // of a sent chain; its last one names itself
  std::unique_ptr<uint16_t[]> free_buffers_;
  size_t free_count_;
  bool refilled_ = false;
  bool sent_ = false;
};

// ---- From the device --------------------------------------------------------------------------

template <typename Ring>
bool NicPairOf<Ring>::receive(FrameBatch& batch, const Budget& budget, FrameCache& cache,
                              QueueCounters& counters) {
  size_t bytes = 0;
  for (size_t packets = 0; packets < budget.frames && bytes < budget.bytes; ++packets) {
    Frame* frame = cache.take();
    if (frame == nullptr) break;  // the buffers wait in their ring
    Arrived arrived;
    NetHeaderBytes header{};
    const Taken taken = take_packet(arrived, header);
    std::optional<DropReason> drop;
    if (taken == Taken::bad) drop = DropReason::bad_device_buffer;
    if (taken == Taken::packet) drop = make_frame(arrived, header, *frame, cache);
    give_back(arrived);
    if (taken == Taken::packet && !drop) [[likely]] {
      bytes += frame->packet_bytes();
      batch.push(frame);
      continue;
    }
    cache.give(frame);
    if (drop) counters.count_drop(*drop);
    if (taken == Taken::nothing) break;
  }
  // New buffers are seen at once; the kick for them comes with the breath's end.
  receive_.ring.publish();
  if (batch.empty()) return false;
  counters.count_batch(batch.size(), bytes);
  return batch.size() == budget.frames;
}

// The used buffers of one packet. A device that uses too few of them, or too short ones, gets them
// back, and the packet is lost. [virtio 5.1.6.4.2]
template <typename Ring>
typename NicPairOf<Ring>::Taken NicPairOf<Ring>::take_packet(Arrived& arrived,
                                                             NetHeaderBytes& header) {
  if (receive_.ring.take_used(arrived.buffers[0]) != Take::used) return Taken::nothing;
  arrived.count = 1;
  arrived.bytes = arrived.buffers[0].bytes;
  if (arrived.bytes < header_bytes_ + kPacketBytesMin) return Taken::bad;
  std::memcpy(header.data(), memory_.at(receive_address(arrived.buffers[0].token)),
              std::min(header_bytes_, kNetHeaderBytes));
  if (!merges_) return Taken::packet;
  const size_t wanted = header[kNumBuffersOffset] | size_t{header[kNumBuffersOffset + 1]} << 8;
  if (wanted > kPacketBuffersMax) return Taken::bad;
  while (arrived.count < wanted) {
    UsedBuffer& next = arrived.buffers[arrived.count];
    if (receive_.ring.take_used(next) != Take::used) return Taken::bad;
    ++arrived.count;
    arrived.bytes += next.bytes;
  }
  return Taken::packet;
}

template <typename Ring>
void NicPairOf<Ring>::copy_out_of(const Arrived& arrived, size_t from, uint8_t* destination,
                                  size_t bytes) const {
  for (size_t i = 0; i < arrived.count && bytes > 0; ++i) {
    const size_t have = arrived.buffers[i].bytes;
    if (from >= have) {
      from -= have;
      continue;
    }
    const size_t part = std::min(bytes, have - from);
    std::memcpy(destination, memory_.at(receive_address(arrived.buffers[i].token)) + from, part);
    destination += part;
    bytes -= part;
    from = 0;
  }
}

template <typename Ring>
std::optional<DropReason> NicPairOf<Ring>::make_frame(const Arrived& arrived,
                                                      const NetHeaderBytes& header, Frame& frame,
                                                      FrameCache& cache) {
  const size_t packet_bytes = arrived.bytes - header_bytes_;
  if (packet_bytes > kPacketBytesMax) return DropReason::oversize;
  if (packet_bytes <= kFrameDataBytesMax) [[likely]] {
    copy_out_of(arrived, header_bytes_, frame.data(), packet_bytes);
    frame.set_single(packet_bytes);
  } else {
    Slab* slab = cache.take_slab();
    if (slab == nullptr) return DropReason::no_frame;
    copy_out_of(arrived, header_bytes_, frame.data(), kHeadBytes);
    copy_out_of(arrived, header_bytes_ + kHeadBytes, slab->data, packet_bytes - kHeadBytes);
    frame.set_slab_tail(kHeadBytes, slab, packet_bytes - kHeadBytes);
  }
  const auto offload = parse_net_header(header);
  if (!offload) return DropReason::offload_not_negotiated;
  frame.offload() = *offload;
  frame.offload().data_valid &= vouches_;
  return check_offload(frame.offload(), packet_bytes, may_ask_);
}

// ---- To the device ----------------------------------------------------------------------------

template <typename Ring>
void NicPairOf<Ring>::transmit(FrameBatch& batch, QueueCounters& counters) {
  reclaim_.begin([this](const UsedBuffer& used) { release(used.token); });
  reclaim_.prefetch(batch.size());
  prefetch_buffers(batch.size());
  size_t sent = 0;
  size_t bytes = 0;
  bool blocked = false;
  for (Frame* frame : batch) {
    if (blocked) {
      frame->set_result(FrameResult::blocked);
      continue;
    }
    if (const auto drop = prepare_offload(*frame, takes_)) {
      frame->set_dropped(*drop);
      continue;
    }
    blocked = !send(*frame);
    frame->set_result(blocked ? FrameResult::blocked : FrameResult::done);
    if (blocked) continue;
    ++sent;
    bytes += frame->packet_bytes();
  }
  reclaim_.publish();
  if (sent == 0) return;
  sent_ = true;
  counters.count_batch(sent, bytes);
}

// False: no room; the queue has stopped.
template <typename Ring>
bool NicPairOf<Ring>::send(const Frame& frame) {
  if (frame.is_single() && header_bytes_ + frame.packet_bytes() <= kPageBytes) [[likely]]
    return send_small(frame);
  return send_large(frame);
}

// A frame that fits one buffer and lies in one piece.
template <typename Ring>
bool NicPairOf<Ring>::send_small(const Frame& frame) {
  if (free_count_ == 0) {
    reclaim_.stop();
    return false;
  }
  const uint16_t buffer = free_buffers_[free_count_ - 1];
  const GuestAddr address = transmit_address(buffer);
  uint8_t* place = memory_.at(address);
  put_header(place, frame.offload());
  std::memcpy(place + header_bytes_, frame.data(), frame.packet_bytes());
  const BufferPiece piece{address, static_cast<uint32_t>(header_bytes_ + frame.packet_bytes())};
  if (!reclaim_.add({&piece, 1}, {}, buffer)) return false;
  --free_count_;
  next_buffer_[buffer] = buffer;
  return true;
}

template <typename Ring>
bool NicPairOf<Ring>::send_large(const Frame& frame) {
  const size_t total = header_bytes_ + frame.packet_bytes();
  const size_t count = (total + kPageBytes - 1) / kPageBytes;
  if (count > free_count_) {
    reclaim_.stop();
    return false;
  }
  std::array<BufferPiece, kPacketBuffersMax> pieces;
  std::array<uint16_t, kPacketBuffersMax> buffers;
  for (size_t i = 0; i < count; ++i) {
    buffers[i] = free_buffers_[free_count_ - 1 - i];
    pieces[i] = {transmit_address(buffers[i]),
                 static_cast<uint32_t>(std::min<size_t>(kPageBytes, total - i * kPageBytes))};
  }
  put_header(memory_.at(pieces[0].address), frame.offload());
  size_t at = header_bytes_;
  for_each_part(frame, [&](const uint8_t* bytes, size_t part) {
    while (part > 0) {  // each round fills a buffer or ends the part
      const size_t room = std::min(part, kPageBytes - at % kPageBytes);
      std::memcpy(memory_.at(pieces[at / kPageBytes].address) + at % kPageBytes, bytes, room);
      at += room;
      bytes += room;
      part -= room;
    }
  });
  if (!reclaim_.add({pieces.data(), count}, {}, buffers[0])) return false;
  free_count_ -= count;
  for (size_t i = 0; i < count; ++i) next_buffer_[buffers[i]] = buffers[i + 1 < count ? i + 1 : i];
  return true;
}

}  // namespace

uint64_t NicPair::memory_bytes(const NicPairSetup& setup) {
  const uint64_t rings = (setup.features & feature::ring_packed)
                             ? ring_bytes<PackedDriver>(setup.ring_size)
                             : ring_bytes<SplitDriver>(setup.ring_size);
  const uint64_t receive_stride = receive_buffer_bytes(setup.features) + kCacheLineBytes;
  const uint64_t buffers = (receive_stride + kTransmitStrideBytes) * setup.ring_size;
  return 2 * rings + buffers + 2 * kPageBytes;  // both kinds of buffers begin on a page
}

std::unique_ptr<NicPair> NicPair::create(const NicPairSetup& setup, NicMemory& memory) {
  if (setup.features & feature::ring_packed)
    return std::make_unique<NicPairOf<PackedDriver>>(setup, memory);
  return std::make_unique<NicPairOf<SplitDriver>>(setup, memory);
}

}  // namespace sluice
