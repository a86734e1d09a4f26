// Maps of XDP programs against models made of the standard library's containers.
//
// The input begins with a type and sizes; then come steps. After each step the map's answer is the
// model's: for arrays, hashes and LPM tries a std::map, for queues and stacks a std::deque, for the
// ring buffer a list of records. An LRU map may have forgotten a key, but not have another value
// for it, nor more keys than entries, nor miss the key that was put last.
#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <optional>

#include "fuzz_input.h"
#include "xdp/map.h"
#include "xdp/map_ring.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kStepsMax = 400;

std::unique_ptr<XdpMap> make_map(const MapShape& shape) {
  Result<std::unique_ptr<XdpMap>> map = create_map(shape, {});
  SLUICE_ASSERT(map);
  return std::move(*map);
}

// What the map should hold, by the key as the map keeps it.
class KeyedSession {
 public:
  KeyedSession(FuzzInput& input, const MapShape& shape)
      : input_(input), shape_(shape), map_(make_map(shape)) {
    if (shape.type != BPF_MAP_TYPE_ARRAY) return;
    for (uint32_t i = 0; i < shape.max_entries; ++i) {
      Bytes key(4);
      std::memcpy(key.data(), &i, 4);
      model_[key] = Bytes(shape.value_size);
    }
  }

  void run() {
    for (size_t step = 0; step < kStepsMax && !input_.empty(); ++step) {
      const uint8_t choice = input_.byte();
      const Bytes key = take_key();
      if (choice % 4 < 2) update(key, choice >> 2);
      if (choice % 4 == 2) erase(key);
      if (choice % 4 == 3) look(key);
    }
    compare();
  }

 private:
  bool is_lru() const { return shape_.type == BPF_MAP_TYPE_LRU_HASH; }
  bool is_lpm() const { return shape_.type == BPF_MAP_TYPE_LPM_TRIE; }
  bool is_array() const { return shape_.type == BPF_MAP_TYPE_ARRAY; }

  // Few different ones, so that steps meet.
  Bytes take_key() {
    const uint8_t number = input_.byte();
    Bytes key(shape_.key_size, static_cast<uint8_t>(number % 5 * 0x33));
    if (is_lpm()) {
      const uint32_t bits = number / 5;
      std::memcpy(key.data(), &bits, 4);
    } else if (is_array()) {
      const uint32_t index = number % (shape_.max_entries + 2);
      std::memcpy(key.data(), &index, 4);
    } else {
      key[key.size() / 2] = static_cast<uint8_t>(number % 32);
    }
    return key;
  }

  static uint32_t bits_of(const Bytes& key) {
    uint32_t bits = 0;
    std::memcpy(&bits, key.data(), 4);
    return bits;
  }
  bool is_valid(const Bytes& key) const {
    return !is_lpm() || bits_of(key) <= (shape_.key_size - 4) * 8;
  }
  static Bytes shortened(Bytes key, uint32_t bits) {
    std::memcpy(key.data(), &bits, 4);
    for (uint32_t bit = bits; bit < (key.size() - 4) * 8; ++bit) {
      key[4 + bit / 8] &= static_cast<uint8_t>(~(0x80U >> (bit % 8)));
    }
    return key;
  }
  Bytes kept(const Bytes& key) const { return is_lpm() ? shortened(key, bits_of(key)) : key; }

  int expected_update(const Bytes& key, uint64_t flags) const {
    const bool is_there = model_.contains(kept(key));
    if (flags > BPF_EXIST || !is_valid(key)) return -EINVAL;
    if (is_array() && !is_there) return -E2BIG;
    if (is_there) return flags == BPF_NOEXIST ? -EEXIST : 0;
    if (flags == BPF_EXIST) return -ENOENT;
    if (is_lru() || model_.size() < shape_.max_entries) return 0;
    return is_lpm() ? -ENOSPC : -E2BIG;
  }

  void update(const Bytes& key, uint8_t flag_choice) {
    const uint64_t flags = flag_choice % 8 < 5 ? 0 : flag_choice % 8 - 4;
    const Bytes value = input_.bytes(shape_.value_size);
    if (is_lru()) forget_evicted();
    const int expected = expected_update(key, flags);
    SLUICE_ASSERT(map_->update(key.data(), value.data(), flags) == expected);
    if (expected != 0) return;
    model_[kept(key)] = value;
    SLUICE_ASSERT(read(key) == value);
  }

  void erase(const Bytes& key) {
    if (is_lru()) forget_evicted();
    int expected = 0;
    if (is_array() || !is_valid(key)) {
      expected = -EINVAL;
    } else if (model_.erase(kept(key)) == 0) {
      expected = -ENOENT;
    }
    SLUICE_ASSERT(map_->erase(key.data()) == expected);
  }

  void look(const Bytes& key) {
    if (is_lru()) forget_evicted();
    std::optional<Bytes> expected = find(key);
    const uint8_t* value = map_->lookup(key.data());
    SLUICE_ASSERT((value != nullptr) == expected.has_value());
    if (!expected) return;
    SLUICE_ASSERT(std::equal(expected->begin(), expected->end(), value));
    SLUICE_ASSERT(read(key) == *expected);
  }

  std::optional<Bytes> find(const Bytes& key) const {
    if (!is_valid(key)) return {};
    for (uint32_t bits = is_lpm() ? bits_of(key) + 1 : 1; bits-- > 0;) {
      const auto found = model_.find(is_lpm() ? shortened(key, bits) : key);
      if (found != model_.end()) return found->second;
    }
    return {};
  }

