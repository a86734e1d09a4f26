// When a transmit queue takes its buffers back and when it asks to be called: each rule, and that
// it does nothing else.
#include "virtio/transmit_reclaim.h"

#include <gtest/gtest.h>

#include "testing/fake_device.h"

namespace sluice {
namespace {

template <typename Ring>
class Reclaim : public ::testing::Test {
 protected:
  // A transmit queue and its device.
  struct Rig {
    Rig(TransmitMode mode, const DriverRingOptions& options)
        : ring(options), reclaim(ring.driver, mode) {
      for (uint32_t i = options.size; i-- > 0;) free.push_back(static_cast<uint16_t>(i));
    }
    auto release() {
      return [this](const UsedBuffer& used) { free.push_back(used.token); };
    }
    // One transmit call; returns how many chains found room.
    uint32_t transmit(uint32_t count) {
      reclaim.begin(release());
      uint32_t added = 0;
      for (; added < count; ++added) {
        if (free.empty()) {
          reclaim.stop();
          break;
        }
        const BufferPiece piece = ring.piece(free.back(), 60);
        if (!reclaim.add({&piece, 1}, {}, free.back())) break;
        free.pop_back();
      }
      reclaim.publish();
      return added;
    }
    // The rest of a breath: kick, then arm.
    bool finish() {
      kicked = reclaim.kick_due();
      return reclaim.arm();
    }
    // The device uses `count` chains one by one; returns how often it calls.
    uint32_t use(uint32_t count) {
      uint32_t calls = 0;
      for (uint32_t i = 0; i < count; ++i) {
        const auto taken = ring.device->take();
        if (!taken) break;
        ring.device->use(*taken, 0);
        ring.device->publish();
        calls += ring.device->interrupt_wanted();
      }
      return calls;
    }
    uint64_t armed() const {
      return reclaim.counters().delayed_armed.get() + reclaim.counters().next_armed.get();
    }

    DriverTestRing<Ring> ring;
    TransmitReclaim<Ring> reclaim;
    std::vector<uint16_t> free;
    bool kicked = false;
  };
};
using Formats = ::testing::Types<SplitDriver, PackedDriver>;
struct FormatName {
  template <typename Ring>
  static std::string GetName(int) {
    return std::is_same_v<Ring, SplitDriver> ? "Split" : "Packed";
  }
};
TYPED_TEST_SUITE(Reclaim, Formats, FormatName);

constexpr auto kNapi = TransmitMode::napi;
constexpr auto kInline = TransmitMode::inline_reclaim;

TYPED_TEST(Reclaim, NapiTakesNothingBackInsideTransmit) {
  typename TestFixture::Rig rig(kNapi, {.size = 256, .event_idx = true});
  for (uint32_t round = 0; round < 3; ++round) {
    ASSERT_EQ(rig.transmit(64), 64u);
    rig.finish();
    rig.use(64);
  }
  EXPECT_EQ(rig.ring.driver.outstanding(), 192u);
  EXPECT_EQ(rig.reclaim.counters().reclaimed.get(), 0u);
  EXPECT_EQ(rig.reclaim.poll(rig.release(), 100), 100u) << "a budget is kept to";
  EXPECT_EQ(rig.reclaim.poll(rig.release(), 1000), 92u);
  EXPECT_EQ(rig.reclaim.poll(rig.release(), 1000), 0u);
  EXPECT_EQ(rig.reclaim.counters().reclaimed.get(), 192u);
  EXPECT_EQ(rig.ring.driver.outstanding(), 0u);
}

TYPED_TEST(Reclaim, NapiArmsNothingWhileThereIsRoom) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Rig rig(kNapi, {.size = 256, .event_idx = event_idx});
    for (uint32_t round = 0; round < 20; ++round) {
      ASSERT_EQ(rig.transmit(200), 200u);
      EXPECT_FALSE(rig.finish());
      EXPECT_EQ(rig.use(200), 0u) << "no callback, however much is used";
      rig.reclaim.poll(rig.release(), 1000);
      EXPECT_FALSE(rig.reclaim.arm()) << "nor behind a poll";
    }
    EXPECT_EQ(rig.armed(), 0u);
  }
}

