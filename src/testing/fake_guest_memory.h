// FakeGuestMemory: a guest's RAM for tests, one memfd a region, seen from both sides.
//
// What: regions at any guest addresses (adjacent ones, holes between them), the front end's
// descriptions and files of them, a GuestMemory made through its own Builder, and raw access for
// whoever plays the driver. What not: checked. Whatever a test asks for it gets; misuse of this
// class itself aborts.
//
// The driver's view is a mapping of its own, so that thread sanitizer does not take what a hostile
// guest does on purpose for a race of ours. Where the test is about orderly sharing, ask for
// DriverView::shared: both sides then use the same addresses, and a missing acquire or release is
// seen.
//
//   FakeGuestMemory guest({FakeRegion{.bytes = 1 << 20}});
//   const uint64_t buffer = guest.allocate(1500, 16);
//   guest.write(buffer, bytes);
//   std::shared_ptr<const GuestMemory> memory = guest.share();
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/fd.h"
#include "memory/guest_memory.h"

namespace sluice {

struct FakeRegion {
  uint64_t guest_address = 0;
  uint64_t bytes = 0;
  uint64_t file_offset = 0;
  bool is_hugetlb = false;
};

enum class DriverView : uint8_t { own, shared };

class FakeGuestMemory {
 public:
  static constexpr uint64_t kDefaultBytes = 8 << 20;
  // Front-end addresses are guest addresses plus this.
  static constexpr uint64_t kFrontendOffset = 0x7e0000000000;

  explicit FakeGuestMemory(std::vector<FakeRegion> regions = {{.bytes = kDefaultBytes}},
                           DriverView view = DriverView::own);
  ~FakeGuestMemory();
  FakeGuestMemory(const FakeGuestMemory&) = delete;
  FakeGuestMemory& operator=(const FakeGuestMemory&) = delete;

  // The device's view. Always the same snapshot.
  std::shared_ptr<const GuestMemory> share() const { return memory_; }
  // What a front end would send about region `index`.
  RegionDescription description(size_t index) const;
  const Fd& file(size_t index) const { return regions_[index].file; }
  size_t region_count() const { return regions_.size(); }
  static uint64_t frontend_address(uint64_t guest_address) {
    return guest_address + kFrontendOffset;
  }

  // Whether all of a span of the device's view lies within one region.
  bool contains(const GuestSpan& span) const;

  // The driver's pointer to a range that lies within one region.
  uint8_t* at(uint64_t guest_address, uint64_t bytes);
  // Piecewise over adjacent regions.
  void write(uint64_t guest_address, std::span<const uint8_t> bytes);
  std::vector<uint8_t> read(uint64_t guest_address, uint64_t bytes);
  void fill(uint64_t guest_address, uint64_t bytes, uint8_t value);

  // A free range within one region. Given back ranges of the same size are used again first.
  // Address 0 is never given out, as in a real guest.
  uint64_t allocate(uint64_t bytes, uint64_t alignment = 16);
  void give_back(uint64_t guest_address, uint64_t bytes);

  // Makes the file of region `index` shorter while everybody has it mapped.
  void truncate(size_t index, uint64_t bytes);

 private:
  struct Region {
    FakeRegion shape;
    Fd file;
    uint8_t* host = nullptr;  // the driver's view of the region's first byte
    void* mapping = nullptr;  // nullptr: the device's mapping is used
    uint64_t mapping_bytes = 0;
    uint64_t allocated_bytes = 0;
  };
  void map_region(const FakeRegion& shape, DriverView view);
  Region* find(uint64_t guest_address);

  std::vector<Region> regions_;
  std::map<uint64_t, std::vector<uint64_t>> free_by_bytes_;
  std::shared_ptr<const GuestMemory> memory_;
};

}  // namespace sluice
