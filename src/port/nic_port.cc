#include "port/nic_port.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <bit>
#include <cerrno>

#include "base/log.h"
#include "virtio/features.h"

namespace sluice {
namespace {

constexpr uint64_t kAlwaysWanted = feature::version_1 | feature::mrg_rxbuf | feature::event_idx |
                                   feature::in_order | feature::mac | feature::mtu |
                                   feature::status;

Result<Fd> copy_of(const Fd& fd) {
  Fd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail("copying a descriptor: {}", errno_text(errno));
  return copy;
}

Result<NicEvents> make_events() {
  NicEvents events;
  for (Fd* fd : {&events.kick, &events.call, &events.error}) {
    *fd = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!*fd) return fail("eventfd: {}", errno_text(errno));
  }
  return events;
}

Result<void> copy_events(const NicEvents& events, FrontEndRing& ring) {
  const std::pair<const Fd*, Fd*> all[] = {
      {&events.kick, &ring.kick}, {&events.call, &ring.call}, {&events.error, &ring.error}};
  for (const auto& [from, to] : all) {
    auto copy = copy_of(*from);
    if (!copy) return fail(copy.error());
    *to = std::move(*copy);
  }
  return {};
}

OffloadSet takes_of_device(uint64_t features) {
  return {.csum = (features & feature::csum) != 0,
          .tso4 = (features & feature::host_tso4) != 0,
          .tso6 = (features & feature::host_tso6) != 0,
          .tso_ecn = (features & feature::host_ecn) != 0,
          .uso = (features & feature::host_uso) != 0};
}

}  // namespace

Result<std::unique_ptr<NicPort>> NicPort::create(const NicPortOptions& options) {
  SLUICE_ASSERT(options.queue_pairs >= 1 && options.queue_pairs <= kQueuePairsMax);
  SLUICE_ASSERT(options.ring_size >= 2 && options.ring_size <= kRingSizeMax);
  SLUICE_ASSERT(options.packed || std::has_single_bit(options.ring_size));
  auto bell = FaultBell::create();
  if (!bell) return fail(bell.error());
  std::unique_ptr<NicPort> port(
      new NicPort(options, std::make_unique<FaultBell>(std::move(*bell))));
  for (uint32_t i = 0; i < options.queue_pairs; ++i) {
    auto queue = NicQueue::create(port->bell_.get());
    if (!queue) return fail(queue.error());
    port->queues_.push_back(std::move(*queue));
  }
  if (options.interrupt_cpu >= 0) {
    auto interrupts = NicInterrupts::start(options.interrupt_cpu);
    if (!interrupts) return fail(interrupts.error());
    port->interrupts_ = std::move(*interrupts);
  }
  return port;
}

NicPort::NicPort(const NicPortOptions& options, std::unique_ptr<FaultBell> bell)
    : Port(options.name), options_(options), bell_(std::move(bell)) {}

NicPort::~NicPort() {
  if (interrupts_) interrupts_->forget_all();
}

std::vector<std::string> NicPort::negotiated() const {
  return ready_ ? feature_names(agreement_->features) : std::vector<std::string>{};
}

std::vector<bool> NicPort::active_queues() const {
  std::vector<bool> active;
  for (const auto& queue : queues_) active.push_back(ready_ && queue->installed());
  return active;
}

// ---- What is asked for --------------------------------------------------------------------------

uint64_t NicPort::wanted_features() const {
  uint64_t bits = kAlwaysWanted;
  if (options_.packed) bits |= feature::ring_packed;
  if (queue_count() > 1) bits |= feature::ctrl_vq | feature::mq;
  if (!options_.offload) return bits;
  // What the device can do for frames of ours, and what our peer can take from it.
  bits |= feature::csum | feature::host_tso4 | feature::host_tso6 | feature::host_ecn |
          feature::host_uso;
  if (peer_takes_.csum) bits |= feature::guest_csum;
  if (brings_whole_frames_) return bits;
  if (peer_takes_.tso4) bits |= feature::guest_tso4;
  if (peer_takes_.tso6) bits |= feature::guest_tso6;
  if (peer_takes_.tso_ecn) bits |= feature::guest_ecn;
  if (peer_takes_.uso) bits |= feature::guest_uso4 | feature::guest_uso6;
  return bits;
}

Result<void> NicPort::bring_whole_frames() {
  constexpr uint64_t kBringsSegments = feature::guest_tso4 | feature::guest_tso6 |
                                       feature::guest_ecn | feature::guest_uso4 |
                                       feature::guest_uso6;
  if (agreement_ && (agreement_->features & kBringsSegments) != 0)
    return fail(
        "its device has been allowed to bring packets that are still to be segmented, and "
        "a program sees whole frames only: start with --xdp, or the nic with offload=off");
  brings_whole_frames_ = true;
  return {};
}

uint64_t NicPort::required_features() const {
  return feature::version_1 | (options_.packed ? feature::ring_packed : 0);
}

// ---- Session ------------------------------------------------------------------------------------

