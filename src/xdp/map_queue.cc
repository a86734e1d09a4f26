#include "xdp/map_queue.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "xdp/map_kinds.h"

namespace sluice {

namespace {

constexpr uint32_t kHashFunctionsDefault = 5;
constexpr uint64_t kBloomBitsMax = 1ULL << 31;

}  // namespace

QueueMap::QueueMap(const MapShape& shape, const MapOptions& options, MapMemory memory)
    : XdpMap(shape, options), memory_(std::move(memory)) {}

int QueueMap::push(const void* value, uint64_t flags) {
  if (flags != BPF_ANY && flags != BPF_EXIST) return -EINVAL;
  std::lock_guard guard(lock_);
  if (end_ - begin_ == shape().max_entries) {
    if (flags != BPF_EXIST) return -E2BIG;
    ++begin_;
  }
  copy_in(value_at(end_++), value, shape().value_size);
  return 0;
}

int QueueMap::take(void* value, bool removes) {
  std::lock_guard guard(lock_);
  if (begin_ == end_) {
    std::memset(value, 0, shape().value_size);  // the verifier counts on it that it is written
    return -ENOENT;
  }
  const bool is_stack = shape().type == BPF_MAP_TYPE_STACK;
  copy_out(value, value_at(is_stack ? end_ - 1 : begin_), shape().value_size);
  if (removes) {
    if (is_stack) {
      --end_;
    } else {
      ++begin_;
    }
  }
  return 0;
}

BloomFilterMap::BloomFilterMap(const MapShape& shape, const MapOptions& options, MapMemory memory,
                               uint64_t seed)
    : XdpMap(shape, options),
      memory_(std::move(memory)),
      hash_functions_(hash_functions(shape)),
      bit_mask_(bit_count(shape) - 1),
      seed_(seed) {}

uint32_t BloomFilterMap::hash_functions(const MapShape& shape) {
  const auto asked = static_cast<uint32_t>(shape.extra & 15);
  return asked == 0 ? kHashFunctionsDefault : asked;
}

// entries * functions / ln 2, as a power of two: then about half of the bits are set at the end.
uint32_t BloomFilterMap::bit_count(const MapShape& shape) {
  const uint64_t bits = uint64_t{shape.max_entries} * hash_functions(shape) * 7 / 5;
  return static_cast<uint32_t>(std::bit_ceil(std::clamp<uint64_t>(bits, 64, kBloomBitsMax)));
}

BloomFilterMap::Hashes BloomFilterMap::hash(const void* value) const {
  uint64_t hash = seed_;
  const uint32_t size = shape().value_size;
  for (uint32_t i = 0; i < value_stride(size) / 8; ++i) {
    hash = mix_words(hash ^ private_word(value, size, i), 0x9e3779b97f4a7c15);
  }
  hash = mix_words(hash, 0xe7037ed1a0b428db);
  return {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32) | 1};
}

int BloomFilterMap::push(const void* value, uint64_t flags) {
  if (flags != BPF_ANY) return -EINVAL;
  const Hashes hashes = hash(value);
  for (uint32_t i = 0; i < hash_functions_; ++i) {
    const uint32_t bit = (hashes.first + i * hashes.step) & bit_mask_;
    words_at(memory_.data())[bit / 64].fetch_or_relaxed(uint64_t{1} << (bit % 64));
  }
  return 0;
}

int BloomFilterMap::peek(void* value) {
  const Hashes hashes = hash(value);
  for (uint32_t i = 0; i < hash_functions_; ++i) {
    const uint32_t bit = (hashes.first + i * hashes.step) & bit_mask_;
    const uint64_t word = words_at(memory_.data())[bit / 64].load_relaxed();
    if ((word >> (bit % 64) & 1) == 0) return -ENOENT;
  }
  return 0;
}

int BloomFilterMap::erase(const void*) { return -EOPNOTSUPP; }
int BloomFilterMap::pop(void*) { return -EOPNOTSUPP; }
int BloomFilterMap::next_key(const void*, void*) { return -EOPNOTSUPP; }

MapResult make_queue(const MapShape& shape, const MapOptions& options) {
  Result<MapMemory> memory =
      MapMemory::create(value_stride(shape.value_size) * shape.max_entries, true);
  if (!memory) return fail(memory.error());
  return MapResult(std::make_unique<QueueMap>(shape, options, std::move(*memory)));
}

MapResult make_bloom_filter(const MapShape& shape, const MapOptions& options) {
  if (shape.extra > 15) {
    return fail("it wants {} hash functions: at most 15 are possible", shape.extra);
  }
  Result<MapMemory> memory = MapMemory::create(BloomFilterMap::bit_count(shape) / 8, true);
  if (!memory) return fail(memory.error());
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed) {
    return fail("the kernel gives no random number: {}", errno_text(errno));
  }
  return MapResult(std::make_unique<BloomFilterMap>(shape, options, std::move(*memory), seed));
}

}  // namespace sluice
