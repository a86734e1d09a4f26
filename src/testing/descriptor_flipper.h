// DescriptorFlipper: a guest's second thread, which rewrites descriptors and an indirect table of
// four entries as fast as it can while the device reads them: a word that is read twice is read
// differently. Begins when it is made and ends with it.
//
//   const DescriptorFlipper flipper(ring, table, [&](Jitter& jitter) { …a descriptor, mostly legal…
//   },
//                                   [&](Jitter& jitter) { …what else there is to rewrite… });
#pragma once

#include <atomic>
#include <cstring>
#include <thread>

#include "testing/bell.h"
#include "testing/ring_formats.h"

namespace sluice {

inline constexpr uint64_t kFlipTableBytes = 64;

// Addresses and lengths of buffers that lie in with_neighbours(), over a border of it, or outside.
inline uint64_t some_address(Jitter& jitter) {
  constexpr uint64_t kMiB = 1 << 20;
  constexpr uint64_t kAddresses[] = {16 * kMiB, 17 * kMiB - 8, 18 * kMiB - 64, 0x3000};
  return kAddresses[jitter.next() % 4];
}
inline uint32_t some_length(Jitter& jitter) {
  constexpr uint32_t kLengths[] = {0, 1, 16, 64, 64, 128, 1 << 20};
  return kLengths[jitter.next() % 7];
}

template <class Ring, class MakeDescriptor, class Rest>
class DescriptorFlipper {
 public:
  DescriptorFlipper(Ring& ring, uint64_t table, MakeDescriptor make_descriptor, Rest rest)
      : ring_(ring), table_(table), make_descriptor_(make_descriptor), rest_(rest) {
    thread_ = std::thread([this] { run(); });
  }
  ~DescriptorFlipper() {
    stop_.store(true);
    thread_.join();
  }

 private:
  void run() {
    auto* table = reinterpret_cast<uint32_t*>(ring_.guest.at(table_, kFlipTableBytes));
    Jitter jitter(2463534242);
    while (!stop_.load(std::memory_order_relaxed)) {
      ring_.driver.raw_descriptor(jitter.next() % ring_.driver.size(), make_descriptor_(jitter));
      uint8_t entry[16];
      ring_.driver.encode(make_descriptor_(jitter), entry);
      for (uint32_t i = 0; i < 4; ++i) {
        uint32_t word = 0;
        std::memcpy(&word, entry + 4 * i, 4);
        std::atomic_ref<uint32_t>(table[(jitter.next() % 4) * 4 + i]).store(word);
      }
      rest_(jitter);
    }
  }

  Ring& ring_;
  uint64_t table_;
  MakeDescriptor make_descriptor_;
  Rest rest_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Every span lies in memory that the guest has, and the sums are those of the spans.
template <class Ring>
void check_chain(Ring& ring, const Chain& chain) {
  ASSERT_LE(chain.readable_count() + chain.writable_count(), ring.spans.size());
  uint64_t sum = 0;
  for (const GuestSpan& span :
       ring.spans.slice(chain.span_first(), chain.readable_count() + chain.writable_count())) {
    ASSERT_TRUE(ring.guest.contains(span));
    sum += span.size();
  }
  ASSERT_EQ(sum, uint64_t{chain.readable_bytes()} + chain.writable_bytes());
}

}  // namespace sluice
