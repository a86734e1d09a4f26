#include "xdp/map_slots.h"

#include "xdp/map_test_kit.h"

namespace sluice {
namespace {

struct Program : TailTarget {};

TEST(ProgramArrayMap, ShowsItsProgramsToTailCalls) {
  std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_PROG_ARRAY, 4, 4, 3});
  const MapRef ref = map->ref();
  ASSERT_TRUE(ref.programs);
  EXPECT_EQ(ref.programs->max_entries, 3U);
  const Program program;
  EXPECT_EQ(map->put_program(1, &program, 77), 0);
  EXPECT_EQ(ref.programs->slots[0].load(), nullptr);
  EXPECT_EQ(ref.programs->slots[1].load(), &program);
  EXPECT_EQ(map->put_program(3, &program, 77), -E2BIG);
  const uint32_t key = 1;
  uint32_t id = 0;
  EXPECT_EQ(map->read(&key, &id), 0);
  EXPECT_EQ(id, 77U);
  EXPECT_EQ(map->erase(&key), 0);
  EXPECT_EQ(ref.programs->slots[1].load(), nullptr);
  EXPECT_EQ(map->erase(&key), -ENOENT);
  EXPECT_EQ(map->read(&key, &id), -ENOENT);
  const uint32_t beyond = 3;
  EXPECT_EQ(map->erase(&beyond), -E2BIG);
}

TEST(ProgramArrayMap, TakesNoDescriptors) {
  std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_PROG_ARRAY, 4, 4, 3});
  const uint32_t key = 1;
  EXPECT_EQ(map->update(&key, &key, BPF_ANY), -EINVAL);
  EXPECT_EQ(map->lookup(&key), nullptr);
}

class MapOfMaps : public testing::TestWithParam<bpf_map_type> {
 protected:
  static constexpr MapShape kInner{BPF_MAP_TYPE_HASH, 4, 8, 10};
  void SetUp() override {
    outer_ = make_map({GetParam(), 4, 4, 2}, {.inner = kInner});
    inner_ = make_map(kInner, {.id = 123});
  }
  int put(uint32_t key, XdpMap* inner, uint64_t flags = BPF_ANY) {
    return outer_->put_map(&key, inner, flags);
  }
  bool is_array() const { return GetParam() == BPF_MAP_TYPE_ARRAY_OF_MAPS; }
  std::unique_ptr<XdpMap> outer_;
  std::unique_ptr<XdpMap> inner_;
};

TEST_P(MapOfMaps, GivesProgramsTheInnerMapItself) {
  const uint32_t key = 1;
  EXPECT_EQ(outer_->lookup(&key), nullptr);
  EXPECT_EQ(put(key, inner_.get()), 0);
  EXPECT_EQ(reinterpret_cast<XdpMap*>(outer_->lookup(&key)), inner_.get());
  EXPECT_FALSE(outer_->ref().values) << "nothing that a program may write to";
  uint32_t id = 0;
  EXPECT_EQ(outer_->read(&key, &id), 0);
  EXPECT_EQ(id, 123U);
  EXPECT_EQ(outer_->erase(&key), 0);
  EXPECT_EQ(outer_->lookup(&key), nullptr);
  EXPECT_EQ(outer_->erase(&key), -ENOENT);
  EXPECT_EQ(outer_->read(&key, &id), -ENOENT);
}

TEST_P(MapOfMaps, AnswersAsTheKernelToFlagsAndBounds) {
  EXPECT_EQ(put(0, inner_.get(), BPF_EXIST), is_array() ? -EINVAL : -ENOENT);
  EXPECT_EQ(put(0, inner_.get(), BPF_NOEXIST), is_array() ? -EINVAL : 0);
  EXPECT_EQ(put(0, inner_.get()), 0);
  EXPECT_EQ(put(1, inner_.get()), 0);
  EXPECT_EQ(put(2, inner_.get()), -E2BIG);
}

TEST_P(MapOfMaps, RefusesAMapThatLooksDifferent) {
  MapShape shape = kInner;
  shape.value_size = 4;
  EXPECT_EQ(put(0, make_map(shape).get()), -EINVAL);
  shape = kInner;
  shape.max_entries = 11;
  std::unique_ptr<XdpMap> larger = make_map(shape);
  EXPECT_EQ(put(0, larger.get()), 0) << "only an array must have as many entries";
  EXPECT_EQ(put(0, nullptr), -EINVAL);
}

TEST_P(MapOfMaps, IsNotMadeOfMapsOfMaps) {
  for (const bpf_map_type type :
       {BPF_MAP_TYPE_ARRAY_OF_MAPS, BPF_MAP_TYPE_HASH_OF_MAPS, BPF_MAP_TYPE_PROG_ARRAY}) {
    EXPECT_FALSE(create_map({GetParam(), 4, 4, 2}, {.inner = MapShape{type, 4, 4, 1}}));
  }
}

INSTANTIATE_TEST_SUITE_P(Maps, MapOfMaps,
                         testing::Values(BPF_MAP_TYPE_ARRAY_OF_MAPS, BPF_MAP_TYPE_HASH_OF_MAPS),
                         [](const auto& row) { return map_type_name(row.param); });

TEST(ArrayOfArrays, WantsTheSameNumberOfEntriesUnlessTheyMayDiffer) {
  for (const uint32_t flags : {0U, uint32_t{BPF_F_INNER_MAP}}) {
    const MapShape inner{BPF_MAP_TYPE_ARRAY, 4, 4, 5, flags};
    std::unique_ptr<XdpMap> outer =
        make_map({BPF_MAP_TYPE_ARRAY_OF_MAPS, 4, 4, 1}, {.inner = inner});
    MapShape other = inner;
    other.max_entries = 6;
    std::unique_ptr<XdpMap> map = make_map(other);
    const uint32_t key = 0;
    EXPECT_EQ(outer->put_map(&key, map.get(), BPF_ANY), flags == 0 ? -EINVAL : 0);
  }
}

}  // namespace
}  // namespace sluice
