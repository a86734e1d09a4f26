#include "testing/suppression_stress.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "testing/bell.h"
#include "testing/fake_driver.h"
#include "testing/fake_packed_driver.h"

namespace sluice {
namespace {

template <class Driver>
class Stress {
 public:
  explicit Stress(const StressOptions& options)
      : options_(options),
        guest_({FakeRegion{.bytes = 16 << 20}}, DriverView::shared),
        driver_(guest_, {.size = options.ring_size,
                         .start_index = options.start_index,
                         .event_idx = options.event_idx}),
        queue_(driver_.setup()),
        spans_(kChainSpansMax),
        kick_(options.looks_before_sleep),
        call_(options.looks_before_sleep) {}

  StressResult run() {
    std::thread device([this] { device_loop(); });
    std::thread driver([this] { driver_loop(); });
    result_.end = watch_stress(kick_, call_, done_, completed_, options_.seconds_max);
    stop_.store(true);
    kick_.wake();
    call_.wake();
    driver.join();
    device.join();
    result_.completed = completed_.load();
    result_.kicks = kick_.rings.load();
    result_.interrupts = call_.rings.load();
    result_.device_sleeps = kick_.sleeps.load();
    result_.driver_sleeps = call_.sleeps.load();
    return result_;
  }

 private:
  // Each chain has a number that the device reads and writes back.
  struct Slot {
    uint8_t* request;
    uint8_t* reply;
    uint64_t number;
  };

  void put(uint16_t head, bool is_first) {
    Slot& slot = slots_[head];
    slot.number = next_number_++;
    std::memcpy(slot.request, &slot.number, sizeof slot.number);
    if (!is_first) driver_.offer_again(head);
  }

  void first_offers() {
    slots_.resize(1 << 16);
    for (uint32_t i = 0; i < options_.outstanding_max; ++i) {
      const uint64_t request = guest_.allocate(8), reply = guest_.allocate(8);
      const auto head = driver_.stage(ChainBuilder{}.readable_at(request, 8).writable_at(reply, 8));
      SLUICE_ASSERT(head.has_value());
      slots_[*head] = {guest_.at(request, 8), guest_.at(reply, 8), 0};
      put(*head, true);
    }
    driver_.make_available();
  }

  bool reap() {
    bool found = false;
    while (const auto used = driver_.take_used_entry()) {
      found = true;
      if (used->head >= slots_.size() || slots_[used->head].request == nullptr) {
        result_.wrong_order_of_calls = true;
        continue;
      }
      uint64_t echoed = 0;
      std::memcpy(&echoed, slots_[used->head].reply, sizeof echoed);
      if (echoed != slots_[used->head].number || used->bytes != 8) result_.wrong_payload = true;
      completed_.store(completed_.load(std::memory_order_relaxed) + 1);
      if (next_number_ < options_.chains) put(static_cast<uint16_t>(used->head), false);
    }
    return found;
  }

  void driver_loop() {
    Jitter jitter(0x12345);
    first_offers();
    while (!stop_.load(std::memory_order_relaxed) && completed_.load() < options_.chains) {
      if (driver_.kick_wanted()) kick_.ring();
      jitter.pause();
      if (reap()) continue;
      if (driver_.enable_interrupts()) {
        driver_.disable_interrupts();
        continue;
      }
      call_.wait();
      driver_.disable_interrupts();
    }
    done_.store(true);
  }

  bool serve() {
    bool found = false;
    Chain chain;
    for (uint32_t i = 0; i < options_.ring_size; ++i) {
      const Pop pop = queue_.pop(spans_, chain);
      if (pop == Pop::broken) result_broken_.store(true);
      if (pop != Pop::chain) break;
      uint64_t number = 0;
      copy_out(spans_.slice(chain.span_first(), chain.readable_count()), 0, &number, 8);
      copy_in(spans_.slice(chain.span_first() + chain.readable_count(), chain.writable_count()), 0,
              &number, 8);
      spans_.clear();
      queue_.complete(std::move(chain), 8);
      found = true;
    }
    return found;
  }

  void device_loop() {
    Jitter jitter(0x54321);
    queue_.disable_kicks();
    while (!stop_.load(std::memory_order_relaxed) && !result_broken_.load()) {
      const bool found = serve();
      jitter.pause();
      if (queue_.publish() > 0 && queue_.driver_wants_notification()) call_.ring();
      if (found) continue;
      if (queue_.enable_kicks()) {
        queue_.disable_kicks();
        continue;
      }
      kick_.wait();
      queue_.disable_kicks();
    }
    if (result_broken_.load()) {
      stop_.store(true);
      done_.store(true);
      call_.wake();
    }
  }

  const StressOptions options_;
  FakeGuestMemory guest_;
  Driver driver_;
  typename Driver::Queue queue_;
  SpanList spans_;
  std::vector<Slot> slots_;  // by head or buffer id
  uint64_t next_number_ = 0;
  Bell kick_;
  Bell call_;
  std::atomic<uint64_t> completed_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::atomic<bool> result_broken_{false};
  StressResult result_;
};

}  // namespace

StressResult run_suppression_stress(const StressOptions& options) {
  return options.format == RingFormat::split ? Stress<FakeDriver>(options).run()
                                             : Stress<FakePackedDriver>(options).run();
}

}  // namespace sluice
