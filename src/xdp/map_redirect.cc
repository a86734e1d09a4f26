#include "xdp/map_redirect.h"

#include <cerrno>

#include "xdp/map_array.h"
#include "xdp/map_kinds.h"

namespace sluice {

namespace {

// The kernel's bound on the queue of a cpumap entry.
constexpr uint32_t kCpuQueueMax = 16384;
constexpr uint64_t kFull = 1ULL << 32;

// A value's two halves: a number (ifindex, queue size, descriptor), and a program's descriptor,
// where 0 and less mean none.
uint32_t number_of(const void* value) { return index_of(value); }
bool has_program(const MapShape& shape, const void* value) {
  if (shape.value_size < 8) return false;
  return static_cast<int32_t>(index_of(static_cast<const uint8_t*>(value) + 4)) > 0;
}

}  // namespace

uint8_t* RedirectSlotsMap::lookup(const void* key) {
  const uint32_t index = index_of(key);
  return index < shape().max_entries && is_full(index) ? visible(index) : nullptr;
}

int RedirectSlotsMap::check_update(uint32_t index, const void* value, uint64_t flags) const {
  if (flags > BPF_EXIST) return -EINVAL;
  if (index >= shape().max_entries) return -E2BIG;
  if (shape().type == BPF_MAP_TYPE_XSKMAP) {
    if (flags == BPF_NOEXIST && is_full(index)) return -EEXIST;
    return flags == BPF_EXIST && !is_full(index) ? -ENOENT : 0;
  }
  if (flags == BPF_NOEXIST) return -EEXIST;
  if (has_program(shape(), value)) return number_of(value) == 0 ? -EINVAL : -EOPNOTSUPP;
  if (shape().type == BPF_MAP_TYPE_CPUMAP && number_of(value) > kCpuQueueMax) return -EOVERFLOW;
  return 0;
}

int RedirectSlotsMap::update(const void* key, const void* value, uint64_t flags) {
  const uint32_t index = index_of(key);
  const int status = check_update(index, value, flags);
  if (status != 0) return status;
  // No device and a queue without room mean no entry; descriptor 0 is one.
  const uint32_t number = number_of(value);
  if (number == 0 && shape().type != BPF_MAP_TYPE_XSKMAP) {
    slot(index).store_release(0);
    return 0;
  }
  words_at(visible(index))->store_relaxed(number);
  slot(index).store_release(kFull | number);
  return 0;
}

int RedirectSlotsMap::erase(const void* key) {
  const uint32_t index = index_of(key);
  if (index >= shape().max_entries) return -EINVAL;
  slot(index).store_release(0);
  return 0;
}

int RedirectSlotsMap::read(const void* key, void* value) {
  // The kernel has nothing to say about the sockets in an xskmap.
  if (shape().type == BPF_MAP_TYPE_XSKMAP) return -EOPNOTSUPP;
  const uint8_t* from = lookup(key);
  if (from == nullptr) return -ENOENT;
  copy_out(value, from, shape().value_size);
  return 0;
}

int RedirectSlotsMap::next_key(const void* key, void* next) {
  return next_index(shape(), key, next);
}

RedirectTarget RedirectSlotsMap::find_target(uint32_t index) {
  if (index >= shape().max_entries) return {};
  const uint64_t entry = slot(index).load_acquire();
  if (entry >> 32 == 0) return {};
  if (shape().type != BPF_MAP_TYPE_DEVMAP) return {.kind = RedirectTarget::Kind::no_place};
  return {.kind = RedirectTarget::Kind::port, .port = static_cast<uint32_t>(entry)};
}

uint32_t RedirectSlotsMap::port_slots() const {
  return shape().type == BPF_MAP_TYPE_DEVMAP ? shape().max_entries : 0;
}

uint32_t RedirectSlotsMap::port_at(uint32_t index) const {
  return static_cast<uint32_t>(slot(index).load_acquire());
}

uint8_t* DeviceHashMap::lookup(const void* key) {
  const uint32_t node = table_->find(key);
  return node == HashTable::kNone ? nullptr : table_->value(node);
}

int DeviceHashMap::update(const void* key, const void* value, uint64_t flags) {
  if (flags > BPF_EXIST || number_of(value) == 0) return -EINVAL;
  if (has_program(shape(), value)) return -EOPNOTSUPP;
  const uint64_t entry = number_of(value);
  // The kernel takes BPF_EXIST here also for a key that is new.
  return table_->update(key, {.bytes = reinterpret_cast<const uint8_t*>(&entry)},
                        flags == BPF_EXIST ? uint64_t{BPF_ANY} : flags);
}

int DeviceHashMap::read(const void* key, void* value) {
  const uint8_t* from = lookup(key);
  if (from == nullptr) return -ENOENT;
  copy_out(value, from, shape().value_size);
  return 0;
}

RedirectTarget DeviceHashMap::find_target(uint32_t index) {
  const uint32_t node = table_->find(&index);
  if (node == HashTable::kNone) return {};
  const uint64_t entry = words_at(table_->value(node))->load_relaxed();
  return {.kind = RedirectTarget::Kind::port, .port = static_cast<uint32_t>(entry)};
}

uint32_t DeviceHashMap::port_at(uint32_t node) const {
  if (!table_->is_used(node)) return 0;
  return static_cast<uint32_t>(words_at(table_->value(node))->load_relaxed());
}

MapResult make_redirect_slots(const MapShape& shape, const MapOptions& options) {
  Result<MapMemory> memory = MapMemory::create(size_t{16} * shape.max_entries, true);
  if (!memory) return fail(memory.error());
  return MapResult(std::make_unique<RedirectSlotsMap>(shape, options, std::move(*memory)));
}

MapResult make_device_hash(const MapShape& shape, const MapOptions& options) {
  Result<std::unique_ptr<HashTable>> table = HashTable::create(
      {.key_size = shape.key_size, .value_size = 8, .max_entries = shape.max_entries});
  if (!table) return fail(table.error());
  return MapResult(std::make_unique<DeviceHashMap>(shape, options, std::move(*table)));
}

}  // namespace sluice
