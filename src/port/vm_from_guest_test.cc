// Frames from a guest: framing, sizes, hostile headers, order of completion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/vm_test_kit.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FromGuestTest : public VmQueueTest {
 protected:
  // Header and packet in one piece each, cut where `cuts` say (offsets into both together).
  ChainBuilder chain_of(const Bytes& header, const Bytes& packet, std::vector<size_t> cuts = {}) {
    const Bytes all = joined(header, packet);
    ChainBuilder chain;
    size_t begin = 0;
    cuts.push_back(all.size());
    for (const size_t end : cuts) {
      chain.readable(std::span(all).subspan(begin, end - begin));
      begin = end;
    }
    return chain;
  }
  ChainBuilder chain_of(const Bytes& packet) {
    return chain_of(net_header({}, header_bytes), packet);
  }
  void offer(const ChainBuilder& chain) { ASSERT_TRUE(from->driver.offer(chain)); }
  // Everything offered was given back, as read only.
  void expect_all_used_empty(size_t count) {
    const auto used = from->driver.take_all_used();
    EXPECT_EQ(used.size(), count);
    for (const auto& entry : used) EXPECT_EQ(entry.bytes, 0u);
    EXPECT_EQ(from->driver.outstanding(), 0u);
  }
  uint64_t dropped(DropReason reason) { return drops(queue->received(), reason); }
};

TEST_F(FromGuestTest, TakesAnyFramingOfHeaderAndData) {
  start();
  const Bytes packet = numbered_packet(60, 1);
  const size_t all = kNetHeaderBytes + packet.size();
  std::vector<std::vector<size_t>> framings;
  for (size_t cut = 1; cut < all; ++cut) framings.push_back({cut});  // 12: the header alone
  framings.push_back({1, 6, 11, 12});
  framings.push_back({0, 12, 12, 12});  // empty descriptors first and in the middle
  framings.push_back({all, all});       // and last
  std::vector<size_t> every_byte;
  for (size_t cut = 1; cut < all; ++cut) every_byte.push_back(cut);
  framings.push_back(every_byte);
  for (const auto& cuts : framings) {
    for (const bool indirect : {false, true}) {
      ChainBuilder chain = chain_of(net_header(), packet, cuts);
      if (indirect) chain.indirect();
      offer(chain);
      ASSERT_THAT(receive(), ElementsAre(packet))
          << cuts.size() << " cuts, the first at " << cuts[0] << (indirect ? ", indirect" : "");
      expect_all_used_empty(1);
    }
  }
  EXPECT_EQ(queue->received().frames.get(), 2 * framings.size());
  EXPECT_EQ(queue->received().bytes.get(), 2 * framings.size() * packet.size());
}

TEST_F(FromGuestTest, TakesANetHeaderOfTenBytesWithoutTheNewFeatures) {
  start(0);
  const Bytes packet = numbered_packet(60, 1);
  for (size_t cut = 1; cut < 70; ++cut) {
    offer(chain_of(net_header({}, 10), packet, {cut}));
    ASSERT_THAT(receive(), ElementsAre(packet)) << cut;
  }
  expect_all_used_empty(69);
}

TEST_F(FromGuestTest, TakesEveryLegalSize) {
  start();
  for (const size_t bytes : {14u, 15u, 17u, 59u, 60u, 1514u, 1518u, 3519u, 3520u, 3521u, 4096u,
                             9000u, 65535u, 65549u, 65557u}) {
    const Bytes packet = numbered_packet(bytes, 3);
    offer(chain_of(net_header(), packet, {12}));
    offer(chain_of(packet));
    ASSERT_THAT(receive(), ElementsAre(packet, packet)) << bytes;
    expect_all_used_empty(2);
  }
}

