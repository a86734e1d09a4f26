// Receive-side scaling: what the guest configures by the control queue, where frames then go, and
// what their headers report. [virtio 5.1.6.5.7]
#include "port/vm_steering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "port/vm_port.h"
#include "testing/allocation_guard.h"
#include "testing/vm_test_kit.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::SizeIs;

constexpr uint8_t kOk = 0, kError = 1;
constexpr uint16_t kPairs = 4;

void put16(Bytes& out, uint32_t value) {
  out.push_back(static_cast<uint8_t>(value));
  out.push_back(static_cast<uint8_t>(value >> 8));
}
void put32(Bytes& out, uint32_t value) {
  put16(out, value);
  put16(out, value >> 16);
}

struct RssWords {
  uint32_t types = flow_type::kAll;
  uint16_t mask = 3;
  uint16_t unclassified = 3;
  std::vector<uint16_t> table{0, 1, 2, 3};
  uint16_t transmit_pairs = kPairs;
  uint8_t says_key_bytes = kHashKeyBytes;
  Bytes key{default_hash_key().begin(), default_hash_key().end()};

  Bytes bytes() const {
    Bytes out{4, 1};
    put32(out, types);
    put16(out, mask);
    put16(out, unclassified);
    for (const uint16_t queue : table) put16(out, queue);
    put16(out, transmit_pairs);
    out.push_back(says_key_bytes);
    return joined(out, key);
  }
};

Bytes hash_words(uint32_t types, uint8_t says_key_bytes = kHashKeyBytes, size_t key_bytes = 40) {
  Bytes out{4, 2};
  put32(out, types);
  out.resize(out.size() + 8);
  out.push_back(says_key_bytes);
  return joined(out, Bytes(default_hash_key().begin(),
                           default_hash_key().begin() + static_cast<ptrdiff_t>(key_bytes)));
}

class SteeringTest : public ::testing::Test {
 protected:
  void start(const VmPortOptions& options, bool peer_is_narrower, uint64_t without = 0) {
    port = std::move(*VmPort::create(options));
    port->queues_share_worker(peer_is_narrower);
    features = port->offered_features() &
               ~(feature::event_idx | feature::ring_packed | feature::in_order | without);
    port->session_opened();
    port->features_negotiated(features);
    for (uint32_t index = 0; index < 2 * kPairs; index += 2) {
      rings.push_back(std::make_unique<DrivenRing>(guest, FakeDriverOptions{.size = 64}));
      ASSERT_TRUE(port->ring_start(rings.back()->start(index, features)));
    }
    refill();
    control = std::make_unique<DrivenRing>(guest, FakeDriverOptions{.size = 64});
    ASSERT_TRUE(port->ring_start(control->start(2 * kPairs, features)));
  }
  void TearDown() override {
    for (uint32_t index = 0; index <= 2 * kPairs; ++index) port->ring_stop(index);
    port->session_closed();
    cache.reset();
    EXPECT_EQ(pool->frames_free(), pool->frames_total());
  }
  void refill() {
    for (auto& ring : rings) {
      while (ring->driver.outstanding() < 32) ring->driver.offer(ChainBuilder{}.writable(2048));
    }
  }
  uint8_t answer_to(const Bytes& words) {
    EXPECT_TRUE(control->driver.offer(ChainBuilder{}.readable(words).writable(1)));
    write_event(control->kick);
    port->on_control_kick();
    const auto used = control->driver.take_used();
    EXPECT_TRUE(used && !used->data.empty());
    return used && !used->data.empty() ? used->data[0] : 0xff;
  }
  void use_all_pairs() { ASSERT_EQ(answer_to({4, 0, kPairs, 0}), kOk); }

  static Bytes flow(uint16_t number) {
    return packet()
        .eth()
        .ipv4()
        .udp(9, static_cast<uint16_t>(1000 + number))
        .payload(64)
        .build()
        .bytes;
  }
  // One batch into queue `by`, as its link would.
  std::vector<FrameResult> send(const std::vector<Bytes>& packets, uint32_t by = 0) {
    FrameBatch batch;
    for (const Bytes& bytes : packets) {
      Frame* frame = cache->take();
      std::memcpy(frame->data(), bytes.data(), bytes.size());
      frame->set_single(bytes.size());
      batch.push(frame);
    }
    port->queue(by).transmit(batch);
    std::vector<FrameResult> results;
    for (Frame* frame : batch) {
      results.push_back(frame->result());
      cache->give(frame);
    }
    port->queue(by).finish_breath();
    return results;
  }
  std::vector<Bytes> taken(uint32_t pair) {
    std::vector<Bytes> all;
    for (auto& used : rings[pair]->driver.take_all_used()) all.push_back(std::move(used.data));
    return all;
  }
  std::vector<size_t> taken_counts() {
    std::vector<size_t> counts;
    for (uint32_t pair = 0; pair < kPairs; ++pair) counts.push_back(taken(pair).size());
    return counts;
  }

