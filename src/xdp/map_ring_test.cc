#include "xdp/map_ring.h"

#include <sys/mman.h>

#include <thread>

#include "xdp/map_test_kit.h"

namespace sluice {
namespace {

constexpr uint32_t kRingBytes = 4096;

std::unique_ptr<XdpMap> make_ringbuf() {
  return make_map({BPF_MAP_TYPE_RINGBUF, 0, 0, kRingBytes});
}

std::vector<std::pair<uint32_t, Bytes>> drained(XdpMap& map) {
  std::vector<std::pair<uint32_t, Bytes>> records;
  map.drain([&](uint32_t worker, std::span<const uint8_t> record) {
    records.emplace_back(worker, Bytes(record.begin(), record.end()));
  });
  return records;
}

uint64_t negative(int error) { return static_cast<uint64_t>(int64_t{-error}); }

TEST(RingbufMap, HandsRecordsOverInTheirOrder) {
  std::unique_ptr<XdpMap> map = make_ringbuf();
  for (uint8_t i = 0; i < 10; ++i) {
    const Bytes record(i, i);
    EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_output, map.get(), record.data(), record.size(), 0), 0U);
  }
  const auto records = drained(*map);
  ASSERT_EQ(records.size(), 10U);
  for (uint8_t i = 0; i < 10; ++i) EXPECT_EQ(records[i].second, Bytes(i, i));
  EXPECT_TRUE(drained(*map).empty());
}

TEST(RingbufMap, StopsAtARecordThatIsStillWritten) {
  std::unique_ptr<XdpMap> map = make_ringbuf();
  const uint64_t first = call_helper(BPF_FUNC_ringbuf_reserve, map.get(), 8, 0);
  const uint64_t second = call_helper(BPF_FUNC_ringbuf_reserve, map.get(), 8, 0);
  ASSERT_NE(first, 0U);
  ASSERT_NE(second, 0U);
  *reinterpret_cast<uint64_t*>(first) = 1;
  *reinterpret_cast<uint64_t*>(second) = 2;
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_submit, second, 0), 0U);
  EXPECT_TRUE(drained(*map).empty());
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_submit, first, 0), 0U);
  EXPECT_EQ(drained(*map).size(), 2U);
}

TEST(RingbufMap, SkipsWhatWasDiscarded) {
  std::unique_ptr<XdpMap> map = make_ringbuf();
  const uint64_t first = call_helper(BPF_FUNC_ringbuf_reserve, map.get(), 8, 0);
  const uint64_t second = call_helper(BPF_FUNC_ringbuf_reserve, map.get(), 3, 0);
  *reinterpret_cast<uint8_t*>(second) = 7;
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_discard, first, 0), 0U);
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_submit, second, 0), 0U);
  const auto records = drained(*map);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].second.size(), 3U);
  EXPECT_EQ(records[0].second[0], 7U);
}

TEST(RingbufMap, CountsWhatFindsNoRoomAndGoesOnAfterwards) {
  std::unique_ptr<XdpMap> map = make_ringbuf();
  const Bytes record(56);  // 64 with its header
  uint64_t taken = 0;
  while (call_helper(BPF_FUNC_ringbuf_output, map.get(), record.data(), record.size(), 0) == 0) {
    ASSERT_LE(++taken, kRingBytes / 64);
  }
  EXPECT_EQ(taken, kRingBytes / 64 - 1) << "one byte less than all";
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_output, map.get(), record.data(), record.size(), 0),
            negative(EAGAIN));
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_reserve, map.get(), 56, 0), 0U);
  EXPECT_EQ(map->dropped(), 3U);
  EXPECT_EQ(drained(*map).size(), taken);
  // Over the ring's end, in one piece.
  for (int i = 0; i < 1000; ++i) {
    Bytes odd(static_cast<size_t>(100 + i % 50), static_cast<uint8_t>(i));
    EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_output, map.get(), odd.data(), odd.size(), 0), 0U);
    const auto records = drained(*map);
    ASSERT_EQ(records.size(), 1U);
    ASSERT_EQ(records[0].second, odd);
  }
}

