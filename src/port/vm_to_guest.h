// VmToGuest: the ring by which a guest receives, and how frames get into its buffers.
//
// As many writable chains as a packet needs are taken (mergeable buffers), filled and completed;
// all of a breath's used entries are published together. [virtio 5.1.6.4]
//
// A batch has two passes, as in VmFromGuest: first each frame is given its chains, then all are
// filled. A frame that finds too few buffers gives them back untouched, and it and all behind it
// are blocked.
#pragma once

#include <array>
#include <optional>

#include "port/device_ring.h"
#include "port/port.h"
#include "virtio/net_header.h"

namespace sluice {

class VmToGuest {
 public:
  VmToGuest();

  // The ring has been started with these features.
  void started(uint64_t features);
  DeviceRing& ring() { return ring_; }
  const DeviceRing& ring() const { return ring_; }
  // What the guest takes, which can change at run time (control queue).
  void set_guest_takes(const OffloadSet& takes) { guest_takes_ = takes; }

  // As PortQueue::transmit(), for a ring that can carry. Afterwards it may be unusable.
  void transmit(FrameBatch& batch, QueueCounters& counters);
  size_t room();
  // Asks for a kick when there are more buffers than those that were too few; true: there are.
  bool arm();

 private:
  // fill_first: a buffer has to go back now, and what is planned comes before it.
  enum class Gather : uint8_t { ok, no_room, too_small, broken, fill_first };
  // A frame and the chains it is to be written to: runs of gathered_ and spans_.
  struct Planned {
    Frame* frame = nullptr;
    uint32_t chain_first = 0;
    uint32_t chain_count = 0;
    uint32_t span_first = 0;
    uint32_t span_count = 0;
  };

  template <class Queue>
  void send(Queue& queue, FrameBatch& batch, QueueCounters& counters);
  template <class Queue>
  FrameResult plan(Queue& queue, Frame& frame, QueueCounters& counters);
  template <class Queue>
  Gather gather(Queue& queue, Planned& planned, QueueCounters& counters);
  template <class Queue>
  void ungather(Queue& queue, const Planned& planned);
  template <class Queue>
  void fill_planned(Queue& queue);
  std::array<uint8_t, kNetHeaderBytesHash> header_of(const Planned& planned) const;
  void copy_packet(const Planned& planned);

  DeviceRing ring_;
  OffloadSet guest_takes_;
  size_t header_bytes_ = kNetHeaderBytes;
  bool merges_buffers_ = false;

  // A packet may be spread over this many of the guest's buffers at most: 64 KiB in buffers of
  // 64 bytes and more. Smaller buffers are counted as guest_buffer_too_small.
  static constexpr size_t kMergedBuffersMax = 1088;
  // Chains of a batch that are planned before they are filled: one packet's at worst, and a usual
  // batch's.
  static constexpr size_t kGatheredMax = kMergedBuffersMax + kBatchFramesMax;
  SpanList spans_;
  std::array<Chain, kGatheredMax> gathered_;
  size_t gathered_count_ = 0;
  std::array<Planned, kBatchFramesMax> planned_;
  size_t planned_count_ = 0;
  uint16_t blocked_at_available_ = 0;
};

}  // namespace sluice
