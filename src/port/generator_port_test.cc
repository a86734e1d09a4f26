// A generator by itself: what it makes, what it counts, when it waits. Its peer is the test, which
// takes and gives batches as a link does.
#include "port/generator_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <map>
#include <thread>

#include "base/clock.h"
#include "testing/allocation_guard.h"
#include "testing/packet_builder.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Bytes = std::vector<uint8_t>;

class GeneratorPortTest : public ::testing::Test {
 protected:
  void TearDown() override {
    // What a reflector keeps is asked back; then the pool is whole again.
    if (port_ && mode_ == GeneratorMode::reflect)
      for (uint32_t i = 0; i < port_->queue_count(); ++i) take_all(i);
    cache_.reset();
    EXPECT_EQ(pool_->frames_free(), pool_->frames_total());
  }
  void open(const GeneratorOptions& options, bool begins = true) {
    mode_ = options.mode;
    Result<std::unique_ptr<GeneratorPort>> made = GeneratorPort::create(options);
    ASSERT_TRUE(made) << made.error().text;
    port_ = std::move(*made);
    if (begins) port_->begin();
  }
  PortQueue& queue(uint32_t index = 0) { return port_->queue(index); }
  GeneratorFigures figures() const { return port_->figures(); }

  // One batch, within its budget.
  std::vector<Bytes> take(uint32_t index = 0, Budget budget = {}) {
    FrameBatch batch;
    says_more_ = queue(index).receive(batch, budget, *cache_);
    std::vector<Bytes> frames;
    for (Frame* frame : batch) {
      EXPECT_TRUE(frame->is_single());
      EXPECT_FALSE(frame->offload().needs_csum);
      frames.emplace_back(frame->data(), frame->data() + frame->packet_bytes());
      cache_->give(frame);
    }
    return frames;
  }
  // All batches of one breath.
  std::vector<Bytes> take_all(uint32_t index = 0) {
    std::vector<Bytes> all;
    for (int batch = 0; batch < 1000; ++batch) {
      const std::vector<Bytes> frames = take(index);
      all.insert(all.end(), frames.begin(), frames.end());
      if (!says_more_) break;
    }
    queue(index).finish_breath();
    return all;
  }
  std::vector<FrameResult> give(const std::vector<Bytes>& frames, uint32_t index = 0,
                                const OffloadMeta& offload = {}) {
    FrameBatch batch;
    for (const Bytes& bytes : frames) {
      Frame* frame = cache_->take();
      std::memcpy(frame->data(), bytes.data(), bytes.size());
      frame->set_single(bytes.size());
      frame->offload() = offload;
      batch.push(frame);
    }
    queue(index).transmit(batch);
    std::vector<FrameResult> results;
    for (Frame* frame : batch) {
      results.push_back(frame->result());
      if (frame->result() != FrameResult::kept) cache_->give(frame);
    }
    return results;
  }

  GeneratorMode mode_ = GeneratorMode::txonly;
  std::unique_ptr<FramePool> pool_ =
      std::move(*FramePool::create({.frame_count = 512, .slab_count = 4}));
  std::unique_ptr<FrameCache> cache_ = std::make_unique<FrameCache>(*pool_);
  std::unique_ptr<GeneratorPort> port_;
  bool says_more_ = false;
};

// Ethernet, IPv4 and the transport, looked at by the reference in testing/, not by our own code.
bool checksums_are_right(const Bytes& frame) {
  const std::span<const uint8_t> all(frame);
  if (reference_sum(all.subspan(14, 20)) != 0xffff) return false;
  const uint32_t pseudo =
      reference_sum(all.subspan(26, 8)) + frame[23] + static_cast<uint32_t>(frame.size() - 34);
  return reference_sum(all.subspan(34), pseudo) == 0xffff;
}

uint64_t big_endian(const Bytes& frame, size_t offset, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | frame[offset + i];
  return value;
}