TEST(RingbufMap, RefusesSizesAndFlagsThatTheKernelRefuses) {
  std::unique_ptr<XdpMap> map = make_ringbuf();
  const Bytes record(8);
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_reserve, map.get(), kRingBytes, 0), 0U);
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_reserve, map.get(), ~uint64_t{0}, 0), 0U);
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_reserve, map.get(), ~uint64_t{0} - 8, 0), 0U);
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_reserve, map.get(), 8, 1), 0U);
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_output, map.get(), record.data(), 8, 4), negative(EINVAL));
  EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_output, map.get(), record.data(), 8,
                        BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP),
            0U);
  EXPECT_FALSE(create_map({BPF_MAP_TYPE_RINGBUF, 0, 0, 4096 * 3}, {}));
  EXPECT_FALSE(create_map({BPF_MAP_TYPE_RINGBUF, 0, 0, 2048}, {}));
  EXPECT_FALSE(create_map({BPF_MAP_TYPE_RINGBUF, 4, 4, 4096}, {}));
}

TEST(RingbufMap, TellsWhereItStands) {
  std::unique_ptr<XdpMap> map = make_ringbuf();
  const Bytes record(9);
  call_helper(BPF_FUNC_ringbuf_output, map.get(), record.data(), 9, 0);
  drained(*map);
  call_helper(BPF_FUNC_ringbuf_output, map.get(), record.data(), 1, 0);
  const auto query = [&](uint64_t what) {
    return call_helper(BPF_FUNC_ringbuf_query, map.get(), what);
  };
  EXPECT_EQ(query(BPF_RB_AVAIL_DATA), 16U);
  EXPECT_EQ(query(BPF_RB_RING_SIZE), kRingBytes);
  EXPECT_EQ(query(BPF_RB_CONS_POS), 24U);
  EXPECT_EQ(query(BPF_RB_PROD_POS), 40U);
  EXPECT_EQ(query(4), 0U);
}

