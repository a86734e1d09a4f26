// Our maps against the kernel's: the same steps, the same answers.
#include "xdp/map_test_kit.h"

namespace sluice {
namespace {

TEST(MapOracle, AnArrayAnswersAsTheKernels) {
  compare_with_kernel(
      {.shape = {.type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 12, .max_entries = 10},
       .key = few_keys(4, 12)});
}

TEST(MapOracle, APerCpuArrayAnswersAsTheKernels) {
  compare_with_kernel({.shape = {.type = BPF_MAP_TYPE_PERCPU_ARRAY,
                                 .key_size = 4,
                                 .value_size = 12,
                                 .max_entries = 10},
                       .key = few_keys(4, 12)});
}

class HashOracle : public testing::TestWithParam<std::tuple<bpf_map_type, uint32_t, uint32_t>> {};

TEST_P(HashOracle, AnswersAsTheKernelsDoes) {
  const auto [type, key_size, value_size] = GetParam();
  // Fewer entries than keys, so that the table is often full; an LRU map evicts when it is full,
  // and which key that is differs, so it gets room for all.
  const bool is_lru = type == BPF_MAP_TYPE_LRU_HASH || type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
  compare_with_kernel({.shape = {.type = type,
                                 .key_size = key_size,
                                 .value_size = value_size,
                                 .max_entries = is_lru ? 10000U : 20U},
                       .key = few_keys(key_size, 40)});
}

INSTANTIATE_TEST_SUITE_P(
    MapOracle, HashOracle,
    testing::Combine(testing::Values(BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_PERCPU_HASH,
                                     BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_LRU_PERCPU_HASH),
                     testing::Values(1U, 4U, 13U, 40U), testing::Values(1U, 8U, 20U)),
    [](const auto& row) {
      return fmt::format("{}_key{}_value{}", map_type_name(std::get<0>(row.param)),
                         std::get<1>(row.param), std::get<2>(row.param));
    });

// The device that every network namespace has is number 1.
void put_device(std::mt19937_64& random, Bytes& value) {
  const int32_t words[2] = {static_cast<int32_t>(random() % 4 != 0), random() % 2 == 0 ? 0 : -1};
  std::memcpy(value.data(), words, value.size());
}

class DeviceOracle : public testing::TestWithParam<std::tuple<bpf_map_type, uint32_t>> {};

TEST_P(DeviceOracle, AnswersAsTheKernelsDoes) {
  const auto [type, value_size] = GetParam();
  compare_with_kernel(
      {.shape = {type, 4, value_size, 10}, .key = few_keys(4, 14), .value = put_device});
}

INSTANTIATE_TEST_SUITE_P(MapOracle, DeviceOracle,
                         testing::Combine(testing::Values(BPF_MAP_TYPE_DEVMAP,
                                                          BPF_MAP_TYPE_DEVMAP_HASH),
                                          testing::Values(4U, 8U)),
                         [](const auto& row) {
                           return fmt::format("{}_value{}", map_type_name(std::get<0>(row.param)),
                                              std::get<1>(row.param));
                         });

// A length and that many bits of few different addresses, sometimes one bit too many.
Bytes make_prefix(std::mt19937_64& random, uint32_t data_bytes) {
  const uint32_t bits = random() % (data_bytes * 8 + 2);
  Bytes key(4 + data_bytes);
  std::memcpy(key.data(), &bits, 4);
  const uint64_t pattern = random() % 3;
  for (uint32_t i = 0; i < bits && i < data_bytes * 8; ++i) {
    if ((i * (pattern + 1)) % 3 == 0) key[4 + i / 8] |= static_cast<uint8_t>(0x80U >> (i % 8));
  }
  return key;
}

class LpmOracle : public testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {};

TEST_P(LpmOracle, AnswersAsTheKernelsDoes) {
  const auto [data_bytes, value_size] = GetParam();
  OracleRun run{
      .shape = {BPF_MAP_TYPE_LPM_TRIE, 4 + data_bytes, value_size, 30, BPF_F_NO_PREALLOC},
      .key = [bytes = data_bytes](std::mt19937_64& random) { return make_prefix(random, bytes); }};
  // Older kernels looked at the flags too late, and thought that a full trie cannot replace.
  if (!kernel_is_at_least(6, 13)) {
    run.flags = {BPF_ANY};
    run.shape.max_entries = 10000;
  }
  compare_with_kernel(run);
}

INSTANTIATE_TEST_SUITE_P(MapOracle, LpmOracle,
                         testing::Combine(testing::Values(1U, 4U, 6U, 16U),
                                          testing::Values(4U, 12U)),
                         [](const auto& row) {
                           return fmt::format("data{}_value{}", std::get<0>(row.param),
                                              std::get<1>(row.param));
                         });

TEST(MapOracle, AnLpmTrieFindsForEveryAddressWhatTheKernelsDoes) {
  const MapShape shape{BPF_MAP_TYPE_LPM_TRIE, 8, 8, 5000, BPF_F_NO_PREALLOC};
  const KernelTwin kernel(shape);
  if (kernel.is_refused()) GTEST_SKIP() << "the kernel lets nobody make maps here";
  std::unique_ptr<XdpMap> ours = make_map(shape);
  std::mt19937 random(4711);
  struct Key {
    uint32_t bits;
    uint32_t address;
  };
  for (uint64_t i = 0; i < 4000; ++i) {
    // Not masked: what lies beyond the length must not count.
    const Key key{static_cast<uint32_t>(random() % 33),
                  static_cast<uint32_t>(random()) & 0xff0f3f07};
    ASSERT_EQ(ours->update(&key, &i, BPF_ANY), kernel.update(&key, &i, BPF_ANY));
  }
  for (int i = 0; i < 20000; ++i) {
    const Key key{i % 2 == 0 ? 32U : static_cast<uint32_t>(random() % 33),
                  static_cast<uint32_t>(random()) & 0xff0f3f07};
    uint64_t value = 0;
    uint64_t theirs = 0;
    ASSERT_EQ(ours->read(&key, &value), kernel.read(&key, &theirs));
    ASSERT_EQ(value, theirs) << key.address << "/" << key.bits;
  }
}

// What cannot be made here cannot be made there either.
struct RefusedShape {
  const char* title;
  MapShape shape;
};

class RefusedOracle : public testing::TestWithParam<RefusedShape> {};

TEST_P(RefusedOracle, IsRefusedByBoth) {
  const MapShape& shape = GetParam().shape;
  EXPECT_FALSE(create_map(shape, {}));
  const KernelTwin kernel(shape);
  if (kernel.is_refused()) GTEST_SKIP() << "the kernel lets nobody make maps here";
  EXPECT_NE(kernel.error(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    MapOracle, RefusedOracle,
    testing::Values(
        RefusedShape{"ArrayOfNothing", {BPF_MAP_TYPE_ARRAY, 4, 4, 0}},
        RefusedShape{"ArrayWithLongKeys", {BPF_MAP_TYPE_ARRAY, 8, 4, 1}},
        RefusedShape{"ArrayWithoutValues", {BPF_MAP_TYPE_ARRAY, 4, 0, 1}},
        RefusedShape{"PerCpuArrayToBeMapped", {BPF_MAP_TYPE_PERCPU_ARRAY, 4, 4, 1, BPF_F_MMAPABLE}},
        RefusedShape{"HashOfNothing", {BPF_MAP_TYPE_HASH, 4, 4, 0}},
        RefusedShape{"HashWithoutKeys", {BPF_MAP_TYPE_HASH, 0, 4, 1}},
        RefusedShape{"HashWithoutValues", {BPF_MAP_TYPE_HASH, 4, 0, 1}},
        RefusedShape{"HashToBeMapped", {BPF_MAP_TYPE_HASH, 4, 4, 1, BPF_F_MMAPABLE}},
        RefusedShape{"DevmapOfBytes", {BPF_MAP_TYPE_DEVMAP, 4, 6, 1}},
        RefusedShape{"DevmapHashWithLongKeys", {BPF_MAP_TYPE_DEVMAP_HASH, 8, 4, 1}},
        RefusedShape{"XskmapOfPairs", {BPF_MAP_TYPE_XSKMAP, 4, 8, 1}},
        RefusedShape{"LpmTrieThatIsPreallocated", {BPF_MAP_TYPE_LPM_TRIE, 8, 4, 1}},
        RefusedShape{"LpmTrieOfLengths", {BPF_MAP_TYPE_LPM_TRIE, 4, 4, 1, BPF_F_NO_PREALLOC}},
        RefusedShape{"LpmTrieOfLongData", {BPF_MAP_TYPE_LPM_TRIE, 261, 4, 1, BPF_F_NO_PREALLOC}},
        RefusedShape{"ProgArrayOfPairs", {BPF_MAP_TYPE_PROG_ARRAY, 4, 8, 1}},
        RefusedShape{"ArrayOfNoMaps", {BPF_MAP_TYPE_ARRAY_OF_MAPS, 4, 4, 1}},
        RefusedShape{"HashOfNoMaps", {BPF_MAP_TYPE_HASH_OF_MAPS, 4, 4, 1}},
        RefusedShape{"LruThatIsNotPreallocated",
                     {BPF_MAP_TYPE_LRU_HASH, 4, 4, 1, BPF_F_NO_PREALLOC}}),
    [](const auto& row) { return row.param.title; });

}  // namespace
}  // namespace sluice
