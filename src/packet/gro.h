// Gro: small packets of one flow, brought by one batch, become one large one.
//
// What: TCP and UDP over IPv4 and IPv6, behind up to two VLAN tags, as the kernel merges what a
// network card brings. Frames that differ in nothing but what segmentation would give back (the
// sequence number, the IPv4 identification, lengths, checksums; PSH and FIN of the last) become one
// packet with segmentation left to do. No byte of payload moves: the first frame stays, the others
// hang on it with their headers cut off (TailKind::frames). What not: input and output, memory of
// its own after construction, or anything that segmentation could not undo; a frame that does not
// fit passes as it came.
//
//   Gro gro;
//   gro.merge(batch, destination.takes());   // the batch has fewer packets now, or as many
//
// Order: within a flow it is kept. Between flows a merged packet stands where its first frame
// stood.
//
// GroHold does the same over several batches, for as long as the caller lets it: everything goes in
// by add() and comes out by flush().
//
//   hold.add(batch, takes, now_ns);          // the batch is empty now
//   do {                                     // what is ready, and what is older than 50 us
//     out.clear();
//     hold.flush(out, now_ns - 50'000);
//     …send…
//   } while (out.room() == 0);
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/frame.h"
#include "packet/gro_counters.h"

namespace sluice {

class Gro {
 public:
  // `takes`: the destination's; a kind of packet that it does not split stays as it is.
  void merge(FrameBatch& batch, const OffloadSet& takes);
  const GroCounters& counters() const { return counters_; }

 private:
  GroCounters counters_;
};

// Bounded by kGroFlowsMax and kGroFramesMax; beyond them the oldest packet becomes ready.
class GroHold {
 public:
  // Takes every frame out of the batch. Before the next add(), flush() has to bring what is ready.
  void add(FrameBatch& batch, const OffloadSet& takes, uint64_t now_ns);
  // Appends to `out`, as far as it has room: first what is ready, in its order, then what has been
  // held since `older_than_ns` or before. ~0: everything.
  void flush(FrameBatch& out, uint64_t older_than_ns);
  // Frames inside, ready ones too; and since when the oldest packet is held (~0: there is none).
  size_t held_frames() const { return held_frames_; }
  uint64_t oldest_ns() const { return oldest_ns_; }
  const GroCounters& counters() const { return counters_; }

 private:
  FrameBatch ready_;
  size_t held_frames_ = 0;
  uint64_t oldest_ns_ = ~uint64_t{0};
  GroCounters counters_;
};

}  // namespace sluice