Result<FrontEndLayout> NicPort::agreed(const FrontEndAgreement& agreement) {
  remove_all();
  const uint32_t pairs = std::min(agreement.queue_pairs, queue_count());
  const NicPairSetup setup{.features = agreement.features,
                           .ring_size = options_.ring_size,
                           .mode = options_.transmit_mode};
  auto memory = NicMemory::create(pairs * NicPair::memory_bytes(setup) +
                                  NicControl::memory_bytes(agreement.features));
  if (!memory) return fail(memory.error());
  memory_ = std::make_unique<NicMemory>(std::move(*memory));
  FrontEndLayout layout;
  auto file = copy_of(memory_->file());
  if (!file) return fail(file.error());
  layout.memory = std::move(*file);
  layout.memory_bytes = memory_->bytes();
  layout.frontend_address = memory_->frontend(GuestAddr{0});
  agreement_ = agreement;
  for (uint32_t pair = 0; pair < pairs; ++pair) {
    staged_.emplace_back().pair = NicPair::create(setup, *memory_);
    if (auto staged = stage_pair(pair, layout); !staged) return fail(staged.error());
  }
  if (agreement.has_control_queue) {
    if (auto staged = stage_control(layout); !staged) return fail(staged.error());
  }
  return layout;
}

Result<void> NicPort::stage_pair(uint32_t pair, FrontEndLayout& layout) {
  Staged& staged = staged_[pair];
  auto receive = make_events();
  if (!receive) return fail(receive.error());
  auto transmit = make_events();
  if (!transmit) return fail(transmit.error());
  FrontEndRing receive_ring = staged.pair->describe_receive();
  FrontEndRing transmit_ring = staged.pair->describe_transmit();
  receive_ring.index = 2 * pair;
  transmit_ring.index = 2 * pair + 1;
  if (auto copied = copy_events(*receive, receive_ring); !copied) return copied;
  if (auto copied = copy_events(*transmit, transmit_ring); !copied) return copied;
  staged.receive = std::move(*receive);
  staged.transmit = std::move(*transmit);
  layout.rings.push_back(std::move(receive_ring));
  layout.rings.push_back(std::move(transmit_ring));
  return {};
}

Result<void> NicPort::stage_control(FrontEndLayout& layout) {
  auto events = make_events();
  if (!events) return fail(events.error());
  control_ = std::make_unique<NicControl>(agreement_->features, *memory_);
  FrontEndRing ring = control_->describe();
  ring.index = agreement_->control_index;
  if (auto copied = copy_events(*events, ring); !copied) return copied;
  control_->set_events(std::move(*events));
  layout.rings.push_back(std::move(ring));
  return {};
}

void NicPort::session_ready() {
  for (size_t i = 0; i < staged_.size(); ++i) {
    Staged& staged = staged_[i];
    NicQueue& queue = *queues_[i];
    Result<void> installed;
    change(queue, [&] {
      installed = queue.install(std::move(staged.pair), std::move(staged.receive),
                                std::move(staged.transmit), interrupts_ != nullptr);
    });
    if (installed && interrupts_) installed = interrupts_->watch(queue);
    if (!installed) log_error("{}: queue {}: {}", name(), i, installed.error().text);
  }
  const size_t pairs = staged_.size();
  staged_.clear();
  ready_ = true;
  device_takes_ = takes_of_device(agreement_->features);
  log_info("{}: connected to a back end, {} queue pair{}, negotiated {}", name(), pairs,
           pairs == 1 ? "" : "s", fmt::join(feature_names(agreement_->features), " "));
  if (control_ && pairs > 1) control_->set_queue_pairs(static_cast<uint16_t>(pairs));
  tell();
}

void NicPort::session_closed(const std::string& reason) {
  const bool was_ready = ready_;
  remove_all();
  if (!reason.empty()) {
    if (end_limit_.admit()) log_warning("{}: no back end any more: {}", name(), reason);
  } else if (was_ready) {
    log_info("{}: disconnected from the back end", name());
  }
  tell();
}

void NicPort::config_changed(const FrontEndAgreement& agreement) { agreement_ = agreement; }

void NicPort::remove_all() {
  if (interrupts_) interrupts_->forget_all();
  for (auto& queue : queues_) {
    if (queue->installed()) change(*queue, [&] { queue->remove(); });
  }
  ready_ = false;
  staged_.clear();
  control_.reset();
  agreement_.reset();
  device_takes_ = {};
  memory_.reset();
}

void NicPort::change(NicQueue& queue, const std::function<void()>& what) {
  if (executor_ == nullptr)
    what();
  else
    executor_->run_between_breaths(queue, what);
}

void NicPort::tell() {
  if (listener_ == nullptr) return;
  listener_->takes_changed(*this);
  listener_->active_queues_changed(*this);
}

uint64_t NicPort::interrupts() const { return interrupts_ ? interrupts_->count() : 0; }

size_t NicPort::frames_with_device() {
  size_t frames = 0;
  for (auto& queue : queues_) change(*queue, [&] { frames += queue->frames_with_device(); });
  return frames;
}

std::optional<std::string> NicPort::take_fault() {
  bell_->silence();
  std::optional<std::string> found;
  for (auto& queue : queues_) {
    change(*queue, [&] {
      if (queue->installed() && queue->pair()->fault() != nullptr) found = queue->pair()->fault();
    });
    if (found) return found;
  }
  return std::nullopt;
}

void NicPort::on_control_event() {
  if (!control_) return;
  const auto answer = control_->take_answer();
  if (!answer) return;
  if (*answer == NicControl::Answer::ok)
    log_info("{}: the device uses all queue pairs", name());
  else
    log_warning("{}: the device did not accept the number of queue pairs", name());
}

}  // namespace sluice
