// For the tests of VM ports: a queue pair with the driver that fills its rings, without a socket.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "port/vm_queue.h"
#include "testing/fake_driver.h"
#include "testing/fake_guest_memory.h"
#include "testing/fake_packed_driver.h"
#include "testing/packet_builder.h"
#include "virtio/features.h"

namespace sluice {

using Bytes = std::vector<uint8_t>;

// A packet of exactly `bytes` bytes whose content differs from seed to seed.
inline Bytes numbered_packet(size_t bytes, uint8_t seed) {
  Bytes packet(bytes);
  for (size_t i = 0; i < bytes; ++i) packet[i] = static_cast<uint8_t>(seed + i * 7 + i / 251);
  return packet;
}

inline Bytes joined(std::span<const uint8_t> first, std::span<const uint8_t> second) {
  Bytes all(first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

inline Bytes net_header(const OffloadMeta& meta = {}, size_t bytes = kNetHeaderBytes) {
  const NetHeaderBytes wire = build_net_header(meta, 0);
  return Bytes(wire.begin(), wire.begin() + static_cast<ptrdiff_t>(bytes));
}

// The whole packet, wherever its parts lie.
inline Bytes content_of(const Frame& frame) {
  Bytes all(frame.data(), frame.data() + frame.head_bytes());
  if (frame.tail_kind() == TailKind::slab)
    all.insert(all.end(), frame.slab()->data, frame.slab()->data + frame.tail_bytes());
  if (frame.tail_kind() == TailKind::spans) {
    all.resize(frame.packet_bytes());
    copy_out(frame.spans(), 0, all.data() + frame.head_bytes(), frame.tail_bytes());
  }
  return all;
}

inline uint64_t drops(const QueueCounters& counters, DropReason reason) {
  return counters.drops[static_cast<size_t>(reason)].get();
}

inline Fd make_event() { return Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }
inline Fd copy_of(const Fd& fd) { return Fd(::dup(fd.get())); }
// How often the event was written since this was last asked.
inline uint64_t take_event(const Fd& fd) {
  uint64_t count = 0;
  return ::read(fd.get(), &count, sizeof count) == sizeof count ? count : 0;
}
inline void write_event(const Fd& fd) {
  const uint64_t one = 1;
  ASSERT_EQ(::write(fd.get(), &one, sizeof one), 8);
}
inline bool is_readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, 0) == 1;
}

inline void name_areas(RingStart& start, const SplitQueueSetup& setup) {
  start.descriptors = setup.descriptors;
  start.available = setup.available;
  start.used = setup.used;
}
inline void name_areas(RingStart& start, const PackedQueueSetup& setup) {
  start.descriptors = setup.descriptors;
  start.available = setup.driver_event;
  start.used = setup.device_event;
}

// A ring with its driver and eventfds.
template <class Driver>
struct BasicDrivenRing {
  BasicDrivenRing(FakeGuestMemory& guest, const FakeDriverOptions& options)
      : driver(guest, options), size(options.size) {}

  RingStart start(uint32_t index, uint64_t features, bool enabled = true) const {
    const auto setup = driver.setup();
    RingStart start;
    start.index = index;
    start.size = size;
    start.base = setup.base;
    start.features = features;
    name_areas(start, setup);
    start.memory = setup.memory;
    start.kick = copy_of(kick);
    start.call = copy_of(call);
    start.error = copy_of(error);
    start.enabled = enabled;
    return start;
  }

  Driver driver;
  uint32_t size;
  Fd kick = make_event();
  Fd call = make_event();
  Fd error = make_event();
};
using DrivenRing = BasicDrivenRing<FakeDriver>;

class VmQueueTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kModern =
      feature::version_1 | feature::mrg_rxbuf | feature::indirect_desc | feature::event_idx;
  using Side = VmQueue::Side;

  void start(uint64_t features = kModern, uint32_t ring_size = 256) {
    const FakeDriverOptions options{.size = ring_size,
                                    .event_idx = (features & feature::event_idx) != 0};
    from = std::make_unique<DrivenRing>(guest, options);
    to = std::make_unique<DrivenRing>(guest, options);
    header_bytes = net_header_bytes(features);
    queue->set_front_end_connected(true);
    ASSERT_TRUE(queue->start(Side::from_guest, from->start(1, features)));
    ASSERT_TRUE(queue->start(Side::to_guest, to->start(0, features)));
  }
  void TearDown() override {
    queue->stop(Side::from_guest);
    queue->stop(Side::to_guest);
    queue.reset();
    // Whatever happened, every frame and slab has found its way back.
    for (Frame* frame : taken) cache->give(frame);
    cache.reset();
    EXPECT_EQ(pool->frames_free(), pool->frames_total());
    EXPECT_EQ(pool->slabs_free(), pool->slabs_total());
  }

  // One breath of the from_guest side: what the frames held, after which they are given back.
  std::vector<Bytes> receive(size_t frames_max = kBatchFramesMax) {
    FrameBatch batch;
    queue->receive(batch, {.frames = frames_max}, *cache);
    std::vector<Bytes> packets;
    offloads.clear();
    for (Frame* frame : batch) {
      packets.push_back(content_of(*frame));
      offloads.push_back(frame->offload());
      cache->give(frame);
    }
    queue->finish_breath();
    return packets;
  }

  Frame* make_frame(const Bytes& packet, const OffloadMeta& offload = {}) {
    Frame* frame = cache->take();
    EXPECT_NE(frame, nullptr);
    const size_t head = packet.size() <= kFrameDataBytesMax ? packet.size() : 257;
    std::memcpy(frame->data(), packet.data(), head);
    if (head == packet.size()) {
      frame->set_single(head);
    } else {
      Slab* slab = cache->take_slab();
      EXPECT_NE(slab, nullptr);
      std::memcpy(slab->data, packet.data() + head, packet.size() - head);
      frame->set_slab_tail(head, slab, packet.size() - head);
    }
    frame->offload() = offload;
    return frame;
  }
  // One breath of the to_guest side: the results, and the reasons of what was dropped.
  std::vector<FrameResult> send(const std::vector<Bytes>& packets,
                                const OffloadMeta& offload = {}) {
    FrameBatch batch;
    for (const Bytes& packet : packets) batch.push(make_frame(packet, offload));
    queue->transmit(batch);
    std::vector<FrameResult> results;
    reasons.clear();
    for (Frame* frame : batch) {
      results.push_back(frame->result());
      if (frame->result() == FrameResult::dropped) reasons.push_back(frame->drop_reason());
      cache->give(frame);
    }
    queue->finish_breath();
    return results;
  }

  FakeGuestMemory guest{{{.bytes = 64 << 20}}};
  std::unique_ptr<FramePool> pool =
      std::move(*FramePool::create({.frame_count = 256, .slab_count = 4}));
  std::unique_ptr<FrameCache> cache = std::make_unique<FrameCache>(*pool);
  FaultBell bell = std::move(*FaultBell::create());
  std::unique_ptr<VmQueue> queue = std::move(*VmQueue::create(&bell));
  std::unique_ptr<DrivenRing> from, to;
  size_t header_bytes = kNetHeaderBytes;
  std::vector<OffloadMeta> offloads;  // of the frames that receive() brought
  std::vector<DropReason> reasons;    // of the frames that send() lost
  std::vector<Frame*> taken;          // given back at the end
};

}  // namespace sluice
