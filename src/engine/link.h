// Link: one patch cable between two queues, as its worker breathes it.
//
// Each direction takes a burst from its source, offers it to its destination and settles every
// frame by its result. What the destination has no room for is held, bounded by one burst; while
// something is held the source is not read, so that back-pressure reaches the sender and order is
// kept. Held frames that wait too long are dropped under the destination's name for it.
//
// A link is hot (polled, notifications suppressed) or cold (armed, in the worker's epoll set).
#pragma once

#include <cstdint>

#include "engine/xdp_path.h"
#include "memory/frame_pool.h"
#include "port/port.h"

namespace sluice {

class Link {
 public:
  // carries_b_to_a: false when several queues of a share b, and another link brings b's frames.
  Link(PortQueue& a, PortQueue& b, bool carries_b_to_a);

  // One breath: up to `batches_max` batches in each direction, then publish. Returns how many
  // frames moved or were dropped.
  size_t breathe(FrameCache& cache, XdpPath& path, size_t batch_frames_max, size_t batches_max = 1);
  // Switches notifications on and looks again. true: it stays hot, there is work.
  bool arm();
  void disarm();
  // The program that runs on what comes from a, or from b; null: none. Between two breaths.
  void set_program_of_a(const XdpSource& source) { a_to_b_.xdp = source; }
  void set_program_of_b(const XdpSource& source) { b_to_a_.xdp = source; }
  // Gives back what is held. Before the link goes away.
  void release(FrameCache& cache);

  bool carries_b_to_a() const { return carries_b_to_a_; }
  PortQueue& a() { return a_; }
  PortQueue& b() { return b_; }
  bool has_held() const { return !a_to_b_.held.empty() || !b_to_a_.held.empty(); }
  // Nobody will wake it for what it waits for: look again soon.
  bool must_be_polled() const;

  // The worker's notes.
  bool hot = true;
  uint64_t last_work_ns = 0;
  uint64_t cold_since_ns = 0;
  bool shares_b = false;  // other links have the same b: they wake together

 private:
  struct Direction {
    PortQueue& from;
    PortQueue& to;
    FrameBatch held;
    uint64_t held_since_ns = 0;
    bool no_room = false;   // the source was not read, because the destination takes nothing
    bool has_more = false;  // as the source said
    XdpSource xdp{};
  };
  size_t move(Direction& direction, FrameCache& cache, XdpPath& path, size_t batch_frames_max);
  size_t retry_held(Direction& direction, FrameCache& cache);
  void settle(Direction& direction, FrameBatch& batch, FrameCache& cache);

  PortQueue& a_;
  PortQueue& b_;
  bool carries_b_to_a_;
  Direction a_to_b_;
  Direction b_to_a_;
};

}  // namespace sluice
