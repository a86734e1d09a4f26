// What both driver sides of a virtqueue have in common: SplitDriver and PackedDriver have the same
// methods, so that one template drives either.
//
// What: the driver's half of one ring. It adds chains (add), shows them to the device in batches
// (publish), says whether the device wants a kick, takes used buffers back, and asks for callbacks
// or does not. What not: buffers (the caller owns them, and names them by a token), packets,
// eventfds.
//
// The device is hostile: the areas lie in our own memory, but it may write anything there at any
// moment. Everything that decides something is private: which chains are outstanding, how many
// descriptors each has, how many bytes the device may have written. Of the shared areas only what
// the device reports is read, each word once, and checked:
//   - an id must be that of an outstanding chain (it is, from add() to take_used());
//   - no more is used than was published;
//   - no more bytes were written than the chain's writable pieces hold. Where there are none the
//     length is not looked at: it is reserved there [virtio 2.8.4], and back ends are known that
//     leave the length of what they have read.
// A breach breaks the ring for good: take_used() answers Take::broken, fault() says why, and a new
// ring has to be started. What was outstanding is then had with take_back().
//
//   SplitDriver ring(setup);
//   const BufferPiece piece{GuestAddr{slot_address}, 60};
//   if (!ring.add({&piece, 1}, {}, slot)) …no room: the chain has not been added…
//   ring.publish();
//   if (ring.device_wants_kick()) …write the kick eventfd…
//   UsedBuffer used;
//   while (ring.take_used(used) == Take::used) …slot used.token is free again…
//
// To sleep: if (ring.enable_callbacks()) there is something used already, else wait for the call
// eventfd. The file behind the memory must be sealed against shrinking by whoever makes it.
//
// Methods (see split_driver.h, packed_driver.h):
//   bool add(readable, writable, token)   false: not enough descriptors. At least one piece; token
//                                         < size() and not outstanding; 4 GiB at most
//   void prefetch_free(descriptors)       a hint: so many will be added now
//   void publish()                        shows what was added since, all at once
//   bool device_wants_kick()              after publish(): for what was published since the last
//                                         time this was asked. Contains the full fence
//   Take take_used(UsedBuffer&)
//   void disable_callbacks()              a callback may come all the same
//   bool enable_callbacks()               at the next used buffer; true: there is one already
//   bool enable_callbacks_delayed()       when 3/4 of what is outstanding now is used (split rings
//                                         count chains, packed rings descriptors); true: it is
//                                         already. Without EVENT_IDX the same as enable_callbacks.
//                                         Both contain the full fence and the second look
//   size(), free_descriptors(), descriptors_outstanding(), outstanding() (chains)
//   broken(), fault()
//   bool take_back(uint16_t& token)       when the device is gone or the ring broken: the tokens
//                                         that are outstanding, one a call, false: no more. The
//                                         ring is over once this was called
//   static descriptors_bytes(size), driver_area_bytes(size), device_area_bytes(size)
//   static kFreshBase                     what SET_VRING_BASE says of a fresh ring
#pragma once

#include <cstdint>

#include "memory/address.h"
#include "memory/guest_span.h"

namespace sluice {

// A run of memory as descriptors carry it.
struct BufferPiece {
  GuestAddr address{};
  uint32_t bytes = 0;
};

struct DriverRingSetup {
  uint32_t size = 0;       // split: a power of two; at most kRingSizeMax
  bool event_idx = false;  // VIRTIO_F_EVENT_IDX was negotiated
  bool indirect = false;   // VIRTIO_F_INDIRECT_DESC was, and `tables` is given
  bool in_order = false;   // VIRTIO_F_IN_ORDER was: one used entry may stand for a batch
  // All three are cleared by the constructor: the ring is a fresh one.
  GuestSpan descriptors;  // aligned to 16
  GuestSpan driver_area;  // available ring (aligned to 2), or driver event suppression (to 4)
  GuestSpan device_area;  // used ring, or device event suppression; both aligned to 4
  // Indirect tables, one a token: chains of more than `direct_pieces_max` pieces and at most
  // `table_entries` take one descriptor. size * table_entries * 16 bytes, aligned to 16.
  GuestSpan tables;
  GuestAddr tables_address{};
  uint16_t table_entries = 0;
  uint16_t direct_pieces_max = 1;
};

struct UsedBuffer {
  uint16_t token = 0;
  uint32_t bytes = 0;  // written by the device, at most what the chain's writable pieces hold
};

// What take_used() answers. Nothing there, and a device that broke the rules, are two things.
enum class Take : uint8_t { used, empty, broken };

// Why a ring broke, for the log line that an operator reads.
enum class DriverFault : uint8_t {
  none,
  used_index_jump,     // more used than was made available [virtio 2.7.8]
  id_out_of_range,     // no descriptor or buffer id of this ring
  id_not_outstanding,  // an id that was not handed out, or was given back already
  too_many_bytes,      // more written than there was room
  batch_too_long,      // IN_ORDER: an id that stands for more buffers than were used
};
const char* driver_fault_sentence(DriverFault fault);

}  // namespace sluice
