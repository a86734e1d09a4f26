// A hostile device against both driver sides.
//
// The input is a list of steps: what the driver is asked to do (add, publish, kick, take, ask for
// callbacks or not) and what the device does (take and use by the rules, in runs, or write used
// entries out of nothing, and any word of the ring). After each step: what the driver gives back is
// outstanding and was shown to the device, with no more bytes than there is room; in order where
// that was agreed; its counts are the ones that were counted here; once broken it stays so, and
// then everything that is outstanding can be had back, each chain once.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ring_input.h"
#include "testing/fake_device.h"

namespace sluice {
namespace {

constexpr uint64_t kGuestBytes = 256 << 10;
// Each area has room for the largest ring of either format.
constexpr uint32_t kSizeMax = 64;
constexpr FakeRingAreas kAreas = {
    .descriptors = 0x1000, .driver_area = 0x2000, .device_area = 0x3000, .tables = 0x4000};
constexpr uint64_t kBuffers = 0x8000;
constexpr uint32_t kBufferBytes = 256;
constexpr size_t kStepsMax = 512;
static_assert(kBuffers + uint64_t{kBufferBytes} * kSizeMax <= kGuestBytes);

FakeGuestMemory& guest() {
  static FakeGuestMemory memory({FakeRegion{.bytes = kGuestBytes}});
  return memory;
}

template <class Ring>
class Session {
 public:
  using Device = typename FakeDeviceOf<Ring>::Type;
  Session(RingInput& input, const DriverRingOptions& options)
      : input_(input),
        options_(options),
        driver_(DriverTestRing<Ring>::setup(guest(), kAreas, options)),
        device_(guest(), kAreas, options) {
    for (uint32_t i = options.size; i-- > 0;) free_.push_back(static_cast<uint16_t>(i));
  }

  void run() {
    for (size_t step = 0; step < kStepsMax && !input_.empty(); ++step) {
      const uint8_t choice = input_.byte();
      if (choice % 2 == 0) driver_step(choice / 2);
      if (choice % 2 == 1) device_step(choice / 2);
      SLUICE_ASSERT(driver_.outstanding() == sent_.size());
      SLUICE_ASSERT(driver_.free_descriptors() <= driver_.size());
      SLUICE_ASSERT(driver_.descriptors_outstanding() >= sent_.size());
    }
    end();
  }

 private:
  struct Sent {
    uint16_t token;
    uint32_t room;
    bool is_published;
  };

  void driver_step(uint8_t choice) {
    switch (choice % 8) {
      case 0:
      case 1:
        return add();
      case 2:
        driver_.publish();
        for (Sent& sent : sent_) sent.is_published = true;
        return;
      case 3:
        (void)driver_.device_wants_kick();
        return;
      case 4:
      case 5:
        return take();
      case 6:
        if (input_.byte() % 2 == 0) (void)driver_.enable_callbacks();
        (void)driver_.enable_callbacks_delayed();
        return;
      default:
        return driver_.disable_callbacks();
    }
  }

  BufferPiece piece(uint16_t token, uint32_t bytes) const {
    return {GuestAddr{kBuffers + uint64_t{kBufferBytes} * token}, bytes};
  }

  void add() {
    if (free_.empty()) return;
    const uint16_t token = free_.back();
    const uint8_t shape = input_.byte();
    const size_t readable = shape % 4, writable = shape / 4 % 4;
    if (readable + writable == 0) return;
    std::vector<BufferPiece> pieces(readable + writable, piece(token, shape));
    const std::span<const BufferPiece> all(pieces);
    const size_t free_before = driver_.free_descriptors();
    if (!driver_.add(all.first(readable), all.subspan(readable), token)) {
      SLUICE_ASSERT(driver_.free_descriptors() == free_before);
      return;
    }
    SLUICE_ASSERT(driver_.free_descriptors() < free_before);
    free_.pop_back();
    sent_.push_back({token, static_cast<uint32_t>(writable * shape), false});
  }

