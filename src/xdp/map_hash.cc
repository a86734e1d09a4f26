#include "xdp/map_hash.h"

#include <cerrno>

#include "xdp/map_kinds.h"

namespace sluice {

namespace {

bool is_lru(bpf_map_type type) {
  return type == BPF_MAP_TYPE_LRU_HASH || type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}
bool has_copies(bpf_map_type type) {
  return type == BPF_MAP_TYPE_PERCPU_HASH || type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

}  // namespace

HashTable::Options HashMap::table_options(const MapShape& shape, const MapOptions& options) {
  return {.key_size = shape.key_size,
          .value_size = shape.value_size,
          .max_entries = shape.max_entries,
          .copies = has_copies(shape.type) ? options.worker_count : 0,
          .evicts = is_lru(shape.type),
          .populate = (shape.flags & BPF_F_NO_PREALLOC) == 0};
}

MapRef HashMap::ref() {
  MapRef ref = XdpMap::ref();
  ref.values = table_->values();
  return ref;
}

uint8_t* HashMap::lookup(const void* key) {
  return lookup_copy(key, is_per_cpu() ? run_state.worker_index : 0);
}

uint8_t* HashMap::lookup_copy(const void* key, uint32_t copy) {
  if (copy >= copies()) return nullptr;
  const uint32_t node = table_->find(key);
  if (node == HashTable::kNone) return nullptr;
  if (is_lru(shape().type)) table_->mark_used(node);
  return table_->value(node, copy);
}

int HashMap::update(const void* key, const void* value, uint64_t flags) {
  return table_->update(
      key, {.bytes = static_cast<const uint8_t*>(value), .copy = run_state.worker_index}, flags);
}

int HashMap::write(const void* key, const void* value, uint64_t flags) {
  return table_->update(
      key, {.bytes = static_cast<const uint8_t*>(value), .all_copies = is_per_cpu()}, flags);
}

int HashMap::erase(const void* key) { return table_->erase(key); }

int HashMap::read(const void* key, void* value) {
  const uint32_t node = table_->find(key);
  if (node == HashTable::kNone) return -ENOENT;
  if (!is_per_cpu()) {
    copy_out(value, table_->value(node), shape().value_size);
    return 0;
  }
  const size_t stride = value_stride(shape().value_size);
  for (uint32_t copy = 0; copy < copies(); ++copy) {
    copy_out(static_cast<uint8_t*>(value) + copy * stride, table_->value(node, copy), stride);
  }
  return 0;
}

int HashMap::next_key(const void* key, void* next) { return table_->next_key(key, next); }

MapResult make_hash(const MapShape& shape, const MapOptions& options) {
  Result<std::unique_ptr<HashTable>> table =
      HashTable::create(HashMap::table_options(shape, options));
  if (!table) return fail(table.error());
  return MapResult(std::make_unique<HashMap>(shape, options, std::move(*table)));
}

}  // namespace sluice
