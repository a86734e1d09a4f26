// Either format: what stays private to the device, giving back and going on.
#include <gtest/gtest.h>

#include "testing/allocation_guard.h"
#include "testing/ring_formats.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;

template <typename Driver>
class DeviceQueueHostile : public RingFormatTest<Driver> {};
TYPED_TEST_SUITE(DeviceQueueHostile, RingFormats, RingFormatName);
template <typename Driver>
class DeviceQueueDeathTest : public RingFormatTest<Driver> {};
TYPED_TEST_SUITE(DeviceQueueDeathTest, RingFormats, RingFormatName);

// What the device may write to besides buffers: its used ring, or the descriptors and its events.
std::pair<uint64_t, uint64_t> device_area(const TestRing& ring) {
  const uint64_t begin = ring.driver.used_address();
  return {begin, begin + 6 + 8 * ring.driver.size()};
}
std::pair<uint64_t, uint64_t> device_area(const PackedTestRing& ring) {
  const uint64_t begin = ring.driver.descriptors_address();
  return {begin, ring.driver.device_event_address() + 4};
}

TYPED_TEST(DeviceQueueHostile, OnlyWritableBuffersAndTheUsedRingAreWritten) {
  typename TestFixture::Ring ring({.size = 64, .event_idx = true});
  const uint64_t target = ring.guest.allocate(100);
  for (int i = 0; i < 10; ++i) {
    ring.driver.offer(ChainBuilder{}.readable(300).writable_at(target, 100));
    ring.driver.offer(ChainBuilder{}.readable(30).writable_at(target, 100).indirect());
  }
  const auto before = ring.guest.read(0, 8 * kMiB);
  Chain chain;
  while (ring.queue.pop(ring.spans, chain) == Pop::chain) {
    const auto writable =
        ring.spans.slice(chain.span_first() + chain.readable_count(), chain.writable_count());
    const std::vector<uint8_t> reply(60, 0x77);
    copy_in(writable, 0, reply.data(), reply.size());
    ring.queue.complete(std::move(chain), 60);
  }
  ring.queue.publish();
  (void)ring.queue.driver_wants_notification();
  (void)ring.queue.enable_kicks();
  const auto after = ring.guest.read(0, 8 * kMiB);
  const auto [device_begin, device_end] = device_area(ring);
  for (uint64_t at = 0; at < before.size(); ++at) {
    const bool may_change =
        (at >= device_begin && at < device_end) || (at >= target && at < target + 60);
    if (!may_change) {
      ASSERT_EQ(before[at], after[at]) << "at " << at;
    }
  }
}

TYPED_TEST(DeviceQueueHostile, CountsThroughTheWrapFromEveryBase) {
  for (const uint16_t start : {0, 1, 5, 7, 8, 15, 65'500, 65'530, 65'535, 32'760}) {
    SCOPED_TRACE(start);
    typename TestFixture::Ring ring({.size = 8, .start_index = start, .event_idx = true});
    for (uint32_t i = 0; i < 300; ++i) {
      const auto head = ring.driver.offer(ChainBuilder{}.readable(10 + i % 5).writable(8));
      ASSERT_TRUE(head);
      ASSERT_EQ(ring.take(i % 9), Pop::chain);
      ASSERT_EQ(ring.head, *head);
      ASSERT_EQ(ring.take(), Pop::empty);
      ASSERT_EQ(ring.queue.publish(), 1u);
      const auto used = ring.driver.take_used();
      ASSERT_TRUE(used);
      ASSERT_EQ(used->head, *head);
      ASSERT_EQ(used->bytes, i % 9);
    }
    EXPECT_EQ(ring.queue.base(), ring.driver.setup().base) << "all was used and taken back";
  }
}