TYPED_TEST(Reclaim, NapiArmsAtThreeQuartersWhenTheRingIsNearlyFull) {
  typename TestFixture::Rig rig(kNapi, {.size = 256, .event_idx = true});
  ASSERT_EQ(rig.transmit(256 - kNearlyFullDescriptors), 256 - kNearlyFullDescriptors);
  EXPECT_FALSE(rig.finish());
  EXPECT_EQ(rig.armed(), 0u) << "just enough room";
  ASSERT_EQ(rig.transmit(3), 3u);
  EXPECT_EQ(rig.armed(), 0u) << "not before the kick";
  EXPECT_FALSE(rig.finish());
  EXPECT_EQ(rig.reclaim.counters().delayed_armed.get(), 1u);
  EXPECT_EQ(rig.reclaim.counters().next_armed.get(), 0u);
  EXPECT_EQ(rig.use(180), 0u);  // 3/4 of 240
  EXPECT_EQ(rig.use(1), 1u);
  EXPECT_EQ(rig.use(59), 0u) << "once";
}

TYPED_TEST(Reclaim, NapiDisablesWhatWasArmedWhenTheNextTransmitStarts) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Rig rig(kNapi, {.size = 256, .event_idx = event_idx});
    rig.transmit(250);
    EXPECT_FALSE(rig.finish());
    EXPECT_EQ(rig.armed(), 1u);
    rig.reclaim.begin(rig.release());
    EXPECT_EQ(rig.use(250), 0u);
  }
}

TYPED_TEST(Reclaim, NapiArmsTheNextOneWhenTheQueueStops) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Rig rig(kNapi, {.size = 64, .event_idx = event_idx});
    ASSERT_EQ(rig.transmit(100), 64u);
    EXPECT_TRUE(rig.reclaim.stopped());
    EXPECT_FALSE(rig.finish());
    EXPECT_EQ(rig.reclaim.counters().next_armed.get(), 1u);
    EXPECT_EQ(rig.reclaim.counters().delayed_armed.get(), 0u);
    EXPECT_EQ(rig.use(1), 1u) << "the very next";
    EXPECT_EQ(rig.reclaim.poll(rig.release(), 64), 1u);
    EXPECT_TRUE(rig.reclaim.stopped()) << "room for one is not room";
    EXPECT_FALSE(rig.reclaim.arm());
    EXPECT_EQ(rig.use(1), 1u);
    rig.use(30);
    EXPECT_EQ(rig.reclaim.poll(rig.release(), 64), 31u);
    EXPECT_FALSE(rig.reclaim.stopped());
  }
}

TYPED_TEST(Reclaim, ArmingLooksASecondTime) {
  for (const bool event_idx : {false, true}) {
    typename TestFixture::Rig rig(kNapi, {.size = 64, .event_idx = event_idx});
    rig.transmit(60);
    rig.use(60);
    EXPECT_TRUE(rig.finish()) << "nearly full, and all of it used";
    rig.reclaim.poll(rig.release(), 64);
    rig.transmit(100);
    rig.use(1);
    EXPECT_TRUE(rig.finish()) << "stopped, and one is used";
    rig.reclaim.poll(rig.release(), 64);
    EXPECT_FALSE(rig.reclaim.arm());
  }
}

TYPED_TEST(Reclaim, InlineTakesBackAtTheStartOfEachTransmit) {
  typename TestFixture::Rig rig(kInline, {.size = 64, .event_idx = true});
  for (uint32_t round = 0; round < 30; ++round) {
    ASSERT_EQ(rig.transmit(40), 40u);
    EXPECT_EQ(rig.ring.driver.outstanding(), 40u);
    rig.finish();
    rig.use(40);
  }
  EXPECT_EQ(rig.reclaim.counters().reclaimed.get(), 29 * 40u);
}

