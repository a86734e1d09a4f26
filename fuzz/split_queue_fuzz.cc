// A hostile driver against the device side of a split ring.
//
// The input is a list of steps: what the driver writes (descriptors, tables, indices, event words,
// the used ring, any memory) and what the device is asked to do (pop, complete, un-pop, publish,
// ask and be asked for notifications, stop and go on). After each step: every span of a chain lies
// in memory that the guest has, sums are right, no more than the ring's size is in flight, and the
// used index is the one that was counted here, whatever the driver wrote over it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "testing/fake_driver.h"

namespace sluice {
namespace {

// Rings and tables in the first region; two neighbours; a hole between.
constexpr uint64_t kRingsBytes = 16 << 10;
constexpr uint64_t kNeighbour = 64 << 10;
constexpr uint64_t kNeighbourBytes = 8 << 10;
constexpr size_t kStepsMax = 512;
constexpr size_t kCopyBytesMax = 4096;
// Room for a ring of 64 whose buffers straddle, and little enough to be cheap.
constexpr size_t kSpansMax = 256;

class Input {
 public:
  Input(const uint8_t* data, size_t bytes) : rest_(data, bytes) {}
  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  uint16_t word() { return static_cast<uint16_t>(byte() | byte() << 8); }
  uint32_t dword() { return word() | static_cast<uint32_t>(word()) << 16; }

  // An address that means something more often than chance would have it.
  uint64_t address() {
    switch (byte() % 8) {
      case 0:
        return byte() * uint64_t{16};  // the rings themselves
      case 1:
        return kNeighbour + word() % (2 * kNeighbourBytes);
      case 2:
        return kNeighbour + kNeighbourBytes - byte();  // over the border
      case 3:
        return kRingsBytes - byte();  // into the hole
      case 4:
        return UINT64_MAX - byte();
      case 5:
        return dword() | static_cast<uint64_t>(dword()) << 32;
      default:
        return word() % kRingsBytes;
    }
  }
  uint32_t length() {
    switch (byte() % 4) {
      case 0:
        return byte();
      case 1:
        return 16u * (byte() % 80);
      case 2:
        return word();
      default:
        return dword();
    }
  }

 private:
  std::span<const uint8_t> rest_;
};

FakeGuestMemory& guest() {
  static FakeGuestMemory memory({FakeRegion{.bytes = kRingsBytes},
                                 {.guest_address = kNeighbour, .bytes = kNeighbourBytes},
                                 {.guest_address = kNeighbour + kNeighbourBytes,
                                  .bytes = kNeighbourBytes,
                                  .file_offset = 0x30}});
  return memory;
}

bool lies_in_guest_memory(const GuestSpan& span) {
  const auto* begin = static_cast<const uint8_t*>(span.address_for_shared_words());
  for (size_t i = 0; i < guest().region_count(); ++i) {
    const RegionDescription region = guest().description(i);
    const auto whole = guest().share()->translate(region.guest_address, region.bytes);
    const auto* host = static_cast<const uint8_t*>(whole->address_for_shared_words());
    if (begin >= host && begin + span.size() <= host + region.bytes) return true;
  }
  return false;
}

class Session {
 public:
  explicit Session(Input& input) : input_(input), driver_(make_driver(input)), spans_(kSpansMax) {
    queue_.emplace(driver_.setup());
    used_index_ = driver_.used_index();
  }
  ~Session() { finish(); }

  void run() {
    for (size_t step = 0; step < kStepsMax && !input_.empty(); ++step) {
      const uint8_t choice = input_.byte();
      if (choice % 2 == 0) driver_step(choice / 2);
      if (choice % 2 == 1) device_step(choice / 2);
      SLUICE_ASSERT(queue_->in_flight() == live_.size() && live_.size() <= driver_.size());
    }
  }

 private:
  static FakeDriver make_driver(Input& input) {
    for (size_t i = 0; i < guest().region_count(); ++i) {
      const RegionDescription region = guest().description(i);
      std::memset(guest().at(raw(region.guest_address), region.bytes), 0, region.bytes);
    }
    const uint8_t options = input.byte();
    return FakeDriver(guest(), {.size = 1u << (options % 7),
                                .start_index = static_cast<uint16_t>(-4 * (input.byte() % 32)),
                                .event_idx = (options & 0x80) != 0,
                                .indirect = (options & 0x40) == 0,
                                .ring_address = 0x1000});
  }

  void driver_step(uint8_t choice) {
    const auto position = static_cast<uint16_t>(input_.byte());
    switch (choice % 10) {
      case 0:
      case 1:
        driver_.raw_descriptor(position % driver_.size(), some_descriptor());
        return;
      case 2:
      case 3:
        driver_.raw_offer(input_.byte() % 16 == 0 ? input_.word() : position % driver_.size());
        return;
      case 4: {  // a table, or whatever lies there
        uint8_t entry[16];
        FakeDriver::encode(some_descriptor(), entry);
        write_somewhere(input_.byte() % 2 ? 16 * uint64_t{position} : input_.address(), entry);
        return;
      }
      case 5:
        driver_.raw_available_index(input_.word());
        return;
      case 6:
        driver_.raw_available_entry(position, input_.byte());
        return;
      case 7:
        driver_.raw_used_event(input_.word());
        driver_.raw_available_flags(position);
        return;
      case 8:
        driver_.raw_avail_event(input_.word());
        return;
      default:
        driver_.scribble_used(static_cast<uint8_t>(position));
        return;
    }
  }