  FakeGuestMemory guest{{{.bytes = 16 << 20}}};
  std::unique_ptr<FramePool> pool =
      std::move(*FramePool::create({.frame_count = 256, .slab_count = 1}));
  std::unique_ptr<FrameCache> cache = std::make_unique<FrameCache>(*pool);
  std::unique_ptr<VmPort> port;
  uint64_t features = 0;
  std::vector<std::unique_ptr<DrivenRing>> rings;
  std::unique_ptr<DrivenRing> control;
};

std::vector<Bytes> flows(uint16_t count, Bytes (*of)(uint16_t)) {
  std::vector<Bytes> all;
  for (uint16_t i = 0; i < count; ++i) all.push_back(of(i));
  return all;
}

TEST_F(SteeringTest, SendsEachFlowWhereTheGuestsTableSays) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false);
  ASSERT_EQ(answer_to(RssWords{.table = {2, 0, 2, 1}}.bytes()), kOk);
  const ToeplitzKey key{default_hash_key()};
  std::vector<size_t> expected(kPairs);
  for (const Bytes& bytes : flows(32, flow))
    ++expected[std::array{2, 0, 2, 1}[hash_flow(bytes, flow_type::kAll, key).value & 3]];
  EXPECT_THAT(send(flows(32, flow)), Each(FrameResult::done));
  EXPECT_EQ(taken_counts(), expected);
  EXPECT_EQ(expected[3], 0u);
}

TEST_F(SteeringTest, SendsWhatHasNoHashToTheQueueForTheRest) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false);
  ASSERT_EQ(answer_to(RssWords{.types = flow_type::kTcpv4, .unclassified = 1}.bytes()), kOk);
  Bytes arp = packet().eth().build().bytes;
  arp.resize(60);
  send({arp, flow(0), flow(1)});
  EXPECT_THAT(taken_counts(), ElementsAre(0, 3, 0, 0));
}

TEST_F(SteeringTest, SpreadsByItselfUntilTheGuestSays) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false);
  send(flows(32, flow));
  EXPECT_THAT(taken_counts(), ElementsAre(32, 0, 0, 0)) << "one pair is in use";
  refill();
  use_all_pairs();
  send(flows(64, flow));
  EXPECT_THAT(taken_counts(), Each(Gt(4u)));
  refill();
  send(std::vector<Bytes>(20, flow(7)));
  EXPECT_THAT(taken_counts(), ::testing::Contains(20u)) << "a flow stays together";
}

TEST_F(SteeringTest, SpreadsForAPeerWithFewerQueuesAndLeavesAnEqualOneAlone) {
  start({.name = "a", .queue_pairs = kPairs}, /*peer_is_narrower=*/true);
  use_all_pairs();
  send(flows(64, flow));
  EXPECT_THAT(taken_counts(), Each(Gt(4u)));
  for (uint32_t index = 0; index <= 2 * kPairs; ++index) port->ring_stop(index);
  port->session_closed();
  rings.clear();
  start({.name = "b", .queue_pairs = kPairs}, /*peer_is_narrower=*/false);
  use_all_pairs();
  send(flows(16, flow), 2);
  EXPECT_THAT(taken_counts(), ElementsAre(0, 0, 16, 0));
}

TEST_F(SteeringTest, BlocksOnlyTheFlowsOfAFullQueueAndKeepsTheirOrder) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false);
  ASSERT_EQ(answer_to(RssWords{.mask = 0, .table = {1}}.bytes()), kOk);
  send(std::vector<Bytes>(32, flow(0)));
  EXPECT_THAT(taken(1), SizeIs(32));
  EXPECT_THAT(send(std::vector<Bytes>(3, flow(0))), Each(FrameResult::blocked));
  EXPECT_GT(port->queue(0).transmit_room(), 0u) << "others have room";
  EXPECT_FALSE(port->queue(0).arm(false, true));
  EXPECT_TRUE(port->queue(0).must_be_polled()) << "the full queue's kick wakes another link";
  ASSERT_EQ(answer_to(RssWords{.mask = 0, .table = {2}}.bytes()), kOk);
  EXPECT_THAT(send(std::vector<Bytes>(3, flow(0))), Each(FrameResult::done));
  EXPECT_THAT(taken(2), SizeIs(3));
}

