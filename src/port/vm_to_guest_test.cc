// Frames to a guest: buffers of every kind, what the guest did not agree to, no room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "packet/checksum.h"
#include "testing/vm_test_kit.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kNonMergeable = feature::version_1 | feature::indirect_desc;

class ToGuestTest : public VmQueueTest {
 protected:
  void offer(uint32_t bytes, size_t count = 1) {
    for (size_t i = 0; i < count; ++i)
      ASSERT_TRUE(to->driver.offer(ChainBuilder{}.writable(bytes)));
  }
  // What the driver gets out of used entries: header and packet in one, the entries checked.
  Bytes gather(const std::vector<FakeDriver::Used>& used) {
    Bytes all;
    for (const auto& entry : used) {
      EXPECT_EQ(entry.data.size(), entry.bytes);
      all.insert(all.end(), entry.data.begin(), entry.data.end());
    }
    return all;
  }
  // The packet of the next used entries, as many as its num_buffers says.
  std::optional<Bytes> take_packet() {
    auto first = to->driver.take_used();
    if (!first) return std::nullopt;
    uint16_t buffers = 1;
    if (header_bytes == kNetHeaderBytes) std::memcpy(&buffers, &first->data[10], 2);
    Bytes all = first->data;
    std::memcpy(last_header.data(), all.data(), header_bytes);
    for (uint16_t i = 1; i < buffers; ++i) {
      const auto next = to->driver.take_used();
      if (!next) return std::nullopt;
      all.insert(all.end(), next->data.begin(), next->data.end());
    }
    return Bytes(all.begin() + static_cast<ptrdiff_t>(header_bytes), all.end());
  }
  uint64_t dropped(DropReason reason) { return drops(queue->transmitted(), reason); }

  NetHeaderBytes last_header{};
};

TEST_F(ToGuestTest, SpreadsAFrameOverMergedBuffers) {
  struct Row {
    uint32_t buffer_bytes;
    size_t packet_bytes;
  };
  for (const Row row : {Row{2048, 60}, Row{72, 60}, Row{71, 60}, Row{12, 60}, Row{13, 1514},
                        Row{100, 1000}, Row{1526, 1514}, Row{1525, 1514}, Row{1526, 9000},
                        Row{65562, 65550}, Row{4096, 65550}, Row{300, 65557}}) {
    SCOPED_TRACE(testing::Message() << row.packet_bytes << " in " << row.buffer_bytes);
    start(kModern, 1024);
    const size_t all = kNetHeaderBytes + row.packet_bytes;
    const size_t buffers = (all + row.buffer_bytes - 1) / row.buffer_bytes;
    offer(row.buffer_bytes, buffers + 3);
    const Bytes packet = numbered_packet(row.packet_bytes, 5);
    ASSERT_THAT(send({packet}), ElementsAre(FrameResult::done));
    const auto used = to->driver.take_all_used();
    ASSERT_EQ(used.size(), buffers);
    for (size_t i = 0; i + 1 < buffers; ++i) EXPECT_EQ(used[i].bytes, row.buffer_bytes) << i;
    OffloadMeta nothing;
    const NetHeaderBytes header = build_net_header(nothing, static_cast<uint16_t>(buffers));
    EXPECT_EQ(gather(used), joined(header, packet));
    // The buffers that were not needed serve the next frame.
    ASSERT_EQ(to->driver.outstanding(), 3u);
    queue->stop(Side::from_guest);
    queue->stop(Side::to_guest);
  }
}

TEST_F(ToGuestTest, PublishesAllEntriesOfABreathTogether) {
  start();
  offer(100, 30);
  FrameBatch batch;
  for (uint8_t i = 0; i < 3; ++i) batch.push(make_frame(numbered_packet(500, i)));
  queue->transmit(batch);
  EXPECT_EQ(to->driver.used_index(), 0);
  queue->finish_breath();
  EXPECT_EQ(to->driver.used_index(), 18);
  for (Frame* frame : batch) cache->give(frame);
  for (uint8_t i = 0; i < 3; ++i) EXPECT_EQ(take_packet(), numbered_packet(500, i));
}

