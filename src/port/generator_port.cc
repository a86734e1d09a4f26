#include "port/generator_port.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace sluice {
namespace {

constexpr uint64_t kNoEnd = ~uint64_t{0};
// A frame that has not come back within this time will not.
constexpr uint64_t kGiveUpNs = 1'000'000'000;

}  // namespace

// ---- What queues share ------------------------------------------------------------------------

Generator::Generator(const GeneratorOptions& wanted)
    : options(wanted),
      frames(wanted.frame),
      // Whoever only receives does not know how many flows there are.
      check(wanted.mode == GeneratorMode::rxonly ? kNumberedFlowsMax
                                                 : std::max(wanted.flows, wanted.queues),
            is_closed_loop(wanted.mode) ? NumberCheck::Begin::at_zero
                                        : NumberCheck::Begin::at_first_seen) {
  options.flows = std::max(options.flows, options.queues);
  SLUICE_ASSERT(options.flows <= kNumberedFlowsMax && options.burst_frames > 0);
}

void Generator::look_at(const Frame& frame, uint64_t now_ns) {
  const std::span<const uint8_t> bytes(frame.data(), frame.head_bytes());
  const auto tag = read_tag(bytes);
  if (!tag) {
    ++foreign;
    return;
  }
  // A checksum that is left to us cannot be wrong.
  if (options.verify && frame.is_single() && !frame.offload().needs_csum &&
      !has_right_checksum(bytes)) {
    ++bad_checksum;
    return;
  }
  const bool is_first = check.saw(tag->flow, tag->number);
  if (now_ns >= tag->time_ns) latency_ns.record(now_ns - tag->time_ns);
  if (is_closed_loop(options.mode) && is_first) queues[tag->flow % options.queues]->came_back(*tag);
}

// ---- A queue ----------------------------------------------------------------------------------

Result<std::unique_ptr<GeneratorQueue>> GeneratorQueue::create(Generator& generator,
                                                               uint32_t index) {
  auto wake = WakeSet::create();
  if (!wake) return fail(wake.error());
  Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer) return fail("no timer for a generator: {}", errno_text(errno));
  if (auto added = wake->add(timer.get(), EPOLLIN, 0); !added) return fail(added.error());
  return std::unique_ptr<GeneratorQueue>(
      new GeneratorQueue(generator, index, std::move(*wake), std::move(timer)));
}

GeneratorQueue::GeneratorQueue(Generator& generator, uint32_t index, WakeSet wake, Fd timer)
    : generator_(generator), wake_(std::move(wake)), timer_(std::move(timer)), index_(index) {
  const GeneratorOptions& options = generator.options;
  const uint32_t flows =
      options.flows / options.queues + (index < options.flows % options.queues ? 1 : 0);
  next_numbers_.assign(flows, 0);
  given_up_below_.assign(flows, 0);
  if (options.rate_fps > 0) ns_a_frame_ = 1e9 * options.queues / options.rate_fps;
  burst_left_ = options.burst_frames;
}

void GeneratorQueue::begin(uint64_t now_ns) {
  const GeneratorOptions& options = generator_.options;
  frames_left_ =
      options.frames_max / options.queues + (index_ < options.frames_max % options.queues ? 1 : 0);
  if (options.frames_max == 0) frames_left_ = kNoEnd;
  pace_begin_ns_ = progress_ns_ = now_ns;
  paced_frames_ = 0;
}

// How many frames may be made now.
size_t GeneratorQueue::allowed(uint64_t now_ns) {
  const GeneratorOptions& options = generator_.options;
  if (!generator_.sending || !sends(generator_.options.mode)) return 0;
  uint64_t count = std::min<uint64_t>(frames_left_, burst_left_);
  if (is_closed_loop(generator_.options.mode)) {
    give_up_the_overdue(now_ns);
    count = std::min<uint64_t>(
        count, options.window_frames - std::min<uint64_t>(options.window_frames, under_way_));
  }
  if (ns_a_frame_ > 0) {
    const auto due =
        static_cast<uint64_t>(static_cast<double>(now_ns - pace_begin_ns_) / ns_a_frame_) + 1;
    const uint64_t late = due - std::min(due, paced_frames_);
    // What is more than a burst behind is let go.
    if (late > options.burst_frames) paced_frames_ = due - options.burst_frames;
    count = std::min(count, late);
  }
  return static_cast<size_t>(count);
}

void GeneratorQueue::give_up_the_overdue(uint64_t now_ns) {
  if (under_way_ == 0 || now_ns - progress_ns_ < kGiveUpNs) return;
  given_up_ += under_way_;
  under_way_ = 0;
  progress_ns_ = now_ns;
  std::ranges::copy(next_numbers_, given_up_below_.begin());
}

void GeneratorQueue::came_back(const FrameTag& tag) {
  // What comes after it was given up makes no room: others are under way in its place.
  if (tag.number < given_up_below_[tag.flow / generator_.options.queues]) return;
  under_way_ -= under_way_ > 0 ? 1 : 0;
}

bool GeneratorQueue::receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept {
  size_t count = 0;
  if (generator_.options.mode == GeneratorMode::reflect) {
    for (; count < reflected_.size() && count < budget.frames; ++count)
      batch.push(reflected_[count]);
    FrameBatch rest;
    for (size_t i = count; i < reflected_.size(); ++i) rest.push(reflected_[i]);
    reflected_ = rest;
  } else {
    if (!generator_.sending) return false;
    const uint64_t now_ns = monotonic_ns();
    count = make(batch, std::min(allowed(now_ns), budget.frames), now_ns, cache);
  }
  if (count == 0) return false;
  size_t bytes = 0;
  for (const Frame* frame : batch) bytes += frame->packet_bytes();
  received_.count_batch(count, bytes);
  return count == budget.frames && burst_left_ > 0;
}

