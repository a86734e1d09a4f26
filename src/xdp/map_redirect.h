// Maps whose entries are places for a frame: devmap, devmap_hash, xskmap, cpumap.
//
// A device is a port of ours, by its number; that there is such a port is seen when a frame is sent
// there. A device's own program (the second half of an 8-byte value) is refused: nothing runs at
// the way out of a port. xskmaps and cpumaps can be made and filled, since programs come with them,
// but a redirect there finds no place (RedirectTarget::Kind::no_place).
#pragma once

#include "xdp/map.h"
#include "xdp/map_hash_table.h"

namespace sluice {

// devmap, xskmap, cpumap: an entry is found by its index.
class RedirectSlotsMap : public XdpMap {
 public:
  RedirectSlotsMap(const MapShape& shape, const MapOptions& options, MapMemory memory)
      : XdpMap(shape, options), memory_(std::move(memory)) {}
  uint8_t* lookup(const void* key) override;
  int update(const void* key, const void* value, uint64_t flags) override;
  int erase(const void* key) override;
  int read(const void* key, void* value) override;
  int next_key(const void* key, void* next) override;
  RedirectTarget find_target(uint32_t index) override;
  uint32_t port_slots() const override;
  uint32_t port_at(uint32_t slot) const override;

 private:
  // An entry in one word, so that it is seen whole: the number, and whether there is one.
  SharedWord<uint64_t>& slot(uint32_t index) const { return words_at(memory_.data())[2 * index]; }
  // What programs read: the number of the entry, and zeros.
  uint8_t* visible(uint32_t index) const { return memory_.data() + 16 * size_t{index} + 8; }
  bool is_full(uint32_t index) const { return slot(index).load_acquire() >> 32 != 0; }
  int check_update(uint32_t index, const void* value, uint64_t flags) const;

  const MapMemory memory_;
};

class DeviceHashMap : public XdpMap {
 public:
  DeviceHashMap(const MapShape& shape, const MapOptions& options, std::unique_ptr<HashTable> table)
      : XdpMap(shape, options), table_(std::move(table)) {}
  uint8_t* lookup(const void* key) override;
  int update(const void* key, const void* value, uint64_t flags) override;
  int erase(const void* key) override { return table_->erase(key); }
  int read(const void* key, void* value) override;
  int next_key(const void* key, void* next) override { return table_->next_key(key, next); }
  RedirectTarget find_target(uint32_t index) override;
  uint32_t port_slots() const override { return table_->node_count(); }
  uint32_t port_at(uint32_t slot) const override;

 private:
  const std::unique_ptr<HashTable> table_;
};

}  // namespace sluice
