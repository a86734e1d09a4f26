// Both our sides of a ring against one another, in a thread each, with suppression that both change
// at random: no wake-up is lost, every chain comes back once, with what the device wrote to it.
//
// The driver adds batches of chains of several shapes, and sleeps when the ring is full or
// everything is sent, after it has asked for a callback (the next, or at 3/4); at times it does not
// sleep but looks again and again. The device does the like with kicks. A stall is seen for
// certain: see testing/bell.h.
//
//   const DriverStressResult result = stress_both_sides<PackedDriver>({.chains = 1'000'000});
//   EXPECT_EQ(result.problem, "");
//   EXPECT_EQ(result.end, StressEnd::done);
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "testing/bell.h"
#include "testing/fake_device.h"
#include "virtio/device_side.h"

namespace sluice {

struct DriverStressOptions {
  uint64_t chains = 200'000;
  DriverRingOptions ring;
  uint32_t batch_max = 32;  // chains that one publish() shows
  uint32_t seed = 1;        // of what both sides do by chance
  // How often each side looks at its eventfd before it sleeps on it.
  uint32_t looks_before_sleep = 300;
  uint32_t seconds_max = 5;  // ends the stress early; 0: never
};

struct DriverStressResult {
  uint64_t completed = 0;
  uint64_t kicks = 0;
  uint64_t interrupts = 0;
  uint64_t driver_sleeps = 0;
  uint64_t device_sleeps = 0;
  StressEnd end = StressEnd::done;
  std::string problem;  // of what came back; empty: none
};

// The device's side of the stress, on a real device queue. Chains are taken in batches, of which a
// part is given back untouched at times, and completed in their order or, where that is allowed, in
// the reverse one.
template <typename Queue>
class StressDevice {
 public:
  StressDevice(Queue queue, const DriverStressOptions& options)
      : queue_(std::move(queue)),
        in_order_(options.ring.in_order),
        jitter_(options.seed * 2 + 0x9e3779b9),
        spans_(2 * kChainSpansMax) {}

  // Uses up to `count` chains: the number in what is readable is written, doubled, to what is
  // writable. Returns how many there were.
  uint32_t serve(uint32_t count) {
    spans_.clear();
    Pop end;
    const uint16_t popped =
        queue_.pop_batch(spans_, chains_.data(),
                         static_cast<uint16_t>(std::min<size_t>(count, kBatchFramesMax)), end);
    const uint32_t kept = jitter_.next() % 8 == 0 ? jitter_.next() % (popped + 1u) : popped;
    for (uint32_t i = popped; i-- > kept;) queue_.unpop(std::move(chains_[i]));
    for (uint32_t i = 0; i < kept; ++i) written_[i] = answer(chains_[i]);
    const bool reversed = !in_order_ && jitter_.next() % 4 == 0;
    for (uint32_t i = 0; i < kept; ++i) {
      const uint32_t at = reversed ? kept - 1 - i : i;
      queue_.complete(std::move(chains_[at]), written_[at]);
    }
    return kept;
  }
  bool publish_and_ask() { return queue_.publish() > 0 && queue_.driver_wants_notification(); }
  bool ask_for_kick() { return queue_.enable_kicks(); }
  void refuse_kicks() { queue_.disable_kicks(); }
  std::string problem() const {
    if (queue_.broken()) return ring_fault_sentence(queue_.fault());
    return out_of_order_ ? "chains came out of their order, twice, or not at all" : "";
  }

 private:
  uint32_t answer(const Chain& chain) {
    uint64_t number = 0;
    copy_out(spans_.slice(chain.span_first(), chain.readable_count()), 0, &number, sizeof number);
    // The driver counts what it sends.
    out_of_order_ |= number != next_number_++;
    number *= 2;
    return static_cast<uint32_t>(
        copy_in(spans_.slice(chain.span_first() + chain.readable_count(), chain.writable_count()),
                0, &number, sizeof number));
  }

  Queue queue_;
  const bool in_order_;
  Jitter jitter_;
  SpanList spans_;
  std::array<Chain, kBatchFramesMax> chains_;
  std::array<uint32_t, kBatchFramesMax> written_{};
  uint64_t next_number_ = 0;
  bool out_of_order_ = false;
};

// The device side of a driver's ring.
template <typename Ring>
auto device_of(const DriverTestRing<Ring>& ring) {
  return device_side_of<Ring>(DriverTestRing<Ring>::setup(ring.guest, ring.areas, ring.options),
                              ring.guest.share());
}

// The same on a fake device.
class FakeStressDevice {
 public:
  FakeStressDevice(FakeDevice& device, FakeGuestMemory& guest) : device_(device), guest_(guest) {}
  uint32_t serve(uint32_t count);
  bool publish_and_ask() {
    device_.publish();
    return device_.interrupt_wanted();
  }
  bool ask_for_kick() { return device_.ask_for_kick(); }
  void refuse_kicks() { device_.refuse_kicks(); }
  std::string problem() const { return device_.complaint(); }

 private:
  FakeDevice& device_;
  FakeGuestMemory& guest_;
};

template <typename Ring, typename Device>
class DriverStress {
 public:
  // make_device(DriverTestRing<Ring>&) -> Device
  template <typename MakeDevice>
  DriverStress(const DriverStressOptions& options, MakeDevice make_device)
      : options_(options),
        ring_(options.ring, DriverView::shared),
        device_(make_device(ring_)),
        kick_(options.looks_before_sleep),
        call_(options.looks_before_sleep),
        numbers_(options.ring.size) {
    for (uint32_t i = options.ring.size; i-- > 0;) free_.push_back(static_cast<uint16_t>(i));
  }

