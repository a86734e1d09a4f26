// VmFromGuest: the ring by which a guest transmits, and how its chains become frames.
//
// Chains are copied into frames once and completed at once; a packet too big for a frame keeps its
// payload in guest memory by reference, and its chain completes in complete_referenced().
//
// A burst has two passes: the first takes all chains off the ring and asks the processor for their
// bytes, the second copies. What the guest wrote lies in another core's cache, and so the waits
// overlap.
#pragma once

#include <array>
#include <optional>

#include "memory/frame_pool.h"
#include "port/device_ring.h"
#include "port/port.h"
#include "virtio/net_header.h"

namespace sluice {

class VmFromGuest {
 public:
  VmFromGuest();

  // The ring has been started with these features.
  void started(uint64_t features);
  DeviceRing& ring() { return ring_; }
  const DeviceRing& ring() const { return ring_; }

  // As PortQueue::receive(), for a usable ring; counts what it drops in `counters`. Afterwards the
  // ring may be unusable: the guest broke it.
  bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache, QueueCounters& counters);
  // Gives back the chains whose frames referred to guest memory. Before the ring is published.
  void complete_referenced();
  bool has_referenced() const { return pending_count_ > 0; }

 private:
  struct Burst;
  enum class TakeIn : uint8_t { frame, dropped, broken };

  template <class Queue>
  bool receive_burst(Queue& queue, Burst& burst, const Budget& budget);
  template <class Queue>
  bool discard_burst(Queue& queue, QueueCounters& counters);
  template <class Queue>
  size_t pop_burst(Queue& queue, size_t chains_max, Pop& end);
  template <class Queue>
  void finish_chain(Queue& queue, Chain& chain, bool by_reference);
  TakeIn take_in(Chain& chain, Frame& frame, Burst& burst, bool& by_reference);
  std::optional<DropReason> copy_whole(const Chain& chain, Frame& frame, size_t packet_bytes);
  std::optional<DropReason> copy_head(const Chain& chain, Frame& frame, size_t packet_bytes);
  std::optional<DropReason> attach_tail(const Chain& chain, Frame& frame, FrameCache& cache,
                                        bool& by_reference);
  std::optional<DropReason> take_header(const NetHeaderBytes& wire, Frame& frame);

  DeviceRing ring_;
  OffloadSet guest_may_ask_;
  size_t header_bytes_ = kNetHeaderBytes;
  size_t header_bytes_read_ = kNetHeaderBytes;  // a hash means nothing in this direction
  bool in_order_ = false;
  SpanList spans_;  // of the burst's chains, and of frames that still refer to guest memory
  std::array<Chain, kBatchFramesMax> chains_;
  std::array<Chain, kBatchFramesMax> pending_;
  size_t pending_count_ = 0;
};

}  // namespace sluice
