// XdpMap: a map of an XDP program that runs in userspace.
//
// What this is: the kernel's map types, with the kernel's answers (0 or -errno, the same number for
// the same mistake), in memory of this process. What it is not: the loading of programs, or the
// kernel's twin of a map. A twin that the verifier needs is the loader's; only an array can share
// its memory with its twin (map_array.h).
//
// Two sides use a map at once:
//   - Workers, from a program's helpers: lookup, update, erase, push, pop, peek. They find the copy
//     of a per-CPU value by run_state.worker_index. None of these allocates; lookup takes no lock.
//   - Control threads: read, write, next_key, lookup_copy, put_*. They see all copies of a value.
//
// Invariants:
//   - A pointer that lookup returned stays readable and writable memory of a value of this map as
//     long as the map lives, also after that key was erased; it may then be another key's value.
//     That is the promise of the kernel's preallocated maps, and what programs are written for.
//   - A value is written in whole 8-byte words, so that a reader never sees half of a counter.
//   - What put_map and put_program stored must outlive its removal by a breath of every worker.
//
//   MapShape shape{.type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = 8, .max_entries = 100};
//   Result<std::unique_ptr<XdpMap>> map = create_map(shape, {.worker_count = 2});
//   if (!map) return fail(map.error());
//   int status = (*map)->update(&key, &value, BPF_ANY);
#pragma once

#include <linux/bpf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "xdp/map_ref.h"
#include "xdp/run_state.h"

namespace sluice {

struct MapShape {
  bpf_map_type type = BPF_MAP_TYPE_UNSPEC;
  uint32_t key_size = 0;    // bytes
  uint32_t value_size = 0;  // bytes
  uint32_t max_entries = 0;
  uint32_t flags = 0;  // BPF_F_NO_PREALLOC…: those of map creation
  uint64_t extra = 0;  // map_extra: how many hash functions a bloom filter uses
  std::string name{};  // for messages
};

struct MapOptions {
  uint32_t worker_count = 1;           // copies of a per-CPU value
  uint32_t id = 0;                     // what a map of maps says when this map is read from it
  std::optional<MapShape> inner = {};  // a map of maps: what its maps must look like
};

class RecordRing;
using RecordCallback = std::function<void(uint32_t worker, std::span<const uint8_t> record)>;

class XdpMap {
 public:
  virtual ~XdpMap() = default;
  XdpMap(const XdpMap&) = delete;
  XdpMap& operator=(const XdpMap&) = delete;

  const MapShape& shape() const { return shape_; }
  uint32_t id() const { return options_.id; }
  // What a program's code needs of the map. Valid as long as the map lives.
  virtual MapRef ref();

  // For programs. A key has shape().key_size bytes, a value shape().value_size.
  // The value, or null. Of a map of maps it is the inner XdpMap itself, as in the kernel.
  virtual uint8_t* lookup(const void* key) = 0;
  virtual int update(const void* key, const void* value, uint64_t flags);
  virtual int erase(const void* key);
  virtual int push(const void* value, uint64_t flags);
  virtual int pop(void* value);
  virtual int peek(void* value);
  // Where a redirect to entry `index` goes; kind none if there is no entry.
  virtual RedirectTarget find_target(uint32_t index);
  // What a broadcast goes through: slots that hold the number of a port, or 0.
  virtual uint32_t port_slots() const { return 0; }
  virtual uint32_t port_at(uint32_t) const { return 0; }
  // Where a worker's records go; null if this is no ringbuf and no perf_event_array.
  virtual RecordRing* ring(uint32_t) { return nullptr; }

  // For control threads. A value of a per-CPU map is laid out as in the kernel's system calls: one
  // copy a worker, each rounded up to 8 bytes; value_bytes() is the size of all of it.
  uint32_t copies() const { return is_per_cpu() ? options_.worker_count : 1; }
  size_t value_bytes() const;
  // Copies the value out without making it look recently used.
  virtual int read(const void* key, void* value) = 0;
  virtual int write(const void* key, const void* value, uint64_t flags);
  // The key after `key` in no particular order; after null, or a key that is gone, the first one.
  virtual int next_key(const void* key, void* next);
  // Copy `copy` of a value, or null.
  virtual uint8_t* lookup_copy(const void* key, uint32_t copy);

  // What programs reported (map_ring.h): gives each record to `take`; one thread at a time. How
  // many there were.
  virtual size_t drain(const RecordCallback&) { return 0; }
  // Records that found no room.
  virtual uint64_t dropped() const { return 0; }

  // Maps whose values are things of ours rather than bytes; anything else refuses with -EINVAL.
  virtual int put_map(const void* key, XdpMap* inner, uint64_t flags);
  virtual int put_program(uint32_t index, const TailTarget* target, uint32_t program_id);

 protected:
  XdpMap(const MapShape& shape, const MapOptions& options) : shape_(shape), options_(options) {}
  const MapOptions& options() const { return options_; }
  bool is_per_cpu() const;

 private:
  const MapShape shape_;
  const MapOptions options_;
};

// Refuses, with a sentence, what the kernel would refuse, and types that XDP programs do not use.
Result<std::unique_ptr<XdpMap>> create_map(const MapShape& shape, const MapOptions& options);

// "hash", "percpu_array": as bpftool writes them.
std::string map_type_name(bpf_map_type type);

}  // namespace sluice
