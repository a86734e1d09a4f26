#include "xdp/map_queue.h"

#include <deque>

#include "xdp/map_test_kit.h"

namespace sluice {
namespace {

class QueueOracle : public testing::TestWithParam<bpf_map_type> {};

TEST_P(QueueOracle, AnswersAsTheKernelsDoes) {
  const MapShape shape{GetParam(), 0, 12, 7};
  const KernelTwin kernel(shape);
  if (kernel.is_refused()) GTEST_SKIP() << "the kernel lets nobody make maps here";
  std::unique_ptr<XdpMap> ours = make_map(shape);
  const uint64_t seed = 99;
  std::mt19937_64 random(seed);
  for (int i = 0; i < 12000 && !HasFailure(); ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", step " << i);
    Bytes value(12);
    for (uint8_t& byte : value) byte = static_cast<uint8_t>(random());
    Bytes theirs = value;
    switch (random() % 4) {
      case 0:
      case 1: {
        constexpr uint64_t kFlags[] = {BPF_ANY, BPF_ANY, BPF_EXIST, BPF_NOEXIST, 3, BPF_F_LOCK};
        const uint64_t flags = kFlags[random() % std::size(kFlags)];
        EXPECT_EQ(ours->push(value.data(), flags), kernel.update(nullptr, value.data(), flags));
        break;
      }
      case 2:
        EXPECT_EQ(ours->pop(value.data()), kernel.pop(theirs.data()));
        break;
      case 3:
        EXPECT_EQ(ours->peek(value.data()), kernel.read(nullptr, theirs.data()));
        break;
    }
    // An empty one clears the value, which the system call does not copy out.
    EXPECT_TRUE(value == Bytes(12) || value == theirs);
  }
  const uint32_t key = 0;
  uint32_t next = 0;
  EXPECT_EQ(ours->erase(&key), kernel.erase(nullptr));
  EXPECT_EQ(ours->next_key(nullptr, &next), -EINVAL);
}

INSTANTIATE_TEST_SUITE_P(MapOracle, QueueOracle,
                         testing::Values(BPF_MAP_TYPE_QUEUE, BPF_MAP_TYPE_STACK),
                         [](const auto& row) { return map_type_name(row.param); });

TEST(QueueMap, GivesTheOldestFirst) {
  std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_QUEUE, 0, 4, 3});
  for (uint32_t value = 1; value <= 3; ++value) EXPECT_EQ(map->push(&value, BPF_ANY), 0);
  uint32_t value = 4;
  EXPECT_EQ(map->push(&value, BPF_ANY), -E2BIG);
  EXPECT_EQ(map->push(&value, BPF_EXIST), 0) << "and 1 is forgotten";
  for (const uint32_t expected : {2, 3, 4}) {
    EXPECT_EQ(map->peek(&value), 0);
    EXPECT_EQ(value, expected);
    EXPECT_EQ(map->pop(&value), 0);
    EXPECT_EQ(value, expected);
  }
  EXPECT_EQ(map->pop(&value), -ENOENT);
  EXPECT_EQ(value, 0U);
}

TEST(StackMap, GivesTheNewestFirst) {
  std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_STACK, 0, 4, 3});
  for (uint32_t value = 1; value <= 3; ++value) EXPECT_EQ(map->push(&value, BPF_ANY), 0);
  uint32_t value = 4;
  EXPECT_EQ(map->push(&value, BPF_EXIST), 0) << "and 1 is forgotten";
  for (const uint32_t expected : {4, 3, 2}) {
    EXPECT_EQ(map->pop(&value), 0);
    EXPECT_EQ(value, expected);
  }
  EXPECT_EQ(map->peek(&value), -ENOENT);
}

TEST(BloomFilterMap, FindsEverythingThatWasPushedAndLittleElse) {
  for (const uint64_t functions : {0, 1, 3, 15}) {
    MapShape shape{BPF_MAP_TYPE_BLOOM_FILTER, 0, 12, 1000};
    shape.extra = functions;
    std::unique_ptr<XdpMap> map = make_map(shape);
    const auto value_of = [](uint32_t i) { return std::array<uint32_t, 3>{i, 7, ~i}; };
    for (uint32_t i = 0; i < 1000; ++i) {
      EXPECT_EQ(map->push(value_of(i).data(), BPF_ANY), 0);
    }
    int wrong = 0;
    for (uint32_t i = 0; i < 11000; ++i) {
      std::array<uint32_t, 3> value = value_of(i);
      const int status = map->peek(value.data());
      EXPECT_TRUE(status == 0 || (status == -ENOENT && i >= 1000)) << status;
      if (i >= 1000 && status == 0) ++wrong;
    }
    // Half of the bits at most: one function is wrong for a half, five for a 32nd.
    EXPECT_LT(wrong, functions == 1 ? 5500 : functions == 3 ? 1700 : 600) << functions;
  }
}

TEST(MapOracle, ABloomFilterRefusesWhatTheKernelsDoes) {
  const MapShape shape{BPF_MAP_TYPE_BLOOM_FILTER, 0, 8, 100};
  const KernelTwin kernel(shape);
  if (kernel.is_refused()) GTEST_SKIP() << "the kernel lets nobody make maps here";
  std::unique_ptr<XdpMap> map = make_map(shape);
  uint64_t value = 5;
  for (const uint64_t flags : {1, 2, 3, 0}) {
    EXPECT_EQ(map->push(&value, flags), kernel.update(nullptr, &value, flags)) << flags;
  }
  EXPECT_EQ(map->peek(&value), kernel.read(nullptr, &value));
  EXPECT_EQ(map->pop(&value), -EOPNOTSUPP);
  EXPECT_EQ(map->next_key(nullptr, &value), kernel.next_key(nullptr, &value));
  MapShape sixteen = shape;
  sixteen.extra = 16;
  EXPECT_FALSE(create_map(sixteen, {}));
}

}  // namespace
}  // namespace sluice
