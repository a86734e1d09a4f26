#include "testing/allocation_guard.h"
#include "xdp/helper_table.h"
#include "xdp/map_test_kit.h"

namespace sluice {
namespace {

using Kind = RedirectTarget::Kind;

TEST(MapHelpers, LookUpUpdateAndDelete) {
  std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_HASH, 4, 8, 2});
  const uint32_t key = 5;
  const uint64_t value = 55;
  EXPECT_EQ(call_helper(BPF_FUNC_map_lookup_elem, map.get(), &key), 0U);
  EXPECT_EQ(call_helper(BPF_FUNC_map_update_elem, map.get(), &key, &value, BPF_ANY), 0U);
  const uint64_t found = call_helper(BPF_FUNC_map_lookup_elem, map.get(), &key);
  ASSERT_NE(found, 0U);
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(found), 55U);
  EXPECT_EQ(call_helper(BPF_FUNC_map_update_elem, map.get(), &key, &value, BPF_NOEXIST),
            static_cast<uint64_t>(int64_t{-EEXIST}));
  EXPECT_EQ(call_helper(BPF_FUNC_map_delete_elem, map.get(), &key), 0U);
  EXPECT_EQ(call_helper(BPF_FUNC_map_delete_elem, map.get(), &key),
            static_cast<uint64_t>(int64_t{-ENOENT}));
}

TEST(MapHelpers, FindAnyWorkersCopy) {
  std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 1}, {.worker_count = 2});
  const uint32_t key = 0;
  EXPECT_EQ(call_helper(BPF_FUNC_map_lookup_percpu_elem, map.get(), &key, 1),
            reinterpret_cast<uint64_t>(map->lookup_copy(&key, 1)));
  EXPECT_EQ(call_helper(BPF_FUNC_map_lookup_percpu_elem, map.get(), &key, 2), 0U);
}

TEST(MapHelpers, AllocateNothing) {
  constexpr bpf_map_type kTypes[] = {
      BPF_MAP_TYPE_ARRAY,    BPF_MAP_TYPE_PERCPU_ARRAY,    BPF_MAP_TYPE_HASH,
      BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_LRU_PERCPU_HASH, BPF_MAP_TYPE_LPM_TRIE,
      BPF_MAP_TYPE_QUEUE,    BPF_MAP_TYPE_BLOOM_FILTER,    BPF_MAP_TYPE_RINGBUF,
      BPF_MAP_TYPE_DEVMAP,   BPF_MAP_TYPE_DEVMAP_HASH};
  for (const bpf_map_type type : kTypes) {
    SCOPED_TRACE(map_type_name(type));
    const bool is_lpm = type == BPF_MAP_TYPE_LPM_TRIE;
    const bool is_ring = type == BPF_MAP_TYPE_RINGBUF;
    const bool has_keys =
        !is_ring && type != BPF_MAP_TYPE_QUEUE && type != BPF_MAP_TYPE_BLOOM_FILTER;
    const uint32_t flags = is_lpm ? BPF_F_NO_PREALLOC : 0;
    const uint32_t key_size = is_lpm ? 8 : 4;
    std::unique_ptr<XdpMap> map =
        make_map({type, has_keys ? key_size : 0, is_ring ? 0U : 8U, is_ring ? 4096U : 16U, flags});
    const AllocationGuard guard;
    for (uint32_t i = 0; i < 100; ++i) {
      const uint32_t key[2] = {i % 32, i};
      uint64_t value = i;
      call_helper(BPF_FUNC_map_update_elem, map.get(), key, &value, BPF_ANY);
      call_helper(BPF_FUNC_map_lookup_elem, map.get(), key);
      call_helper(BPF_FUNC_redirect_map, map.get(), i, 0);
      if (i % 2 == 0) call_helper(BPF_FUNC_map_delete_elem, map.get(), key);
      call_helper(BPF_FUNC_map_push_elem, map.get(), &value, BPF_ANY);
      call_helper(BPF_FUNC_map_peek_elem, map.get(), &value);
      call_helper(BPF_FUNC_map_pop_elem, map.get(), &value);
      call_helper(BPF_FUNC_ringbuf_output, map.get(), &value, 8, 0);
    }
  }
  run_state = {};
}

