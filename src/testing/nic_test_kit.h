// NicBench: a nic and a VM port back to back, without a socket between them: the layout that the
// nic makes is handed to the VM port as a session would. For tests of frames; sessions have their
// own.
//
//   NicBench bench({.packed = true});
//   bench.connect();
//   bench.send_to_device({packet});
//   EXPECT_THAT(bench.taken_by_vm(), …);
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "port/nic_port.h"
#include "port/vm_port.h"
#include "testing/vm_test_kit.h"
#include "virtio/features.h"

namespace sluice {

inline uint64_t events_in(int fd) {
  uint64_t count = 0;
  return ::read(fd, &count, sizeof count) == sizeof count ? count : 0;
}

struct NicBenchOptions {
  uint32_t queue_pairs = 1;
  uint32_t ring_size = 256;
  bool packed = false;
  TransmitMode mode = TransmitMode::napi;
  uint64_t without = 0;  // features that the device does not offer
  OffloadSet vm_peer{true, true, true, true, true};
  OffloadSet nic_peer{true, true, true, true, true};
};

class NicBench {
 public:
  explicit NicBench(const NicBenchOptions& options) : options_(options) {
    vm = std::move(*VmPort::create({.name = "vm0", .queue_pairs = options.queue_pairs}));
    vm->set_peer_takes(options.vm_peer);
    nic = std::move(*NicPort::create({.name = "nic0",
                                      .queue_pairs = options.queue_pairs,
                                      .ring_size = options.ring_size,
                                      .packed = options.packed,
                                      .transmit_mode = options.mode}));
    nic->set_peer_takes(options.nic_peer);
  }
  ~NicBench() { disconnect(); }

  bool connect() {
    FrontEndAgreement agreement;
    agreement.features =
        sanitize_features(nic->wanted_features(), vm->offered_features() & ~options_.without);
    agreement.queue_pairs = options_.queue_pairs;
    agreement.has_control_queue = (agreement.features & feature::ctrl_vq) != 0;
    agreement.control_index = 2 * options_.queue_pairs;
    auto layout = nic->agreed(agreement);
    if (!layout) return false;
    GuestMemory::Builder builder;
    if (!builder.add({.guest_address = layout->guest_address,
                      .bytes = layout->memory_bytes,
                      .frontend_address = layout->frontend_address},
                     layout->memory))
      return false;
    memory = builder.build();
    features = agreement.features;
    vm->session_opened();
    vm->features_negotiated(features);
    for (FrontEndRing& ring : layout->rings) {
      if (!vm->ring_start(start_of(ring))) return false;
      started_.push_back(ring.index);
    }
    nic->session_ready();
    connected_ = true;
    return true;
  }
  void disconnect() {
    if (!connected_) return;
    connected_ = false;
    for (const uint32_t index : started_) vm->ring_stop(index);
    started_.clear();
    vm->session_closed();
    nic->session_closed("");
  }

  Frame* frame_of(const Bytes& packet, const OffloadMeta& offload = {}) {
    Frame* frame = cache->take();
    SLUICE_ASSERT(frame != nullptr);
    const size_t head = std::min<size_t>(
        packet.size(), packet.size() <= kFrameDataBytesMax ? kFrameDataBytesMax : 300);
    std::memcpy(frame->data(), packet.data(), head);
    if (head == packet.size()) {
      frame->set_single(head);
    } else {
      Slab* slab = cache->take_slab();
      SLUICE_ASSERT(slab != nullptr);
      std::memcpy(slab->data, packet.data() + head, packet.size() - head);
      frame->set_slab_tail(head, slab, packet.size() - head);
    }
    frame->offload() = offload;
    return frame;
  }
  // One batch into a queue, and its breath.
  std::vector<FrameResult> send(PortQueue& queue, const std::vector<Bytes>& packets,
                                const OffloadMeta& offload = {}) {
    FrameBatch batch;
    for (const Bytes& packet : packets) batch.push(frame_of(packet, offload));
    queue.transmit_room();  // as a link does: sent buffers come back from here
    queue.transmit(batch);
    std::vector<FrameResult> results;
    reasons.clear();
    for (Frame* frame : batch) {
      results.push_back(frame->result());
      if (frame->result() == FrameResult::dropped) reasons.push_back(frame->drop_reason());
      cache->give(frame);
    }
    queue.finish_breath();
    return results;
  }
  std::vector<Bytes> take(PortQueue& queue) {
    FrameBatch batch;
    queue.receive(batch, {}, *cache);
    std::vector<Bytes> packets;
    offloads.clear();
    for (Frame* frame : batch) {
      packets.push_back(content_of(*frame));
      offloads.push_back(frame->offload());
      cache->give(frame);
    }
    queue.finish_breath();
    return packets;
  }

  std::unique_ptr<FramePool> pool =
      std::move(*FramePool::create({.frame_count = 512, .slab_count = 16}));
  std::unique_ptr<FrameCache> cache = std::make_unique<FrameCache>(*pool);
  std::unique_ptr<VmPort> vm;
  std::unique_ptr<NicPort> nic;
  std::shared_ptr<const GuestMemory> memory;
  uint64_t features = 0;
  std::vector<OffloadMeta> offloads;
  std::vector<DropReason> reasons;

 private:
  RingStart start_of(FrontEndRing& ring) const {
    const bool packed = features & feature::ring_packed;
    RingStart start;
    start.index = ring.index;
    start.size = ring.size;
    start.base = ring.base;
    start.features = features;
    const auto area = [&](FrontendAddr address, uint64_t bytes) {
      return *memory->translate(address, bytes);
    };
    start.descriptors = area(ring.descriptors, split_descriptors_bytes(ring.size));
    start.available =
        area(ring.driver_area, packed ? kPackedEventBytes : split_available_bytes(ring.size));
    start.used = area(ring.device_area, packed ? kPackedEventBytes : split_used_bytes(ring.size));
    start.memory = memory;
    start.kick = std::move(ring.kick);
    start.call = std::move(ring.call);
    start.error = std::move(ring.error);
    start.enabled = true;
    return start;
  }

  NicBenchOptions options_;
  std::vector<uint32_t> started_;
  bool connected_ = false;
};

}  // namespace sluice
