#include "xdp/map_hash.h"

#include <thread>

#include "xdp/map_test_kit.h"

namespace sluice {
namespace {

MapShape hash_shape(uint32_t entries, bpf_map_type type = BPF_MAP_TYPE_HASH) {
  return {type, 4, 8, entries};
}

int put(XdpMap& map, uint32_t key, uint64_t value, uint64_t flags = BPF_ANY) {
  return map.update(&key, &value, flags);
}
int erase(XdpMap& map, uint32_t key) { return map.erase(&key); }
uint64_t* get(XdpMap& map, uint32_t key) { return reinterpret_cast<uint64_t*>(map.lookup(&key)); }
bool has(XdpMap& map, uint32_t key) {
  uint64_t value = 0;
  return map.read(&key, &value) == 0;
}

TEST(HashMap, TakesExactlyAsManyKeysAsItHasEntries) {
  std::unique_ptr<XdpMap> map = make_map(hash_shape(7));
  for (uint32_t key = 0; key < 7; ++key) EXPECT_EQ(put(*map, key, key), 0);
  EXPECT_EQ(put(*map, 7, 7), -E2BIG);
  EXPECT_EQ(put(*map, 3, 33), 0) << "a full map still replaces";
  EXPECT_EQ(erase(*map, 3), 0);
  EXPECT_EQ(erase(*map, 3), -ENOENT);
  EXPECT_EQ(put(*map, 7, 7), 0);
  EXPECT_EQ(put(*map, 3, 3), -E2BIG);
}

TEST(HashMap, ReadsKeysThatAreNotAligned) {
  std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_HASH, 13, 3, 4});
  alignas(8) uint8_t bytes[32] = {};
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(map->update(bytes + 3, bytes + 1, BPF_ANY), 0);
  const uint8_t* value = map->lookup(bytes + 3);
  ASSERT_NE(value, nullptr);
  EXPECT_EQ(Bytes(value, value + 3), (Bytes{1, 2, 3}));
  EXPECT_EQ(map->lookup(bytes + 4), nullptr);
}

TEST(HashMap, KeepsAValuesMemoryWhenItsKeyIsErased) {
  std::unique_ptr<XdpMap> map = make_map(hash_shape(2));
  EXPECT_EQ(put(*map, 1, 11), 0);
  uint64_t* value = get(*map, 1);
  EXPECT_EQ(erase(*map, 1), 0);
  EXPECT_EQ(get(*map, 1), nullptr);
  *value = 12;
  EXPECT_EQ(*value, 12U);
}

TEST(HashMap, ReplacesAValueAsAWhole) {
  std::unique_ptr<XdpMap> map = make_map(hash_shape(2));
  EXPECT_EQ(put(*map, 1, 11), 0);
  const uint64_t* before = get(*map, 1);
  EXPECT_EQ(put(*map, 1, 22), 0);
  EXPECT_NE(get(*map, 1), before);
  EXPECT_EQ(*before, 11U) << "a program in the middle of the old value sees no change";
  EXPECT_EQ(*get(*map, 1), 22U);
}

TEST(PerCpuHashMap, ClearsTheOtherWorkersCopiesOfANewKey) {
  std::unique_ptr<XdpMap> map =
      make_map(hash_shape(1, BPF_MAP_TYPE_PERCPU_HASH), {.worker_count = 2});
  const uint32_t first = 1;
  const uint64_t both[2] = {5, 6};
  EXPECT_EQ(map->write(&first, both, BPF_ANY), 0);
  EXPECT_EQ(map->erase(&first), 0);
  run_state.worker_index = 1;
  EXPECT_EQ(put(*map, 2, 9), 0);
  run_state.worker_index = 0;
  const uint32_t second = 2;
  uint64_t values[2] = {};
  EXPECT_EQ(map->read(&second, values), 0);
  EXPECT_EQ(values[0], 0U);
  EXPECT_EQ(values[1], 9U);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(map->lookup_copy(&second, 1)), 9U);
  EXPECT_EQ(map->lookup_copy(&second, 2), nullptr);
}

TEST(LruHashMap, EvictsWhatWasNotLookedUp) {
  std::unique_ptr<XdpMap> map = make_map(hash_shape(64, BPF_MAP_TYPE_LRU_HASH));
  for (uint32_t key = 0; key < 64; ++key) EXPECT_EQ(put(*map, key, key), 0);
  for (uint32_t key = 0; key < 64; key += 2) EXPECT_NE(get(*map, key), nullptr);
  for (uint32_t key = 64; key < 96; ++key) EXPECT_EQ(put(*map, key, key), 0);
  for (uint32_t key = 0; key < 64; ++key) EXPECT_EQ(has(*map, key), key % 2 == 0) << key;
  for (uint32_t key = 64; key < 96; ++key) EXPECT_TRUE(has(*map, key)) << key;
}

