// TapPort: the host's end of the cable, a TAP or macvtap interface. TapQueue: one of its queues.
//
// A frame is one system call each way, in front of it the 12 bytes of virtio-net header. It is read
// into a Frame's chunk, and what is longer goes on in a slab; it is written from where it lies: the
// chunk, a slab, or guest memory, in one writev. from_host is what receive() brings, to_host what
// transmit() takes.
//
// What the kernel refuses has a name and stops nothing: a full queue answers `blocked`, an
// interface that is down, deleted, or a header that the kernel does not like drops that frame, and
// the next one is tried. A deleted interface never comes back to its descriptors; a downed one
// does.
//
// What it does not do: segment, complete checksums, or judge guests' headers; the kernel does the
// first two, and the source has done the third.
//
//   Result<std::unique_ptr<TapPort>> t0 = TapPort::open({.name = "t0", .ifname = "tap0"});
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "port/port.h"
#include "port/tap_opener.h"
#include "port/wake_set.h"

namespace sluice {

// Whether the interface takes frames, as the writes show it; told to the operator once a change.
// Shared by the queues of a port. A change is an operator's act, never a packet's, so this is the
// one line that a worker may log.
class TapLink {
 public:
  enum class State : uint8_t { up, down, gone };

  TapLink(std::string port, std::string ifname)
      : port_(std::move(port)), ifname_(std::move(ifname)) {}
  State state() const noexcept { return state_.load(std::memory_order_relaxed); }
  void note(State now) noexcept {
    if (state() != now) [[unlikely]]
      change(now);
  }

 private:
  void change(State now) noexcept;

  const std::string port_;
  const std::string ifname_;
  std::atomic<State> state_{State::up};
};

class TapQueue final : public PortQueue {
 public:
  TapQueue(Fd fd, WakeSet wake, TapLink& link);

  bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept override;
  void transmit(FrameBatch& batch) noexcept override;
  void finish_breath() noexcept override {}
  size_t transmit_room() noexcept override;
  bool arm(bool wants_frames, bool wants_room) noexcept override;
  void disarm() noexcept override {}  // a wake-up too many costs one look
  int wake_fd() const noexcept override { return wake_.fd(); }
  void on_wake() noexcept override;

  // By the control thread, also while the worker runs.
  Result<void> watch();
  Result<void> set_attached(bool attached);
  bool attached() const noexcept { return attached_.load(std::memory_order_relaxed); }
  // Frames larger than a chunk are to be expected: reads bring a slab along.
  void expect_large_frames(bool expected) noexcept {
    large_frames_.store(expected, std::memory_order_relaxed);
  }
  int fd() const noexcept { return fd_.get(); }

 private:
  enum class Read : uint8_t { frame, refused, nothing };
  Read read_frame(Frame& frame, Slab*& slab) noexcept;
  Read take_in(Frame& frame, Slab*& slab, size_t read_bytes, size_t room_bytes) noexcept;
  void offer(Frame& frame) noexcept;
  void note_refusal(Frame& frame, int error) noexcept;
  void refuse_full(Frame& frame) noexcept;

  Fd fd_;
  WakeSet wake_;
  TapLink& link_;
  std::atomic<bool> attached_{true};
  std::atomic<bool> large_frames_{false};
  std::atomic<bool> watch_again_{false};  // the control thread has put the descriptor in anew
  // The worker's own.
  bool blocked_ = false;  // the last write found no room
  uint64_t blocked_at_ns_ = 0;
  uint32_t watched_events_;
};

class TapPort final : public Port {
 public:
  static Result<std::unique_ptr<TapPort>> open(const TapSpec& spec);
  // Takes the descriptors that open_tap() gave.
  static Result<std::unique_ptr<TapPort>> adopt(TapHandles handles);

  std::string_view kind() const override { return macvtap_ ? "macvtap" : "tap"; }
  uint32_t queue_count() const override { return static_cast<uint32_t>(queues_.size()); }
  PortQueue& queue(uint32_t index) override;
  std::pair<std::string_view, std::string_view> direction_names() const override {
    return {"from_host", "to_host"};
  }
  // The flags of the opening, and the offloads that are switched on now.
  std::vector<std::string> negotiated() const override;
  OffloadSet takes() const override;
  void set_peer_takes(const OffloadSet& peer) override;
  Result<void> bring_whole_frames() override;
  uint32_t mtu_bytes() const override { return mtu_.value_or(Port::mtu_bytes()); }
  // Queue 0 stays attached whatever is said of it: without a queue the kernel would take the
  // carrier away.
  void set_active_queues(const std::vector<bool>& active) override;

  // Gives the interface that address, whatever namespace it is in.
  Result<void> set_mac(const std::array<uint8_t, 6>& mac);

  // The interface's name, and one line for the log that says what was agreed.
  const std::string& ifname() const { return ifname_; }
  const std::string& description() const { return description_; }

 private:
  explicit TapPort(TapHandles& handles);

  std::string ifname_;
  std::string description_;
  bool macvtap_;
  bool multi_queue_;
  std::optional<uint32_t> mtu_;
  std::vector<std::string> flags_;
  OffloadSet kernel_offloads_;
  OffloadSet switched_on_;
  OffloadSet peer_takes_;
  bool brings_whole_frames_ = false;  // the kernel is not allowed to leave segmentation to us
  TapLink link_;
  std::vector<std::unique_ptr<TapQueue>> queues_;
};

}  // namespace sluice
