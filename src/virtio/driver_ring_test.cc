// What both driver sides put on a ring, and what they take from a device that behaves.
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "testing/allocation_guard.h"
#include "testing/fake_device.h"

namespace sluice {
namespace {

template <typename Ring>
class DriverRing : public ::testing::Test {
 protected:
  static constexpr bool kIsSplit = std::is_same_v<Ring, SplitDriver>;
  using Rig = DriverTestRing<Ring>;
};
using Formats = ::testing::Types<SplitDriver, PackedDriver>;
struct FormatName {
  template <typename Ring>
  static std::string GetName(int) {
    return std::is_same_v<Ring, SplitDriver> ? "Split" : "Packed";
  }
};
TYPED_TEST_SUITE(DriverRing, Formats, FormatName);

TYPED_TEST(DriverRing, ShowsAChainOnlyOnceItIsPublished) {
  typename TestFixture::Rig ring({.size = 16});
  ASSERT_TRUE(ring.add_readable(60, 3));
  EXPECT_FALSE(ring.device->take());
  EXPECT_EQ(ring.driver.outstanding(), 1u);
  EXPECT_EQ(ring.driver.free_descriptors(), 15u);
  ring.driver.publish();
  const auto taken = ring.device->take();
  ASSERT_TRUE(taken);
  const std::vector<FakeDevice::Piece> expected = {{raw(ring.piece(3, 60).address), 60, false}};
  EXPECT_EQ(taken->pieces, expected);
  EXPECT_FALSE(ring.device->take());
  UsedBuffer used;
  EXPECT_EQ(ring.driver.take_used(used), Take::empty);
  ring.device->use(*taken, 0);
  EXPECT_EQ(ring.driver.take_used(used), Take::empty) << "not before the device publishes it";
  ring.device->publish();
  ASSERT_EQ(ring.driver.take_used(used), Take::used);
  EXPECT_EQ(used.token, 3);
  EXPECT_EQ(used.bytes, 0u);
  EXPECT_EQ(ring.driver.take_used(used), Take::empty);
  EXPECT_EQ(ring.driver.outstanding(), 0u);
  EXPECT_EQ(ring.driver.free_descriptors(), 16u);
  EXPECT_EQ(ring.device->complaint(), "");
}

TYPED_TEST(DriverRing, SaysHowManyBytesTheDeviceWrote) {
  typename TestFixture::Rig ring({.size = 8});
  for (const uint32_t bytes : {0u, 1u, 100u, 200u}) {
    ASSERT_TRUE(ring.add_writable(200, 5));
    ring.driver.publish();
    ring.serve(bytes);
    const auto used = ring.take_all();
    ASSERT_EQ(used.size(), 1u);
    EXPECT_EQ(used[0].bytes, bytes);
  }
}

TYPED_TEST(DriverRing, IgnoresALengthWhereTheDeviceHadNothingToWrite) {
  typename TestFixture::Rig ring({.size = 8});
  ASSERT_TRUE(ring.add_readable(60, 1));
  ring.driver.publish();
  ring.serve(60);  // a back end that reports what it has read
  const auto used = ring.take_all();
  ASSERT_EQ(used.size(), 1u);
  EXPECT_EQ(used[0].bytes, 0u);
  EXPECT_FALSE(ring.driver.broken());
}

// Chains of many shapes, taken in order and given back in any, on rings of many sizes, far beyond
// 2^16 chains where that matters: everything comes back once.
template <typename Ring>
void churn(const DriverRingOptions& options, uint32_t rounds, uint32_t seed) {
  SCOPED_TRACE(testing::Message() << "size " << options.size << " in order " << options.in_order
                                  << " tables " << options.table_entries);
  DriverTestRing<Ring> ring(options);
  std::mt19937 random(seed);
  std::vector<uint16_t> free_tokens(options.size);
  for (uint32_t i = 0; i < options.size; ++i) free_tokens[i] = static_cast<uint16_t>(i);
  std::deque<std::pair<uint16_t, std::vector<FakeDevice::Piece>>> added;  // not taken yet
  std::vector<std::pair<FakeDevice::Taken, uint16_t>> held;               // by the device
  std::set<uint16_t> outstanding;
  const auto add_some = [&] {
    while (!free_tokens.empty() && random() % 8 != 0) {
      const size_t readable = random() % 3, writable = random() % 3 + (readable == 0);
      const uint16_t token = free_tokens.back();
      const size_t free_before = ring.driver.free_descriptors();
      if (!ring.add_chain(readable, writable, token)) {
        EXPECT_GT(readable + writable, free_before);
        EXPECT_EQ(ring.driver.free_descriptors(), free_before);
        break;
      }
      std::vector<FakeDevice::Piece> pieces;
      for (size_t i = 0; i < readable + writable; ++i)
        pieces.push_back(
            {raw(ring.piece(token, 8, 8 * static_cast<uint32_t>(i)).address), 8, i >= readable});
      free_tokens.pop_back();
      added.emplace_back(token, pieces);
      outstanding.insert(token);
    }
    if (random() % 4 != 0) ring.driver.publish();
  };
  const auto device_some = [&] {
    while (random() % 8 != 0) {
      const auto taken = ring.device->take();
      if (!taken) break;
      ASSERT_FALSE(added.empty());
      EXPECT_EQ(taken->pieces, added.front().second);
      held.emplace_back(*taken, added.front().first);
      added.pop_front();
    }
    while (!held.empty() && random() % 8 != 0) {
      const size_t which = options.in_order ? 0 : random() % held.size();
      const bool has_room = held[which].first.pieces.back().is_writable;
      ring.device->use(held[which].first, has_room ? 1 + random() % 8 : 0);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    }
    if (random() % 4 != 0) ring.device->publish();
  };
  for (uint32_t round = 0; round < rounds; ++round) {
    add_some();
    device_some();
    for (const UsedBuffer& used : ring.take_all()) {
      ASSERT_EQ(outstanding.erase(used.token), 1u);
      free_tokens.push_back(used.token);
    }
    ASSERT_EQ(ring.driver.outstanding(), outstanding.size());
    ASSERT_EQ(ring.device->complaint(), "");
    ASSERT_FALSE(ring.driver.broken()) << driver_fault_sentence(ring.driver.fault());
    if (testing::Test::HasFailure()) return;
  }
}

TYPED_TEST(DriverRing, EverythingComesBackOnceWhateverTheSizeAndTheOrder) {
  std::vector<uint32_t> sizes = {1, 2, 4, 8, 16, 32, 64, 256, 1024};
  if (!TestFixture::kIsSplit) sizes.insert(sizes.end(), {3, 5, 7, 11, 100, 257, 1000});
  for (const uint32_t size : sizes) {
    for (const bool in_order : {false, true}) {
      churn<TypeParam>({.size = size, .in_order = in_order}, 500, size);
      churn<TypeParam>({.size = size,
                        .in_order = in_order,
                        .table_entries = static_cast<uint16_t>(std::min(size, 4u))},
                       300, size + 1);
    }
  }
}

TYPED_TEST(DriverRing, GoesOnBeyondTwoToTheSixteen) {
  for (const uint32_t size : {2u, 16u, 256u}) {
    for (const bool in_order : {false, true}) {
      typename TestFixture::Rig ring({.size = size, .event_idx = true, .in_order = in_order});
      uint64_t chains = 0;
      while (chains < 200'000) {
        for (uint16_t i = 0; i < size; ++i) ASSERT_TRUE(ring.add_readable(8, i));
        ASSERT_EQ(ring.driver.free_descriptors(), 0u);
        ring.driver.publish();
        ASSERT_EQ(ring.serve(), size);
        UsedBuffer used;
        for (uint16_t i = 0; i < size; ++i) {
          ASSERT_EQ(ring.driver.take_used(used), Take::used);
          ASSERT_EQ(used.token, i);
        }
        chains += size;
      }
      EXPECT_EQ(ring.device->complaint(), "");
    }
  }
}

TYPED_TEST(DriverRing, AChainMayCoverTheWholeRing) {
  for (const uint32_t size : {1u, 2u, 8u}) {
    typename TestFixture::Rig ring({.size = size});
    for (uint32_t round = 0; round < 9; ++round) {
      ASSERT_TRUE(ring.add_chain(size, 0, 0));
      EXPECT_EQ(ring.driver.free_descriptors(), 0u);
      EXPECT_EQ(ring.driver.descriptors_outstanding(), size);
      EXPECT_FALSE(size > 1 && ring.add_readable(8, 1));
      ring.driver.publish();
      ASSERT_EQ(ring.serve(), 1u);
      ASSERT_EQ(ring.take_all().size(), 1u);
    }
    EXPECT_FALSE(ring.add_chain(size + 1, 0, 0));
    EXPECT_EQ(ring.device->complaint(), "");
  }
}

TYPED_TEST(DriverRing, PutsLongChainsIntoTablesIfThatWasAgreedOn) {
  typename TestFixture::Rig ring({.size = 8, .table_entries = 6, .direct_pieces_max = 2});
  ASSERT_TRUE(ring.add_chain(2, 0, 0));
  EXPECT_EQ(ring.driver.descriptors_outstanding(), 2u) << "short chains stay direct";
  ASSERT_TRUE(ring.add_chain(2, 4, 1));
  EXPECT_EQ(ring.driver.descriptors_outstanding(), 3u);
  EXPECT_FALSE(ring.add_chain(7, 0, 2)) << "too long for a table, and no room for it beside";
  ring.driver.publish();
  ASSERT_TRUE(ring.device->take());
  const auto taken = ring.device->take();
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->pieces.size(), 6u);
  EXPECT_TRUE(taken->pieces[2].is_writable);
  EXPECT_EQ(ring.device->complaint(), "");
}

TYPED_TEST(DriverRing, PublishesTwoHundredAndFiftySixChainsAtOnce) {
  typename TestFixture::Rig ring({.size = 256});
  for (uint16_t i = 0; i < 256; ++i) ASSERT_TRUE(ring.add_readable(60, i));
  EXPECT_FALSE(ring.device->take());
  ring.driver.publish();
  EXPECT_EQ(ring.serve(), 256u);
  EXPECT_EQ(ring.take_all().size(), 256u);
}

TYPED_TEST(DriverRing, OneUsedEntryMayStandForABatchInOrder) {
  for (const uint32_t size : {4u, 8u}) {
    typename TestFixture::Rig ring({.size = size, .in_order = true});
    for (uint32_t round = 0; round < 100; ++round) {
      const auto chains = static_cast<uint16_t>(1 + round % size);
      for (uint16_t i = 0; i < chains; ++i) ASSERT_TRUE(ring.add_writable(100, i));
      ring.driver.publish();
      std::vector<FakeDevice::Taken> batch;
      while (const auto taken = ring.device->take()) batch.push_back(*taken);
      ring.device->use_batch(batch, 7);
      ring.device->publish();
      const auto used = ring.take_all();
      ASSERT_EQ(used.size(), chains);
      for (uint16_t i = 0; i < chains; ++i) {
        EXPECT_EQ(used[i].token, i);
        EXPECT_EQ(used[i].bytes, i + 1 == chains ? 7u : 100u) << "skipped ones are full";
      }
    }
    EXPECT_EQ(ring.device->complaint(), "");
  }
}

TYPED_TEST(DriverRing, ChainsOfABatchInOrderMayBeLong) {
  typename TestFixture::Rig ring({.size = 8, .in_order = true});
  for (uint32_t round = 0; round < 50; ++round) {
    ASSERT_TRUE(ring.add_chain(2, 0, 4));
    ASSERT_TRUE(ring.add_chain(1, 2, 1));
    ASSERT_TRUE(ring.add_chain(1, 0, 6));
    ring.driver.publish();
    std::vector<FakeDevice::Taken> batch;
    while (const auto taken = ring.device->take()) batch.push_back(*taken);
    ASSERT_EQ(batch.size(), 3u);
    ring.device->use_batch(std::span(batch).first(2), 16);
    ring.device->use_batch(std::span(batch).last(1), 0);
    ring.device->publish();
    const auto used = ring.take_all();
    ASSERT_EQ(used.size(), 3u);
    EXPECT_EQ(used[0].token, 4);
    EXPECT_EQ(used[1].token, 1);
    EXPECT_EQ(used[1].bytes, 16u);
    EXPECT_EQ(used[2].token, 6);
  }
}

TYPED_TEST(DriverRing, GivesBackWhatIsOutstandingWhenTheDeviceIsGone) {
  typename TestFixture::Rig ring({.size = 8});
  for (uint16_t token : {1, 5, 7}) ASSERT_TRUE(ring.add_readable(60, token));
  ring.driver.publish();
  ring.device->use(*ring.device->take(), 0);
  ring.device->publish();
  ASSERT_EQ(ring.take_all().size(), 1u);
  ASSERT_TRUE(ring.add_readable(60, 2));  // never published
  std::set<uint16_t> tokens;
  uint16_t token = 0;
  while (ring.driver.take_back(token)) tokens.insert(token);
  EXPECT_EQ(tokens, (std::set<uint16_t>{2, 5, 7}));
  EXPECT_EQ(ring.driver.outstanding(), 0u);
  EXPECT_EQ(ring.driver.free_descriptors(), 8u);
}

TYPED_TEST(DriverRing, AllocatesNothingOnceItIsSetUp) {
  typename TestFixture::Rig ring({.size = 64, .event_idx = true, .table_entries = 4});
  const std::array<BufferPiece, 3> pieces = {ring.piece(0, 10), ring.piece(0, 20, 16),
                                             ring.piece(0, 30, 64)};
  AllocationGuard guard;
  for (uint16_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(ring.driver.add({pieces.data(), 1}, {}, i));
    ASSERT_TRUE(ring.driver.add({}, {pieces.data(), 3}, static_cast<uint16_t>(20 + i)));
  }
  ring.driver.publish();
  EXPECT_TRUE(ring.driver.device_wants_kick());
  ring.driver.disable_callbacks();
  EXPECT_FALSE(ring.driver.enable_callbacks());
  EXPECT_FALSE(ring.driver.enable_callbacks_delayed());
  UsedBuffer used;
  EXPECT_EQ(ring.driver.take_used(used), Take::empty);
}

}  // namespace
}  // namespace sluice