TEST_F(SteeringTest, ReportsTheHashInTheHeader) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false);
  ASSERT_EQ(net_header_bytes(features), kNetHeaderBytesHash);
  ASSERT_EQ(answer_to(RssWords{.mask = 0, .table = {0}}.bytes()), kOk);
  const Bytes sent = flow(3);
  send({sent});
  const auto got = taken(0);
  ASSERT_THAT(got, SizeIs(1));
  ASSERT_EQ(got[0].size(), kNetHeaderBytesHash + sent.size());
  uint32_t value = 0;
  std::memcpy(&value, &got[0][12], 4);
  EXPECT_EQ(value, hash_flow(sent, flow_type::kAll, ToeplitzKey{default_hash_key()}).value);
  EXPECT_EQ(got[0][16], static_cast<uint8_t>(HashReport::udpv4));
  EXPECT_EQ(Bytes(got[0].begin() + kNetHeaderBytesHash, got[0].end()), sent);
}

TEST_F(SteeringTest, ReportsNoneUntilTheGuestSaysWhatToHash) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false);
  send({flow(3)});
  auto got = taken(0);
  ASSERT_THAT(got, SizeIs(1));
  EXPECT_EQ(Bytes(got[0].begin() + 12, got[0].begin() + 20), Bytes(8, 0));
  ASSERT_EQ(answer_to(hash_words(flow_type::kUdpv4)), kOk);
  send({flow(3)});
  got = taken(0);
  ASSERT_THAT(got, SizeIs(1));
  EXPECT_EQ(got[0][16], static_cast<uint8_t>(HashReport::udpv4));
}

TEST_F(SteeringTest, RefusesConfigurationsThatCannotBe) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false);
  const RssWords good;
  std::vector<uint16_t> large(256, 0);
  Bytes cut = good.bytes();
  cut.pop_back();
  const struct {
    const char* what;
    Bytes words;
    uint8_t answer;
  } rows[] = {
      {"as it should be", good.bytes(), kOk},
      {"the largest table", RssWords{.mask = 127, .table = std::vector<uint16_t>(128, 1)}.bytes(),
       kOk},
      {"a short key", RssWords{.says_key_bytes = 4, .key = Bytes(4, 1)}.bytes(), kOk},
      {"no key", RssWords{.says_key_bytes = 0, .key = {}}.bytes(), kOk},
      {"a table that is no power of two", RssWords{.mask = 2, .table = {0, 1, 2}}.bytes(), kError},
      {"a table too large", RssWords{.mask = 255, .table = large}.bytes(), kError},
      {"a mask of 65535", RssWords{.mask = 0xffff}.bytes(), kError},
      {"a queue too many in the table", RssWords{.table = {0, 1, 2, 4}}.bytes(), kError},
      {"a queue too many for the rest", RssWords{.unclassified = 4}.bytes(), kError},
      {"no transmit queues", RssWords{.transmit_pairs = 0}.bytes(), kError},
      {"transmit queues too many", RssWords{.transmit_pairs = 5}.bytes(), kError},
      {"hash types that we do not know", RssWords{.types = 0x40}.bytes(), kError},
      {"a key that is too long", RssWords{.says_key_bytes = 41, .key = Bytes(41, 1)}.bytes(),
       kError},
      {"a key that ends early", cut, kError},
      {"nothing behind the command", {4, 1}, kError},
      {"no hash configuration behind the command", {4, 2}, kError},
      {"a hash configuration", hash_words(flow_type::kAll), kOk},
      {"hash types that we do not know", hash_words(0x100), kError},
      {"a hash key that ends early", hash_words(1, 40, 39), kError},
      {"a hash key that is too long", hash_words(1, 41, 40), kError},
      {"an unknown command", {4, 3, 0, 0}, kError},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    EXPECT_EQ(answer_to(row.words), row.answer);
  }
}

TEST_F(SteeringTest, RefusesWhatWasNotNegotiated) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false,
        feature::rss | feature::hash_report);
  EXPECT_EQ(answer_to(RssWords{}.bytes()), kError);
  EXPECT_EQ(answer_to(hash_words(flow_type::kAll)), kError);
}

TEST_F(SteeringTest, ForgetsTheTableWhenTheGuestAsksForPairs) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false);
  ASSERT_EQ(answer_to(RssWords{.mask = 0, .table = {2}}.bytes()), kOk);
  use_all_pairs();
  send(flows(64, flow));
  EXPECT_THAT(taken_counts(), Each(Gt(4u)));
}

TEST_F(SteeringTest, CostsNothingOnTheHeap) {
  start({.name = "a", .queue_pairs = kPairs, .rss = true}, false);
  ASSERT_EQ(answer_to(RssWords{}.bytes()), kOk);
  FrameBatch batch;
  const Bytes bytes = flow(1);
  for (int i = 0; i < 8; ++i) {
    Frame* frame = cache->take();
    std::memcpy(frame->data(), bytes.data(), bytes.size());
    frame->set_single(bytes.size());
    batch.push(frame);
  }
  {
    const AllocationGuard guard;
    port->queue(0).transmit(batch);
    port->queue(0).finish_breath();
  }
  for (Frame* frame : batch) cache->give(frame);
}

}  // namespace
}  // namespace sluice
