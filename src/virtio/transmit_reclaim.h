// TransmitReclaim: when a transmit queue takes its sent buffers back, and when it asks to be called
// for them. A policy on top of a SplitDriver or a PackedDriver.
//
// Two modes, which are the two sides of a benchmark:
//
//   inline_reclaim  used buffers are taken back at the start of each transmit call; after the kick
//                   a callback is asked for, delayed to 3/4 of what is outstanding then. Almost
//                   every round makes the device call us.
//   napi            nothing is taken back inside transmit, and callbacks are off from its start.
//                   Only poll() takes back. After the kick, and only if the ring is nearly full, a
//                   callback at 3/4 of what is outstanding then is armed; when the queue has
//                   stopped for want of room, one at the next used buffer.
//
// Each time a callback is asked for, the full fence and a second look follow (they are the ring's).
//
// What not: eventfds and buffers. Interrupts are counted by whoever reads the call eventfd.
//
//   reclaim.begin(release);                     // each transmit call
//   for (…) if (!reclaim.add(readable, writable, token)) break;  // no room: the queue has stopped
//   reclaim.publish();
//   …once a breath, behind its transmit calls:
//   if (reclaim.kick_due()) …write the kick eventfd…
//   if (reclaim.arm()) …poll() without waiting for a call…
//   …when the call eventfd was readable:
//   reclaim.poll(release, budget);
//   if (reclaim.arm()) …poll() again…           // still stopped, or nearly full
//
// `release` is called as release(const UsedBuffer&). If the ring breaks, nothing more comes back:
// look at ring.broken().
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/shared_word.h"
#include "virtio/driver_ring.h"

namespace sluice {

enum class TransmitMode : uint8_t { napi, inline_reclaim };

// A packet of the largest shape: net header, head, and the 17 pieces of a Linux super-frame.
inline constexpr uint32_t kNearlyFullDescriptors = 2 + 17;

// Written by the thread that transmits, read by any.
struct TransmitCounters {
  Counter reclaimed;         // buffers taken back
  Counter kicks;             // that the device wanted
  Counter kicks_suppressed;  // rounds with something published whose kick it did not want
  Counter delayed_armed;     // callbacks asked for at 3/4
  Counter next_armed;        // callbacks asked for at the next used buffer
};

template <typename Ring>
class TransmitReclaim {
 public:
  TransmitReclaim(Ring& ring, TransmitMode mode,
                  uint32_t nearly_full_descriptors = kNearlyFullDescriptors)
      : ring_(ring),
        mode_(mode),
        nearly_full_(nearly_full_descriptors),
        // What ends a stop: a small ring has no room for the largest packet besides others.
        room_again_(std::min(nearly_full_descriptors, (ring.size() + 1) / 2)) {}

  // The start of a transmit call.
  template <typename Release>
  void begin(Release&& release) {
    if (mode_ == TransmitMode::napi) {
      ring_.disable_callbacks();
    } else {
      take_back(release, ring_.size());
    }
  }
  // A hint, before so many frames are added.
  void prefetch(size_t frames) const { ring_.prefetch_free(frames); }
  // As Ring::add(); false stops the queue until buffers have come back.
  bool add(std::span<const BufferPiece> readable, std::span<const BufferPiece> writable,
           uint16_t token) {
    const bool added = ring_.add(readable, writable, token);
    has_sent_ |= added;
    stopped_ |= !added;
    return added;
  }
  // The caller has no buffer for the next frame: the queue stops as if add() had said so.
  void stop() { stopped_ = true; }
  // The end of a transmit call: the device may begin.
  void publish() { ring_.publish(); }

  // The end of a breath: whether to write the kick eventfd. Publishes what has not been.
  bool kick_due() {
    if (!has_sent_) return false;
    has_sent_ = false;
    ring_.publish();
    const bool wanted = ring_.device_wants_kick();
    (wanted ? counters_.kicks : counters_.kicks_suppressed).add(1);
    return wanted;
  }
  // After the kick: asks for a callback where the mode wants one. True: what it would be called for
  // has happened already, and no callback may come: poll().
  bool arm() {
    if (ring_.outstanding() == 0) return false;
    if (mode_ == TransmitMode::napi) {
      if (stopped_) {
        counters_.next_armed.add(1);
        return ring_.enable_callbacks();
      }
      if (ring_.free_descriptors() >= nearly_full_) return false;
    }
    counters_.delayed_armed.add(1);
    return ring_.enable_callbacks_delayed();
  }

  // Takes back up to `budget` buffers; returns how many. With inline_reclaim a callback only ends a
  // stop: what there is to take back otherwise, the next transmit call takes.
  template <typename Release>
  uint32_t poll(Release&& release, uint32_t budget) {
    ring_.disable_callbacks();
    if (mode_ == TransmitMode::inline_reclaim && !stopped_) return 0;
    return take_back(release, budget);
  }

  // There was no room for a frame, and not enough has come back since.
  bool stopped() const { return stopped_; }
  TransmitMode mode() const { return mode_; }
  const TransmitCounters& counters() const { return counters_; }

 private:
  template <typename Release>
  uint32_t take_back(Release& release, uint32_t budget) {
    uint32_t count = 0;
    UsedBuffer used;
    while (count < budget && ring_.take_used(used) == Take::used) {  // bounded by the budget
      release(static_cast<const UsedBuffer&>(used));
      ++count;
    }
    if (count > 0) counters_.reclaimed.add(count);
    if (stopped_ && ring_.free_descriptors() >= room_again_) stopped_ = false;
    return count;
  }

  Ring& ring_;
  TransmitMode mode_;
  uint32_t nearly_full_;
  uint32_t room_again_;
  bool has_sent_ = false;
  bool stopped_ = false;
  TransmitCounters counters_;
};

}  // namespace sluice