TEST_F(ToGuestTest, FillsChainsOfAnyShape) {
  start();
  const Bytes packet = numbered_packet(60, 1);
  ChainBuilder bytewise, indirect, with_empty;
  for (int i = 0; i < 72; ++i) bytewise.writable(1);
  for (int i = 0; i < 72; ++i) indirect.writable(1);
  indirect.indirect();
  with_empty.writable(0).writable(12).writable(0).writable(100).writable(0);
  for (const ChainBuilder& chain :
       {bytewise, indirect, with_empty, ChainBuilder{}.writable(10).writable(2).writable(60),
        ChainBuilder{}.writable(12).writable(60), ChainBuilder{}.writable(5).writable(70)}) {
    ASSERT_TRUE(to->driver.offer(chain));
    ASSERT_THAT(send({packet}), ElementsAre(FrameResult::done));
    EXPECT_EQ(take_packet(), packet);
  }
}

TEST_F(ToGuestTest, SaysOneBufferWhenNothingIsMerged) {
  start(kNonMergeable);
  offer(2048, 2);
  const Bytes packet = numbered_packet(1514, 1);
  ASSERT_THAT(send({packet, packet}), Each(FrameResult::done));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(take_packet(), packet);
    EXPECT_EQ(last_header[10], 1);
    EXPECT_EQ(last_header[11], 0);
  }
}

TEST_F(ToGuestTest, WritesAHeaderOfTenBytesWithoutTheNewFeatures) {
  start(0);
  ASSERT_TRUE(to->driver.offer(ChainBuilder{}.writable(10).writable(1514)));
  offer(70);
  const Bytes packet = numbered_packet(60, 1);
  ASSERT_THAT(send({packet, packet}), Each(FrameResult::done));
  EXPECT_EQ(take_packet(), packet);
  EXPECT_EQ(take_packet(), packet);
}

TEST_F(ToGuestTest, DropsWhatABufferCannotHoldWhenItMayNotMergeAndKeepsTheBuffer) {
  start(kNonMergeable);
  offer(100, 2);
  EXPECT_THAT(send({numbered_packet(89, 1), numbered_packet(88, 2)}),
              ElementsAre(FrameResult::dropped, FrameResult::done));
  EXPECT_THAT(reasons, ElementsAre(DropReason::guest_buffer_too_small));
  EXPECT_EQ(take_packet(), numbered_packet(88, 2));
  EXPECT_EQ(to->driver.outstanding(), 1u);
}

TEST_F(ToGuestTest, GivesBackBuffersThatCannotBeginAPacket) {
  for (const uint64_t features : {kModern, kNonMergeable}) {
    start(features);
    for (uint32_t bytes = 0; bytes < kNetHeaderBytes; ++bytes) offer(bytes);
    offer(2048);
    const Bytes packet = numbered_packet(60, 1);
    ASSERT_THAT(send({packet}), ElementsAre(FrameResult::done));
    for (uint32_t bytes = 0; bytes < kNetHeaderBytes; ++bytes)
      EXPECT_EQ(to->driver.take_used()->bytes, 0u);
    EXPECT_EQ(take_packet(), packet);
    queue->stop(Side::from_guest);
    queue->stop(Side::to_guest);
  }
  EXPECT_EQ(dropped(DropReason::bad_chain), 2 * kNetHeaderBytes);
}

TEST_F(ToGuestTest, TouchesNoByteBehindTheFrame) {
  start();
  const uint64_t buffer = guest.allocate(2048);
  guest.fill(buffer, 2048, 0xee);
  ASSERT_TRUE(to->driver.offer(ChainBuilder{}.writable_at(buffer, 2048)));
  ASSERT_THAT(send({numbered_packet(60, 1)}), ElementsAre(FrameResult::done));
  EXPECT_EQ(to->driver.take_used()->bytes, 72u);
  EXPECT_THAT(guest.read(buffer + 72, 2048 - 72), Each(0xee));
}

// --- No room -------------------------------------------------------------------------------