  void take() {
    UsedBuffer used;
    const bool was_broken = driver_.broken();
    const Take take = driver_.take_used(used);
    SLUICE_ASSERT((take == Take::broken) == driver_.broken());
    SLUICE_ASSERT(!was_broken || take == Take::broken);
    if (take != Take::used) return;
    const auto at = std::find_if(sent_.begin(), sent_.end(),
                                 [&](const Sent& sent) { return sent.token == used.token; });
    SLUICE_ASSERT(at != sent_.end());
    SLUICE_ASSERT(used.bytes <= at->room);
    // Whose id a device names it may have guessed before it was shown; but never more than were.
    SLUICE_ASSERT(std::any_of(sent_.begin(), sent_.end(),
                              [](const Sent& sent) { return sent.is_published; }));
    SLUICE_ASSERT(!options_.in_order || at == sent_.begin());
    free_.push_back(used.token);
    sent_.erase(at);
  }

  void device_step(uint8_t choice) {
    switch (choice % 12) {
      case 0:
      case 1:
        return device_take();
      case 2:
        return use(1);
      case 3:
        return use(1 + input_.byte() % 4);
      case 4:
      case 5:
        return device_.publish();
      case 6:
        (void)device_.interrupt_wanted();
        return;
      case 7:
        if (input_.byte() % 4 == 0) return device_.refuse_kicks();
        (void)device_.ask_for_kick(0);
        return;
      case 8:
        lied_ = true;
        return device_.raw_use(input_.byte() % 4 == 0 ? input_.dword() : input_.byte() % 65u,
                               input_.length());
      case 9:
        return device_.raw_wish(input_.word(), input_.byte() % 4);
      default:
        return raw_store();
    }
  }

  // After a lie the ring says nothing that a device by the rules could follow.
  void device_take() {
    if (lied_ || device_has_.size() >= kSizeMax) return;
    if (auto taken = device_.take()) device_has_.push_back(std::move(*taken));
  }
  void use(size_t count) {
    if (device_has_.empty()) return;
    const uint32_t bytes = input_.byte() % 4 == 0 ? input_.length() : input_.byte() % 64u;
    count = std::min(count, device_has_.size());
    const std::span<const FakeDevice::Taken> all(device_has_);
    if (options_.in_order && count > 1) {
      device_.use_batch(all.first(count), bytes);
    } else {
      count = 1;
      device_.use(device_has_[0], bytes);
      // Once more than it was taken, at times.
      if (input_.byte() % 16 == 0) {
        lied_ = true;
        count = 0;
      }
    }
    device_has_.erase(device_has_.begin(), device_has_.begin() + static_cast<ptrdiff_t>(count));
  }
  void raw_store() {
    lied_ = true;
    constexpr uint64_t kWhere[] = {kAreas.descriptors, kAreas.driver_area, kAreas.device_area,
                                   kAreas.tables};
    device_.raw_store(kWhere[input_.byte() % 4] + 2 * uint64_t{input_.byte()}, input_.word());
  }

  void end() {
    uint16_t token = 0;
    while (driver_.take_back(token)) {
      const auto at = std::find_if(sent_.begin(), sent_.end(),
                                   [&](const Sent& sent) { return sent.token == token; });
      SLUICE_ASSERT(at != sent_.end());
      sent_.erase(at);
    }
    SLUICE_ASSERT(sent_.empty());
    SLUICE_ASSERT(driver_.free_descriptors() == driver_.size());
  }

  RingInput& input_;
  const DriverRingOptions options_;
  Ring driver_;
  Device device_;
  std::vector<uint16_t> free_;  // tokens
  std::vector<Sent> sent_;      // in the order of their adding
  std::vector<FakeDevice::Taken> device_has_;
  bool lied_ = false;
};

template <class Ring>
void run(RingInput& input, const DriverRingOptions& options) {
  std::memset(guest().at(0, kGuestBytes), 0, kBuffers);
  Session<Ring>(input, options).run();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  sluice::RingInput input(data, bytes);
  const uint8_t choice = input.byte();
  const bool is_packed = choice & 1;
  sluice::DriverRingOptions options;
  options.size = is_packed ? 1u + input.byte() % sluice::kSizeMax : 1u << (input.byte() % 7);
  options.event_idx = choice & 2;
  options.in_order = choice & 4;
  // A table is no longer than its ring.
  if (choice & 8) options.table_entries = static_cast<uint16_t>(std::min(options.size, 4u));
  if (is_packed)
    sluice::run<sluice::PackedDriver>(input, options);
  else
    sluice::run<sluice::SplitDriver>(input, options);
  return 0;
}
