// Every limit of the data path, each with its reason; relations between them are checked here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

// Frames taken from a port in one burst. 64 is what the kernel's own vhost batching uses: enough to
// spread the cost of a publish and a notification, small enough to stay in the first-level cache.
inline constexpr size_t kBatchFramesMax = 64;

// Bytes taken from a port in one burst. Bounds the time that one queue of 64 KiB super-frames can
// hold a worker that others wait for.
inline constexpr size_t kBurstBytesMax = 512 * 1024;

// One chunk of frame memory: a page, so that a chunk is also an AF_XDP UMEM chunk.
inline constexpr size_t kChunkBytes = 4096;
// Room in front of the data: a program may push an outer header.
inline constexpr size_t kHeadroomBytes = 256;
// Room behind the data: what the kernel keeps for skb_shared_info, so that a program's
// adjust_tail has the same limits here as in the kernel.
inline constexpr size_t kTailroomBytes = 320;
// Data that fits one chunk.
inline constexpr size_t kFrameDataBytesMax = kChunkBytes - kHeadroomBytes - kTailroomBytes;
static_assert(kFrameDataBytesMax >= 1514 + 8, "an Ethernet frame with two VLAN tags must fit");

// The largest packet: 64 KiB of IP in an Ethernet frame with two VLAN tags. [virtio 5.1.6.3]
inline constexpr size_t kPacketBytesMax = 65535 + 14 + 8;
// The smallest packet: an Ethernet header. The kernel's TAP refuses less.
inline constexpr size_t kPacketBytesMin = 14;

// The second size class: holds a whole packet with room for the largest net header.
inline constexpr size_t kSlabBytes = 68 * 1024;
static_assert(kSlabBytes >= kPacketBytesMax + 64 && kSlabBytes % kChunkBytes == 0);
// Slabs that one port queue can have in use: what a burst of super-frames needs, and as many again
// that may be held while the destination has no room.
inline constexpr size_t kSlabsPerQueue = 2 * (kBurstBytesMax / (64 * 1024) + 1);

// Guest spans that a packet may leave with (by reference, one writev). The kernel takes at most
// 1024 and a Linux guest's super-frame has at most 17 fragments; packets in more pieces are copied.
inline constexpr size_t kPacketSpansMax = 64;

// Ring sizes that are accepted: the specification's maximum for split rings. [virtio 2.7]
inline constexpr uint32_t kRingSizeMax = 32768;
// Spans that one chain can have: one a descriptor, plus room for descriptors that straddle regions.
inline constexpr size_t kChainSpansMax = kRingSizeMax + 2048;

// Frames that wait for a destination which has no room, per direction of a link. A whole burst must
// fit, since it has been taken from its source already.
inline constexpr size_t kHeldFramesMax = kBatchFramesMax;
// How long they wait at most before they are counted as port_full.
inline constexpr uint64_t kHeldMillisecondsMax = 200;

// Packets that merging holds back across batches, per direction of a link: the flows that can be
// merged at once. A busy server's; with twice as many, looking for the oldest would show.
inline constexpr size_t kGroFlowsMax = 64;
// Frames in those packets, and so what the frame pool has to have for it: every flow with a few, or
// some with the 64 that a packet can be made of.
inline constexpr size_t kGroFramesMax = 8 * kBatchFramesMax;

// Queue pairs a VM port can have; 128 is QEMU's and DPDK's usual bound.
inline constexpr uint32_t kQueuePairsMax = 128;
// Memory slots of a front end (CONFIGURE_MEM_SLOTS): QEMU can use 512, 256 covers memory hotplug.
inline constexpr size_t kMemorySlotsMax = 256;
// Regions that a SET_MEM_TABLE message can carry. [vhost-user SET_MEM_TABLE]
inline constexpr size_t kMemoryTableRegionsMax = 8;
// VM ports of one daemon; bounds the table that the SIGBUS handler walks.
inline constexpr size_t kVmPortsMax = 256;

// Memory of the maps of one XDP program, those aside that are the kernel's own. The control thread
// makes them while an attach waits, half a second at this size.
inline constexpr uint64_t kXdpMapBytesMax = uint64_t{512} << 20;
// How long a dump of a map may keep the control thread; what has not been read by then is left out.
inline constexpr uint64_t kXdpDumpNsMax = 300'000'000;

}  // namespace sluice