TEST_F(FromGuestTest, KeepsABigPacketInGuestMemoryUntilTheBreathEnds) {
  start();
  const Bytes packet = numbered_packet(9000, 5);
  for (const size_t pieces : {1u, 2u, 17u, 63u, 64u}) {
    std::vector<size_t> cuts{12 + 256};  // what the frame keeps, then the pieces
    for (size_t i = 1; i < pieces; ++i) cuts.push_back(268 + i * 100);
    offer(chain_of(net_header(), packet, cuts));
    FrameBatch batch;
    queue->receive(batch, {}, *cache);
    ASSERT_EQ(batch.size(), 1u);
    EXPECT_EQ(batch[0]->tail_kind(), TailKind::spans) << pieces;
    EXPECT_EQ(batch[0]->spans().size(), pieces);
    EXPECT_EQ(content_of(*batch[0]), packet);
    from->driver.enable_interrupts();
    EXPECT_FALSE(from->driver.has_used());
    cache->give(batch[0]);
    queue->finish_breath();
    expect_all_used_empty(1);
  }
}

TEST_F(FromGuestTest, CopiesABigPacketInTooManyPieces) {
  start();
  const Bytes packet = numbered_packet(9000, 5);
  std::vector<size_t> cuts{268};
  for (size_t i = 1; i < 65; ++i) cuts.push_back(268 + i * 100);
  offer(chain_of(net_header(), packet, cuts));
  FrameBatch batch;
  queue->receive(batch, {}, *cache);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(batch[0]->tail_kind(), TailKind::slab);
  EXPECT_EQ(content_of(*batch[0]), packet);
  cache->give(batch[0]);
  queue->finish_breath();
  expect_all_used_empty(1);
}

TEST_F(FromGuestTest, DropsByNameWhatNeedsASlabWhenThereIsNone) {
  start();
  std::vector<Slab*> slabs;
  while (Slab* slab = cache->take_slab()) slabs.push_back(slab);
  std::vector<size_t> cuts;
  for (size_t i = 1; i < 90; ++i) cuts.push_back(i * 100);
  offer(chain_of(net_header(), numbered_packet(9000, 5), cuts));
  const Bytes after = numbered_packet(60, 9);
  offer(chain_of(after));
  EXPECT_THAT(receive(), ElementsAre(after));
  EXPECT_EQ(dropped(DropReason::no_frame), 1u);
  expect_all_used_empty(2);
  for (Slab* slab : slabs) cache->give_slab(slab);
}

