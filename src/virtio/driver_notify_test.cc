// Suppression of notifications as the driver sides do it, in both directions, and its negatives.
#include <gtest/gtest.h>

#include "testing/fake_device.h"

namespace sluice {
namespace {

template <typename Ring>
class DriverNotify : public ::testing::Test {
 protected:
  using Rig = DriverTestRing<Ring>;
  static constexpr bool kIsSplit = std::is_same_v<Ring, SplitDriver>;

  static void add(Rig& ring, uint16_t first, uint16_t count) {
    for (uint16_t i = 0; i < count; ++i) {
      const auto token = static_cast<uint16_t>((first + i) % ring.options.size);
      ASSERT_TRUE(ring.add_readable(8, token));
    }
    ring.driver.publish();
  }
  // What a wish means for any chain of a ring of 8; nullopt: it depends on the chain.
  static std::optional<bool> answer(bool event_idx, uint16_t event, uint16_t flags) {
    if (kIsSplit) return event_idx ? std::nullopt : std::optional((flags & 1) == 0);
    if ((flags & 3) == 1) return false;
    if ((flags & 3) != 2 || !event_idx || (event & 0x7fff) >= 8) return true;
    return std::nullopt;
  }
  // The device uses `count` chains one by one; returns at which one it called us, 0: never.
  static uint32_t called_at(Rig& ring, uint32_t count) {
    uint32_t called = 0;
    for (uint32_t i = 1; i <= count; ++i) {
      const auto taken = ring.device->take();
      if (!taken) break;
      ring.device->use(*taken, 0);
      ring.device->publish();
      if (ring.device->interrupt_wanted() && called == 0) called = i;
    }
    return called;
  }
};
using Formats = ::testing::Types<SplitDriver, PackedDriver>;
struct FormatName {
  template <typename Ring>
  static std::string GetName(int) {
    return std::is_same_v<Ring, SplitDriver> ? "Split" : "Packed";
  }
};
TYPED_TEST_SUITE(DriverNotify, Formats, FormatName);

TYPED_TEST(DriverNotify, AFreshRingWantsItsFirstKick) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Rig ring({.size = 16, .event_idx = event_idx});
    EXPECT_FALSE(ring.driver.device_wants_kick()) << "nothing was published";
    TestFixture::add(ring, 0, 1);
    EXPECT_TRUE(ring.driver.device_wants_kick());
    EXPECT_FALSE(ring.driver.device_wants_kick()) << "once for what was published";
  }
}

TYPED_TEST(DriverNotify, DoesNotKickADeviceThatRefuses) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Rig ring({.size = 16, .event_idx = event_idx});
    ring.device->refuse_kicks();
    for (uint32_t round = 0; round < 100; ++round) {
      TestFixture::add(ring, 0, 5);
      EXPECT_FALSE(ring.driver.device_wants_kick());
      ring.serve();
      ring.device->refuse_kicks();
      ASSERT_EQ(ring.take_all().size(), 5u);
    }
  }
}

TYPED_TEST(DriverNotify, KicksExactlyWhereTheDeviceAskedForIt) {
  for (const uint32_t size : {8u, 16u}) {
    for (uint16_t known = 0; known < size; ++known) {
      typename TestFixture::Rig ring({.size = size, .event_idx = true});
      for (uint32_t lap = 0; lap < 5; ++lap) {
        EXPECT_FALSE(ring.device->ask_for_kick(known));
        for (uint16_t i = 0; i < size; ++i) {
          TestFixture::add(ring, i, 1);
          ASSERT_EQ(ring.driver.device_wants_kick(), i == known) << "lap " << lap << " chain " << i;
        }
        ring.serve();
        ASSERT_EQ(ring.take_all().size(), size);
        // A batch passes over the place.
        EXPECT_FALSE(ring.device->ask_for_kick(known));
        TestFixture::add(ring, 0, static_cast<uint16_t>(size));
        EXPECT_TRUE(ring.driver.device_wants_kick());
        ring.serve();
        ASSERT_EQ(ring.take_all().size(), size);
        // One that ends before it does not; the rest does.
        EXPECT_FALSE(ring.device->ask_for_kick(known));
        TestFixture::add(ring, 0, known);
        EXPECT_FALSE(ring.driver.device_wants_kick());
        TestFixture::add(ring, known, static_cast<uint16_t>(size - known));
        EXPECT_TRUE(ring.driver.device_wants_kick());
        ring.serve();
        ASSERT_EQ(ring.take_all().size(), size);
        // The place is moved past before the next lap, or it would be met again.
        EXPECT_FALSE(ring.device->ask_for_kick(static_cast<uint16_t>(size - 1)));
      }
      EXPECT_EQ(ring.device->complaint(), "");
    }
  }
}

TYPED_TEST(DriverNotify, AnyWishOfTheDeviceIsAnswered) {
  // No value that the device may leave there does harm; those that mean nothing kick.
  for (const bool event_idx : {false, true}) {
    for (const uint16_t event : {0x0000, 0x0003, 0x0008, 0x7fff, 0x8000, 0x8007, 0xffff}) {
      for (const uint16_t flags : {0, 1, 2, 3, 0xfffc, 0xffff}) {
        typename TestFixture::Rig ring({.size = 8, .event_idx = event_idx});
        ring.device->raw_wish(event, flags);
        for (uint32_t round = 0; round < 20; ++round) {
          TestFixture::add(ring, 0, 3);
          const bool kick = ring.driver.device_wants_kick();
          EXPECT_EQ(kick, TestFixture::answer(event_idx, event, flags).value_or(kick));
          ring.serve();
          ASSERT_EQ(ring.take_all().size(), 3u);
        }
      }
    }
  }
}