Bytes frame_of(uint16_t flow, uint64_t number, uint64_t time_ns = 1, size_t bytes = 64) {
  Bytes frame(bytes);
  NumberedFrames({.frame_bytes = bytes}).write(frame.data(), {flow, number, time_ns});
  return frame;
}

Bytes returned(Bytes frame) {
  swap_link_addresses(frame);
  return frame;
}

// ---- What it makes ----------------------------------------------------------------------------

TEST_F(GeneratorPortTest, MakesValidFramesOfTheSizeThatWasAskedFor) {
  for (const bool tcp : {false, true}) {
    for (const size_t bytes : {tcp ? kNumberedTcpBytesMin : kNumberedUdpBytesMin, size_t{73},
                               size_t{1514}, kFrameDataBytesMax}) {
      SCOPED_TRACE(testing::Message() << (tcp ? "tcp " : "udp ") << bytes);
      GeneratorOptions options{.flows = 5};
      options.frame = {.frame_bytes = bytes,
                       .tcp = tcp,
                       .source_mac = {0x02, 1, 2, 3, 4, 5},
                       .destination_mac = {0x02, 6, 7, 8, 9, 10}};
      open(options);
      const uint64_t before_ns = monotonic_ns();
      const std::vector<Bytes> frames = take();
      ASSERT_THAT(frames, SizeIs(kBatchFramesMax));
      for (size_t i = 0; i < frames.size(); ++i) {
        const Bytes& frame = frames[i];
        ASSERT_EQ(frame.size(), bytes);
        EXPECT_EQ(big_endian(frame, 0, 6), 0x020607080900u + 10);
        EXPECT_EQ(big_endian(frame, 6, 6), 0x020102030405u);
        EXPECT_EQ(big_endian(frame, 12, 2), 0x0800u);
        EXPECT_EQ(big_endian(frame, 16, 2), bytes - 14);
        EXPECT_EQ(frame[23], tcp ? 6 : 17);
        EXPECT_EQ(big_endian(frame, 34, 2), 1024 + i % 5);  // a source port a flow
        EXPECT_TRUE(checksums_are_right(frame)) << i;
        if (tcp) {
          EXPECT_EQ(big_endian(frame, 38, 4), i / 5 * (bytes - 54)) << "sequence number";
        }
        const auto tag = read_tag(frame);
        ASSERT_TRUE(tag);
        EXPECT_EQ(tag->flow, i % 5);
        EXPECT_EQ(tag->number, i / 5);
        EXPECT_GE(tag->time_ns, before_ns);
        EXPECT_LE(tag->time_ns, monotonic_ns());
      }
      EXPECT_EQ(figures().frames_sent, kBatchFramesMax);
      EXPECT_EQ(queue().received().bytes.get(), kBatchFramesMax * bytes);
    }
  }
}

TEST_F(GeneratorPortTest, NumbersOfEachFlowGoOnWithoutAGapFromBatchToBatch) {
  open({.burst_frames = 100, .flows = 16});
  std::map<uint16_t, uint64_t> next;
  for (int breath = 0; breath < 5; ++breath) {
    for (const Bytes& frame : take_all()) {
      const auto tag = read_tag(frame);
      ASSERT_TRUE(tag);
      ASSERT_EQ(tag->number, next[tag->flow]++) << tag->flow;
    }
  }
  EXPECT_THAT(next, SizeIs(16));
  for (const auto& [flow, count] : next) EXPECT_EQ(count, 500 / 16 + (flow < 500 % 16 ? 1 : 0));
}

TEST_F(GeneratorPortTest, ABreathBringsABurstAndNoMore) {
  open({.burst_frames = 130});
  EXPECT_THAT(take(), SizeIs(64));
  EXPECT_TRUE(says_more_);
  EXPECT_THAT(take(), SizeIs(64));
  EXPECT_TRUE(says_more_);
  EXPECT_THAT(take(), SizeIs(2));
  EXPECT_FALSE(says_more_);
  EXPECT_THAT(take(), IsEmpty());
  queue().finish_breath();
  EXPECT_THAT(take(0, {.frames = 10}), SizeIs(10));
  EXPECT_TRUE(says_more_);
}