TEST_F(ToGuestTest, BlocksWithoutRoomAndDeliversLater) {
  start();
  offer(500, 2);
  const Bytes big = numbered_packet(1200, 1), small = numbered_packet(60, 2);
  EXPECT_THAT(send({big, small}), ElementsAre(FrameResult::blocked, FrameResult::blocked))
      << "order is kept: nothing overtakes the first that is blocked";
  EXPECT_FALSE(to->driver.has_used());
  EXPECT_EQ(queue->transmit_room(), 2u) << "an estimate from above";
  offer(500, 2);
  EXPECT_THAT(send({big, small}), Each(FrameResult::done));
  EXPECT_EQ(take_packet(), big);
  EXPECT_EQ(take_packet(), small);
  EXPECT_EQ(queue->transmitted().frames.get(), 2u);
}

TEST_F(ToGuestTest, DoesNotWaitForWhatTheWholeRingCannotHold) {
  start(kModern, 4);
  offer(300, 4);
  const Bytes small = numbered_packet(60, 2);
  EXPECT_THAT(send({numbered_packet(1200, 1), small}),
              ElementsAre(FrameResult::dropped, FrameResult::done));
  EXPECT_THAT(reasons, ElementsAre(DropReason::guest_buffer_too_small));
  EXPECT_EQ(take_packet(), small);
}

TEST_F(ToGuestTest, AsksForAKickBeyondTheBuffersThatWereTooFew) {
  for (const uint64_t features : {kModern, kModern & ~feature::event_idx}) {
    start(features);
    const bool event_idx = features & feature::event_idx;
    offer(500);
    send({numbered_packet(60, 1)});
    to->driver.kick_wanted();  // a new ring may be kicked once
    offer(500, 2);
    const Bytes big = numbered_packet(1200, 1);
    EXPECT_THAT(send({big}), ElementsAre(FrameResult::blocked));
    EXPECT_FALSE(to->driver.kick_wanted()) << "suppressed while it is polled";
    EXPECT_FALSE(queue->arm(false, true)) << "the two are known already";
    offer(500);
    EXPECT_TRUE(to->driver.kick_wanted());
    queue->disarm();
    EXPECT_THAT(send({big}), ElementsAre(FrameResult::done));
    // More that came before arming is seen at once: no lost wake-up.
    offer(500, 2);
    EXPECT_THAT(send({big}), ElementsAre(FrameResult::blocked));
    offer(500);
    EXPECT_TRUE(queue->arm(false, true)) << event_idx;
    queue->disarm();
    queue->stop(Side::from_guest);
    queue->stop(Side::to_guest);
  }
}

TEST_F(ToGuestTest, WakesForTheFirstBufferAfterTheRingRanEmpty) {
  start();
  offer(500, 2);
  EXPECT_THAT(send({numbered_packet(1200, 1)}), ElementsAre(FrameResult::blocked));
  // The big one is given up; small ones use the buffers up.
  const Bytes small = numbered_packet(60, 2);
  EXPECT_THAT(send({small, small}), Each(FrameResult::done));
  EXPECT_EQ(queue->transmit_room(), 0u);
  offer(500, 2);
  EXPECT_TRUE(queue->arm(false, true)) << "two buffers are room, as many as were too few before";
}

TEST_F(ToGuestTest, WorksAfterTheRingRanEmptyManyTimes) {
  start(kModern, 8);
  for (uint8_t round = 0; round < 100; ++round) {
    EXPECT_EQ(queue->transmit_room(), 0u);
    offer(2000, 8);
    EXPECT_EQ(queue->transmit_room(), 8u);
    std::vector<Bytes> packets(8, numbered_packet(60, round));
    ASSERT_THAT(send(packets), Each(FrameResult::done));
    for (int i = 0; i < 8; ++i) EXPECT_EQ(take_packet(), packets[0]);
  }
}

// --- What the guest did not agree to -------------------------------------------------------

