// The control queue of a nic against a device that answers as it likes.
#include "port/nic_control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "virtio/features.h"
#include "virtio/split_layout.h"

namespace sluice {
namespace {

using Answer = NicControl::Answer;

// A split ring; its device is written by hand.
struct NicControlTest : testing::Test {
  void SetUp() override {
    for (Fd* fd : {&events.kick, &events.call, &events.error})
      *fd = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    control.set_events(std::move(events));
  }
  uint8_t* at(FrontendAddr address) { return reinterpret_cast<uint8_t*>(raw(address)); }
  template <typename T>
  T load(FrontendAddr address, size_t offset) {
    T value;
    std::memcpy(&value, at(address) + offset, sizeof value);
    return value;
  }
  template <typename T>
  void store(FrontendAddr address, size_t offset, T value) {
    std::memcpy(at(address) + offset, &value, sizeof value);
  }
  // The command that was published last, as its device sees it.
  std::vector<uint8_t> command() {
    const auto head = load<uint16_t>(ring.driver_area, 4);
    const auto buffer = load<SplitDescriptor>(ring.descriptors, 16 * head);
    const uint8_t* bytes = memory.at(GuestAddr{buffer.address});
    return {bytes, bytes + buffer.bytes};
  }
  void answer(uint8_t status, uint32_t used_bytes = 1) {
    const auto head = load<uint16_t>(ring.driver_area, 4);
    const auto first = load<SplitDescriptor>(ring.descriptors, 16 * head);
    const auto second = load<SplitDescriptor>(ring.descriptors, 16 * size_t{first.next});
    *memory.at(GuestAddr{second.address}) = status;
    store(ring.device_area, 4, uint32_t{head});
    store(ring.device_area, 8, used_bytes);
    store(ring.device_area, 2, uint16_t{1});
  }

  static constexpr uint64_t kFeatures = feature::version_1 | feature::ctrl_vq | feature::mq;
  NicMemory memory = std::move(*NicMemory::create(NicControl::memory_bytes(kFeatures)));
  NicControl control{kFeatures, memory};
  FrontEndRing ring = control.describe();
  NicEvents events;
};

TEST_F(NicControlTest, AsksForQueuePairsOneCommandAtATime) {
  EXPECT_FALSE(control.take_answer());
  ASSERT_TRUE(control.set_queue_pairs(0x102));
  EXPECT_EQ(command(), (std::vector<uint8_t>{4, 0, 2, 1}));
  EXPECT_FALSE(control.set_queue_pairs(3)) << "one is under way";
  EXPECT_FALSE(control.take_answer());
  answer(0);
  EXPECT_EQ(control.take_answer(), Answer::ok);
  EXPECT_FALSE(control.take_answer());
  EXPECT_TRUE(control.set_queue_pairs(3));
}

struct BadAnswer {
  const char* name;
  uint8_t status;
  uint32_t used_bytes;
};
class NicControlRefusal : public NicControlTest, public testing::WithParamInterface<BadAnswer> {};

TEST_P(NicControlRefusal, IsWhateverIsNoGoodAnswer) {
  ASSERT_TRUE(control.set_queue_pairs(2));
  answer(GetParam().status, GetParam().used_bytes);
  EXPECT_EQ(control.take_answer(), Answer::refused);
}
INSTANTIATE_TEST_SUITE_P(Answers, NicControlRefusal,
                         testing::Values(BadAnswer{"error", 1, 1}, BadAnswer{"unknown", 0xff, 1},
                                         BadAnswer{"nothing_written", 0, 0}),
                         [](const auto& row) { return std::string(row.param.name); });

// Each event of the call brings us here, and the device writes as many as it likes.
TEST_F(NicControlTest, SaysOnceThatTheRingIsBroken) {
  ASSERT_TRUE(control.set_queue_pairs(2));
  store(ring.device_area, 2, uint16_t{0x4000});
  EXPECT_EQ(control.take_answer(), Answer::broken);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(control.take_answer());
  EXPECT_FALSE(control.set_queue_pairs(1)) << "nobody would answer";
}

// The flag is shared with the device, which can also have taken the event itself.
TEST_F(NicControlTest, NeverWaitsForACallThatTheDeviceMadeBlocking) {
  ASSERT_EQ(::fcntl(control.call_fd(), F_SETFL, 0), 0);
  ASSERT_TRUE(control.set_queue_pairs(2));
  EXPECT_FALSE(control.take_answer());
  answer(0);
  EXPECT_EQ(control.take_answer(), Answer::ok) << "the ring says so, call or no call";
}

TEST_F(NicControlTest, AnAnswerToNoCommandBreaksTheRing) {
  store(ring.device_area, 2, uint16_t{1});
  EXPECT_EQ(control.take_answer(), Answer::broken);
  EXPECT_FALSE(control.take_answer());
}

}  // namespace
}  // namespace sluice