TEST_F(GeneratorPortTest, QueuesShareFlowsAndCountAmongThem) {
  open({.queues = 3, .flows = 7, .frames_max = 20});
  std::map<uint16_t, uint64_t> seen;
  size_t total = 0;
  for (uint32_t i = 0; i < 3; ++i) {
    const std::vector<Bytes> frames = take_all(i);
    EXPECT_THAT(frames, SizeIs(i < 2 ? 7 : 6));
    total += frames.size();
    for (const Bytes& frame : frames) {
      const auto tag = read_tag(frame);
      ASSERT_TRUE(tag);
      EXPECT_EQ(tag->flow % 3, i) << "a flow has one queue";
      EXPECT_EQ(tag->number, seen[tag->flow]++);
    }
  }
  EXPECT_EQ(total, 20u);
  EXPECT_THAT(seen, SizeIs(7));
}

TEST_F(GeneratorPortTest, EachQueueHasAFlowAlsoWhenFewerWereAskedFor) {
  open({.queues = 4, .flows = 1});
  for (uint32_t i = 0; i < 4; ++i) {
    const std::vector<Bytes> frames = take(i, {.frames = 2});
    ASSERT_THAT(frames, SizeIs(2));
    EXPECT_EQ(read_tag(frames[1])->flow, i);
    EXPECT_EQ(read_tag(frames[1])->number, 1u);
  }
}

TEST_F(GeneratorPortTest, StopsAtItsCountAndSleeps) {
  open({.frames_max = 70});
  EXPECT_TRUE(queue().arm(true, false)) << "there is work";
  EXPECT_THAT(take_all(), SizeIs(70));
  EXPECT_THAT(take_all(), IsEmpty());
  EXPECT_FALSE(queue().arm(true, false));
  EXPECT_EQ(port_->frames_sent(), 70u);
}

TEST_F(GeneratorPortTest, SendsNothingBeforeItBeginsAndAfterItWasStopped) {
  open({}, /*begins=*/false);
  EXPECT_THAT(take_all(), IsEmpty());
  EXPECT_FALSE(queue().arm(true, false));
  port_->begin();
  EXPECT_THAT(take_all(), SizeIs(256));
  port_->stop_sending();
  EXPECT_THAT(take_all(), IsEmpty());
  EXPECT_FALSE(queue().arm(true, false));
}

TEST_F(GeneratorPortTest, APoolThatIsEmptyMakesNoGapInTheNumbers) {
  open({});
  std::vector<Frame*> taken;
  while (Frame* frame = cache_->take()) taken.push_back(frame);
  for (int i = 0; i < 3; ++i) {
    cache_->give(taken.back());
    taken.pop_back();
  }
  const std::vector<Bytes> few = take();
  EXPECT_THAT(few, SizeIs(3));
  EXPECT_FALSE(says_more_);
  for (Frame* frame : taken) cache_->give(frame);
  const std::vector<Bytes> rest = take(0, {.frames = 1});
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_EQ(read_tag(rest[0])->number, 3u);
}

// ---- Its rate ---------------------------------------------------------------------------------

TEST_F(GeneratorPortTest, ARateIsNotExceededBeyondOneBurst) {
  constexpr double kRate = 20'000;
  const uint64_t begin_ns = monotonic_ns();
  open({.burst_frames = 8, .rate_fps = kRate});
  uint64_t frames = 0;
  for (int breath = 0; breath < 2000; ++breath) {
    const size_t count = take_all().size();
    ASSERT_LE(count, 8u);
    frames += count;
    const auto due =
        static_cast<uint64_t>(static_cast<double>(monotonic_ns() - begin_ns) * kRate / 1e9);
    ASSERT_LE(frames, due + 1);
  }
}