TEST_F(ToGuestTest, CompletesTheChecksumForAGuestThatDoesNot) {
  start();
  for (const auto& builder :
       {packet().eth().ipv4().udp(53).payload(100),
        packet().eth().vlan(5).ipv6().tcp().payload(1400),
        packet().eth().ipv4().tcp().payload(9001), packet().eth().ipv6().udp().payload(20'000)}) {
    const BuiltPacket whole = builder.build();
    const BuiltPacket partial = builder.build_needing_csum();
    offer(2048, 12);
    ASSERT_THAT(send({partial.bytes}, partial.offload), ElementsAre(FrameResult::done));
    EXPECT_EQ(take_packet(), whole.bytes);
    EXPECT_EQ(last_header[0], 0) << "no flag: the guest did not agree to any";
    queue->set_guest_takes({.csum = true});
    ASSERT_THAT(send({partial.bytes}, partial.offload), ElementsAre(FrameResult::done));
    EXPECT_EQ(take_packet(), partial.bytes);
    EXPECT_EQ(last_header[0], 1);
    uint16_t words[2];
    std::memcpy(words, &last_header[6], sizeof words);
    EXPECT_EQ(words[0], partial.offload.csum_start);
    EXPECT_EQ(words[1], partial.offload.csum_offset);
    queue->set_guest_takes({});
    to->driver.take_all_used();
  }
}

TEST_F(ToGuestTest, SaysThatAChecksumWasVerifiedOnlyToAGuestThatAgreed) {
  start();
  offer(2048, 2);
  OffloadMeta verified;
  verified.data_valid = true;
  send({numbered_packet(60, 1)}, verified);
  take_packet();
  EXPECT_EQ(last_header[0], 0);
  queue->set_guest_takes({.csum = true});
  send({numbered_packet(60, 1)}, verified);
  take_packet();
  EXPECT_EQ(last_header[0], 2);
}

TEST_F(ToGuestTest, PassesSegmentationOnOnlyToAGuestThatAgreed) {
  start();
  struct Row {
    GsoType type;
    bool ecn;
    OffloadSet takes;
  };
  const Row rows[] = {
      {GsoType::tcp4, false, {.csum = true, .tso4 = true}},
      {GsoType::tcp6, false, {.csum = true, .tso6 = true}},
      {GsoType::udp_l4, false, {.csum = true, .uso = true}},
      {GsoType::tcp4, true, {.csum = true, .tso4 = true, .tso_ecn = true}},
  };
  const Bytes packet = numbered_packet(5000, 1);
  for (const Row& row : rows) {
    const OffloadMeta offload{.needs_csum = true,
                              .gso_type = row.type,
                              .gso_ecn = row.ecn,
                              .header_bytes = 54,
                              .gso_size = 1400,
                              .csum_start = 34,
                              .csum_offset = 16};
    offer(2048, 3);
    queue->set_guest_takes(row.takes);
    ASSERT_THAT(send({packet}, offload), ElementsAre(FrameResult::done));
    EXPECT_EQ(take_packet(), packet);
    const NetHeaderBytes expected = build_net_header(offload, 3);
    EXPECT_EQ(last_header, expected);
    // Everything agreed to but this one.
    OffloadSet others{.csum = true, .tso4 = true, .tso6 = true, .tso_ecn = true, .uso = true};
    if (row.type == GsoType::tcp4 && !row.ecn) others.tso4 = false;
    if (row.type == GsoType::tcp6) others.tso6 = false;
    if (row.type == GsoType::udp_l4) others.uso = false;
    if (row.ecn) others.tso_ecn = false;
    queue->set_guest_takes(others);
    EXPECT_THAT(send({packet}, offload), ElementsAre(FrameResult::dropped));
    EXPECT_THAT(reasons, ElementsAre(DropReason::offload_not_negotiated));
  }
  const OffloadMeta ufo{.needs_csum = true,
                        .gso_type = GsoType::udp_fragment,
                        .gso_size = 1400,
                        .csum_start = 34,
                        .csum_offset = 6};
  queue->set_guest_takes({.csum = true, .tso4 = true, .tso6 = true, .tso_ecn = true, .uso = true});
  EXPECT_THAT(send({packet}, ufo), ElementsAre(FrameResult::dropped));
}

// --- Rings that cannot carry ---------------------------------------------------------------

TEST_F(ToGuestTest, DropsByNameWhatARingCannotCarry) {
  const Bytes packet = numbered_packet(60, 1);
  EXPECT_EQ(queue->transmit_room(), kBatchFramesMax) << "to drop it, not to hold its source up";
  EXPECT_THAT(send({packet}), ElementsAre(FrameResult::dropped));
  EXPECT_THAT(reasons, ElementsAre(DropReason::no_front_end));
  start();
  offer(2048, 2);
  queue->ring(Side::to_guest).set_enabled(false);
  EXPECT_THAT(send({packet}), ElementsAre(FrameResult::dropped));
  EXPECT_THAT(reasons, ElementsAre(DropReason::ring_disabled));
  queue->ring(Side::to_guest).set_enabled(true);
  EXPECT_THAT(send({packet}), ElementsAre(FrameResult::done));
  queue->ring(Side::to_guest).set_enabled(false);
  queue->stop(Side::to_guest);
  EXPECT_THAT(send({packet}), ElementsAre(FrameResult::dropped));
  EXPECT_THAT(reasons, ElementsAre(DropReason::ring_disabled));
}

TEST_F(ToGuestTest, HoldsFramesForARingThatComesBackSoon) {
  start();
  offer(2048, 2);
  const Bytes packet = numbered_packet(60, 1);
  EXPECT_THAT(send({packet}), ElementsAre(FrameResult::done));
  const uint32_t base = queue->stop(Side::to_guest);
  EXPECT_EQ(queue->transmit_room(), 0u);
  EXPECT_TRUE(queue->must_be_polled());
  EXPECT_THAT(send({packet, packet}), Each(FrameResult::blocked));
  RingStart again = to->start(0, kModern);
  again.base = base;
  ASSERT_TRUE(queue->start(Side::to_guest, std::move(again)));
  EXPECT_FALSE(queue->must_be_polled());
  EXPECT_THAT(send({packet}), ElementsAre(FrameResult::done));
}

TEST_F(ToGuestTest, GivesUpOnARingThatStaysAwayOrWhoseFrontEndIsGone) {
  start();
  const Bytes packet = numbered_packet(60, 1);
  queue->stop(Side::to_guest);
  EXPECT_THAT(send({packet}), ElementsAre(FrameResult::blocked));
  ::usleep((kHeldMillisecondsMax + 20) * 1000);
  queue->finish_breath();
  EXPECT_TRUE(is_readable(bell.fd()));
  EXPECT_FALSE(queue->must_be_polled());
  EXPECT_EQ(queue->transmit_room(), kBatchFramesMax);
  EXPECT_THAT(send({packet}), ElementsAre(FrameResult::dropped));
  EXPECT_THAT(reasons, ElementsAre(DropReason::ring_disabled));
  queue->stop(Side::from_guest);
  start();
  queue->stop(Side::to_guest);
  queue->set_front_end_connected(false);
  EXPECT_THAT(send({packet}), ElementsAre(FrameResult::dropped));
  EXPECT_THAT(reasons, ElementsAre(DropReason::no_front_end));
}

TEST_F(ToGuestTest, StopsAtAReadableBufferAndLeavesTheOtherDirectionAlone) {
  for (const ChainBuilder& bad :
       {ChainBuilder{}.readable(2048), ChainBuilder{}.readable(12).writable(2048),
        ChainBuilder{}.writable_at(1ull << 50, 2048), ChainBuilder{}.writable(12).readable(1)}) {
    start();
    offer(100);  // a good one first, which the frame does not fit alone
    ASSERT_TRUE(to->driver.offer(bad));
    const Bytes packet = numbered_packet(500, 1);
    EXPECT_THAT(send({packet, packet}), Each(FrameResult::dropped));
    EXPECT_THAT(reasons, Each(DropReason::ring_disabled));
    EXPECT_EQ(take_event(to->error), 1u);
    EXPECT_TRUE(is_readable(bell.fd()));
    EXPECT_FALSE(to->driver.has_used());
    EXPECT_NE(queue->ring(Side::to_guest).take_new_fault(), RingFault::none);
    EXPECT_EQ(queue->ring(Side::to_guest).take_new_fault(), RingFault::none);
    ASSERT_TRUE(from->driver.offer(ChainBuilder{}.readable(joined(net_header(), packet))));
    EXPECT_THAT(receive(), ElementsAre(packet));
    queue->stop(Side::from_guest);
    queue->stop(Side::to_guest);
    bell.silence();
  }
}

}  // namespace
}  // namespace sluice
