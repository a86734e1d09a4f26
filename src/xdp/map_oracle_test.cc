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
    testing::Values(RefusedShape{"ArrayOfNothing", {BPF_MAP_TYPE_ARRAY, 4, 4, 0}},
                    RefusedShape{"ArrayWithLongKeys", {BPF_MAP_TYPE_ARRAY, 8, 4, 1}},
                    RefusedShape{"ArrayWithoutValues", {BPF_MAP_TYPE_ARRAY, 4, 0, 1}},
                    RefusedShape{"PerCpuArrayToBeMapped",
                                 {BPF_MAP_TYPE_PERCPU_ARRAY, 4, 4, 1, BPF_F_MMAPABLE}},
                    RefusedShape{"HashOfNothing", {BPF_MAP_TYPE_HASH, 4, 4, 0}},
                    RefusedShape{"HashWithoutKeys", {BPF_MAP_TYPE_HASH, 0, 4, 1}},
                    RefusedShape{"HashWithoutValues", {BPF_MAP_TYPE_HASH, 4, 0, 1}},
                    RefusedShape{"HashToBeMapped", {BPF_MAP_TYPE_HASH, 4, 4, 1, BPF_F_MMAPABLE}},
                    RefusedShape{"DevmapOfBytes", {BPF_MAP_TYPE_DEVMAP, 4, 6, 1}},
                    RefusedShape{"DevmapHashWithLongKeys", {BPF_MAP_TYPE_DEVMAP_HASH, 8, 4, 1}},
                    RefusedShape{"XskmapOfPairs", {BPF_MAP_TYPE_XSKMAP, 4, 8, 1}},
                    RefusedShape{"LruThatIsNotPreallocated",
                                 {BPF_MAP_TYPE_LRU_HASH, 4, 4, 1, BPF_F_NO_PREALLOC}}),
    [](const auto& row) { return row.param.title; });

}  // namespace
}  // namespace sluice