TEST(LruHashMap, NeverHasMoreKeysThanEntriesAndTakesEveryNewOne) {
  for (const bpf_map_type type : {BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_LRU_PERCPU_HASH}) {
    std::unique_ptr<XdpMap> map = make_map(hash_shape(100, type));
    for (uint32_t key = 0; key < 10000; ++key) {
      ASSERT_EQ(put(*map, key, key), 0);
      ASSERT_NE(get(*map, key), nullptr) << "marked, all of them";
    }
    EXPECT_EQ(contents_of(*map).size(), 100U);
    EXPECT_EQ(dynamic_cast<HashMap&>(*map).table().evictions(), 9900U);
  }
}

TEST(LruHashMap, IsNotMovedByAControlThreadThatReads) {
  std::unique_ptr<XdpMap> map = make_map(hash_shape(4, BPF_MAP_TYPE_LRU_HASH));
  for (uint32_t key = 0; key < 4; ++key) EXPECT_EQ(put(*map, key, key), 0);
  EXPECT_TRUE(has(*map, 0));
  EXPECT_EQ(put(*map, 4, 4), 0);
  EXPECT_FALSE(has(*map, 0));
}

// A reader that is stopped in the middle of a chain wakes up in another one, or past the new node
// of its key. Small tables, so that keys share chains and nodes are used again at once; more
// threads than processors, so that readers are stopped.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kLookupsEach = 20000;
#else
constexpr int kLookupsEach = 400000;
#endif

TEST(HashMap, NeverMissesAKeyThatIsOnlyReplaced) {
  constexpr uint64_t kKeys = 3;
  for (int round = 0; round < 8 && !HasFailure(); ++round) {
    // The last entry is for keys that come and go, and carry nodes from chain to chain.
    std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_HASH, 8, 16, kKeys + 1});
    const uint64_t value[2] = {1, 1};
    for (uint64_t key = 0; key < kKeys; ++key) ASSERT_EQ(map->update(&key, value, BPF_ANY), 0);
    SharedWord<uint32_t> stop{};
    std::vector<std::thread> threads;
    for (uint64_t writer = 0; writer < 2; ++writer) {
      threads.emplace_back([&, writer] {
        for (uint64_t i = 0; stop.load_relaxed() == 0; ++i) {
          const uint64_t key = (i + writer) % kKeys;
          EXPECT_EQ(map->update(&key, value, BPF_EXIST), 0);
          const uint64_t other = 100 + i % 16;
          if (map->update(&other, value, BPF_NOEXIST) == 0) {
            EXPECT_EQ(map->erase(&other), 0);
          }
        }
      });
    }
    SharedWord<uint32_t> misses{};
    SharedWord<uint32_t> wrong_finds{};
    std::vector<std::thread> readers;
    for (int reader = 0; reader < 2; ++reader) {
      readers.emplace_back([&] {
        for (int i = 0; i < kLookupsEach; ++i) {
          const uint64_t key = i % kKeys;
          if (map->lookup(&key) == nullptr) misses.fetch_add_relaxed(1);
          const uint64_t absent = 1000 + i;
          if (map->lookup(&absent) != nullptr) wrong_finds.fetch_add_relaxed(1);
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
    stop.store_relaxed(1);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(misses.load_relaxed(), 0U);
    EXPECT_EQ(wrong_finds.load_relaxed(), 0U);
  }
}

TEST(HashMap, KeepsItsCountWhileWorkersInsertAndErase) {
  for (const bpf_map_type type :
       {BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_PERCPU_HASH}) {
    std::unique_ptr<XdpMap> map = make_map(hash_shape(32, type), {.worker_count = 3});
    std::vector<std::thread> workers;
    for (uint32_t worker = 0; worker < 3; ++worker) {
      workers.emplace_back([&, worker] {
        run_state.worker_index = worker;
        std::mt19937 random(worker);
        for (int i = 0; i < 5000; ++i) {
          const uint32_t key = random() % 60;
          if (random() % 3 == 0)
            erase(*map, key);
          else
            put(*map, key, i, random() % 2 == 0 ? BPF_ANY : BPF_NOEXIST);
          get(*map, random() % 60);
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    const auto contents = contents_of(*map);
    EXPECT_LE(contents.size(), 32U);
    EXPECT_EQ(dynamic_cast<HashMap&>(*map).table().count(), contents.size());
    for (const auto& [key, value] : contents) EXPECT_EQ(map->erase(key.data()), 0);
    for (uint32_t key = 0; key < 32; ++key) EXPECT_EQ(put(*map, key, key), 0);
    EXPECT_EQ(contents_of(*map).size(), 32U) << "no node was lost";
  }
}

}  // namespace
}  // namespace sluice