TYPED_TEST(DriverNotify, IsCalledAtTheNextUsedBufferAndNotAgain) {
  typename TestFixture::Rig ring({.size = 16, .event_idx = true});
  for (uint32_t round = 0; round < 50; ++round) {
    TestFixture::add(ring, 0, 10);
    EXPECT_FALSE(ring.driver.enable_callbacks());
    EXPECT_EQ(TestFixture::called_at(ring, 1), 1u);
    EXPECT_EQ(TestFixture::called_at(ring, 9), 0u) << "it asked once";
    EXPECT_EQ(ring.take_all().size(), 10u);
  }
  EXPECT_EQ(ring.device->complaint(), "");
}

TYPED_TEST(DriverNotify, WithoutEventIdxItIsCalledUntilItSaysStop) {
  typename TestFixture::Rig ring({.size = 16});
  TestFixture::add(ring, 0, 10);
  EXPECT_FALSE(ring.driver.enable_callbacks());
  EXPECT_EQ(TestFixture::called_at(ring, 1), 1u);
  EXPECT_EQ(TestFixture::called_at(ring, 1), 1u);
  ring.driver.disable_callbacks();
  EXPECT_EQ(TestFixture::called_at(ring, 8), 0u);
  EXPECT_EQ(ring.take_all().size(), 10u);
}

TYPED_TEST(DriverNotify, IsNotCalledWhileCallbacksAreDisabled) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Rig ring({.size = 16, .event_idx = event_idx});
    for (uint32_t round = 0; round < 2000; ++round) {  // twice around 2^15
      TestFixture::add(ring, 0, 16);
      // Armed, not yet reached, and taken back again.
      if (round % 3 == 0) ring.driver.enable_callbacks_delayed();
      ring.driver.disable_callbacks();
      ASSERT_EQ(TestFixture::called_at(ring, 16), 0u) << "round " << round;
      ASSERT_EQ(ring.take_all().size(), 16u);
    }
  }
}

TYPED_TEST(DriverNotify, ADelayedCallbackComesAtThreeQuarters) {
  for (uint16_t count = 1; count <= 16; ++count) {
    typename TestFixture::Rig ring({.size = 16, .event_idx = true});
    for (uint32_t lap = 0; lap < 5; ++lap) {
      TestFixture::add(ring, 0, count);
      EXPECT_FALSE(ring.driver.enable_callbacks_delayed());
      EXPECT_EQ(TestFixture::called_at(ring, count), count * 3u / 4 + 1) << count;
      EXPECT_EQ(ring.take_all().size(), count);
    }
    EXPECT_EQ(ring.device->complaint(), "");
  }
}

TYPED_TEST(DriverNotify, WithoutEventIdxADelayedCallbackIsTheNext) {
  typename TestFixture::Rig ring({.size = 16});
  TestFixture::add(ring, 0, 16);
  ring.driver.disable_callbacks();
  EXPECT_FALSE(ring.driver.enable_callbacks_delayed());
  EXPECT_EQ(TestFixture::called_at(ring, 16), 1u);
}

TYPED_TEST(DriverNotify, TheSecondLookSeesWhatWasUsedMeanwhile) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Rig ring({.size = 16, .event_idx = event_idx});
    for (uint16_t used = 0; used <= 16; ++used) {
      TestFixture::add(ring, 0, 16);
      TestFixture::called_at(ring, used);
      EXPECT_EQ(ring.driver.enable_callbacks(), used > 0);
      EXPECT_EQ(ring.driver.enable_callbacks_delayed(), used > (event_idx ? 12 : 0)) << used;
      ring.serve();
      ASSERT_EQ(ring.take_all().size(), 16u);
    }
  }
}

TYPED_TEST(DriverNotify, TheSecondLookCountsTheBuffersOfABatch) {
  typename TestFixture::Rig ring({.size = 16, .event_idx = true, .in_order = true});
  for (uint16_t used = 1; used <= 16; ++used) {
    TestFixture::add(ring, 0, 16);
    std::vector<FakeDevice::Taken> batch;
    for (uint16_t i = 0; i < used; ++i) batch.push_back(*ring.device->take());
    ring.device->use_batch(batch, 0);
    ring.device->publish();
    EXPECT_TRUE(ring.driver.enable_callbacks());
    EXPECT_EQ(ring.driver.enable_callbacks_delayed(), used > 12) << used;
    ring.serve();
    ASSERT_EQ(ring.take_all().size(), 16u);
  }
}

TEST(PackedDriverNotify, ThreeQuartersAreDescriptorsNotChains) {
  DriverTestRing<PackedDriver> ring({.size = 16, .event_idx = true});
  for (uint32_t lap = 0; lap < 7; ++lap) {
    // 3 + 1 + 1 + 4 descriptors: 9, and 3/4 of it is 6, which lies in the last chain.
    ASSERT_TRUE(ring.add_chain(3, 0, 0));
    ASSERT_TRUE(ring.add_chain(1, 0, 1));
    ASSERT_TRUE(ring.add_chain(1, 0, 2));
    ASSERT_TRUE(ring.add_chain(4, 0, 3));
    ring.driver.publish();
    EXPECT_FALSE(ring.driver.enable_callbacks_delayed());
    for (uint32_t chain = 0; chain < 4; ++chain) {
      ring.device->use(*ring.device->take(), 0);
      ring.device->publish();
      EXPECT_EQ(ring.device->interrupt_wanted(), chain == 3) << "lap " << lap;
    }
    EXPECT_TRUE(ring.driver.enable_callbacks_delayed());
    ASSERT_EQ(ring.take_all().size(), 4u);
  }
}

}  // namespace
}  // namespace sluice
