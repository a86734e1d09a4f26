// Port and PortQueue: where frames come from and go to, in batches.
//
// A Port is what the operator names ("vm0", "t0"); the control thread sets it up and changes it. A
// PortQueue is one queue pair of it; it belongs to exactly one worker, and only that worker calls
// its data-path methods, which never block, allocate or throw. Calls are virtual once a batch.
//
// One breath of a worker for a link between two queues:
//   a.receive(batch, budget, cache);      // frames come in, with their lengths known
//   b.transmit(batch);                    // every frame gets a result
//   …the worker gives back, holds or counts each frame by its result…
//   b.finish_breath(); a.finish_breath(); // by-reference chains complete, publish, notify at most
//   once
// and the same with a and b exchanged.
//
// Sleeping: while a queue is polled, its notifications are suppressed. To sleep the worker calls
// arm(), which switches them on, does the full fence and looks again: true means that there is work
// after all, and the worker calls disarm() and goes on. wake_fd() is one descriptor for epoll
// (edge-triggered) for the queue's whole life; after it fires the worker calls on_wake().
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/drop_reason.h"
#include "base/result.h"
#include "base/shared_word.h"
#include "memory/frame.h"
#include "memory/frame_pool.h"
#include "xdp/xdp_run.h"

namespace sluice {

// Bounds of one receive().
struct Budget {
  size_t frames = kBatchFramesMax;
  size_t bytes = kBurstBytesMax;
};

// Sizes of batches: 1, 2-3, 4-7, 8-15, 16-31, 32-63, 64.
inline constexpr size_t kBatchHistogramBuckets = 7;

// Figures of one direction of one queue. Written by the owning worker, read by anyone at any time.
struct QueueCounters {
  Counter frames;
  Counter bytes;
  std::array<Counter, kDropReasonCount> drops;
  std::array<Counter, kBatchHistogramBuckets> batch_histogram;
  Counter kicks;                     // wake-ups received from the other side
  Counter notifications;             // sent to the other side
  Counter notifications_suppressed;  // not sent, because the other side had asked for none
  std::array<Counter, kXdpVerdictCount> verdicts;  // of the XDP program that runs on what comes

  // A batch that was carried, with its bytes; frame_count > 0.
  void count_batch(size_t frame_count, size_t byte_count);
  void count_drop(DropReason reason, uint64_t count = 1) {
    drops[static_cast<size_t>(reason)].add(count);
  }
};

class PortQueue {
 public:
  virtual ~PortQueue() = default;

  // Takes frames from the port into `batch` (empty on entry) within the budget. Frames that cannot
  // be taken in are counted here, under the port's name. Returns true when there may be more.
  virtual bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept = 0;
  // Offers every frame and stores its result in it. After the first `blocked` all later ones are
  // blocked too, so that order holds. Counts what it sent; the caller counts drops, by
  // count_transmit_drop(), since held frames can also run out of time.
  virtual void transmit(FrameBatch& batch) noexcept = 0;
  virtual void finish_breath() noexcept = 0;

  // How many frames transmit() can take now: 0 = it would block, so the source is not read.
  // An estimate from above is allowed.
  virtual size_t transmit_room() noexcept = 0;

  // wants_room: the worker waits for room towards this queue, not only for frames from it.
  // wants_frames: frames from this queue could be delivered now.
  virtual bool arm(bool wants_frames, bool wants_room) noexcept = 0;
  virtual void disarm() noexcept = 0;
  virtual int wake_fd() const noexcept = 0;
  virtual void on_wake() noexcept = 0;
  // The other side will not wake us (a front end without kicks): look again soon by yourself.
  virtual bool must_be_polled() const noexcept { return false; }
  // The name under which a frame is dropped that this queue had no room for in time.
  virtual DropReason full_reason() const noexcept { return DropReason::port_full; }

  // Frames from this port, and frames towards it.
  const QueueCounters& received() const { return received_; }
  const QueueCounters& transmitted() const { return transmitted_; }
  void count_receive_drop(DropReason reason) { received_.count_drop(reason); }
  void count_transmit_drop(DropReason reason) { transmitted_.count_drop(reason); }
  void count_verdict(size_t verdict, uint64_t count) { received_.verdicts[verdict].add(count); }

 protected:
  QueueCounters received_;
  QueueCounters transmitted_;
};

class Port;
// Hears when a port's side changed in a way that its peer must follow. Control thread.
class PortListener {
 public:
  virtual ~PortListener() = default;
  virtual void takes_changed(Port& port) = 0;
  virtual void active_queues_changed(Port& port) = 0;
};

class QueueExecutor;  // port/queue_executor.h

class Port {
 public:
  explicit Port(std::string name) : name_(std::move(name)) {}
  virtual ~Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  const std::string& name() const { return name_; }
  virtual std::string_view kind() const = 0;  // "vm", "tap", "macvtap", "null"
  virtual uint32_t queue_count() const = 0;   // queue pairs; constant
  virtual PortQueue& queue(uint32_t index) = 0;
  // Names of the two directions in statistics: {"from_guest", "to_guest"} for a VM port,
  // {"from_host", "to_host"} for a TAP. First is what receive() brings.
  virtual std::pair<std::string_view, std::string_view> direction_names() const = 0;
  // What was agreed with the other side, by name, for `stats` and the log.
  virtual std::vector<std::string> negotiated() const = 0;

  // The following are called by the control thread only.
  // For ports that change while they run. Both outlive the port's sessions; without an executor
  // changes are made by the caller's thread (tests without workers).
  virtual void attach(QueueExecutor*, PortListener*) {}
  // What this port can take from its peer. For a TAP what the kernel takes; constant.
  virtual OffloadSet takes() const = 0;
  // What the peer takes now, after it negotiated: a TAP passes it to the kernel (TUNSETOFFLOAD).
  virtual void set_peer_takes(const OffloadSet& peer) = 0;
  // Before the workers start: all queues of this port are breathed by one of them, so that frames
  // may be moved between its queues. peer_is_narrower: the peer has fewer queues, so somebody has
  // to.
  virtual void queues_share_worker(bool /*peer_is_narrower*/) {}
  // Whether the port asks for that.
  virtual bool wants_one_worker() const { return false; }
  // How many frames one of its queues may keep (FrameResult::kept): the frame pool has room for
  // them.
  virtual size_t frames_kept_max() const { return 0; }
  // Which queue pairs of this port have a receiver now; a TAP detaches the others, so that no flow
  // is steered into nowhere. One entry a queue.
  virtual void set_active_queues(const std::vector<bool>& active) = 0;
  // An XDP program is to run on each frame that this port brings: from now on it brings only frames
  // that lie in one chunk, with no segmentation left to do. Refused, with a sentence, where the
  // other side has been promised more already. Not taken back.
  virtual Result<void> bring_whole_frames() { return {}; }
  // Bytes of a packet, without its Ethernet header, that this port sends on: what a program's
  // check_mtu is told.
  virtual uint32_t mtu_bytes() const { return 1500; }
  // Which queue pairs of this port can deliver what is sent to them.
  virtual std::vector<bool> active_queues() const { return std::vector<bool>(queue_count(), true); }

 private:
  std::string name_;
};

}  // namespace sluice
