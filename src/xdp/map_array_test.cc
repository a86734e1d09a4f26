#include "xdp/map_array.h"

#include "xdp/map_test_kit.h"

namespace sluice {
namespace {

constexpr MapShape array_shape(uint32_t value_size, uint32_t entries) {
  return {BPF_MAP_TYPE_ARRAY, 4, value_size, entries};
}

TEST(ArrayMap, LaysItsValuesOutAsItTellsProgramCode) {
  std::unique_ptr<XdpMap> map = make_map(array_shape(12, 5));
  const MapRef ref = map->ref();
  ASSERT_TRUE(ref.array);
  EXPECT_EQ(ref.map, map.get());
  EXPECT_EQ(ref.array->stride, 16U);
  EXPECT_EQ(ref.array->max_entries, 5U);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(map->lookup(&i), ref.array->base + i * 16);
  }
  const uint32_t beyond = 5;
  EXPECT_EQ(map->lookup(&beyond), nullptr);
}

TEST(ArrayMap, BeginsWithZeros) {
  std::unique_ptr<XdpMap> map = make_map(array_shape(8, 2));
  const uint32_t key = 1;
  uint64_t value = 7;
  EXPECT_EQ(map->read(&key, &value), 0);
  EXPECT_EQ(value, 0U);
}

TEST(ArrayMap, SharesItsMemoryWithTheKernelsArray) {
  const MapShape shape{BPF_MAP_TYPE_ARRAY, 4, 12, 1000, BPF_F_MMAPABLE};
  const KernelTwin kernel(shape);
  if (kernel.is_refused()) GTEST_SKIP() << "the kernel lets nobody make maps here";
  Result<std::unique_ptr<XdpMap>> map = create_array_over(kernel.fd());
  ASSERT_TRUE(map) << map.error().text;
  EXPECT_EQ((*map)->shape().name, "sluice_twin");
  for (uint32_t key : {0U, 1U, 999U}) {
    const Bytes ours(12, static_cast<uint8_t>(key + 1));
    EXPECT_EQ((*map)->update(&key, ours.data(), BPF_ANY), 0);
    Bytes theirs(12);
    EXPECT_EQ(kernel.read(&key, theirs.data()), 0);
    EXPECT_EQ(theirs, ours);
    const Bytes other(12, 0x77);
    EXPECT_EQ(kernel.update(&key, other.data(), BPF_ANY), 0);
    EXPECT_EQ(Bytes((*map)->lookup(&key), (*map)->lookup(&key) + 12), other);
  }
}

TEST(ArrayMap, OfAFrozenKernelMapIsNotWritten) {
  const MapShape shape{BPF_MAP_TYPE_ARRAY, 4, 8, 1, BPF_F_MMAPABLE | BPF_F_RDONLY_PROG};
  const KernelTwin kernel(shape);
  if (kernel.is_refused()) GTEST_SKIP() << "the kernel lets nobody make maps here";
  const uint32_t key = 0;
  const uint64_t value = 42;
  ASSERT_EQ(kernel.update(&key, &value, BPF_ANY), 0);
  ASSERT_EQ(::bpf_map_freeze(kernel.fd()), 0);
  Result<std::unique_ptr<XdpMap>> map = create_array_over(kernel.fd());
  ASSERT_TRUE(map) << map.error().text;
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>((*map)->lookup(&key)), 42U);
  EXPECT_EQ((*map)->update(&key, &value, BPF_ANY), -EPERM);
}

TEST(ArrayMap, IsNotMadeOverAKernelMapThatCannotBeMapped) {
  const KernelTwin kernel(array_shape(8, 1));
  if (kernel.is_refused()) GTEST_SKIP() << "the kernel lets nobody make maps here";
  Result<std::unique_ptr<XdpMap>> map = create_array_over(kernel.fd());
  ASSERT_FALSE(map);
  EXPECT_NE(map.error().text.find("BPF_F_MMAPABLE"), std::string::npos) << map.error().text;
}

TEST(PerCpuArrayMap, GivesEachWorkerItsOwnCopy) {
  std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 3}, {.worker_count = 4});
  EXPECT_EQ(map->copies(), 4U);
  EXPECT_FALSE(map->ref().array);
  const uint32_t key = 2;
  for (uint32_t worker = 0; worker < 4; ++worker) {
    run_state.worker_index = worker;
    *reinterpret_cast<uint64_t*>(map->lookup(&key)) = 100 + worker;
    EXPECT_EQ(map->lookup(&key), map->lookup_copy(&key, worker));
  }
  run_state.worker_index = 0;
  uint64_t values[4] = {};
  ASSERT_EQ(map->value_bytes(), sizeof values);
  EXPECT_EQ(map->read(&key, values), 0);
  for (uint32_t worker = 0; worker < 4; ++worker) EXPECT_EQ(values[worker], 100 + worker);
  EXPECT_EQ(map->lookup_copy(&key, 4), nullptr);
}

TEST(PerCpuArrayMap, ChangesOnlyTheWorkersCopyInAProgramsUpdate) {
  std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 1}, {.worker_count = 2});
  const uint32_t key = 0;
  const uint64_t both[2] = {1, 2};
  EXPECT_EQ(map->write(&key, both, BPF_ANY), 0);
  const uint64_t mine = 9;
  run_state.worker_index = 1;
  EXPECT_EQ(map->update(&key, &mine, BPF_ANY), 0);
  run_state.worker_index = 0;
  uint64_t values[2] = {};
  EXPECT_EQ(map->read(&key, values), 0);
  EXPECT_EQ(values[0], 1U);
  EXPECT_EQ(values[1], 9U);
}

}  // namespace
}  // namespace sluice
