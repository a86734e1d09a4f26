// A device that breaks the rules: each breach has its name, and nothing that is ours is lost.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "testing/fake_device.h"

namespace sluice {
namespace {

template <typename Ring>
class DriverRingHostile : public ::testing::Test {
 protected:
  using Rig = DriverTestRing<Ring>;
  static constexpr bool kIsSplit = std::is_same_v<Ring, SplitDriver>;

  // Broken for good, with this fault, and all `tokens` can be had back, each once.
  static void expect_broken(Rig& ring, DriverFault fault, const std::set<uint16_t>& tokens) {
    UsedBuffer used;
    EXPECT_EQ(ring.driver.take_used(used), Take::broken);
    EXPECT_EQ(ring.driver.fault(), fault) << driver_fault_sentence(ring.driver.fault());
    EXPECT_TRUE(ring.driver.broken());
    EXPECT_EQ(ring.driver.take_used(used), Take::broken) << "for good";
    ring.serve();
    EXPECT_EQ(ring.driver.take_used(used), Take::broken) << "also when the device behaves again";
    ring.driver.publish();
    ring.driver.device_wants_kick();
    ring.driver.disable_callbacks();
    ring.driver.enable_callbacks();
    ring.driver.enable_callbacks_delayed();
    EXPECT_EQ(ring.driver.outstanding(), tokens.size());
    std::set<uint16_t> back;
    uint16_t token = 0;
    while (ring.driver.take_back(token)) EXPECT_TRUE(back.insert(token).second);
    EXPECT_EQ(back, tokens);
    EXPECT_EQ(ring.driver.free_descriptors(), ring.driver.size());
  }
};
using Formats = ::testing::Types<SplitDriver, PackedDriver>;
struct FormatName {
  template <typename Ring>
  static std::string GetName(int) {
    return std::is_same_v<Ring, SplitDriver> ? "Split" : "Packed";
  }
};
TYPED_TEST_SUITE(DriverRingHostile, Formats, FormatName);

TYPED_TEST(DriverRingHostile, AnIdThatWasNeverHandedOut) {
  for (const bool in_order : {false, true}) {
    typename TestFixture::Rig ring({.size = 8, .in_order = in_order});
    ASSERT_TRUE(ring.add_writable(100, 0));  // token and head 0
    ASSERT_TRUE(ring.add_writable(100, 1));
    ring.driver.publish();
    ring.device->raw_use(5, 10);
    TestFixture::expect_broken(ring, DriverFault::id_not_outstanding, {0, 1});
  }
}

TYPED_TEST(DriverRingHostile, AnIdOutsideTheRing) {
  for (const uint32_t id : {8u, 9u, 0x7fffu, 0xffffu}) {
    typename TestFixture::Rig ring({.size = 8});
    ASSERT_TRUE(ring.add_writable(100, 2));
    ring.driver.publish();
    ring.device->raw_use(id, 10);
    TestFixture::expect_broken(ring, DriverFault::id_out_of_range, {2});
  }
}

TEST(SplitDriverHostile, AnIdWhoseLowHalfIsOutstanding) {
  DriverTestRing<SplitDriver> ring({.size = 8});
  ASSERT_TRUE(ring.add_writable(100, 0));
  ring.driver.publish();
  ring.device->raw_use(0x10000, 10);
  UsedBuffer used;
  EXPECT_EQ(ring.driver.take_used(used), Take::broken);
  EXPECT_EQ(ring.driver.fault(), DriverFault::id_out_of_range);
}

TYPED_TEST(DriverRingHostile, AnIdThatComesBackTwice) {
  typename TestFixture::Rig ring({.size = 8});
  for (uint16_t token = 0; token < 3; ++token) ASSERT_TRUE(ring.add_writable(100, token));
  ring.driver.publish();
  const auto first = *ring.device->take();
  ring.device->use(first, 1);
  ring.device->use(first, 1);
  ring.device->publish();
  UsedBuffer used;
  ASSERT_EQ(ring.driver.take_used(used), Take::used);
  EXPECT_EQ(used.token, 0);
  TestFixture::expect_broken(ring, DriverFault::id_not_outstanding, {1, 2});
}

TYPED_TEST(DriverRingHostile, AnIdInTheMiddleOfAChain) {
  typename TestFixture::Rig ring({.size = 8});
  ASSERT_TRUE(ring.add_chain(0, 3, 0));  // descriptors 0, 1 and 2
  ring.driver.publish();
  ring.device->raw_use(1, 1);
  TestFixture::expect_broken(ring, DriverFault::id_not_outstanding, {0});
}

TYPED_TEST(DriverRingHostile, ALengthBeyondTheBuffer) {
  for (const uint32_t bytes : {101u, 0x10000u, 0x80000000u, 0xffffffffu}) {
    for (const bool in_order : {false, true}) {
      typename TestFixture::Rig ring({.size = 8, .in_order = in_order});
      ASSERT_TRUE(ring.add_writable(100, 4));
      ring.driver.publish();
      ring.device->use(*ring.device->take(), bytes);
      ring.device->publish();
      TestFixture::expect_broken(ring, DriverFault::too_many_bytes, {4});
    }
  }
}

TYPED_TEST(DriverRingHostile, ALengthBeyondTheWritablePartOfAChain) {
  typename TestFixture::Rig ring({.size = 8});
  const BufferPiece readable = ring.piece(1, 200);
  const BufferPiece writable[2] = {ring.piece(1, 20), ring.piece(1, 30, 20)};
  for (const uint32_t bytes : {50u, 51u}) {
    ASSERT_TRUE(ring.driver.add({&readable, 1}, writable, 1));
    ring.driver.publish();
    ring.device->use(*ring.device->take(), bytes);
    ring.device->publish();
    if (bytes == 50) {
      ASSERT_EQ(ring.take_all().size(), 1u);
    }
  }
  TestFixture::expect_broken(ring, DriverFault::too_many_bytes, {1});
}

TYPED_TEST(DriverRingHostile, MoreUsedThanWasPublished) {
  // Nothing is taken that the device was not shown: not even a chain that lies on the ring.
  typename TestFixture::Rig ring({.size = 8});
  ASSERT_TRUE(ring.add_writable(100, 0));
  ring.device->raw_use(0, 1);
  UsedBuffer used;
  const Take take = ring.driver.take_used(used);
  EXPECT_EQ(take, TestFixture::kIsSplit ? Take::broken : Take::empty);
  EXPECT_EQ(ring.driver.outstanding(), 1u);
}

TYPED_TEST(DriverRingHostile, AChainThatComesBackBeforeItWasShown) {
  // Its id can be guessed. Whatever is made of it, nobody miscounts.
  typename TestFixture::Rig ring({.size = 8, .event_idx = true});
  ASSERT_TRUE(ring.add_writable(100, 0));  // head 0, too
  ring.driver.publish();
  ASSERT_TRUE(ring.add_chain(0, 5, 1));  // head 1
  ring.device->raw_use(1, 1);
  UsedBuffer used;
  (void)ring.driver.take_used(used);
  ring.driver.enable_callbacks_delayed();
  ring.driver.publish();
  ring.driver.enable_callbacks_delayed();
  ring.driver.device_wants_kick();
  std::set<uint16_t> back;
  uint16_t token = 0;
  while (ring.driver.take_back(token)) EXPECT_TRUE(back.insert(token).second);
  EXPECT_TRUE(back.contains(0));
  EXPECT_EQ(ring.driver.free_descriptors(), 8u);
}

TYPED_TEST(DriverRingHostile, ABatchWhoseIdIsNotOutstanding) {
  typename TestFixture::Rig ring({.size = 8, .in_order = true});
  for (uint16_t token = 0; token < 4; ++token) ASSERT_TRUE(ring.add_writable(100, token));
  ring.driver.publish();
  std::vector<FakeDevice::Taken> batch;
  for (int i = 0; i < 3; ++i) batch.push_back(*ring.device->take());
  batch.back().id = 6;
  ring.device->use_batch(batch, 1);
  ring.device->publish();
  TestFixture::expect_broken(ring, DriverFault::id_not_outstanding, {0, 1, 2, 3});
}

TYPED_TEST(DriverRingHostile, ABatchThatWasUsedAlready) {
  typename TestFixture::Rig ring({.size = 8, .in_order = true});
  for (uint16_t token = 0; token < 4; ++token) ASSERT_TRUE(ring.add_writable(100, token));
  ring.driver.publish();
  std::vector<FakeDevice::Taken> batch;
  for (int i = 0; i < 2; ++i) batch.push_back(*ring.device->take());
  ring.device->use_batch(batch, 1);
  ring.device->use_batch(batch, 1);
  ring.device->publish();
  UsedBuffer used;
  EXPECT_EQ(ring.driver.take_used(used), Take::used);
  EXPECT_EQ(ring.driver.take_used(used), Take::used);
  TestFixture::expect_broken(ring, DriverFault::id_not_outstanding, {2, 3});
}

TYPED_TEST(DriverRingHostile, ABatchThatReachesIntoWhatIsNotPublished) {
  typename TestFixture::Rig ring({.size = 8, .in_order = true});
  for (uint16_t token = 0; token < 2; ++token) ASSERT_TRUE(ring.add_writable(100, token));
  ring.driver.publish();
  ASSERT_TRUE(ring.add_writable(100, 2));
  std::vector<FakeDevice::Taken> batch;
  for (int i = 0; i < 2; ++i) batch.push_back(*ring.device->take());
  batch.back().id = 2;
  ring.device->use_batch(batch, 1);
  ring.device->publish();
  UsedBuffer used;
  uint32_t taken = 0;
  while (ring.driver.take_used(used) == Take::used) ++taken;
  EXPECT_LE(taken, 2u);
  EXPECT_EQ(ring.driver.fault(), DriverFault::batch_too_long);
  EXPECT_EQ(ring.driver.outstanding(), 3 - taken);
}

TEST(SplitDriverHostile, AUsedIndexThatJumps) {
  for (const uint16_t index : {3, 8, 9, 0x7fff, 0x8000, 0xffff}) {
    DriverTestRing<SplitDriver> ring({.size = 8});
    for (uint16_t token = 0; token < 2; ++token) ASSERT_TRUE(ring.add_writable(100, token));
    ring.driver.publish();
    ring.device->raw_used_index(index);
    UsedBuffer used;
    EXPECT_EQ(ring.driver.take_used(used), Take::broken) << index;
    EXPECT_EQ(ring.driver.fault(), DriverFault::used_index_jump);
  }
}

TEST(SplitDriverHostile, AUsedIndexThatGoesBack) {
  DriverTestRing<SplitDriver> ring({.size = 8});
  for (uint16_t token = 0; token < 3; ++token) ASSERT_TRUE(ring.add_writable(100, token));
  ring.driver.publish();
  ring.serve(1);
  UsedBuffer used;
  ASSERT_EQ(ring.driver.take_used(used), Take::used);
  ring.device->raw_used_index(0);
  // The two others were seen; the index is not looked at before they are taken.
  ASSERT_EQ(ring.driver.take_used(used), Take::used);
  ASSERT_EQ(ring.driver.take_used(used), Take::used);
  EXPECT_EQ(ring.driver.take_used(used), Take::broken);
  EXPECT_EQ(ring.driver.fault(), DriverFault::used_index_jump);
}

TEST(SplitDriverHostile, ABatchThatItsUsedIndexDoesNotCover) {
  DriverTestRing<SplitDriver> ring({.size = 8, .in_order = true});
  for (uint16_t token = 0; token < 4; ++token) ASSERT_TRUE(ring.add_writable(100, token));
  ring.driver.publish();
  ring.device->raw_used_entry(0, 3, 1);
  ring.device->raw_used_index(2);
  UsedBuffer used;
  EXPECT_EQ(ring.driver.take_used(used), Take::broken);
  EXPECT_EQ(ring.driver.fault(), DriverFault::batch_too_long);
  EXPECT_EQ(ring.driver.outstanding(), 4u);
}

TEST(SplitDriverHostile, DescriptorsThatTheDeviceRewrites) {
  // next pointers in shared memory are never followed: chains and free list are private.
  DriverTestRing<SplitDriver> ring({.size = 8});
  for (uint32_t round = 0; round < 20; ++round) {
    ASSERT_TRUE(ring.add_chain(3, 0, 0));
    ASSERT_TRUE(ring.add_chain(2, 0, 1));
    ring.driver.publish();
    const auto first = *ring.device->take(), second = *ring.device->take();
    for (uint64_t at = 0; at < 8 * 16; at += 2)
      ring.device->raw_store(ring.areas.descriptors + at, 0xffff);
    for (uint64_t at = 0; at < 6 + 16; at += 2)
      ring.device->raw_store(ring.areas.driver_area + at, 0xffff);
    ring.device->use(second, 0);
    ring.device->use(first, 0);
    ring.device->publish();
    ASSERT_EQ(ring.take_all().size(), 2u);
    ASSERT_EQ(ring.driver.free_descriptors(), 8u);
    // What the device did to its own view of the available ring, the driver mends in passing.
    ring.device->raw_store(ring.areas.driver_area, 0);
  }
}

TEST(PackedDriverHostile, FlagsThatAreToggledEarly) {
  // Everything is marked used, in either lap, before and while chains are outstanding.
  for (const bool wrap : {false, true}) {
    DriverTestRing<PackedDriver> ring({.size = 8});
    const auto mark_all = [&] {
      for (uint32_t i = 0; i < 8; ++i)
        ring.device->raw_descriptor(i, 7, 0, FakePackedDevice::used_bits(wrap));
    };
    mark_all();
    UsedBuffer used;
    EXPECT_EQ(ring.driver.take_used(used), Take::empty) << "nothing is outstanding";
    EXPECT_FALSE(ring.driver.enable_callbacks());
    ASSERT_TRUE(ring.add_writable(100, 7));
    EXPECT_EQ(ring.driver.take_used(used), Take::empty) << "nothing is published";
    ring.driver.publish();
    EXPECT_EQ(ring.driver.take_used(used), Take::empty) << "our flags are over the device's";
    mark_all();
    if (!wrap) {
      EXPECT_EQ(ring.driver.take_used(used), Take::empty) << "the other lap's";
    } else {
      EXPECT_EQ(ring.driver.take_used(used), Take::used);
      EXPECT_EQ(used.token, 7);
      EXPECT_EQ(ring.driver.take_used(used), Take::empty);
    }
    EXPECT_FALSE(ring.driver.broken());
  }
}

TEST(PackedDriverHostile, WrapGames) {
  // The owner bits take all four values at the place that is waited for.
  DriverTestRing<PackedDriver> ring({.size = 3});
  for (uint32_t round = 0; round < 50; ++round) {
    ASSERT_TRUE(ring.add_writable(100, 1));
    ring.driver.publish();
    const auto place = ring.device->used_place();
    UsedBuffer used;
    for (const uint16_t bits : {0x0000, 0x0080, 0x8000, 0x8080}) {
      if (bits == FakePackedDevice::used_bits(place.wrap)) continue;
      ring.device->raw_descriptor(place.index, 1, 10, bits);
      ASSERT_EQ(ring.driver.take_used(used), Take::empty) << round;
    }
    ring.device->raw_use(1, 10);
    ASSERT_EQ(ring.driver.take_used(used), Take::used);
    EXPECT_EQ(used.bytes, 10u);
  }
}

TEST(PackedDriverHostile, AnIdThatTheDeviceChangedInADescriptor) {
  DriverTestRing<PackedDriver> ring({.size = 8});
  ASSERT_TRUE(ring.add_chain(0, 2, 3));
  ASSERT_TRUE(ring.add_chain(0, 3, 5));
  ring.driver.publish();
  // The longer chain is given back first, then the other one: slots are counted privately.
  ring.device->raw_descriptor(0, 5, 24, 0x8080 | 2);
  UsedBuffer used;
  ASSERT_EQ(ring.driver.take_used(used), Take::used);
  EXPECT_EQ(used.token, 5);
  EXPECT_EQ(ring.driver.free_descriptors(), 6u);
  ring.device->raw_descriptor(3, 3, 16, 0x8080 | 2);
  ASSERT_EQ(ring.driver.take_used(used), Take::used);
  EXPECT_EQ(used.token, 3);
  EXPECT_EQ(ring.driver.free_descriptors(), 8u);
}

TYPED_TEST(DriverRingHostile, AnotherRingIsNotTouchedByABrokenOne) {
  typename TestFixture::Rig broken({.size = 8});
  const FakeRingAreas areas = TestFixture::Rig::place(broken.guest, broken.options);
  TypeParam other(TestFixture::Rig::setup(broken.guest, areas, broken.options));
  typename FakeDeviceOf<TypeParam>::Type device(broken.guest, areas, broken.options);
  const BufferPiece piece = broken.piece(0, 100);
  ASSERT_TRUE(broken.add_writable(100, 0));
  ASSERT_TRUE(other.add({}, {&piece, 1}, 6));
  broken.driver.publish();
  other.publish();
  broken.device->raw_use(7, 10);
  TestFixture::expect_broken(broken, DriverFault::id_not_outstanding, {0});
  device.use(*device.take(), 9);
  device.publish();
  UsedBuffer used;
  ASSERT_EQ(other.take_used(used), Take::used);
  EXPECT_EQ(used.token, 6);
  EXPECT_EQ(used.bytes, 9u);
}

TEST(DriverFault, EachHasASentence) {
  std::set<std::string> sentences;
  for (int fault = 0; fault <= static_cast<int>(DriverFault::batch_too_long); ++fault)
    sentences.insert(driver_fault_sentence(static_cast<DriverFault>(fault)));
  EXPECT_EQ(sentences.size(), static_cast<size_t>(DriverFault::batch_too_long) + 1);
}

}  // namespace
}  // namespace sluice