TYPED_TEST(Reclaim, InlineArmsOnceATransmitHoweverEmptyTheRing) {
  typename TestFixture::Rig rig(kInline, {.size = 256, .event_idx = true});
  for (uint32_t round = 1; round <= 20; ++round) {
    ASSERT_EQ(rig.transmit(64), 64u);
    EXPECT_FALSE(rig.finish());
    EXPECT_EQ(rig.reclaim.counters().delayed_armed.get(), round);
    EXPECT_EQ(rig.use(48), 0u);
    EXPECT_EQ(rig.use(16), 1u) << "a callback each round, at 3/4";
    // What the callback brings about: nothing, as the queue has not stopped.
    EXPECT_EQ(rig.reclaim.poll(rig.release(), 256), 0u);
  }
}

TYPED_TEST(Reclaim, InlineEndsAStopInPoll) {
  typename TestFixture::Rig rig(kInline, {.size = 64, .event_idx = true});
  ASSERT_EQ(rig.transmit(100), 64u);
  EXPECT_TRUE(rig.reclaim.stopped());
  EXPECT_FALSE(rig.finish());
  EXPECT_EQ(rig.use(64), 1u);
  EXPECT_EQ(rig.reclaim.poll(rig.release(), 256), 64u);
  EXPECT_FALSE(rig.reclaim.stopped());
  EXPECT_FALSE(rig.reclaim.arm()) << "nothing is outstanding";
}

TYPED_TEST(Reclaim, CountsKicksAndThoseThatWereSaved) {
  typename TestFixture::Rig rig(kNapi, {.size = 64, .event_idx = true});
  const auto& counters = rig.reclaim.counters();
  rig.transmit(4);
  rig.finish();
  EXPECT_TRUE(rig.kicked);
  rig.ring.device->refuse_kicks();
  rig.transmit(4);
  rig.transmit(4);
  rig.finish();
  EXPECT_FALSE(rig.kicked);
  rig.finish();  // an idle breath is no kick that was saved
  EXPECT_EQ(counters.kicks.get(), 1u);
  EXPECT_EQ(counters.kicks_suppressed.get(), 1u);
}

TYPED_TEST(Reclaim, SmallRingsStopAndGoOn) {
  for (const TransmitMode mode : {kNapi, kInline}) {
    for (const bool event_idx : {false, true}) {
      for (const uint32_t size : {1u, 2u, 4u, 8u, 16u}) {
        typename TestFixture::Rig rig(mode, {.size = size, .event_idx = event_idx});
        uint64_t sent = 0;
        for (uint32_t round = 0; round < 200; ++round) {
          sent += rig.transmit(64);
          // Whoever is not called and not told to look may sleep, and must not have to wake up.
          bool look = rig.finish();
          look |= rig.use(1 + round % size) > 0;
          if (look) rig.reclaim.poll(rig.release(), size);
          look = rig.reclaim.arm();
          if (look) rig.reclaim.poll(rig.release(), size);
          rig.use(size);
          rig.reclaim.poll(rig.release(), size);
          EXPECT_FALSE(rig.reclaim.stopped());
        }
        EXPECT_EQ(sent, 200 * size);
        EXPECT_EQ(rig.ring.device->complaint(), "");
      }
    }
  }
}

TYPED_TEST(Reclaim, ABrokenRingGivesNothingBackAndEndsNoStop) {
  typename TestFixture::Rig rig(kNapi, {.size = 8});
  rig.transmit(64);
  rig.finish();
  rig.ring.device->raw_use(0x7fff, 0);
  EXPECT_EQ(rig.reclaim.poll(rig.release(), 8), 0u);
  EXPECT_TRUE(rig.ring.driver.broken());
  EXPECT_TRUE(rig.reclaim.stopped());
  rig.reclaim.arm();
  EXPECT_EQ(rig.reclaim.poll(rig.release(), 8), 0u);
}

}  // namespace
}  // namespace sluice
