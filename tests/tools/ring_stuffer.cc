// ring_stuffer: a front end that never runs dry, for measuring back ends at saturation.
//
// Its descriptors are written once and point at ready packets; afterwards it only moves the
// available index behind the used one, so that the ring is full whenever the back end looks. That
// is no driver: it neither reads completions nor makes packets, and costs next to nothing, so the
// back end is what is slow.
//
//   ring_stuffer --socket PATH [--size BYTES] [--ring DESCRIPTORS] [--seconds S] [--two-pieces]
//                [--no-in-order]
//
// Prints one JSON object a second of {"frames", "seconds", "dry_looks", "looks"}: what the back end
// took since the last, and how many looks found the whole ring used (it had to wait then).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <string>

#include "base/clock.h"
#include "testing/fake_front_end.h"
#include "virtio/features.h"

namespace sluice {
namespace {

struct StufferOptions {
  std::string socket;
  uint32_t size = 64;
  uint32_t ring = 256;
  double seconds = 5;
  bool two_pieces = false;
  bool in_order = true;
};

class SplitStuffer {
 public:
  SplitStuffer(FakeFrontEnd& vm, const StufferOptions& options)
      : vm_(vm), driver_(vm.driver(1)), size_(options.ring) {
    const uint64_t buffers = vm.guest().allocate(uint64_t{size_} * kSlotBytes, 4096);
    for (uint32_t i = 0; i < size_; ++i) {
      const uint64_t at = buffers + uint64_t{i} * kSlotBytes;
      std::array<uint8_t, kSlotBytes> slot{};
      std::fill_n(slot.begin() + kHeaderBytes, 12, 0x02);  // any addresses, IPv4 behind them
      slot[kHeaderBytes + 12] = 0x08;
      const auto packet = std::span(slot).first(kHeaderBytes + options.size);
      vm.guest().write(at, packet);
      // In one piece a ring full of chains; in two half of it.
      ChainBuilder chain;
      if (!options.two_pieces)
        chain.readable_at(at, static_cast<uint32_t>(packet.size()));
      else
        chain.readable_at(at, kHeaderBytes).readable_at(at + kHeaderBytes, options.size);
      const auto head = driver_.stage(chain);
      if (!head) break;
      heads_.push_back(*head);
    }
    // The rest of the available ring repeats the first heads.
    for (uint32_t i = 0; i < size_; ++i)
      driver_.raw_available_entry(static_cast<uint16_t>(i), heads_[i % heads_.size()]);
  }

  // Fills the ring; returns how many chains the back end had used.
  uint32_t refill() {
    const uint16_t used = driver_.used_index();
    const auto taken = static_cast<uint16_t>(used - used_);
    if (taken == 0) return 0;
    used_ = used;
    driver_.raw_available_index(static_cast<uint16_t>(used + heads_.size()));
    return taken;
  }
  void start() {
    driver_.raw_available_index(static_cast<uint16_t>(heads_.size()));
    vm_.kick(1);
  }
  size_t capacity() const { return heads_.size(); }

 private:
  static constexpr uint32_t kHeaderBytes = 12;
  static constexpr uint32_t kSlotBytes = 2048;
  FakeFrontEnd& vm_;
  FakeDriver& driver_;
  uint32_t size_;
  uint16_t used_ = 0;
  std::vector<uint16_t> heads_;
};

int stuff(const StufferOptions& options) {
  FakeFrontEnd vm({.wanted_features = feature::version_1 | feature::mrg_rxbuf | feature::mac |
                                      feature::event_idx |
                                      (options.in_order ? feature::in_order : 0),
                   .ring_size = options.ring,
                   .memory_bytes = 64 << 20});
  if (!vm.connect(options.socket)) {
    fmt::print(stderr, "ring_stuffer: no back end at {}\n", options.socket);
    return 1;
  }
  // DPDK's back end runs no ring before the driver says that it is there. [vhost-user SET_STATUS]
  constexpr uint64_t kAcknowledgedDriverOk = 0x0f;
  vm.channel().set_u64(Request::set_status, kAcknowledgedDriverOk);
  SplitStuffer ring(vm, options);
  ring.start();
  const uint64_t begin_ns = monotonic_ns();
  uint64_t last_ns = begin_ns, idle_since_ns = begin_ns, frames = 0, looks = 0, dry = 0;
  for (;;) {
    const uint32_t taken = ring.refill();
    ++looks;
    dry += taken == ring.capacity();
    frames += taken;
    if (looks % 1024 != 0) continue;
    const uint64_t now_ns = monotonic_ns();
    if (taken > 0) idle_since_ns = now_ns;
    if (now_ns - idle_since_ns > 1'000'000) {  // it may have gone to sleep: the stuffer never asks
      vm.kick(1);
      idle_since_ns = now_ns;
    }
    if (now_ns - last_ns < 1'000'000'000) continue;
    fmt::print("{{\"frames\": {}, \"seconds\": {:.3f}, \"dry_looks\": {}, \"looks\": {}}}\n",
               frames, static_cast<double>(now_ns - last_ns) / 1e9, dry, looks);
    std::fflush(stdout);
    frames = dry = looks = 0;
    last_ns = now_ns;
    if (static_cast<double>(now_ns - begin_ns) / 1e9 >= options.seconds) return 0;
  }
}

}  // namespace
}  // namespace sluice

int main(int count, char** words) {
  sluice::StufferOptions options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const char* value = i + 1 < count ? words[i + 1] : "";
    if (word == "--two-pieces" || word == "--no-in-order") {
      (word == "--two-pieces" ? options.two_pieces : options.in_order) = word == "--two-pieces";
      continue;
    }
    ++i;
    if (word == "--socket") {
      options.socket = value;
    } else if (word == "--size") {
      options.size = static_cast<uint32_t>(std::atoi(value));
    } else if (word == "--ring") {
      options.ring = static_cast<uint32_t>(std::atoi(value));
    } else if (word == "--seconds") {
      options.seconds = std::atof(value);
    } else {
      fmt::print(stderr, "ring_stuffer: unknown option {}\n", word);
      return 2;
    }
  }
  if (options.socket.empty() || options.size < 14 || options.size > 2000) {
    fmt::print(stderr, "ring_stuffer: --socket PATH [--size 14..2000] [--ring N] [--seconds S]\n");
    return 2;
  }
  return sluice::stuff(options);
}