TYPED_TEST(DeviceQueueHostile, UnpoppedChainsComeAgainInTheirOrder) {
  typename TestFixture::Ring ring({.size = 16, .start_index = 65'534});
  std::vector<uint16_t> heads;
  for (uint32_t i = 1; i <= 5; ++i) heads.push_back(*ring.driver.offer(ChainBuilder{}.readable(i)));
  EXPECT_EQ(ring.take(), Pop::chain);
  std::vector<Chain> chains(3);
  for (Chain& chain : chains) ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
  EXPECT_EQ(ring.queue.available_count(UINT16_MAX), 1u);
  for (size_t i = chains.size(); i-- > 0;) ring.queue.unpop(std::move(chains[i]));
  ring.spans.clear();
  EXPECT_EQ(ring.queue.available_count(UINT16_MAX), 4u);
  EXPECT_EQ(ring.queue.in_flight(), 0u);
  for (uint32_t i = 2; i <= 5; ++i) {
    ASSERT_EQ(ring.take(), Pop::chain);
    EXPECT_EQ(ring.bytes.size(), i);
    EXPECT_EQ(ring.head, heads[i - 1]);
  }
  EXPECT_EQ(ring.take(), Pop::empty);
  EXPECT_EQ(ring.queue.publish(), 5u);
}

TYPED_TEST(DeviceQueueHostile, AnotherQueueGoesOnWhereOneWasStopped) {
  typename TestFixture::Ring ring({.size = 16, .start_index = 65'533});
  for (uint32_t i = 1; i <= 6; ++i) ring.driver.offer(ChainBuilder{}.readable(i));
  for (int i = 0; i < 4; ++i) ASSERT_EQ(ring.take(), Pop::chain);
  Chain chain;
  ASSERT_EQ(ring.queue.pop(ring.spans, chain), Pop::chain);
  ring.queue.unpop(std::move(chain));
  ring.queue.publish();
  typename TestFixture::Setup setup = ring.driver.setup();
  setup.base = static_cast<decltype(setup.base)>(ring.queue.base());
  typename TypeParam::Queue next(std::move(setup));
  SpanList spans(16);
  for (uint32_t i = 5; i <= 6; ++i) {
    ASSERT_EQ(next.pop(spans, chain), Pop::chain);
    EXPECT_EQ(chain.readable_bytes(), i);
    next.complete(std::move(chain), 0);
  }
  EXPECT_EQ(next.pop(spans, chain), Pop::empty);
  next.publish();
  EXPECT_EQ(ring.driver.take_all_used().size(), 6u);
}

TYPED_TEST(DeviceQueueHostile, ManyChainsAreShownWithOneIndex) {
  typename TestFixture::Ring ring({.size = 256});
  for (int i = 0; i < 200; ++i) ring.driver.stage(ChainBuilder{}.writable(10));
  ring.driver.make_available();
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(ring.take(3), Pop::chain);
    ASSERT_FALSE(ring.driver.has_used());
  }
  EXPECT_EQ(ring.queue.publish(), 200u);
  EXPECT_EQ(ring.driver.take_all_used().size(), 200u);
  EXPECT_EQ(ring.driver.free_descriptors(), 256u);
}

TYPED_TEST(DeviceQueueHostile, AFaultThatTheCallerFoundBreaksTheQueue) {
  typename TestFixture::Ring ring;
  ring.driver.offer(ChainBuilder{}.readable(10));
  ring.queue.mark_broken(RingFault::wrong_direction);
  EXPECT_EQ(ring.take(), Pop::broken);
  EXPECT_STRNE(ring_fault_sentence(ring.queue.fault()), "?");
}

TYPED_TEST(DeviceQueueHostile, WorksWithoutAllocating) {
  typename TestFixture::Ring ring({.size = 256, .event_idx = true});
  for (int i = 0; i < 100; ++i) {
    ring.driver.offer(ChainBuilder{}.readable(10).writable(10));
    ring.driver.offer(ChainBuilder{}.readable(10).writable(10).indirect());
  }
  const AllocationGuard guard;
  Chain chain;
  while (ring.queue.pop(ring.spans, chain) == Pop::chain) ring.queue.complete(std::move(chain), 10);
  ring.queue.publish();
  (void)ring.queue.driver_wants_notification();
  (void)ring.queue.enable_kicks();
}

TYPED_TEST(DeviceQueueDeathTest, AChainThatIsForgottenAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child has no guest memory
  typename TestFixture::Ring ring;
  ring.driver.offer(ChainBuilder{}.readable(10));
  ring.driver.offer(ChainBuilder{}.readable(10));
  EXPECT_DEATH(
      {
        Chain chain;
        (void)ring.queue.pop(ring.spans, chain);
      },
      "internal error");
  EXPECT_DEATH(
      {
        Chain chain;
        (void)ring.queue.pop(ring.spans, chain);
        (void)ring.queue.pop(ring.spans, chain);
      },
      "internal error");
  Chain none;
  EXPECT_DEATH(ring.queue.complete(std::move(none), 0), "internal error");
}

}  // namespace
}  // namespace sluice
