// GeneratorPort: makes numbered frames and looks at those that come: a measuring instrument as a
// port like any other. With a nic at the other end of its cable it is `sluice pktgen`.
//
//   txonly   sends; what comes is counted only
//   rxonly   sends nothing; looks at the numbers of what comes: lost, reordered, duplicate
//   echo     sends, at most `window_frames` at a time, and expects every frame back
//   reflect  sends each frame back to where it came from (the other end of an echo)
//   latency  as echo, a frame alone at a fixed rate: how long until it is back
//
// Frames are made in bursts: `burst_frames` a breath, in batches of up to 64, so that a nic sees
// one kick a burst. A rate spreads the bursts over time; what could not be sent in time is not made
// up for beyond one burst.
//
// All queues belong to one worker. figures() is for between breaths, or after the worker has ended.
#pragma once

#include <memory>
#include <vector>

#include "base/histogram.h"
#include "packet/number_check.h"
#include "packet/numbered_frame.h"
#include "port/port.h"
#include "port/wake_set.h"

namespace sluice {

enum class GeneratorMode : uint8_t { txonly, rxonly, echo, reflect, latency };
// Whether every frame that is sent is expected back.
constexpr bool is_closed_loop(GeneratorMode mode) {
  return mode == GeneratorMode::echo || mode == GeneratorMode::latency;
}
// Whether it makes frames of its own.
constexpr bool sends(GeneratorMode mode) {
  return mode != GeneratorMode::rxonly && mode != GeneratorMode::reflect;
}

struct GeneratorOptions {
  std::string name = "generator";
  GeneratorMode mode = GeneratorMode::txonly;
  uint32_t queues = 1;
  NumberedFrameSpec frame{};
  uint32_t burst_frames = 256;
  uint32_t flows = 1;          // at least one a queue
  double rate_fps = 0;         // frames a second over all queues; 0: as many as there is room for
  uint64_t frames_max = 0;     // sends no more than that; 0: no end
  uint32_t window_frames = 0;  // echo, latency: how many may be under way, a queue
  bool verify = false;         // look at the checksum of each frame that comes
};

struct GeneratorFigures {
  uint64_t frames_sent = 0;
  uint64_t frames_received = 0;  // all
  uint64_t frames_foreign = 0;   // that were not made by a generator
  uint64_t frames_bad_checksum = 0;
  uint64_t frames_under_way = 0;  // echo, latency
  uint64_t frames_given_up = 0;   // echo, latency: did not come back within a second
  uint64_t receive_ns_first = 0;  // when the first burst came, and the last
  uint64_t receive_ns_last = 0;
  NumberCounts numbers;
  Histogram latency_ns;  // from a frame's making until it came
};

class GeneratorQueue;

// What the queues of one generator share. One worker.
struct Generator {
  explicit Generator(const GeneratorOptions& options);
  bool looks() const {
    return options.mode != GeneratorMode::txonly && options.mode != GeneratorMode::reflect;
  }
  void look_at(const Frame& frame, uint64_t now_ns);

  GeneratorOptions options;
  NumberedFrames frames;
  NumberCheck check;
  Histogram latency_ns;
  std::vector<GeneratorQueue*> queues;
  bool sending = false;
  uint64_t foreign = 0;
  uint64_t bad_checksum = 0;
  uint64_t receive_ns_first = 0;
  uint64_t receive_ns_last = 0;
};

class GeneratorQueue final : public PortQueue {
 public:
  static Result<std::unique_ptr<GeneratorQueue>> create(Generator& generator, uint32_t index);

  bool receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept override;
  void transmit(FrameBatch& batch) noexcept override;
  void finish_breath() noexcept override { burst_left_ = generator_.options.burst_frames; }
  size_t transmit_room() noexcept override { return kBatchFramesMax - reflected_.size(); }
  bool arm(bool wants_frames, bool wants_room) noexcept override;
  void disarm() noexcept override {}
  int wake_fd() const noexcept override { return wake_.fd(); }
  void on_wake() noexcept override;

  // Between breaths.
  void begin(uint64_t now_ns);
  uint64_t under_way() const { return under_way_; }
  uint64_t given_up() const { return given_up_; }
  // One of its own, for the first time.
  void came_back(const FrameTag& tag);

 private:
  GeneratorQueue(Generator& generator, uint32_t index, WakeSet wake, Fd timer);
  size_t allowed(uint64_t now_ns);
  size_t make(FrameBatch& batch, size_t count, uint64_t now_ns, FrameCache& cache);
  uint64_t ns_until_due(uint64_t now_ns) const;
  void give_up_the_overdue(uint64_t now_ns);

  Generator& generator_;
  WakeSet wake_;
  Fd timer_;
  const uint32_t index_;
  std::vector<uint64_t> next_numbers_;  // of the flows index, index + queues, …
  size_t next_flow_ = 0;
  uint64_t frames_left_ = 0;
  size_t burst_left_ = 0;
  // Pacing: how many frames are due is counted from here.
  double ns_a_frame_ = 0;
  uint64_t pace_begin_ns_ = 0;
  uint64_t paced_frames_ = 0;
  // Closed loop.
  uint64_t under_way_ = 0;
  uint64_t given_up_ = 0;
  std::vector<uint64_t> given_up_below_;  // of each flow: those numbers are not under way any more
  uint64_t progress_ns_ = 0;              // when something was sent or came back last
  FrameBatch reflected_;                  // kept, and given out with the next receive()
};

class GeneratorPort final : public Port {
 public:
  static Result<std::unique_ptr<GeneratorPort>> create(const GeneratorOptions& options);

  std::string_view kind() const override { return "generator"; }
  uint32_t queue_count() const override { return static_cast<uint32_t>(queues_.size()); }
  PortQueue& queue(uint32_t index) override { return *queues_[index]; }
  std::pair<std::string_view, std::string_view> direction_names() const override {
    return {"from_generator", "to_generator"};
  }
  std::vector<std::string> negotiated() const override { return {}; }
  OffloadSet takes() const override { return {}; }
  void set_peer_takes(const OffloadSet&) override {}
  void set_active_queues(const std::vector<bool>&) override {}
  bool wants_one_worker() const override { return true; }
  size_t frames_kept_max() const override { return kBatchFramesMax; }

  // Between breaths.
  void begin();
  void stop_sending() { generator_.sending = false; }
  GeneratorFigures figures() const;
  // At any time, by any thread.
  uint64_t frames_sent() const;
  uint64_t frames_received() const;

 private:
  explicit GeneratorPort(const GeneratorOptions& options);

  Generator generator_;
  std::vector<std::unique_ptr<GeneratorQueue>> queues_;
};

}  // namespace sluice