TEST_F(GeneratorPortTest, WhatWasMissedIsMadeUpForByOneBurstOnly) {
  open({.burst_frames = 4, .rate_fps = 1000});
  EXPECT_THAT(take_all(), SizeIs(1)) << "the first is due at once";
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const uint64_t before_ns = monotonic_ns();
  EXPECT_THAT(take_all(), SizeIs(4)) << "30 or more are due";
  const size_t next = take_all().size();  // what has become due since, and no more
  EXPECT_LE(next, 1 + (monotonic_ns() - before_ns) / 1'000'000);
}

TEST_F(GeneratorPortTest, SleepsUntilAFrameIsDueAndIsWokenForIt) {
  open({.burst_frames = 1, .rate_fps = 50});
  EXPECT_THAT(take_all(), SizeIs(1));
  const uint64_t begin_ns = monotonic_ns();
  // A machine that slept has frames due already.
  for (int i = 0; i < 1000 && queue().arm(true, false); ++i) take_all();
  pollfd watched{queue().wake_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&watched, 1, 20'000), 1) << "nobody was woken";
  queue().on_wake();
  EXPECT_TRUE(queue().arm(true, false));
  EXPECT_THAT(take_all(), SizeIs(1));
  EXPECT_GE(port_->frames_sent(), 2u);
  EXPECT_LE(port_->frames_sent(), 2 + (monotonic_ns() - begin_ns) / 20'000'000);
}

TEST_F(GeneratorPortTest, ARateIsSharedByTheQueues) {
  open({.queues = 2, .burst_frames = 100, .rate_fps = 1000});
  const uint64_t begin_ns = monotonic_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const size_t first = take_all(0).size(), second = take_all(1).size();
  const uint64_t elapsed_ms = (monotonic_ns() - begin_ns) / 1'000'000 + 1;
  for (const size_t count : {first, second}) {
    EXPECT_GE(count, 10u);  // of 500 a second, 20 ms or more after the start
    EXPECT_LE(count, elapsed_ms / 2 + 2);
  }
}

// ---- What it counts ---------------------------------------------------------------------------

struct Arrivals {
  const char* what;
  std::vector<uint64_t> numbers;
  uint64_t lost, reordered, duplicates;
};

TEST_F(GeneratorPortTest, AReceiverTellsLossDisorderAndDuplicatesApart) {
  for (const Arrivals& row : {
           Arrivals{"in order", {0, 1, 2, 3}, 0, 0, 0},
           Arrivals{"the sender began earlier", {1000, 1001, 1002}, 0, 0, 0},
           Arrivals{"two are missing", {0, 1, 4, 5}, 2, 0, 0},
           Arrivals{"two changed places", {0, 2, 1, 3}, 0, 1, 0},
           Arrivals{"one came twice", {0, 1, 1, 2}, 0, 0, 1},
           Arrivals{"one came twice, later", {0, 1, 2, 3, 1}, 0, 0, 1},
           Arrivals{"all of it", {0, 3, 3, 2, 5}, 2, 1, 1},
       }) {
    SCOPED_TRACE(row.what);
    open({.mode = GeneratorMode::rxonly});
    std::vector<Bytes> frames;
    for (const uint64_t number : row.numbers) frames.push_back(frame_of(60'000, number));
    EXPECT_THAT(give(frames), Each(FrameResult::done));
    const GeneratorFigures seen = figures();
    EXPECT_EQ(seen.frames_received, row.numbers.size());
    EXPECT_EQ(seen.numbers.received, row.numbers.size());
    EXPECT_EQ(seen.numbers.lost, row.lost);
    EXPECT_EQ(seen.numbers.reordered, row.reordered);
    EXPECT_EQ(seen.numbers.duplicates, row.duplicates);
    EXPECT_EQ(seen.frames_foreign, 0u);
    EXPECT_THAT(take_all(), IsEmpty()) << "a receiver sends nothing";
  }
}

TEST_F(GeneratorPortTest, OthersFramesAreCountedAndNothingElse) {
  open({.mode = GeneratorMode::rxonly, .verify = true});
  Bytes other = frame_of(0, 0);
  other[42] ^= 1;  // the tag's mark
  const Bytes arp = packet().eth().payload(46).build().bytes;
  std::vector<Bytes> frames = {other, arp, Bytes(14, 1), Bytes(13, 1), Bytes(1, 1)};
  for (const size_t bytes : {20u, 42u, 59u}) {
    frames.push_back(frame_of(0, 0));
    frames.back().resize(bytes);  // too short to carry a tag
  }
  EXPECT_THAT(give(frames), Each(FrameResult::done));
  EXPECT_EQ(figures().frames_received, frames.size());
  EXPECT_EQ(figures().frames_foreign, frames.size());
  EXPECT_EQ(figures().numbers.received, 0u);
  EXPECT_EQ(figures().frames_bad_checksum, 0u);
  EXPECT_EQ(figures().latency_ns.count(), 0u);
}

TEST_F(GeneratorPortTest, ABadChecksumIsSeenOnlyByWhoVerifiesAndOnlyIfItIsThere) {
  Bytes bad = frame_of(0, 1);
  bad[60] ^= 0x40;
  for (const bool verify : {false, true}) {
    for (const bool left_to_us : {false, true}) {
      SCOPED_TRACE(testing::Message() << verify << left_to_us);
      open({.mode = GeneratorMode::rxonly, .verify = verify});
      const bool is_bad = verify && !left_to_us;
      give({frame_of(0, 0), bad, frame_of(0, 2)}, 0, {.needs_csum = left_to_us});
      EXPECT_EQ(figures().frames_bad_checksum, is_bad ? 1u : 0u);
      EXPECT_EQ(figures().numbers.lost, is_bad ? 1u : 0u) << "it did not arrive whole";
      EXPECT_EQ(figures().frames_received, 3u);
    }
  }
}

TEST_F(GeneratorPortTest, TheTimeUnderWayIsMeasured) {
  open({.mode = GeneratorMode::rxonly});
  const uint64_t now_ns = monotonic_ns();
  give({frame_of(0, 0, now_ns - 5'000'000), frame_of(0, 1, now_ns - 1'000'000)});
  give({frame_of(0, 2, now_ns + 3'600'000'000'000)});  // made in the future: no measure
  const GeneratorFigures seen = figures();
  const uint64_t slack_ns = monotonic_ns() - now_ns;
  EXPECT_EQ(seen.latency_ns.count(), 2u);
  EXPECT_GE(seen.latency_ns.min(), 1'000'000u);
  EXPECT_LE(seen.latency_ns.min(), 1'000'000 + slack_ns);
  EXPECT_GE(seen.latency_ns.max(), 5'000'000u);
  EXPECT_LE(seen.latency_ns.max(), 5'000'000 + slack_ns);
  EXPECT_GE(seen.receive_ns_first, now_ns);
  EXPECT_GE(seen.receive_ns_last, seen.receive_ns_first);
}

TEST_F(GeneratorPortTest, ASenderCountsWhatComesWithoutLookingAtIt) {
  open({});
  EXPECT_THAT(give({frame_of(0, 5), Bytes(14, 1)}), Each(FrameResult::done));
  EXPECT_EQ(figures().frames_received, 2u);
  EXPECT_EQ(figures().numbers.received + figures().frames_foreign, 0u);
}

// ---- There and back ---------------------------------------------------------------------------

TEST_F(GeneratorPortTest, AnEchoSendsOnlyWhatItsWindowAllows) {
  open({.mode = GeneratorMode::echo, .window_frames = 10});
  std::vector<Bytes> sent = take_all();
  ASSERT_THAT(sent, SizeIs(10));
  EXPECT_EQ(figures().frames_under_way, 10u);
  EXPECT_THAT(take_all(), IsEmpty());
  EXPECT_FALSE(queue().arm(true, false)) << "it waits for what is under way";
  give({returned(sent[0]), returned(sent[1]), returned(sent[2])});
  EXPECT_EQ(figures().frames_under_way, 7u);
  EXPECT_TRUE(queue().arm(true, false));
  EXPECT_THAT(take_all(), SizeIs(3));
  EXPECT_EQ(figures().numbers.lost + figures().numbers.reordered, 0u);
  EXPECT_EQ(figures().latency_ns.count(), 3u);
}

TEST_F(GeneratorPortTest, AFrameThatComesBackTwiceOpensTheWindowOnce) {
  open({.mode = GeneratorMode::echo, .window_frames = 4});
  const std::vector<Bytes> sent = take_all();
  ASSERT_THAT(sent, SizeIs(4));
  give({returned(sent[0]), returned(sent[0]), returned(sent[0])});
  EXPECT_EQ(figures().numbers.duplicates, 2u);
  EXPECT_EQ(figures().frames_under_way, 3u);
  EXPECT_THAT(take_all(), SizeIs(1));
}

TEST_F(GeneratorPortTest, AnEchoMissesItsVeryFirstFrame) {
  open({.mode = GeneratorMode::echo, .window_frames = 4});
  const std::vector<Bytes> sent = take_all();
  give({returned(sent[2]), returned(sent[3])});
  EXPECT_EQ(figures().numbers.lost, 2u) << "two of them, so far";
  EXPECT_EQ(figures().frames_under_way, 2u);
}

TEST_F(GeneratorPortTest, EachQueueOfAnEchoHasAWindowOfItsOwn) {
  open({.mode = GeneratorMode::echo, .queues = 2, .flows = 4, .window_frames = 6});
  const std::vector<Bytes> first = take_all(0), second = take_all(1);
  ASSERT_THAT(first, SizeIs(6));
  ASSERT_THAT(second, SizeIs(6));
  // A back end may return a flow on another queue than it came from.
  give(first, 1);
  EXPECT_EQ(figures().frames_under_way, 6u);
  EXPECT_THAT(take_all(0), SizeIs(6));
  EXPECT_THAT(take_all(1), IsEmpty());
}

TEST_F(GeneratorPortTest, AFlowThatAnEchoDidNotSendIsNotItsOwn) {
  open({.mode = GeneratorMode::echo, .flows = 2, .window_frames = 2});
  ASSERT_THAT(take_all(), SizeIs(2));
  give({frame_of(2, 0), frame_of(65'535, 0)});
  EXPECT_EQ(figures().numbers.bad_flow, 2u);
  EXPECT_EQ(figures().frames_under_way, 2u);
  EXPECT_THAT(take_all(), IsEmpty());
}

TEST_F(GeneratorPortTest, AnEchoGivesUpWhatIsNotBackAfterASecondAndGoesOn) {
  open({.mode = GeneratorMode::latency, .burst_frames = 1, .window_frames = 1});
  const std::vector<Bytes> first = take_all();
  ASSERT_THAT(first, SizeIs(1));
  ASSERT_FALSE(queue().arm(true, false));
  pollfd watched{queue().wake_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&watched, 1, 20'000), 1) << "nobody was woken";
  queue().on_wake();
  const std::vector<Bytes> second = take_all();
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(read_tag(second[0])->number, 1u);
  EXPECT_EQ(figures().frames_given_up, 1u);
  EXPECT_EQ(figures().frames_under_way, 1u);
  // What was given up and comes after all was not lost; the other one is still under way.
  give({returned(first[0])});
  EXPECT_EQ(figures().numbers.lost, 0u);
  EXPECT_EQ(figures().frames_under_way, 1u);
  EXPECT_THAT(take_all(), IsEmpty());
  give({returned(second[0])});
  EXPECT_EQ(figures().frames_under_way, 0u);
  EXPECT_EQ(figures().numbers.received, 2u);
}

TEST_F(GeneratorPortTest, AReflectorSendsBackWhatCameWithItsAddressesExchanged) {
  open({.mode = GeneratorMode::reflect});
  const Bytes ours = frame_of(3, 9), other = packet().eth().ipv4().udp(7).payload(60).build().bytes;
  EXPECT_THAT(take_all(), IsEmpty()) << "it makes none of its own";
  EXPECT_FALSE(queue().arm(true, false));
  EXPECT_THAT(give({ours, other, Bytes(14, 7)}), Each(FrameResult::kept));
  EXPECT_TRUE(queue().arm(true, false));
  EXPECT_THAT(take_all(), ElementsAre(returned(ours), returned(other), Bytes(14, 7)));
  EXPECT_EQ(figures().frames_sent, 3u);
  EXPECT_EQ(figures().frames_received, 3u);
}

TEST_F(GeneratorPortTest, AReflectorTakesNoMoreThanItCanSendBack) {
  open({.mode = GeneratorMode::reflect});
  EXPECT_EQ(queue().transmit_room(), kBatchFramesMax);
  std::vector<Bytes> frames;
  for (uint64_t i = 0; i < kBatchFramesMax; ++i) frames.push_back(frame_of(0, i));
  give(frames);
  EXPECT_EQ(queue().transmit_room(), 0u) << "so its link does not read the sender";
  EXPECT_THAT(take(0, {.frames = 5}),
              ElementsAre(returned(frames[0]), returned(frames[1]), returned(frames[2]),
                          returned(frames[3]), returned(frames[4])));
  EXPECT_EQ(queue().transmit_room(), 5u);
  EXPECT_TRUE(queue().arm(false, true));
  const std::vector<Bytes> rest = take_all();
  ASSERT_THAT(rest, SizeIs(kBatchFramesMax - 5));
  EXPECT_EQ(rest.front(), returned(frames[5]));
  EXPECT_EQ(rest.back(), returned(frames.back()));
}

TEST_F(GeneratorPortTest, AnEchoAndAReflectorLoseNothingBetweenThem) {
  open({.mode = GeneratorMode::echo, .flows = 16, .frames_max = 5000, .window_frames = 60});
  auto other = std::move(*GeneratorPort::create({.mode = GeneratorMode::reflect}));
  other->begin();
  const auto carry = [&](PortQueue& from, PortQueue& to) {
    FrameBatch batch;
    from.receive(batch, {.frames = to.transmit_room()}, *cache_);
    to.transmit(batch);
    for (Frame* frame : batch)
      if (frame->result() != FrameResult::kept) cache_->give(frame);
    from.finish_breath();
  };
  for (int breath = 0; breath < 1000 && port_->frames_received() < 5000; ++breath) {
    carry(queue(), other->queue(0));
    carry(other->queue(0), queue());
  }
  const GeneratorFigures seen = figures();
  EXPECT_EQ(seen.frames_sent, 5000u);
  EXPECT_EQ(seen.numbers.received, 5000u);
  EXPECT_EQ(seen.numbers.lost + seen.numbers.reordered + seen.numbers.duplicates, 0u);
  EXPECT_EQ(seen.frames_under_way, 0u);
}

TEST_F(GeneratorPortTest, NothingIsAllocatedWhileFramesMove) {
  open({.mode = GeneratorMode::echo, .flows = 4, .window_frames = 64});
  const AllocationGuard guard;
  for (int breath = 0; breath < 10; ++breath) {
    FrameBatch batch;
    queue().receive(batch, {}, *cache_);
    queue().finish_breath();
    queue().transmit(batch);
    for (Frame* frame : batch) cache_->give(frame);
    queue().arm(true, true);
    queue().disarm();
  }
}

}  // namespace
}  // namespace sluice
