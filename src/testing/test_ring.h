// TestRing and PackedTestRing: a fake driver and the real device side on one ring, for tests.
//
//   TestRing ring({.size = 16, .event_idx = true});
//   ring.driver.offer(ChainBuilder{}.readable(60));
//   EXPECT_EQ(ring.take(), Pop::chain);  // ring.bytes holds what was readable
//   ring.queue.publish();
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "testing/fake_driver.h"
#include "testing/fake_packed_driver.h"

namespace sluice {

template <class Driver>
struct BasicTestRing {
  explicit BasicTestRing(const FakeDriverOptions& options = {},
                         std::vector<FakeRegion> regions = {FakeRegion{.bytes = 8 << 20}})
      : guest(std::move(regions)), driver(guest, options), queue(driver.setup()) {}

  // Pops one chain, copies out what is readable, and completes it.
  Pop take(uint32_t written_bytes = 0) {
    Chain chain;
    spans.clear();
    const Pop pop = queue.pop(spans, chain);
    if (pop != Pop::chain) {
      SLUICE_ASSERT(spans.size() == 0);  // the list is as it was before
      return pop;
    }
    SLUICE_ASSERT(chain.readable_count() + chain.writable_count() == spans.size());
    bytes.resize(chain.readable_bytes());
    const auto readable = spans.slice(chain.span_first(), chain.readable_count());
    SLUICE_ASSERT(copy_out(readable, 0, bytes.data(), bytes.size()) == bytes.size());
    writable_bytes = chain.writable_bytes();
    head = chain.head();
    queue.complete(std::move(chain), written_bytes);
    spans.clear();
    return pop;
  }

  FakeGuestMemory guest;
  Driver driver;
  typename Driver::Queue queue;
  SpanList spans{kChainSpansMax};
  std::vector<uint8_t> bytes;   // of the chain that was taken last
  uint64_t writable_bytes = 0;  // its room
  uint16_t head = 0;            // its head or buffer id
};
using TestRing = BasicTestRing<FakeDriver>;
using PackedTestRing = BasicTestRing<FakePackedDriver>;

}  // namespace sluice