  DriverStressResult run() {
    std::thread device([this] { device_loop(); });
    std::thread driver([this] { driver_loop(); });
    result_.end = watch_stress(kick_, call_, done_, completed_, options_.seconds_max);
    stop_.store(true);
    kick_.wake();
    call_.wake();
    driver.join();
    device.join();
    if (result_.problem.empty()) result_.problem = device_.problem();
    result_.completed = completed_.load();
    result_.kicks = kick_.rings.load();
    result_.interrupts = call_.rings.load();
    result_.device_sleeps = kick_.sleeps.load();
    result_.driver_sleeps = call_.sleeps.load();
    return result_;
  }

 private:
  // One to three descriptors, so that chains straddle the end of the ring.
  bool add(uint16_t token, uint64_t number, uint32_t shape) {
    uint8_t* buffer = ring_.guest.at(raw(ring_.piece(token, 64).address), 64);
    std::memcpy(buffer, &number, sizeof number);
    const BufferPiece request = ring_.piece(token, 8);
    const BufferPiece reply[2] = {ring_.piece(token, 3, 16), ring_.piece(token, 5, 19)};
    switch (shape % 3) {
      case 0:
        return ring_.driver.add({&request, 1}, {}, token);
      case 1: {
        const BufferPiece whole = ring_.piece(token, 8, 16);
        return ring_.driver.add({&request, 1}, {&whole, 1}, token);
      }
      default:
        return ring_.driver.add({&request, 1}, reply, token);
    }
  }

  bool send(Jitter& jitter) {
    const uint32_t batch = 1 + jitter.next() % options_.batch_max;
    bool sent = false;
    for (uint32_t i = 0; i < batch && !free_.empty() && next_number_ < options_.chains; ++i) {
      const uint16_t token = free_.back();
      const uint32_t shape = options_.ring.size < 4 ? 0 : jitter.next();
      if (!add(token, next_number_, shape)) break;
      numbers_[token] = {next_number_++, shape % 3 != 0};
      free_.pop_back();
      sent = true;
    }
    ring_.driver.publish();
    return sent;
  }

  bool reap() {
    UsedBuffer used;
    bool found = false;
    Take take = ring_.driver.take_used(used);
    for (; take == Take::used; take = ring_.driver.take_used(used)) {
      found = true;
      const Sent& sent = numbers_[used.token];
      if (sent.has_reply) {
        uint64_t reply = 0;
        std::memcpy(&reply, ring_.guest.at(raw(ring_.piece(used.token, 8, 16).address), 8), 8);
        if (used.bytes != 8 || reply != 2 * sent.number) result_.problem = "a wrong reply";
      }
      free_.push_back(used.token);
      completed_.store(completed_.load(std::memory_order_relaxed) + 1);
    }
    if (take == Take::broken) result_.problem = driver_fault_sentence(ring_.driver.fault());
    return found;
  }

  bool enable(Jitter& jitter) {
    return jitter.next() % 2 ? ring_.driver.enable_callbacks()
                             : ring_.driver.enable_callbacks_delayed();
  }

  void driver_loop() {
    Jitter jitter(options_.seed * 2 + 0x12345);
    while (!stop_.load(std::memory_order_relaxed) && completed_.load() < options_.chains &&
           result_.problem.empty()) {
      const bool sent = send(jitter);
      if (ring_.driver.device_wants_kick()) kick_.ring();
      jitter.pause();
      if (jitter.next() % 4 == 0) ring_.driver.disable_callbacks();
      if (reap() || sent) continue;
      if (jitter.next() % 16 == 0) continue;  // a round of polling
      if (enable(jitter)) continue;
      call_.wait();
    }
    done_.store(true);
  }

  void device_loop() {
    Jitter jitter(options_.seed * 2 + 0x54321);
    while (!stop_.load(std::memory_order_relaxed)) {
      const uint32_t served = device_.serve(1 + jitter.next() % 64);
      jitter.pause();
      if (device_.publish_and_ask()) call_.ring();
      if (served > 0) continue;
      if (jitter.next() % 4 == 0) device_.refuse_kicks();
      if (jitter.next() % 16 == 0) continue;  // a round of polling
      if (device_.ask_for_kick()) continue;
      kick_.wait();
    }
  }

  struct Sent {
    uint64_t number = 0;
    bool has_reply = false;
  };

  const DriverStressOptions options_;
  DriverTestRing<Ring> ring_;
  Device device_;
  Bell kick_;
  Bell call_;
  std::vector<Sent> numbers_;  // by token
  std::vector<uint16_t> free_;
  uint64_t next_number_ = 0;
  std::atomic<uint64_t> completed_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  DriverStressResult result_;
};

// Both real sides of one format.
template <typename Ring>
DriverStressResult stress_both_sides(const DriverStressOptions& options) {
  using Device = StressDevice<decltype(device_of(std::declval<const DriverTestRing<Ring>&>()))>;
  return DriverStress<Ring, Device>(
             options, [&](DriverTestRing<Ring>& ring) { return Device(device_of(ring), options); })
      .run();
}

}  // namespace sluice
