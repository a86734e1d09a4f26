// Maps whose values are things of ours: prog_array, array_of_maps, hash_of_maps.
//
// Their values are put by control threads with put_program and put_map; what a program or a system
// call would write there (descriptors) is refused. Read, a value is the number that the kernel
// would give: a program's or a map's id. Who takes a value out keeps it alive for a breath of every
// worker.
//
// An inner map must look like the one that the outer was made for, as in the kernel; an array made
// with BPF_F_INNER_MAP may differ in its number of entries.
#pragma once

#include <atomic>

#include "xdp/map.h"
#include "xdp/map_hash_table.h"

namespace sluice {

class ProgramArrayMap : public XdpMap {
 public:
  ProgramArrayMap(const MapShape& shape, const MapOptions& options);
  MapRef ref() override;
  uint8_t* lookup(const void*) override { return nullptr; }
  int erase(const void* key) override;
  int read(const void* key, void* value) override;
  int next_key(const void* key, void* next) override;
  int put_program(uint32_t index, const TailTarget* target, uint32_t program_id) override;

 private:
  const std::unique_ptr<std::atomic<const TailTarget*>[]> targets_;
  const std::unique_ptr<SharedWord<uint32_t>[]> ids_;
};

class ArrayOfMapsMap : public XdpMap {
 public:
  ArrayOfMapsMap(const MapShape& shape, const MapOptions& options);
  uint8_t* lookup(const void* key) override;
  int erase(const void* key) override;
  int read(const void* key, void* value) override;
  int next_key(const void* key, void* next) override;
  int put_map(const void* key, XdpMap* inner, uint64_t flags) override;

 private:
  const std::unique_ptr<SharedWord<XdpMap*>[]> maps_;
};

class HashOfMapsMap : public XdpMap {
 public:
  HashOfMapsMap(const MapShape& shape, const MapOptions& options, std::unique_ptr<HashTable> table)
      : XdpMap(shape, options), table_(std::move(table)) {}
  uint8_t* lookup(const void* key) override;
  int erase(const void* key) override { return table_->erase(key); }
  int read(const void* key, void* value) override;
  int next_key(const void* key, void* next) override { return table_->next_key(key, next); }
  int put_map(const void* key, XdpMap* inner, uint64_t flags) override;

 private:
  const std::unique_ptr<HashTable> table_;
};

}  // namespace sluice
