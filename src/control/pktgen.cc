#include "control/pktgen.h"

#include <algorithm>

#include "base/clock.h"
#include "base/thread_time.h"
#include "control/event_loop.h"
#include "control/nic_endpoint.h"
#include "engine/engine.h"

namespace sluice {
namespace {

constexpr uint64_t kLookNs = 20'000'000;
constexpr uint64_t kLineNs = 1'000'000'000;
// How long what is under way may take to arrive.
constexpr uint64_t kDrainNs = 1'000'000'000;

class Run {
 public:
  Run(const PktgenOptions& options, const std::function<void(std::string_view)>& progress)
      : options_(options), progress_(progress) {}
  ~Run() {
    // The session stops its rings through the worker, so that goes later, and the ports last.
    endpoint_.reset();
    if (engine_) engine_->stop();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result<PktgenReport> run();

 private:
  Result<void> build();
  void begin();
  void look();
  bool is_over(uint64_t now_ns);
  void say(uint64_t now_ns);
  void stop_sending(uint64_t now_ns);
  void finish();
  GeneratorFigures figures();
  uint64_t worker_ns() const {
    return thread_cpu_ns("sluice-worker") + thread_cpu_ns("sluice-irq");
  }

  enum class Phase : uint8_t { connecting, running, draining };
  const PktgenOptions& options_;
  const std::function<void(std::string_view)>& progress_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Engine> engine_;
  NicPort* nic_ = nullptr;
  GeneratorPort* generator_ = nullptr;
  std::unique_ptr<NicEndpoint> endpoint_;
  Phase phase_ = Phase::connecting;
  bool signalled_ = false;
  uint64_t begin_ns_ = 0;  // of the phase
  uint64_t cpu_begin_ns_ = 0;
  uint64_t line_ns_ = 0;
  GeneratorFigures line_figures_;
  PktgenReport report_;
  std::string start_failure_;
};

Result<void> Run::build() {
  auto loop = EventLoop::create();
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  // Before any thread starts, so that all of them inherit the blocked signals.
  if (auto watched = loop_->watch_signals([this](int) { signalled_ = true; }); !watched)
    return watched;
  EngineOptions engine;
  if (options_.cpu >= 0) engine.cpus.push_back(options_.cpu);
  engine.poll_us = options_.poll_us;
  engine.batches_per_breath = static_cast<uint32_t>(
      (options_.generator.burst_frames + kBatchFramesMax - 1) / kBatchFramesMax);
  engine_ = std::make_unique<Engine>(engine);
  auto nic = NicPort::create(nic_port_options(options_.nic));
  if (!nic) return fail(nic.error());
  auto generator = GeneratorPort::create(options_.generator);
  if (!generator) return fail(generator.error());
  nic_ = nic->get();
  generator_ = generator->get();
  engine_->add(std::move(*nic));
  engine_->add(std::move(*generator));
  engine_->connect(*nic_, *generator_);
  if (auto started = engine_->start(); !started) return started;
  auto endpoint = NicEndpoint::open(*loop_, options_.nic, *nic_);
  if (!endpoint) return endpoint.error();
  endpoint_ = std::move(*endpoint);
  return {};
}

Result<PktgenReport> Run::run() {
  if (auto built = build(); !built) return built.error();
  report_.options = options_;
  begin_ns_ = monotonic_ns();
  loop_->add_timer(0, [this] { look(); });
  loop_->run();
  if (!start_failure_.empty()) return fail("{}", start_failure_);
  return report_;
}

// Looks again and again, until the end.
void Run::look() {
  const uint64_t now_ns = monotonic_ns();
  switch (phase_) {
    case Phase::connecting:
      if (endpoint_->is_ready()) {
        begin();
      } else if (signalled_) {
        start_failure_ = "stopped by a signal before there was a back end";
      } else if (static_cast<double>(now_ns - begin_ns_) > options_.wait_seconds * 1e9) {
        start_failure_ = fmt::format(
            "no back end at {} within {} seconds: {}", options_.nic.socket_path,
            options_.wait_seconds,
            endpoint_->last_failure().empty() ? "nobody came" : endpoint_->last_failure());
      }
      if (!start_failure_.empty()) return loop_->stop();
      break;
    case Phase::running:
      say(now_ns);
      if (is_over(now_ns)) stop_sending(now_ns);
      break;
    case Phase::draining: {
      const bool is_drained = nic_->frames_with_device() == 0 && figures().frames_under_way == 0;
      if (!is_drained && report_.failure.empty() && now_ns - begin_ns_ < kDrainNs) break;
      finish();
      return loop_->stop();
    }
  }
  loop_->add_timer(kLookNs, [this] { look(); });
}

void Run::begin() {
  const std::vector<bool> active = nic_->active_queues();
  const auto pairs = static_cast<size_t>(std::ranges::count(active, true));
  if (pairs < active.size()) {
    // Flows of the queues that nobody serves would be dropped, all of them.
    start_failure_ =
        fmt::format("the back end has {} queue pairs of the {} asked for: give --queues {}", pairs,
                    active.size(), pairs);
    return;
  }
  phase_ = Phase::running;
  report_.negotiated = nic_->negotiated();
  cpu_begin_ns_ = worker_ns();
  begin_ns_ = line_ns_ = monotonic_ns();
  engine_->run_between_breaths(generator_->queue(0), [this] { generator_->begin(); });
}

GeneratorFigures Run::figures() {
  GeneratorFigures figures;
  engine_->run_between_breaths(generator_->queue(0), [&] { figures = generator_->figures(); });
  return figures;
}

bool Run::is_over(uint64_t now_ns) {
  if (!endpoint_->is_ready()) {
    report_.failure = "the back end went away";
    const std::string& reason = endpoint_->last_failure();
    if (!reason.empty() && reason != report_.failure) report_.failure += ": " + reason;
    return true;
  }
  if (signalled_) return true;
  if (options_.seconds > 0 && static_cast<double>(now_ns - begin_ns_) >= options_.seconds * 1e9)
    return true;
  if (options_.generator.frames_max == 0) return false;
  const uint64_t frames =
      sends(options_.generator.mode) ? generator_->frames_sent() : generator_->frames_received();
  return frames >= options_.generator.frames_max;
}

// One line a second.
void Run::say(uint64_t now_ns) {
  if (now_ns - line_ns_ < kLineNs) return;
  const GeneratorFigures now = figures();
  const double seconds = static_cast<double>(now_ns - line_ns_) / 1e9;
  const auto rate = [&](uint64_t GeneratorFigures::*member) {
    return static_cast<double>(now.*member - line_figures_.*member) / seconds / 1e6;
  };
  std::string line = fmt::format("{:5.0f} s", static_cast<double>(now_ns - begin_ns_) / 1e9);
  line +=
      fmt::format("  sent {:7.3f} M/s  received {:7.3f} M/s", rate(&GeneratorFigures::frames_sent),
                  rate(&GeneratorFigures::frames_received));
  if (now.numbers.received > 0)
    line += fmt::format("  lost {}  reordered {}  duplicate {}", now.numbers.lost,
                        now.numbers.reordered, now.numbers.duplicates);
  progress_(line);
  line_ns_ = now_ns;
  line_figures_ = now;
}

void Run::stop_sending(uint64_t now_ns) {
  engine_->run_between_breaths(generator_->queue(0), [this] { generator_->stop_sending(); });
  report_.seconds = static_cast<double>(now_ns - begin_ns_) / 1e9;
  report_.cpu_ns = worker_ns() - cpu_begin_ns_;
  phase_ = Phase::draining;
  begin_ns_ = now_ns;
}

void Run::finish() {
  report_.frames_unused = nic_->frames_with_device();
  for (uint32_t i = 0; i < nic_->queue_count(); ++i) {
    const PortQueue& queue = nic_->queue(i);
    report_.kicks += queue.transmitted().notifications.get() + queue.received().notifications.get();
    report_.kicks_suppressed += queue.transmitted().notifications_suppressed.get();
    report_.interrupts += queue.transmitted().kicks.get();
    report_.receive_interrupts += queue.received().kicks.get();
    for (const Counter& drop : queue.transmitted().drops) report_.frames_dropped += drop.get();
  }
  report_.figures = figures();
}

}  // namespace

Result<PktgenReport> run_pktgen(const PktgenOptions& options,
                                const std::function<void(std::string_view)>& progress) {
  Run run(options, progress);
  return run.run();
}

}  // namespace sluice
