// Frame: one packet in our memory. FrameBatch: up to 64 of them.
//
// A packet's first bytes lie in one 4096 B chunk, an XDP buff:
//
//     chunk                                                            chunk + 4096
//     |  headroom 256 B  |  data, up to 3520 B            |  tailroom 320 B  |
//                        ^ data()            ^ data() + head_bytes
//
// What does not fit goes on in a tail, of one of three kinds:
//   spans  guest memory by reference, for packets from a guest. They are valid until the source's
//          finish_breath(), so such a packet leaves within its breath or is dropped: it never
//          waits.
//   slab   one 68 KiB buffer of the pool, for packets towards a guest, or copies of spans.
//   frames the data of further frames, which belong to this one: small packets of one flow that
//   were
//          merged, their bytes left where they were.
//
// The handle (this class, one cache line) lives outside the chunk, so that a program which writes
// over the whole chunk cannot touch it. Frames belong to a FrameCache; whoever takes one gives it
// back or passes it on. Directions: from_guest and to_guest, always.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.h"
#include "base/drop_reason.h"
#include "base/limits.h"
#include "memory/guest_span.h"

namespace sluice {

// Segmentation that a packet still needs; values as in the virtio-net header. [virtio 5.1.6]
enum class GsoType : uint8_t { none = 0, tcp4 = 1, udp_fragment = 3, tcp6 = 4, udp_l4 = 5 };

// What is left to do on a packet, as carried by a virtio-net header and by TAP's vnet header.
struct OffloadMeta {
  bool needs_csum = false;  // the sum from csum_start on has to be stored at csum_start+csum_offset
  bool data_valid = false;  // somebody has verified the checksums
  GsoType gso_type = GsoType::none;
  bool gso_ecn = false;  // TCP segments carry ECN (CWR on the first only)
  // IPv4 segments all carry the packet's identification, instead of counting it up. Ours only: a
  // net header has no place for it.
  bool gso_fixed_id = false;
  uint16_t header_bytes = 0;  // a hint, never trusted [virtio 5.1.6.2.2]
  uint16_t gso_size = 0;
  uint16_t csum_start = 0;
  uint16_t csum_offset = 0;
};

// Offloads by name: what a receiver of frames can do by itself (what it lacks must have been done
// before), or what a sender may ask for.
struct OffloadSet {
  bool csum = false;  // the checksum is still to be completed
  bool tso4 = false;
  bool tso6 = false;
  bool tso_ecn = false;
  bool uso = false;  // UDP segmentation, both families: the kernel knows them only together
  bool operator==(const OffloadSet&) const = default;
};

// What a destination answers for each frame of a batch.
enum class FrameResult : uint8_t {
  pending,  // not offered yet
  done,     // sent; the frame is the caller's to give back
  kept,     // the port owns the frame until it completes
  blocked,  // no room now; the caller owns it and may offer it again
  dropped,  // will never be sent; drop_reason() says why
};

enum class TailKind : uint8_t { none, spans, slab, frames };

struct Slab {
  uint8_t* data = nullptr;  // kSlabBytes
};

class alignas(64) Frame {
 public:
  uint8_t* data() { return chunk_ + data_offset_; }
  const uint8_t* data() const { return chunk_ + data_offset_; }
  uint8_t* chunk() { return chunk_; }
  size_t headroom_bytes() const { return data_offset_; }
  size_t head_bytes() const { return head_bytes_; }      // bytes in the chunk
  size_t packet_bytes() const { return packet_bytes_; }  // bytes in all
  size_t tail_bytes() const { return packet_bytes_ - head_bytes_; }
  TailKind tail_kind() const { return tail_kind_; }
  bool is_single() const { return tail_kind_ == TailKind::none; }

  // The packet is the first `bytes` of the chunk's data area, without a tail.
  void set_single(size_t bytes) {
    SLUICE_ASSERT(bytes <= kFrameDataBytesMax);
    head_bytes_ = static_cast<uint16_t>(bytes);
    packet_bytes_ = static_cast<uint32_t>(bytes);
    tail_kind_ = TailKind::none;
  }
  // Moves a single packet's borders, up to the whole chunk but its tailroom: what an XDP program
  // may do. Bytes are neither moved nor cleared.
  void set_window(size_t data_offset, size_t bytes) {
    SLUICE_ASSERT(is_single() && data_offset + bytes <= kChunkBytes - kTailroomBytes);
    data_offset_ = static_cast<uint16_t>(data_offset);
    head_bytes_ = static_cast<uint16_t>(bytes);
    packet_bytes_ = static_cast<uint32_t>(bytes);
  }
  // The packet goes on in guest memory; `spans` outlive the breath, their sum is the tail's length.
  void set_span_tail(size_t head_bytes, std::span<const GuestSpan> spans, size_t tail_bytes) {
    SLUICE_ASSERT(head_bytes <= kFrameDataBytesMax && spans.size() <= kPacketSpansMax);
    head_bytes_ = static_cast<uint16_t>(head_bytes);
    packet_bytes_ = static_cast<uint32_t>(head_bytes + tail_bytes);
    tail_kind_ = TailKind::spans;
    spans_ = spans.data();
    span_count_ = static_cast<uint16_t>(spans.size());
  }
  // The packet goes on in the first `tail_bytes` of a slab, which now belongs to the frame.
  void set_slab_tail(size_t head_bytes, Slab* slab, size_t tail_bytes) {
    SLUICE_ASSERT(head_bytes <= kFrameDataBytesMax && tail_bytes <= kSlabBytes);
    head_bytes_ = static_cast<uint16_t>(head_bytes);
    packet_bytes_ = static_cast<uint32_t>(head_bytes + tail_bytes);
    tail_kind_ = TailKind::slab;
    slab_ = slab;
  }
  // The packet goes on with all of `frame`, a single one, behind what it has: none or other frames.
  // It belongs to this packet from now on, and is given back with it.
  void append_frame(Frame* frame) {
    SLUICE_ASSERT(frame->is_single() && frame != this);
    if (tail_kind_ == TailKind::none) {
      tail_kind_ = TailKind::frames;
      first_appended_ = frame;
    } else {
      SLUICE_ASSERT(tail_kind_ == TailKind::frames);
      link_->link_ = frame;
    }
    link_ = frame;  // the last one
    frame->link_ = nullptr;
    packet_bytes_ += frame->head_bytes_;
  }
  // Of a tail of frames: the first one. Each leads to the next; behind the last there is none.
  Frame* first_appended() const {
    SLUICE_ASSERT(tail_kind_ == TailKind::frames);
    return first_appended_;
  }
  // Of a frame within such a tail.
  Frame* next_appended() const { return link_; }
  std::span<const GuestSpan> spans() const {
    SLUICE_ASSERT(tail_kind_ == TailKind::spans);
    return {spans_, span_count_};
  }
  Slab* slab() const {
    SLUICE_ASSERT(tail_kind_ == TailKind::slab);
    return slab_;
  }

