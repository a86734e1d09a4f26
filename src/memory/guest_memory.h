// GuestMemory: the immutable picture of one guest's RAM as the front end shared it.
//
// What: a set of mapped regions and the only way from a guest or front-end address to memory,
// always together with a length. What not: a lock or a reference count per frame; whoever works on
// a burst holds one shared_ptr to the snapshot for that burst, and a new memory table is a new
// snapshot that takes its place between bursts.
//
// Invariants: regions do not overlap in guest-physical space; every mapping was at least as long as
// its region when it was made. A front end that truncates its file later is contained by
// memory/sigbus.h, after which vanished() is true.
//
//   GuestMemory::Builder builder;
//   if (auto added = builder.add({gpa, bytes, uva, offset}, fd); !added) return
//   fail(added.error()); std::shared_ptr<const GuestMemory> memory = builder.build(); if (auto span
//   = memory->translate(descriptor.address, descriptor.bytes)) …
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/limits.h"
#include "base/result.h"
#include "memory/address.h"
#include "memory/guest_span.h"

namespace sluice {

// One region as a front end describes it. [vhost-user SET_MEM_TABLE]
struct RegionDescription {
  GuestAddr guest_address{};
  uint64_t bytes = 0;
  FrontendAddr frontend_address{};
  uint64_t mmap_offset = 0;  // where the region begins in its file
};

// A list of spans with a fixed capacity that never allocates after its construction.
class SpanList {
 public:
  explicit SpanList(size_t capacity);
  bool push(GuestSpan span) {
    if (count_ == capacity_) return false;
    spans_.get()[count_++] = span;
    return true;
  }
  void clear() { count_ = 0; }
  void truncate(size_t count) {
    SLUICE_ASSERT(count <= count_);
    count_ = count;
  }
  size_t size() const { return count_; }
  size_t room() const { return capacity_ - count_; }
  std::span<GuestSpan> all() { return {spans_.get(), count_}; }
  std::span<GuestSpan> slice(size_t first, size_t count) {
    SLUICE_ASSERT(first <= count_ && count <= count_ - first);
    return {spans_.get() + first, count};
  }

 private:
  struct Free {
    void operator()(GuestSpan* spans) const { ::operator delete(static_cast<void*>(spans)); }
  };
  std::unique_ptr<GuestSpan, Free>
      spans_;  // unconstructed: pages that are never used stay unbacked
  size_t capacity_;
  size_t count_ = 0;
};

class GuestMemory {
 public:
  class Mapping;  // one mapped file range, shared by all snapshots that contain it

  // Regions are collected, checked and mapped here; a snapshot is what comes out.
  class Builder {
   public:
    Builder() = default;
    // Starts from the regions of an earlier snapshot; their mappings are shared, not made again.
    explicit Builder(const GuestMemory& base);
    // Maps `fd` and adds the region. Refuses, with the reason: sizes that overflow, files that are
    // shorter than the region says or are no files, overlaps, too many regions.
    Result<void> add(const RegionDescription& region, const Fd& fd);
    // Removes the region with exactly this guest address, front-end address and size.
    Result<void> remove(const RegionDescription& region);
    std::shared_ptr<const GuestMemory> build();

   private:
    friend class GuestMemory;
    struct Region {
      RegionDescription description;
      std::shared_ptr<Mapping> mapping;
    };
    std::vector<Region> regions_;
  };

  GuestMemory() = default;

  // The memory behind [address, address + bytes) when it is one run in our process; nullopt when a
  // byte of it is not mapped or the range crosses regions. bytes > 0.
  std::optional<GuestSpan> translate(GuestAddr address, uint64_t bytes) const {
    const Region* region = find(raw(address));
    if (region == nullptr) [[unlikely]]
      return std::nullopt;
    const uint64_t offset = raw(address) - region->guest_begin;
    if (bytes > region->bytes - offset) [[unlikely]]
      return std::nullopt;
    return GuestSpan(region->host + offset, bytes);
  }
  enum class Translation : uint8_t { ok, not_mapped, list_full };
  // The same piecewise over adjacent regions, appended to `out`. On failure `out` is as before.
  Translation translate(GuestAddr address, uint64_t bytes, SpanList& out) const;
  // The memory behind a front-end address: for ring addresses, which lie within one region.
  // [vhost-user SET_VRING_ADDR]
  std::optional<GuestSpan> translate(FrontendAddr address, uint64_t bytes) const;

  // Whether exactly this region, of this very file, is mapped already.
  bool contains(const RegionDescription& region, const Fd& fd) const;

  size_t region_count() const { return regions_.size(); }
  uint64_t total_bytes() const;
  std::vector<RegionDescription> descriptions() const;
  // True once a page behind any region went away (the file was truncated under us).
  bool vanished() const;

 private:
  struct Region {
    uint64_t guest_begin;
    uint64_t bytes;
    uint64_t frontend_begin;
    uint8_t* host;
    std::shared_ptr<Mapping> mapping;
    RegionDescription description;
  };
  const Region* find(uint64_t guest_address) const {
    for (const Region& region : regions_) {  // bounded by kMemorySlotsMax, one to three as a rule
      if (guest_address - region.guest_begin < region.bytes) return &region;
    }
    return nullptr;
  }

  std::vector<Region> regions_;
};

}  // namespace sluice