size_t GeneratorQueue::make(FrameBatch& batch, size_t count, uint64_t now_ns, FrameCache& cache) {
  const uint32_t queues = generator_.options.queues;
  for (size_t i = 0; i < count; ++i) {
    Frame* frame = cache.take();
    if (frame == nullptr) return i;
    const size_t bytes = generator_.frames.frame_bytes();
    frame->set_single(bytes);
    generator_.frames.write(frame->data(),
                            {.flow = static_cast<uint16_t>(index_ + next_flow_ * queues),
                             .number = next_numbers_[next_flow_]++,
                             .time_ns = now_ns});
    if (++next_flow_ == next_numbers_.size()) next_flow_ = 0;
    batch.push(frame);
    if (frames_left_ != kNoEnd) --frames_left_;
    --burst_left_;
    ++paced_frames_;
    if (is_closed_loop(generator_.options.mode)) ++under_way_;
  }
  if (count > 0) progress_ns_ = now_ns;
  return count;
}

void GeneratorQueue::transmit(FrameBatch& batch) noexcept {
  if (batch.empty()) return;
  const bool reflects = generator_.options.mode == GeneratorMode::reflect;
  const uint64_t now_ns = monotonic_ns();
  size_t bytes = 0;
  for (Frame* frame : batch) {
    bytes += frame->packet_bytes();
    if (generator_.looks()) generator_.look_at(*frame, now_ns);
    if (!reflects || frame->tail_kind() == TailKind::spans || reflected_.room() == 0) {
      frame->set_result(FrameResult::done);
      continue;
    }
    swap_link_addresses({frame->data(), frame->head_bytes()});
    frame->set_result(FrameResult::kept);
    reflected_.push(frame);
  }
  if (generator_.receive_ns_first == 0) generator_.receive_ns_first = now_ns;
  generator_.receive_ns_last = now_ns;
  progress_ns_ = now_ns;
  transmitted_.count_batch(batch.size(), bytes);
}

uint64_t GeneratorQueue::ns_until_due(uint64_t now_ns) const {
  const double due_ns = static_cast<double>(paced_frames_) * ns_a_frame_;
  const auto due_at_ns = pace_begin_ns_ + static_cast<uint64_t>(due_ns) + 1;
  return due_at_ns > now_ns ? due_at_ns - now_ns : 1;
}

bool GeneratorQueue::arm(bool wants_frames, bool wants_room) noexcept {
  if (wants_room && transmit_room() > 0) return true;
  if (!wants_frames) return false;
  if (!reflected_.empty()) return true;
  if (!generator_.sending || !sends(generator_.options.mode) || frames_left_ == 0) return false;
  const uint64_t now_ns = monotonic_ns();
  if (allowed(now_ns) > 0) return true;
  const bool waits_for_window =
      is_closed_loop(generator_.options.mode) && under_way_ >= generator_.options.window_frames;
  const uint64_t wait_ns =
      waits_for_window ? progress_ns_ + kGiveUpNs - now_ns + 1 : ns_until_due(now_ns);
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(wait_ns / 1'000'000'000);
  when.it_value.tv_nsec = static_cast<long>(wait_ns % 1'000'000'000);
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
  return false;
}

void GeneratorQueue::on_wake() noexcept {
  uint64_t ticks = 0;
  [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &ticks, sizeof ticks);
}

// ---- The port ---------------------------------------------------------------------------------

GeneratorPort::GeneratorPort(const GeneratorOptions& options)
    : Port(options.name), generator_(options) {}

Result<std::unique_ptr<GeneratorPort>> GeneratorPort::create(const GeneratorOptions& options) {
  SLUICE_ASSERT(options.queues > 0 && options.queues <= kQueuePairsMax);
  SLUICE_ASSERT(options.frame.frame_bytes <= kFrameDataBytesMax);
  std::unique_ptr<GeneratorPort> port(new GeneratorPort(options));
  SLUICE_ASSERT(!is_closed_loop(options.mode) || options.window_frames > 0);
  for (uint32_t i = 0; i < options.queues; ++i) {
    auto queue = GeneratorQueue::create(port->generator_, i);
    if (!queue) return fail("{}: {}", options.name, queue.error().text);
    port->generator_.queues.push_back(queue->get());
    port->queues_.push_back(std::move(*queue));
  }
  return port;
}

void GeneratorPort::begin() {
  const uint64_t now_ns = monotonic_ns();
  for (auto& queue : queues_) queue->begin(now_ns);
  generator_.sending = sends(generator_.options.mode);
}

uint64_t GeneratorPort::frames_sent() const {
  uint64_t frames = 0;
  for (const auto& queue : queues_) frames += queue->received().frames.get();
  return frames;
}

uint64_t GeneratorPort::frames_received() const {
  uint64_t frames = 0;
  for (const auto& queue : queues_) frames += queue->transmitted().frames.get();
  return frames;
}

GeneratorFigures GeneratorPort::figures() const {
  GeneratorFigures all{.frames_sent = frames_sent(),
                       .frames_received = frames_received(),
                       .frames_foreign = generator_.foreign,
                       .frames_bad_checksum = generator_.bad_checksum,
                       .receive_ns_first = generator_.receive_ns_first,
                       .receive_ns_last = generator_.receive_ns_last,
                       .numbers = generator_.check.counts(),
                       .latency_ns = generator_.latency_ns};
  for (const auto& queue : queues_) {
    all.frames_under_way += queue->under_way();
    all.frames_given_up += queue->given_up();
  }
  return all;
}

}  // namespace sluice
