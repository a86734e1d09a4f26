// Arrays: values side by side, found by their index; they exist from the start and are never
// erased.
//
// Program code reads an array that is not per CPU without a call (ArrayLayout of map_ref.h). Its
// memory is our own, or that of a kernel's array (create_array_over): then `bpftool map dump` shows
// live values, and global variables that the loader set are there. The kernel lets only arrays be
// mapped, and only those made with BPF_F_MMAPABLE.
//
//   Result<std::unique_ptr<XdpMap>> counters = create_array_over(map_fd);
#pragma once

#include "xdp/map.h"
#include "xdp/map_memory.h"

namespace sluice {

class ArrayMap : public XdpMap {
 public:
  ArrayMap(const MapShape& shape, const MapOptions& options, MapMemory memory, bool is_writable);
  MapRef ref() override;
  uint8_t* lookup(const void* key) override;
  int update(const void* key, const void* value, uint64_t flags) override;
  int erase(const void* key) override;
  int read(const void* key, void* value) override;
  int next_key(const void* key, void* next) override;

 private:
  const MapMemory memory_;
  const size_t stride_;
  const bool is_writable_;  // a frozen array of the kernel's (.rodata) is not
};

// Each worker has an area of its own, so that no two of them write to one cache line.
class PerCpuArrayMap : public XdpMap {
 public:
  PerCpuArrayMap(const MapShape& shape, const MapOptions& options, MapMemory memory);
  static size_t area_bytes(const MapShape& shape);
  MapRef ref() override;
  uint8_t* lookup(const void* key) override;
  int update(const void* key, const void* value, uint64_t flags) override;
  int erase(const void* key) override;
  int read(const void* key, void* value) override;
  int write(const void* key, const void* value, uint64_t flags) override;
  int next_key(const void* key, void* next) override;
  uint8_t* lookup_copy(const void* key, uint32_t copy) override;

 private:
  uint8_t* value_at(uint32_t index, uint32_t copy) const;
  const MapMemory memory_;
  const size_t stride_;
};

// An array over the memory of the kernel's array `map_fd`, which stays the caller's.
Result<std::unique_ptr<XdpMap>> create_array_over(int map_fd);

// Rules that everything indexed by a number shares.
uint32_t index_of(const void* key);
int check_array_update(const MapShape& shape, const void* key, uint64_t flags);
int next_index(const MapShape& shape, const void* key, void* next);

}  // namespace sluice
