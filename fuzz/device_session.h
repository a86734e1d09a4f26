// What the fuzzers of the device side of both ring formats share: an input that is taken from bit
// by bit, a guest's memory with a border and a hole, and a session that asks the device for
// everything that it can do and checks what it answers.
//
// A hostile driver is the format's own: a derived class writes to the ring in driver_step(). After
// each step: every span of a chain lies in memory that the guest has, sums are right, and no more
// than the ring's size is in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "ring_input.h"
#include "testing/fake_driver.h"

namespace sluice {

inline constexpr size_t kStepsMax = 512;
inline constexpr size_t kCopyBytesMax = 4096;
// Room for a ring of 64 whose buffers straddle, and little enough to be cheap.
inline constexpr size_t kSpansMax = 256;

inline FakeGuestMemory& guest() {
  static FakeGuestMemory memory({FakeRegion{.bytes = kRingsBytes},
                                 {.guest_address = kNeighbour, .bytes = kNeighbourBytes},
                                 {.guest_address = kNeighbour + kNeighbourBytes,
                                  .bytes = kNeighbourBytes,
                                  .file_offset = 0x30}});
  return memory;
}

inline void clear_guest() {
  for (size_t i = 0; i < guest().region_count(); ++i) {
    const RegionDescription region = guest().description(i);
    std::memset(guest().at(raw(region.guest_address), region.bytes), 0, region.bytes);
  }
}

// Where there is memory; elsewhere nothing.
inline void write_somewhere(uint64_t address, std::span<const uint8_t> bytes) {
  for (size_t i = 0; i < guest().region_count(); ++i) {
    const RegionDescription region = guest().description(i);
    const uint64_t offset = address - raw(region.guest_address);
    if (offset < region.bytes && bytes.size() <= region.bytes - offset)
      guest().write(address, bytes);
  }
}

template <class Driver>
class DeviceSession {
 public:
  using Queue = typename Driver::Queue;
  DeviceSession(RingInput& input, const FakeDriverOptions& options)
      : input_(input),
        driver_(guest(), options),
        in_order_(options.in_order),
        queue_(driver_.setup()),
        spans_(kSpansMax) {}
  virtual ~DeviceSession() {
    // Not finish(): what a derived class checks is gone by now.
    for (Live& live : live_) queue_.complete(std::move(live.chain), 0);
  }

  void run() {
    for (size_t step = 0; step < kStepsMax && !input_.empty(); ++step) {
      const uint8_t choice = input_.byte();
      if (choice % 2 == 0) driver_step(choice / 2);
      if (choice % 2 == 1) device_step(choice / 2);
      SLUICE_ASSERT(queue_.in_flight() == live_.size() && live_.size() <= driver_.size());
    }
    finish();
  }

 protected:
  virtual void driver_step(uint8_t choice) = 0;
  virtual void check_head(uint16_t head) = 0;
  // `count` chains were published, and more than none.
  virtual void check_published(uint16_t count) = 0;
  virtual Queue restarted() = 0;  // a queue that goes on where this one was

  RingInput& input_;
  Driver driver_;
  const bool in_order_;
  Queue queue_;
  uint16_t completed_ = 0;
  // Where the batch that is being completed began: Queue::base() before its first chain.
  uint32_t batch_base_ = 0;

 private:
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
        (void)queue_.driver_wants_notification();
        return;
      case 5: {
        const uint16_t known = input_.byte() % 4;
        const bool more = queue_.enable_kicks(known);
        // A packed ring looks at one slot, and those before it may say anything by now.
        if constexpr (std::is_same_v<Driver, FakeDriver>)
          SLUICE_ASSERT(!more || queue_.available_count() > known);
        return;
      }
      case 6:
        queue_.disable_kicks();
        queue_.prefetch_next(input_.byte() % 8);
        return;
      default:
        return restart();
    }
  }

  void pop() {
    Chain chain;
    const size_t spans_before = spans_.size();
    const Pop result = queue_.pop(spans_, chain);
    SLUICE_ASSERT((result == Pop::broken) == queue_.broken());
    if (result != Pop::chain) {
      SLUICE_ASSERT(!chain.live() && spans_.size() == spans_before);
      return;
    }
    check_head(chain.head());
    SLUICE_ASSERT(chain.span_first() == spans_before);
    SLUICE_ASSERT(chain.readable_count() + chain.writable_count() == spans_.size() - spans_before);
    use(chain);
    spans_.truncate(spans_before);
    live_.push_back({std::move(chain), ++pops_});
  }

  void use(const Chain& chain) {
    const auto readable = spans_.slice(chain.span_first(), chain.readable_count());
    const auto writable =
        spans_.slice(chain.span_first() + chain.readable_count(), chain.writable_count());
    for (const GuestSpan& span : readable) SLUICE_ASSERT(guest().contains(span));
    for (const GuestSpan& span : writable) SLUICE_ASSERT(guest().contains(span));
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
    const size_t index = in_order_ ? 0 : which % live_.size();
    if (completed_ == 0) batch_base_ = queue_.base();
    queue_.complete(std::move(live_[index].chain), which);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    ++completed_;
  }

  void unpop() {
    // Only what was popped last may go back, and nothing after a later one was completed.
    if (live_.empty() || live_.back().number != pops_) return;
    queue_.unpop(std::move(live_.back().chain));
    live_.pop_back();
    --pops_;
  }

  void publish() {
    const uint16_t count = queue_.publish();
    SLUICE_ASSERT(count == completed_);
    completed_ = 0;
    if (count > 0) check_published(count);
  }

  void finish() {
    while (!live_.empty()) complete(0);
    publish();
  }

  // The ring is stopped and goes on where it was.
  void restart() {
    finish();
    queue_ = restarted();
    pops_ = 0;
  }

  struct Live {
    Chain chain;
    uint64_t number;
  };

  SpanList spans_;
  std::vector<Live> live_;
  uint64_t pops_ = 0;
};

}  // namespace sluice
