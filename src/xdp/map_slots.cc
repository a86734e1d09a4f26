#include "xdp/map_slots.h"

#include <cerrno>

#include "xdp/map_array.h"
#include "xdp/map_kinds.h"

namespace sluice {

namespace {

bool is_like(const MapShape& map, const MapShape& wanted) {
  if (map.type != wanted.type || map.key_size != wanted.key_size ||
      map.value_size != wanted.value_size || map.flags != wanted.flags) {
    return false;
  }
  // Program code that reads an array without a call has the number of entries in it.
  const bool has_fixed_entries =
      wanted.type == BPF_MAP_TYPE_ARRAY && (wanted.flags & BPF_F_INNER_MAP) == 0;
  return !has_fixed_entries || map.max_entries == wanted.max_entries;
}

Result<void> check_inner(const MapOptions& options) {
  if (!options.inner) return fail("it has no inner map: say what its maps look like");
  const bpf_map_type type = options.inner->type;
  if (type == BPF_MAP_TYPE_ARRAY_OF_MAPS || type == BPF_MAP_TYPE_HASH_OF_MAPS ||
      type == BPF_MAP_TYPE_PROG_ARRAY) {
    return fail("its inner map is a {}: that cannot be one", map_type_name(type));
  }
  return {};
}

}  // namespace

ProgramArrayMap::ProgramArrayMap(const MapShape& shape, const MapOptions& options)
    : XdpMap(shape, options),
      targets_(std::make_unique<std::atomic<const TailTarget*>[]>(shape.max_entries)),
      ids_(std::make_unique<SharedWord<uint32_t>[]>(shape.max_entries)) {}

MapRef ProgramArrayMap::ref() {
  MapRef ref = XdpMap::ref();
  ref.programs = ProgramSlots{.slots = targets_.get(), .max_entries = shape().max_entries};
  return ref;
}

int ProgramArrayMap::put_program(uint32_t index, const TailTarget* target, uint32_t program_id) {
  if (index >= shape().max_entries) return -E2BIG;
  if (target == nullptr) return -EINVAL;
  ids_[index].store_relaxed(program_id);
  // Whoever enters the program sees all of it.
  targets_[index].store(target, std::memory_order_release);
  return 0;
}

int ProgramArrayMap::erase(const void* key) {
  const uint32_t index = index_of(key);
  if (index >= shape().max_entries) return -E2BIG;
  return targets_[index].exchange(nullptr, std::memory_order_relaxed) != nullptr ? 0 : -ENOENT;
}

int ProgramArrayMap::read(const void* key, void* value) {
  const uint32_t index = index_of(key);
  if (index >= shape().max_entries || targets_[index].load(std::memory_order_acquire) == nullptr) {
    return -ENOENT;
  }
  const uint32_t id = ids_[index].load_relaxed();
  std::memcpy(value, &id, sizeof id);
  return 0;
}

int ProgramArrayMap::next_key(const void* key, void* next) {
  return next_index(shape(), key, next);
}

ArrayOfMapsMap::ArrayOfMapsMap(const MapShape& shape, const MapOptions& options)
    : XdpMap(shape, options), maps_(std::make_unique<SharedWord<XdpMap*>[]>(shape.max_entries)) {}

uint8_t* ArrayOfMapsMap::lookup(const void* key) {
  const uint32_t index = index_of(key);
  if (index >= shape().max_entries) return nullptr;
  return reinterpret_cast<uint8_t*>(maps_[index].load_acquire());
}

int ArrayOfMapsMap::put_map(const void* key, XdpMap* inner, uint64_t flags) {
  if (flags != BPF_ANY) return -EINVAL;
  const uint32_t index = index_of(key);
  if (index >= shape().max_entries) return -E2BIG;
  if (inner == nullptr || !is_like(inner->shape(), *options().inner)) return -EINVAL;
  maps_[index].store_release(inner);
  return 0;
}

int ArrayOfMapsMap::erase(const void* key) {
  const uint32_t index = index_of(key);
  if (index >= shape().max_entries) return -E2BIG;
  return maps_[index].exchange_acquire(nullptr) != nullptr ? 0 : -ENOENT;
}

int ArrayOfMapsMap::read(const void* key, void* value) {
  const uint8_t* inner = lookup(key);
  if (inner == nullptr) return -ENOENT;
  const uint32_t inner_id = reinterpret_cast<const XdpMap*>(inner)->id();
  std::memcpy(value, &inner_id, sizeof inner_id);
  return 0;
}

int ArrayOfMapsMap::next_key(const void* key, void* next) { return next_index(shape(), key, next); }

uint8_t* HashOfMapsMap::lookup(const void* key) {
  const uint32_t node = table_->find(key);
  if (node == HashTable::kNone) return nullptr;
  return reinterpret_cast<uint8_t*>(words_at(table_->value(node))->load_acquire());
}

int HashOfMapsMap::put_map(const void* key, XdpMap* inner, uint64_t flags) {
  if (inner == nullptr || !is_like(inner->shape(), *options().inner)) return -EINVAL;
  return table_->update(key, {.bytes = reinterpret_cast<const uint8_t*>(&inner)}, flags);
}

int HashOfMapsMap::read(const void* key, void* value) {
  const uint8_t* inner = lookup(key);
  if (inner == nullptr) return -ENOENT;
  const uint32_t inner_id = reinterpret_cast<const XdpMap*>(inner)->id();
  std::memcpy(value, &inner_id, sizeof inner_id);
  return 0;
}

MapResult make_program_array(const MapShape& shape, const MapOptions& options) {
  return MapResult(std::make_unique<ProgramArrayMap>(shape, options));
}

MapResult make_array_of_maps(const MapShape& shape, const MapOptions& options) {
  Result<void> checked = check_inner(options);
  if (!checked) return fail(checked.error());
  return MapResult(std::make_unique<ArrayOfMapsMap>(shape, options));
}

MapResult make_hash_of_maps(const MapShape& shape, const MapOptions& options) {
  Result<void> checked = check_inner(options);
  if (!checked) return fail(checked.error());
  Result<std::unique_ptr<HashTable>> table = HashTable::create({.key_size = shape.key_size,
                                                                .value_size = sizeof(XdpMap*),
                                                                .max_entries = shape.max_entries});
  if (!table) return fail(table.error());
  return MapResult(std::make_unique<HashOfMapsMap>(shape, options, std::move(*table)));
}

}  // namespace sluice
