// queue, stack and bloom_filter: maps without keys.
//
// A queue or stack takes a short lock in each operation, also to look: what it gives out is copied,
// so nothing of it is ever seen by two. With BPF_EXIST a full one forgets its oldest value.
//
// A bloom filter says whether a value was perhaps pushed; it forgets nothing and takes no lock. How
// many hash functions it uses is in the low 4 bits of MapShape::extra, 5 if they are 0.
#pragma once

#include "xdp/map.h"
#include "xdp/map_lock.h"
#include "xdp/map_memory.h"

namespace sluice {

class QueueMap : public XdpMap {
 public:
  QueueMap(const MapShape& shape, const MapOptions& options, MapMemory memory);
  uint8_t* lookup(const void*) override { return nullptr; }
  int push(const void* value, uint64_t flags) override;
  int pop(void* value) override { return take(value, true); }
  int peek(void* value) override { return take(value, false); }
  // The key is none, as in bpf(2): the value that the next pop would give.
  int read(const void*, void* value) override { return peek(value); }
  int write(const void*, const void* value, uint64_t flags) override { return push(value, flags); }

 private:
  int take(void* value, bool removes);
  uint8_t* value_at(uint64_t number) const {
    return memory_.data() + number % shape().max_entries * value_stride(shape().value_size);
  }

  const MapMemory memory_;
  SpinLock lock_;
  // Under lock_. Values have numbers: those in [begin_, end_) are there.
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
};

class BloomFilterMap : public XdpMap {
 public:
  BloomFilterMap(const MapShape& shape, const MapOptions& options, MapMemory memory, uint64_t seed);
  static uint32_t hash_functions(const MapShape& shape);
  static uint32_t bit_count(const MapShape& shape);
  uint8_t* lookup(const void*) override { return nullptr; }
  int erase(const void*) override;
  int push(const void* value, uint64_t flags) override;
  int pop(void*) override;
  int peek(void* value) override;
  int read(const void*, void* value) override { return peek(value); }
  int write(const void*, const void* value, uint64_t flags) override { return push(value, flags); }
  int next_key(const void*, void*) override;

 private:
  // The place of each hash function's bit comes from two hashes of the value.
  struct Hashes {
    uint32_t first;
    uint32_t step;
  };
  Hashes hash(const void* value) const;

  const MapMemory memory_;
  const uint32_t hash_functions_;
  const uint32_t bit_mask_;
  const uint64_t seed_;
};

}  // namespace sluice
