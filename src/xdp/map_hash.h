// Hash maps: hash, percpu_hash, and their LRU forms, over HashTable.
#pragma once

#include "xdp/map.h"
#include "xdp/map_hash_table.h"

namespace sluice {

class HashMap : public XdpMap {
 public:
  HashMap(const MapShape& shape, const MapOptions& options, std::unique_ptr<HashTable> table)
      : XdpMap(shape, options), table_(std::move(table)) {}
  static HashTable::Options table_options(const MapShape& shape, const MapOptions& options);

  MapRef ref() override;
  uint8_t* lookup(const void* key) override;
  int update(const void* key, const void* value, uint64_t flags) override;
  int erase(const void* key) override;
  int read(const void* key, void* value) override;
  int write(const void* key, const void* value, uint64_t flags) override;
  int next_key(const void* key, void* next) override;
  uint8_t* lookup_copy(const void* key, uint32_t copy) override;

  const HashTable& table() const { return *table_; }

 private:
  const std::unique_ptr<HashTable> table_;
};

}  // namespace sluice