TEST_F(FromGuestTest, DropsRuntsAndGiantsAndKeepsTheirNeighbours) {
  start();
  const Bytes good = numbered_packet(60, 1);
  size_t offered = 0;
  const auto offer_between_good_ones = [&](size_t bytes) {
    for (const Bytes& packet : {good, numbered_packet(bytes, 9), good}) offer(chain_of(packet));
    offered += 3;
    ASSERT_THAT(receive(), ElementsAre(good, good)) << bytes;
  };
  for (size_t bytes = 0; bytes < 14; ++bytes) offer_between_good_ones(bytes);
  EXPECT_EQ(dropped(DropReason::bad_net_header), 1u);  // no byte behind the header
  EXPECT_EQ(dropped(DropReason::runt), 13u);
  for (const size_t bytes : {65558u, 70'000u, 1'000'000u}) offer_between_good_ones(bytes);
  EXPECT_EQ(dropped(DropReason::oversize), 3u);
  // Chains that do not hold a header: each length, and no buffer at all.
  for (size_t bytes = 0; bytes < kNetHeaderBytes; ++bytes) {
    offer(ChainBuilder{}.readable(static_cast<uint32_t>(bytes)));
    offer(chain_of(good));
    offered += 2;
    ASSERT_THAT(receive(), ElementsAre(good)) << bytes;
  }
  EXPECT_EQ(dropped(DropReason::bad_net_header), 1u + kNetHeaderBytes);
  expect_all_used_empty(offered);
}

TEST_F(FromGuestTest, DropsAChainThatAliasesOneBufferManyTimes) {
  start();
  const uint64_t buffer = guest.allocate(1 << 20);
  ChainBuilder huge;
  for (int i = 0; i < 64; ++i) huge.readable_at(buffer, 1 << 20);
  offer(huge);
  const Bytes good = numbered_packet(60, 1);
  offer(chain_of(good));
  EXPECT_THAT(receive(), ElementsAre(good));
  EXPECT_EQ(dropped(DropReason::oversize), 1u);
  expect_all_used_empty(2);
}

// --- The net header ------------------------------------------------------------------------

constexpr uint64_t kHostOffloads =
    feature::csum | feature::host_tso4 | feature::host_tso6 | feature::host_ecn | feature::host_uso;

struct HeaderRow {
  const char* name;
  NetHeaderBytes wire;  // flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, num_buffers
  uint64_t features;    // on top of the modern ones
  std::optional<DropReason> drop;
};

NetHeaderBytes wire(uint8_t flags, uint8_t gso_type, uint16_t hdr_len, uint16_t gso_size,
                    uint16_t csum_start, uint16_t csum_offset, uint16_t num_buffers = 0) {
  NetHeaderBytes bytes{};
  const uint16_t words[] = {hdr_len, gso_size, csum_start, csum_offset, num_buffers};
  bytes[0] = flags;
  bytes[1] = gso_type;
  std::memcpy(&bytes[2], words, sizeof words);
  return bytes;
}

constexpr size_t kRowPacketBytes = 1000;
const HeaderRow kHeaderRows[] = {
    {"all zero", wire(0, 0, 0, 0, 0, 0), 0, {}},
    {"num_buffers set", wire(0, 0, 0, 0, 0, 0, 7), 0, {}},
    {"unknown flags", wire(0xfc, 0, 0, 0, 0, 0), 0, {}},
    {"data valid", wire(2, 0, 0, 0, 0, 0), 0, {}},
    {"checksum fields without the flag", wire(0, 0, 0, 0, 0xffff, 0xffff), kHostOffloads, {}},
    {"gso_size without a type", wire(0, 0, 0, 1400, 0, 0), 0, {}},
    {"hdr_len beyond the packet", wire(0, 0, 0xffff, 0, 0, 0), 0, {}},
    {"hdr_len beyond the packet, with TSO", wire(1, 1, 0xffff, 500, 34, 16), kHostOffloads, {}},
    {"hdr_len zero, with TSO", wire(1, 1, 0, 500, 34, 16), kHostOffloads, {}},
    {"checksum", wire(1, 0, 0, 0, 34, 16), kHostOffloads, {}},
    {"checksum at an odd place", wire(1, 0, 0, 0, 35, 7), kHostOffloads, {}},
    {"checksum in the last two bytes", wire(1, 0, 0, 0, 982, 16), kHostOffloads, {}},
    {"checksum not agreed", wire(1, 0, 0, 0, 34, 16), 0, DropReason::offload_not_negotiated},
    {"checksum over the end by one", wire(1, 0, 0, 0, 983, 16), kHostOffloads,
     DropReason::bad_net_header},
    {"checksum start at the end", wire(1, 0, 0, 0, 1000, 0), kHostOffloads,
     DropReason::bad_net_header},
    {"checksum far out", wire(1, 0, 0, 0, 0xffff, 0xffff), kHostOffloads,
     DropReason::bad_net_header},
    {"checksum sum wraps", wire(1, 0, 0, 0, 0xfffe, 20), kHostOffloads, DropReason::bad_net_header},
    {"checksum in the link header", wire(1, 0, 0, 0, 0, 2), kHostOffloads,
     DropReason::bad_net_header},
    {"checksum start at 13", wire(1, 0, 0, 0, 13, 16), kHostOffloads, DropReason::bad_net_header},
    {"TSO4", wire(1, 1, 54, 500, 34, 16), kHostOffloads, {}},
    {"TSO6", wire(1, 4, 74, 500, 54, 16), kHostOffloads, {}},
    {"USO", wire(1, 5, 42, 500, 34, 6), kHostOffloads, {}},
    {"TSO4 with ECN", wire(1, 0x81, 54, 500, 34, 16), kHostOffloads, {}},
    {"gso_size beyond the payload", wire(1, 1, 54, 0xffff, 34, 16), kHostOffloads, {}},
    {"gso_size zero", wire(1, 1, 54, 0, 34, 16), kHostOffloads, DropReason::bad_net_header},
    {"TSO without a checksum", wire(0, 1, 54, 500, 34, 16), kHostOffloads,
     DropReason::bad_net_header},
    {"TSO4 not agreed", wire(1, 1, 54, 500, 34, 16), feature::csum,
     DropReason::offload_not_negotiated},
    {"TSO6 not agreed", wire(1, 4, 74, 500, 54, 16), feature::csum | feature::host_tso4,
     DropReason::offload_not_negotiated},
    {"USO not agreed", wire(1, 5, 42, 500, 34, 6), feature::csum | feature::host_tso4,
     DropReason::offload_not_negotiated},
    {"ECN not agreed", wire(1, 0x81, 54, 500, 34, 16), feature::csum | feature::host_tso4,
     DropReason::offload_not_negotiated},
    {"UFO is never offered", wire(1, 3, 42, 500, 34, 6), kHostOffloads,
     DropReason::offload_not_negotiated},
    {"type 2", wire(1, 2, 42, 500, 34, 6), kHostOffloads, DropReason::offload_not_negotiated},
    {"UDP tunnel bits", wire(1, 0x21, 54, 500, 34, 16), kHostOffloads,
     DropReason::offload_not_negotiated},
    {"both UDP tunnel bits", wire(1, 0x61, 54, 500, 34, 16), kHostOffloads,
     DropReason::offload_not_negotiated},
    {"type 0x7f", wire(1, 0x7f, 54, 500, 34, 16), kHostOffloads,
     DropReason::offload_not_negotiated},
};

class HeaderRowTest : public FromGuestTest, public ::testing::WithParamInterface<HeaderRow> {};

TEST_P(HeaderRowTest, IsJudgedAloneAndHarmsNoNeighbour) {
  const HeaderRow& row = GetParam();
  start(kModern | row.features);
  const Bytes odd_one = numbered_packet(kRowPacketBytes, 200);
  const Bytes header(row.wire.begin(), row.wire.end());
  struct Place {
    size_t batch, position;
  };
  size_t bad = 0;
  for (const Place place : {Place{1, 0}, Place{64, 0}, Place{64, 31}, Place{64, 63}}) {
    std::vector<Bytes> expected;
    std::vector<uint16_t> heads;
    for (size_t i = 0; i < place.batch; ++i) {
      const bool is_odd = i == place.position;
      const Bytes packet = is_odd ? odd_one : numbered_packet(60 + i, static_cast<uint8_t>(i));
      heads.push_back(*from->driver.offer(is_odd ? chain_of(header, packet) : chain_of(packet)));
      if (!is_odd || !row.drop) expected.push_back(packet);
    }
    EXPECT_EQ(receive(), expected) << place.batch << ' ' << place.position;
    for (const OffloadMeta& offload : offloads) EXPECT_FALSE(offload.data_valid);
    bad += row.drop ? 1 : 0;
    std::vector<uint16_t> used_heads;
    for (const auto& used : from->driver.take_all_used()) {
      used_heads.push_back(used.head);
      EXPECT_EQ(used.bytes, 0u);
    }
    EXPECT_EQ(used_heads, heads);
  }
  if (row.drop) {
    EXPECT_EQ(dropped(*row.drop), bad);
  }
  EXPECT_FALSE(is_readable(bell.fd()));
}

INSTANTIATE_TEST_SUITE_P(Headers, HeaderRowTest, ::testing::ValuesIn(kHeaderRows),
                         [](const auto& row) {
                           std::string name = row.param.name;
                           for (char& letter : name)
                             if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
                           return name;
                         });

TEST_F(FromGuestTest, ClampsTheHeaderLengthHint) {
  start(kModern | kHostOffloads);
  for (const uint16_t hint : {0, 10, 54, 500, 0xffff}) {
    const NetHeaderBytes header = wire(1, 1, hint, 500, 34, 16);
    offer(chain_of(Bytes(header.begin(), header.end()), numbered_packet(1000, 1)));
    ASSERT_EQ(receive().size(), 1u);
    EXPECT_GE(offloads[0].header_bytes, 52) << hint;
    EXPECT_LE(offloads[0].header_bytes, 1000) << hint;
  }
}

// --- Rings that break, and rings that rest -------------------------------------------------

struct FaultRow {
  const char* name;
  ChainBuilder chain;
  RingFault fault;
};

TEST(FromGuestFault, StopsTheQueueTellsTheFrontEndAndIsReportedOnce) {
  const FaultRow rows[] = {
      {"writable only", ChainBuilder{}.writable(100), RingFault::wrong_direction},
      {"writable behind readable", ChainBuilder{}.readable(72).writable(1),
       RingFault::wrong_direction},
      {"readable behind writable", ChainBuilder{}.writable(12).readable(60),
       RingFault::readable_after_writable},
      {"not mapped", ChainBuilder{}.readable(12).readable_at(1ull << 40, 60),
       RingFault::address_not_mapped},
      {"address wraps", ChainBuilder{}.readable_at(0xffff'ffff'ffff'fff0, 0x20),
       RingFault::address_not_mapped},
      {"over 4 GiB", ChainBuilder{}.readable_at(0x1000, 0xffff'ffff).readable_at(0x1000, 2),
       RingFault::address_not_mapped},
      {"indirect not agreed", ChainBuilder{}.readable(72).indirect(),
       RingFault::indirect_not_agreed},
  };
  for (const FaultRow& row : rows) {
    SCOPED_TRACE(row.name);
    class Rig : public FromGuestTest {
     public:
      void TestBody() override {}
      void run(const FaultRow& fault_row) {
        start(kModern & ~feature::indirect_desc);
        const Bytes good = numbered_packet(60, 1);
        offer(chain_of(good));
        offer(fault_row.chain);
        offer(chain_of(good));
        EXPECT_THAT(receive(), ElementsAre(good));
        EXPECT_EQ(take_event(from->error), 1u);
        EXPECT_TRUE(is_readable(bell.fd()));
        DeviceRing& ring = queue->ring(Side::from_guest);
        EXPECT_FALSE(ring.usable());
        EXPECT_EQ(ring.take_new_fault(), fault_row.fault);
        EXPECT_EQ(ring.take_new_fault(), RingFault::none);
        // From now on it costs nothing: no frames, no error again, no wake-up by its kicks.
        offer(chain_of(good));
        write_event(from->kick);
        EXPECT_FALSE(is_readable(queue->wake_fd()));
        EXPECT_FALSE(queue->arm(true, true));
        EXPECT_THAT(receive(), IsEmpty());
        EXPECT_EQ(take_event(from->error), 0u);
        // The other direction lives on.
        ASSERT_TRUE(to->driver.offer(ChainBuilder{}.writable(2000)));
        EXPECT_EQ(send({good}), std::vector{FrameResult::done});
        TearDown();
      }
    };
    Rig().run(row);
  }
}

TEST_F(FromGuestTest, StopsWhenTheIndexJumpsByMoreThanTheRing) {
  start();
  from->driver.raw_available_index(300);
  EXPECT_THAT(receive(), IsEmpty());
  EXPECT_EQ(queue->ring(Side::from_guest).take_new_fault(), RingFault::avail_index_jump);
  EXPECT_EQ(take_event(from->error), 1u);
}

TEST_F(FromGuestTest, WorksAgainAfterAStopAndAStart) {
  start();
  offer(ChainBuilder{}.writable(1));
  EXPECT_THAT(receive(), IsEmpty());
  queue->stop(Side::from_guest);
  queue->stop(Side::to_guest);
  bell.silence();
  start();
  const Bytes good = numbered_packet(60, 1);
  offer(chain_of(good));
  EXPECT_THAT(receive(), ElementsAre(good));
  EXPECT_FALSE(is_readable(bell.fd()));
}

TEST_F(FromGuestTest, GoesOnFromTheBaseThatItStoppedAt) {
  start();
  const Bytes good = numbered_packet(60, 1);
  for (int i = 0; i < 5; ++i) offer(chain_of(good));
  EXPECT_EQ(receive(3).size(), 3u);
  EXPECT_EQ(queue->stop(Side::from_guest), 3u);
  EXPECT_EQ(queue->stop(Side::from_guest), 3u) << "stopping again tells the same";
  EXPECT_THAT(receive(), IsEmpty());
  EXPECT_EQ(from->driver.take_all_used().size(), 3u);
  ASSERT_TRUE(queue->start(Side::from_guest, from->start(1, kModern)));
  EXPECT_EQ(receive().size(), 2u);
  expect_all_used_empty(2);
}

TEST_F(FromGuestTest, DrainsAndDropsWhatADisabledRingSends) {
  start();
  queue->ring(Side::from_guest).set_enabled(false);
  for (int i = 0; i < 100; ++i) offer(chain_of(numbered_packet(60, 1)));
  while (from->driver.take_all_used().size() > 0 || receive().size() > 0) {
  }
  receive();
  receive();
  from->driver.take_all_used();
  EXPECT_EQ(dropped(DropReason::ring_disabled), 100u);
  EXPECT_EQ(from->driver.outstanding(), 0u);
  EXPECT_EQ(queue->received().frames.get(), 0u);
  queue->ring(Side::from_guest).set_enabled(true);
  offer(chain_of(numbered_packet(60, 1)));
  EXPECT_EQ(receive().size(), 1u);
}

TEST_F(FromGuestTest, CompletesInOrderWhenThatWasAgreed) {
  start(kModern | feature::in_order);
  std::vector<uint16_t> heads;
  std::vector<Bytes> packets;
  for (const size_t bytes : {60u, 9000u, 60u, 5u, 65000u, 1514u, 60u}) {
    packets.push_back(numbered_packet(bytes, 1));
    heads.push_back(*from->driver.offer(chain_of(packets.back())));
  }
  packets.erase(packets.begin() + 3);  // the runt
  EXPECT_EQ(receive(), packets);
  std::vector<uint16_t> used;
  for (const auto& entry : from->driver.take_all_used()) used.push_back(entry.head);
  EXPECT_EQ(used, heads);
}

TEST_F(FromGuestTest, CompletesCopiedChainsBeforeThoseByReferenceOtherwise) {
  start();
  std::vector<uint16_t> heads;
  for (const size_t bytes : {60u, 9000u, 61u})
    heads.push_back(*from->driver.offer(chain_of(numbered_packet(bytes, 1))));
  EXPECT_EQ(receive().size(), 3u);
  std::vector<uint16_t> used;
  for (const auto& entry : from->driver.take_all_used()) used.push_back(entry.head);
  EXPECT_THAT(used, ElementsAre(heads[0], heads[2], heads[1]));
}

TEST_F(FromGuestTest, LeavesChainsInTheirRingWhenThereIsNoFrame) {
  start();
  while (Frame* frame = cache->take()) taken.push_back(frame);
  const Bytes good = numbered_packet(60, 1);
  offer(chain_of(good));
  FrameBatch batch;
  EXPECT_TRUE(queue->receive(batch, {}, *cache)) << "there is more";
  EXPECT_TRUE(batch.empty());
  queue->finish_breath();
  EXPECT_FALSE(from->driver.has_used());
  EXPECT_EQ(dropped(DropReason::no_frame), 0u);
  cache->give(taken.back());
  taken.pop_back();
  EXPECT_THAT(receive(), ElementsAre(good));
  expect_all_used_empty(1);
}

TEST_F(FromGuestTest, EndsABurstAtItsBudgetOfFramesAndOfBytes) {
  start();
  for (int i = 0; i < 64; ++i) offer(chain_of(numbered_packet(60, 1)));
  EXPECT_EQ(receive(16).size(), 16u);
  EXPECT_EQ(receive(64).size(), 48u);
  const uint64_t shared = guest.allocate(60'000);
  for (int i = 0; i < 20; ++i)
    offer(ChainBuilder{}.readable(net_header()).readable_at(shared, 60'000));
  EXPECT_EQ(receive().size(), 9u);  // the ninth passes 512 KiB
  EXPECT_EQ(receive().size(), 9u);
  EXPECT_EQ(receive().size(), 2u);
}

TEST_F(FromGuestTest, CountsTheSizesOfItsBatches) {
  start();
  for (const size_t count : {1u, 3u, 64u}) {
    for (size_t i = 0; i < count; ++i) offer(chain_of(numbered_packet(60, 1)));
    EXPECT_EQ(receive().size(), count);
    from->driver.take_all_used();
  }
  const auto& histogram = queue->received().batch_histogram;
  EXPECT_EQ(histogram[0].get(), 1u);
  EXPECT_EQ(histogram[1].get(), 1u);
  EXPECT_EQ(histogram[6].get(), 1u);
}

}  // namespace
}  // namespace sluice