TEST(RingbufMap, LosesNothingBetweenWorkersAndTheReader) {
  std::unique_ptr<XdpMap> map = make_ringbuf();
  constexpr uint64_t kRecords = 3000;
  std::vector<std::thread> workers;
  for (uint64_t worker = 0; worker < 2; ++worker) {
    workers.emplace_back([&, worker] {
      for (uint64_t i = 0; i < kRecords;) {
        uint64_t record[3] = {worker, i, worker ^ i};
        const size_t bytes = 16 + 8 * (i % 2);
        if (map->ring(0)->output({reinterpret_cast<uint8_t*>(record), bytes})) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  uint64_t next[2] = {};
  while (next[0] + next[1] < 2 * kRecords) {
    map->drain([&](uint32_t, std::span<const uint8_t> record) {
      uint64_t words[3] = {};
      std::memcpy(words, record.data(), record.size());
      ASSERT_LT(words[0], 2U);
      EXPECT_EQ(words[1], next[words[0]]++);
      if (words[1] % 2 == 1) {
        EXPECT_EQ(words[2], words[0] ^ words[1]);
      }
    });
    std::this_thread::yield();
  }
  for (std::thread& worker : workers) worker.join();
}

class PerfEventArray : public testing::Test {
 protected:
  void SetUp() override {
    map_ = make_map({BPF_MAP_TYPE_PERF_EVENT_ARRAY, 4, 4, 2}, {.worker_count = 3});
    // A program's view of a frame has addresses of 32 bits.
    page_ = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
                   -1, 0);
    ASSERT_NE(page_, MAP_FAILED);
    std::memset(page_, 0xee, 4096);
    context_.data = static_cast<uint32_t>(reinterpret_cast<uint64_t>(page_));
    context_.data_end = context_.data + 60;
    run_state.context = &context_;
  }
  void TearDown() override {
    run_state = {};
    ::munmap(page_, 4096);
  }
  uint64_t output(uint64_t flags, const Bytes& data) {
    return call_helper(BPF_FUNC_perf_event_output, &context_, map_.get(), flags, data.data(),
                       data.size());
  }
  static uint64_t with_frame(uint64_t bytes) { return bytes << 32; }
  std::unique_ptr<XdpMap> map_;
  void* page_ = nullptr;
  xdp_md context_{};
};

TEST_F(PerfEventArray, ReportsWithTheFirstBytesOfTheFrame) {
  EXPECT_EQ(output(BPF_F_CURRENT_CPU, {1, 2, 3}), 0U);
  EXPECT_EQ(output(BPF_F_CURRENT_CPU | with_frame(2), {4}), 0U);
  run_state.worker_index = 1;
  EXPECT_EQ(output(BPF_F_CURRENT_CPU | with_frame(60), {}), 0U);
  const auto records = drained(*map_);
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0], (std::pair<uint32_t, Bytes>{0, {1, 2, 3}}));
  EXPECT_EQ(records[1], (std::pair<uint32_t, Bytes>{0, {4, 0xee, 0xee}}));
  EXPECT_EQ(records[2], (std::pair<uint32_t, Bytes>{1, Bytes(60, 0xee)}));
}

TEST_F(PerfEventArray, AnswersMistakesAsTheKernel) {
  EXPECT_EQ(output(BPF_F_CURRENT_CPU | with_frame(61), {1}), negative(EFAULT));
  EXPECT_EQ(output(BPF_F_CURRENT_CPU | 1ULL << 52, {1}), negative(EINVAL));
  EXPECT_EQ(output(0, {1}), 0U);
  EXPECT_EQ(output(1, {1}), negative(EOPNOTSUPP)) << "the entry of another worker";
  EXPECT_EQ(output(2, {1}), negative(E2BIG));
  run_state.worker_index = 2;
  EXPECT_EQ(output(BPF_F_CURRENT_CPU, {1}), negative(E2BIG)) << "more workers than entries";
  EXPECT_EQ(drained(*map_).size(), 1U);
}

TEST_F(PerfEventArray, CountsWhatFindsNoRoom) {
  const Bytes large(100 * 1024);
  EXPECT_EQ(output(BPF_F_CURRENT_CPU, large), 0U);
  EXPECT_EQ(output(BPF_F_CURRENT_CPU, large), 0U);
  EXPECT_EQ(output(BPF_F_CURRENT_CPU, large), negative(ENOSPC));
  EXPECT_EQ(map_->dropped(), 1U);
}

// Programs that no verifier has seen may call any helper with any of their maps.
TEST(MapHelpers, AnswerAMapOfTheWrongTypeWithAnError) {
  const MapShape shapes[] = {
      {BPF_MAP_TYPE_ARRAY, 4, 8, 1},      {BPF_MAP_TYPE_HASH, 4, 8, 1},
      {BPF_MAP_TYPE_RINGBUF, 0, 0, 4096}, {BPF_MAP_TYPE_PERF_EVENT_ARRAY, 4, 4, 1},
      {BPF_MAP_TYPE_QUEUE, 0, 8, 1},      {BPF_MAP_TYPE_PROG_ARRAY, 4, 4, 1}};
  for (const MapShape& shape : shapes) {
    SCOPED_TRACE(map_type_name(shape.type));
    std::unique_ptr<XdpMap> map = make_map(shape);
    uint64_t value = 0;
    const bool is_ring = shape.type == BPF_MAP_TYPE_RINGBUF;
    const bool is_perf = shape.type == BPF_MAP_TYPE_PERF_EVENT_ARRAY;
    const bool is_queue = shape.type == BPF_MAP_TYPE_QUEUE;
    EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_output, map.get(), &value, 8, 0),
              is_ring ? 0 : negative(EINVAL));
    EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_reserve, map.get(), 8, 0) != 0, is_ring);
    EXPECT_EQ(call_helper(BPF_FUNC_ringbuf_query, map.get(), BPF_RB_RING_SIZE) != 0, is_ring);
    EXPECT_EQ(call_helper(BPF_FUNC_perf_event_output, 0, map.get(), BPF_F_CURRENT_CPU, &value, 8),
              is_perf ? 0 : negative(EINVAL));
    EXPECT_EQ(call_helper(BPF_FUNC_map_push_elem, map.get(), &value, 0),
              is_queue ? 0 : negative(EINVAL));
    EXPECT_EQ(call_helper(BPF_FUNC_redirect_map, map.get(), 0, XDP_PASS), uint64_t{XDP_PASS});
  }
}

}  // namespace
}  // namespace sluice