  RawDescriptor some_descriptor() {
    RawDescriptor descriptor{input_.address(), input_.length(), input_.byte(), input_.byte()};
    if (input_.byte() % 32 == 0) descriptor.next = descriptor.flags = input_.word();
    return descriptor;
  }

  void write_somewhere(uint64_t address, std::span<const uint8_t> bytes) {
    for (size_t i = 0; i < guest().region_count(); ++i) {
      const RegionDescription region = guest().description(i);
      const uint64_t offset = address - raw(region.guest_address);
      if (offset < region.bytes && bytes.size() <= region.bytes - offset)
        guest().write(address, bytes);
    }
  }

  void device_step(uint8_t choice) {
    switch (choice % 8) {
      case 0:
      case 1:
        return pop();
      case 2:
        return complete(input_.byte());
      case 3:
        return unpop();
      case 4:
        publish();
        (void)queue_->driver_wants_notification();
        return;
      case 5: {
        const uint16_t known = input_.byte() % 4;
        if (queue_->enable_kicks(known)) SLUICE_ASSERT(queue_->available_count() > known);
        return;
      }
      case 6:
        queue_->disable_kicks();
        queue_->prefetch_next(input_.byte() % 8);
        return;
      default:
        return restart();
    }
  }

  void pop() {
    Chain chain;
    const size_t spans_before = spans_.size();
    const Pop result = queue_->pop(spans_, chain);
    SLUICE_ASSERT((result == Pop::broken) == queue_->broken());
    if (result != Pop::chain) {
      SLUICE_ASSERT(!chain.live() && spans_.size() == spans_before);
      return;
    }
    SLUICE_ASSERT(chain.head() < driver_.size() && chain.span_first() == spans_before);
    SLUICE_ASSERT(chain.readable_count() + chain.writable_count() == spans_.size() - spans_before);
    use(chain);
    spans_.truncate(spans_before);
    live_.push_back({std::move(chain), ++pops_});
  }

  void use(const Chain& chain) {
    const auto readable = spans_.slice(chain.span_first(), chain.readable_count());
    const auto writable =
        spans_.slice(chain.span_first() + chain.readable_count(), chain.writable_count());
    for (const GuestSpan& span : readable) SLUICE_ASSERT(lies_in_guest_memory(span));
    for (const GuestSpan& span : writable) SLUICE_ASSERT(lies_in_guest_memory(span));
    SLUICE_ASSERT(total_bytes(readable) == chain.readable_bytes());
    SLUICE_ASSERT(total_bytes(writable) == chain.writable_bytes());
    uint8_t bytes[kCopyBytesMax];
    const size_t got = copy_out(readable, 0, bytes, sizeof bytes);
    SLUICE_ASSERT(got == std::min<size_t>(chain.readable_bytes(), sizeof bytes));
    // What a guest has written to may be its own rings: that is its own affair.
    copy_in(writable, 0, bytes, got);
  }

  void complete(uint8_t which) {
    if (live_.empty()) return;
    const size_t index = which % live_.size();
    queue_->complete(std::move(live_[index].chain), which);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    ++completed_;
  }

  void unpop() {
    // Only what was popped last may go back, and nothing after a later one was completed.
    if (live_.empty() || live_.back().number != pops_) return;
    queue_->unpop(std::move(live_.back().chain));
    live_.pop_back();
    --pops_;
  }

  void publish() {
    const uint16_t count = queue_->publish();
    SLUICE_ASSERT(count == completed_);
    used_index_ = static_cast<uint16_t>(used_index_ + count);
    completed_ = 0;
    if (count > 0) SLUICE_ASSERT(driver_.used_index() == used_index_);
  }

  void finish() {
    while (!live_.empty()) complete(0);
    publish();
  }

  // The ring is stopped and goes on where it was.
  void restart() {
    finish();
    SplitQueueSetup setup = driver_.setup();
    setup.base = queue_->next_avail();
    queue_.emplace(std::move(setup));
    used_index_ = driver_.used_index();
    pops_ = 0;
  }

  struct Live {
    Chain chain;
    uint64_t number;
  };

  Input& input_;
  FakeDriver driver_;
  std::optional<SplitQueue> queue_;
  SpanList spans_;
  std::vector<Live> live_;
  uint64_t pops_ = 0;
  uint16_t completed_ = 0;
  uint16_t used_index_ = 0;
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  sluice::Input input(data, bytes);
  sluice::Session session(input);
  session.run();
  return 0;
}