class RedirectMap : public testing::TestWithParam<bpf_map_type> {
 protected:
  void SetUp() override {
    run_state.redirect = {};
    map_ = make_map({GetParam(), 4, 4, 4});
    const uint32_t key = 2;
    const uint32_t port = 7;
    ASSERT_EQ(map_->update(&key, &port, BPF_ANY), 0);
  }
  uint64_t redirect(uint64_t key, uint64_t flags) {
    return call_helper(BPF_FUNC_redirect_map, map_.get(), key, flags);
  }
  bool has_devices() const {
    return GetParam() == BPF_MAP_TYPE_DEVMAP || GetParam() == BPF_MAP_TYPE_DEVMAP_HASH;
  }
  std::unique_ptr<XdpMap> map_;
};

TEST_P(RedirectMap, GoesToTheEntryIfItIsThere) {
  EXPECT_EQ(redirect(2, 0), uint64_t{XDP_REDIRECT});
  EXPECT_EQ(run_state.redirect.kind, has_devices() ? Kind::port : Kind::no_place);
  EXPECT_EQ(run_state.redirect.port, has_devices() ? 7U : 0U);
}

TEST_P(RedirectMap, AnswersWithTheFlagsLowBitsIfTheEntryIsNotThere) {
  for (const uint64_t key : {1, 4, 1000}) {
    for (const uint64_t action : {XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX}) {
      redirect(2, 0);
      EXPECT_EQ(redirect(key, action), action);
      EXPECT_EQ(run_state.redirect.kind, Kind::none) << "the last one counts, also if it failed";
    }
  }
}

TEST_P(RedirectMap, AbortsOnFlagsThatTheMapDoesNotHave) {
  redirect(2, 0);
  const Kind before = run_state.redirect.kind;
  EXPECT_EQ(redirect(1, 4), uint64_t{XDP_ABORTED});
  EXPECT_EQ(run_state.redirect.kind, before);
  const auto of_devices = static_cast<uint64_t>(has_devices() ? XDP_REDIRECT : XDP_ABORTED);
  EXPECT_EQ(redirect(2, BPF_F_BROADCAST), of_devices);
}

TEST_P(RedirectMap, BroadcastsToTheWholeMapWhateverTheKey) {
  if (!has_devices()) return;
  EXPECT_EQ(redirect(100, uint64_t{BPF_F_BROADCAST} | XDP_DROP), uint64_t{XDP_REDIRECT});
  EXPECT_EQ(run_state.redirect.kind, Kind::broadcast);
  EXPECT_EQ(run_state.redirect.map, map_.get());
  EXPECT_FALSE(run_state.redirect.exclude_ingress);
  redirect(100, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
  EXPECT_TRUE(run_state.redirect.exclude_ingress);
  redirect(2, BPF_F_EXCLUDE_INGRESS);
  EXPECT_EQ(run_state.redirect.kind, Kind::port);
  EXPECT_FALSE(run_state.redirect.exclude_ingress) << "it belongs to a broadcast";
}

TEST_P(RedirectMap, ListsItsPortsForABroadcast) {
  const uint32_t key = 3;
  const uint32_t port = 9;
  ASSERT_EQ(map_->update(&key, &port, BPF_ANY), 0);
  std::vector<uint32_t> ports;
  for (uint32_t slot = 0; slot < map_->port_slots(); ++slot) {
    if (map_->port_at(slot) != 0) ports.push_back(map_->port_at(slot));
  }
  std::sort(ports.begin(), ports.end());
  EXPECT_EQ(ports, has_devices() ? (std::vector<uint32_t>{7, 9}) : std::vector<uint32_t>{});
}

INSTANTIATE_TEST_SUITE_P(MapHelpers, RedirectMap,
                         testing::Values(BPF_MAP_TYPE_DEVMAP, BPF_MAP_TYPE_DEVMAP_HASH,
                                         BPF_MAP_TYPE_XSKMAP, BPF_MAP_TYPE_CPUMAP),
                         [](const auto& row) { return map_type_name(row.param); });

TEST(DeviceMap, RefusesAProgramOfTheDevicesOwn) {
  for (const bpf_map_type type : {BPF_MAP_TYPE_DEVMAP, BPF_MAP_TYPE_DEVMAP_HASH}) {
    std::unique_ptr<XdpMap> map = make_map({type, 4, 8, 4});
    const uint32_t key = 1;
    const int32_t with_program[2] = {3, 5};
    EXPECT_EQ(map->update(&key, with_program, BPF_ANY), -EOPNOTSUPP);
    const int32_t without[2] = {3, -1};
    EXPECT_EQ(map->update(&key, without, BPF_ANY), 0);
    int32_t value[2] = {};
    EXPECT_EQ(map->read(&key, value), 0);
    EXPECT_EQ(value[0], 3);
    EXPECT_EQ(value[1], 0);
  }
}

}  // namespace
}  // namespace sluice