  OffloadMeta& offload() { return offload_; }
  const OffloadMeta& offload() const { return offload_; }

  // The hash of the packet's flow, for a receiver that wants to be told; kind 0: it has none.
  uint32_t flow_hash() const { return flow_hash_; }
  uint8_t flow_hash_kind() const { return flow_hash_kind_; }
  void set_flow_hash(uint32_t hash, uint8_t kind) {
    flow_hash_ = hash;
    flow_hash_kind_ = kind;
  }

  FrameResult result() const { return result_; }
  DropReason drop_reason() const { return drop_reason_; }
  void set_result(FrameResult result) { result_ = result; }
  void set_dropped(DropReason reason) {
    result_ = FrameResult::dropped;
    drop_reason_ = reason;
  }

 private:
  friend class FramePool;
  friend class FrameCache;
  void reset() {
    data_offset_ = kHeadroomBytes;
    head_bytes_ = 0;
    packet_bytes_ = 0;
    tail_kind_ = TailKind::none;
    result_ = FrameResult::pending;
    flow_hash_kind_ = 0;
    offload_ = OffloadMeta{};
  }

  uint8_t* chunk_ = nullptr;
  union {
    const GuestSpan* spans_;
    Slab* slab_ = nullptr;
    Frame* first_appended_;
  };
  Frame* link_ = nullptr;  // of a packet: the last appended frame; of an appended one: the next
  uint32_t packet_bytes_ = 0;
  uint16_t data_offset_ = kHeadroomBytes;
  uint16_t head_bytes_ = 0;
  uint16_t span_count_ = 0;
  TailKind tail_kind_ = TailKind::none;
  FrameResult result_ = FrameResult::pending;
  DropReason drop_reason_{};
  uint8_t flow_hash_kind_ = 0;
  uint32_t flow_hash_ = 0;
  OffloadMeta offload_;
};
static_assert(sizeof(Frame) == 64, "one cache line a handle");

// Calls `sink(const uint8_t* bytes, size_t count)` for the packet's parts in their order: at most
// 1 + kPacketSpansMax or 1 + kBatchFramesMax. Parts in guest memory may change while they are read.
template <typename Sink>
void for_each_part(const Frame& frame, Sink&& sink) {
  sink(frame.data(), frame.head_bytes());
  switch (frame.tail_kind()) {
    case TailKind::none:
      break;
    case TailKind::slab:
      sink(static_cast<const uint8_t*>(frame.slab()->data), frame.tail_bytes());
      break;
    case TailKind::spans:
      for (const GuestSpan& span : frame.spans()) {
        const iovec piece = span.to_iovec();
        sink(static_cast<const uint8_t*>(piece.iov_base), piece.iov_len);
      }
      break;
    case TailKind::frames:
      for (const Frame* part = frame.first_appended(); part != nullptr;
           part = part->next_appended())
        sink(part->data(), part->head_bytes());
      break;
  }
}
inline constexpr size_t kPacketPartsMax =
    1 + (kPacketSpansMax > kBatchFramesMax ? kPacketSpansMax : kBatchFramesMax);

class FrameBatch {
 public:
  void push(Frame* frame) {
    SLUICE_ASSERT(count_ < kBatchFramesMax);
    frames_[count_++] = frame;
  }
  void clear() { count_ = 0; }
  // Only the first `count` stay; the others are the caller's.
  void truncate(size_t count) {
    SLUICE_ASSERT(count <= count_);
    count_ = count;
  }
  size_t size() const { return count_; }
  size_t room() const { return kBatchFramesMax - count_; }
  bool empty() const { return count_ == 0; }
  Frame* operator[](size_t index) const {
    SLUICE_ASSERT(index < count_);
    return frames_[index];
  }
  Frame** begin() { return frames_.data(); }
  Frame** end() { return frames_.data() + count_; }
  Frame* const* begin() const { return frames_.data(); }
  Frame* const* end() const { return frames_.data() + count_; }

 private:
  std::array<Frame*, kBatchFramesMax> frames_;
  size_t count_ = 0;
};

}  // namespace sluice
