// NicPair: the two rings of one queue pair of a nic, driver side, and the buffers behind them.
//
// What: frames are copied into buffers of the shared memory and sent; used receive buffers become
// frames. What not: eventfds, and whether there is a back end at all: see nic_queue.h. One class
// for both formats, by a template behind this interface; a call is a batch.
//
// Transmit buffers have a page each; a frame takes as many as it needs. Receive buffers are pages,
// too, several of which make a frame when MRG_RXBUF was agreed; without it they are as large as the
// largest packet that the device may give. [virtio 5.1.6.3]
//
// The device is hostile: ids, lengths and counts are checked by the driver rings and here, offloads
// by packet/offload_check.h, and each byte is copied out before it is looked at.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "memory/frame_pool.h"
#include "port/nic_memory.h"
#include "port/port.h"
#include "vhost/front_end_driver.h"
#include "virtio/net_header.h"
#include "virtio/transmit_reclaim.h"

namespace sluice {

struct NicPairSetup {
  uint64_t features = 0;  // agreed
  uint32_t ring_size = 256;
  TransmitMode mode = TransmitMode::napi;
};

class NicPair {
 public:
  virtual ~NicPair() = default;

  // What this pair needs of the region, the bytes of its two rings and all buffers.
  static uint64_t memory_bytes(const NicPairSetup& setup);
  // Takes that much of `memory`, which outlives the pair, and lays out the rings.
  static std::unique_ptr<NicPair> create(const NicPairSetup& setup, NicMemory& memory);
  // The rings as the back end is told of them; the eventfds are not filled in.
  virtual FrontEndRing describe_receive() const = 0;
  virtual FrontEndRing describe_transmit() const = 0;

  // Fills the receive ring; once, when the rings run.
  virtual void fill() = 0;
  // As PortQueue::receive().
  virtual bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache,
                       QueueCounters& counters) = 0;
  virtual void transmit(FrameBatch& batch, QueueCounters& counters) = 0;
  // Frames that could be sent now; takes sent buffers back when there are few.
  virtual size_t room() = 0;
  // Frames that the device has been given and has not used; takes back what it has.
  virtual size_t frames_with_device() = 0;
  // At the end of a breath: whether either ring's kick is due.
  struct Kicks {
    bool receive = false;
    bool transmit = false;
  };
  virtual Kicks finish() = 0;
  // Asks for callbacks; true: there is something already.
  virtual bool arm(bool wants_frames, bool wants_room) = 0;
  virtual void disarm() = 0;
  // A name for what the device did wrong, once a ring is broken; nullptr: all is well.
  virtual const char* fault() const = 0;
  virtual const TransmitCounters& transmit_counters() const = 0;
};

}  // namespace sluice