  Bytes read(const Bytes& key) {
    Bytes value(shape_.value_size);
    SLUICE_ASSERT(map_->read(key.data(), value.data()) == 0);
    return value;
  }

  void forget_evicted() {
    Bytes value(shape_.value_size);
    std::erase_if(model_, [&](const auto& entry) {
      return map_->read(entry.first.data(), value.data()) != 0;
    });
    SLUICE_ASSERT(model_.size() <= shape_.max_entries);
  }

  // What a dump shows is the model, each key once.
  void compare() {
    if (is_lru()) forget_evicted();
    size_t seen = 0;
    Bytes key(shape_.key_size);
    int status = map_->next_key(nullptr, key.data());
    while (status == 0) {
      SLUICE_ASSERT(++seen <= model_.size());
      const auto found = model_.find(key);
      SLUICE_ASSERT(found != model_.end() && read(key) == found->second);
      Bytes next(key.size());
      status = map_->next_key(key.data(), next.data());
      key = next;
    }
    SLUICE_ASSERT(seen == model_.size());
  }

  FuzzInput& input_;
  const MapShape shape_;
  const std::unique_ptr<XdpMap> map_;
  std::map<Bytes, Bytes> model_;
};

void run_queue(FuzzInput& input, const MapShape& shape) {
  const std::unique_ptr<XdpMap> map = make_map(shape);
  std::deque<Bytes> model;
  for (size_t step = 0; step < kStepsMax && !input.empty(); ++step) {
    const uint8_t choice = input.byte();
    Bytes value = input.bytes(shape.value_size);
    if (choice % 2 == 0) {
      const uint64_t flags = choice / 2 % 4;
      int expected = flags == BPF_NOEXIST || flags > BPF_EXIST ? -EINVAL : 0;
      const bool is_full = model.size() == shape.max_entries;
      if (expected == 0 && is_full && flags == BPF_ANY) expected = -E2BIG;
      SLUICE_ASSERT(map->push(value.data(), flags) == expected);
      if (expected != 0) continue;
      if (is_full) model.pop_front();
      model.push_back(value);
      continue;
    }
    const bool removes = choice % 4 == 1;
    const int status = removes ? map->pop(value.data()) : map->peek(value.data());
    SLUICE_ASSERT(status == (model.empty() ? -ENOENT : 0));
    if (status != 0) continue;
    const bool is_stack = shape.type == BPF_MAP_TYPE_STACK;
    SLUICE_ASSERT(value == (is_stack ? model.back() : model.front()));
    if (removes && is_stack) model.pop_back();
    if (removes && !is_stack) model.pop_front();
  }
}

void run_ring(FuzzInput& input) {
  const std::unique_ptr<XdpMap> map = make_map({BPF_MAP_TYPE_RINGBUF, 0, 0, 4096});
  struct Record {
    uint8_t* place;
    Bytes bytes;
    bool is_done = false;
    bool is_discarded = false;
  };
  std::deque<Record> model;
  for (size_t step = 0; step < kStepsMax && !input.empty(); ++step) {
    const uint8_t choice = input.byte();
    if (choice % 4 < 2) {
      const Bytes bytes(input.word() % 5000, choice);
      size_t used = 0;
      for (const Record& record : model) used += round_up(record.bytes.size() + 8, 8);
      uint8_t* place = map->ring(0)->reserve(bytes.size());
      SLUICE_ASSERT((place != nullptr) == (used + round_up(bytes.size() + 8, 8) < 4096));
      if (place == nullptr) continue;
      std::copy(bytes.begin(), bytes.end(), place);
      model.push_back({.place = place, .bytes = bytes});
    } else if (choice % 4 == 2 && !model.empty()) {
      Record& record = model[input.byte() % model.size()];
      if (record.is_done) continue;
      record.is_done = true;
      record.is_discarded = choice % 8 == 2;
      RecordRing::finish(record.place, record.is_discarded);
    } else {
      const auto forget_discarded = [&] {
        while (!model.empty() && model.front().is_discarded) model.pop_front();
      };
      map->drain([&](uint32_t, std::span<const uint8_t> bytes) {
        forget_discarded();
        SLUICE_ASSERT(!model.empty() && model.front().is_done);
        SLUICE_ASSERT(std::equal(bytes.begin(), bytes.end(), model.front().bytes.begin(),
                                 model.front().bytes.end()));
        model.pop_front();
      });
      forget_discarded();
      SLUICE_ASSERT(model.empty() || !model.front().is_done);
    }
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace sluice;
  FuzzInput input(data, bytes);
  constexpr bpf_map_type kTypes[] = {
      BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH,  BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_LPM_TRIE,
      BPF_MAP_TYPE_QUEUE, BPF_MAP_TYPE_STACK, BPF_MAP_TYPE_RINGBUF};
  MapShape shape{.type = kTypes[input.byte() % std::size(kTypes)],
                 .key_size = 1U + input.byte() % 20,
                 .value_size = 1U + input.byte() % 20,
                 .max_entries = 1U + input.byte() % 20};
  switch (shape.type) {
    case BPF_MAP_TYPE_RINGBUF:
      run_ring(input);
      return 0;
    case BPF_MAP_TYPE_QUEUE:
    case BPF_MAP_TYPE_STACK:
      shape.key_size = 0;
      run_queue(input, shape);
      return 0;
    case BPF_MAP_TYPE_ARRAY:
      shape.key_size = 4;
      break;
    case BPF_MAP_TYPE_LPM_TRIE:
      shape.key_size += 4;
      shape.flags = BPF_F_NO_PREALLOC;
      break;
    default:
      break;
  }
  KeyedSession(input, shape).run();
  return 0;
}
