#include "testing/fake_guest_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/assert.h"

namespace sluice {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kHugepageBytes = 2 << 20;

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace

FakeGuestMemory::FakeGuestMemory(std::vector<FakeRegion> regions, DriverView view) {
  GuestMemory::Builder builder;
  regions_.reserve(regions.size());
  for (const FakeRegion& shape : regions) {
    map_region(shape, view);
    const size_t index = regions_.size() - 1;
    const auto added = builder.add(description(index), regions_[index].file);
    if (!added) std::fprintf(stderr, "fake guest memory: %s\n", added.error().text.c_str());
    SLUICE_ASSERT(added);
  }
  memory_ = builder.build();
  if (view == DriverView::own) return;
  for (Region& region : regions_) {
    const auto span = memory_->translate(GuestAddr{region.shape.guest_address}, region.shape.bytes);
    region.host = static_cast<uint8_t*>(span->address_for_shared_words());
  }
}

void FakeGuestMemory::map_region(const FakeRegion& shape, DriverView view) {
  Region region;
  region.shape = shape;
  const unsigned flags = MFD_CLOEXEC | (shape.is_hugetlb ? MFD_HUGETLB : 0u);
  region.file = Fd(::memfd_create("fake-guest", flags));
  SLUICE_ASSERT(region.file.valid());
  const uint64_t page_bytes = shape.is_hugetlb ? kHugepageBytes : kPageBytes;
  region.mapping_bytes = round_up(shape.file_offset + shape.bytes, page_bytes);
  SLUICE_ASSERT(::ftruncate(region.file.get(), static_cast<off_t>(region.mapping_bytes)) == 0);
  if (view == DriverView::own) {
    region.mapping = ::mmap(nullptr, region.mapping_bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, region.file.get(), 0);
    SLUICE_ASSERT(region.mapping != MAP_FAILED);
    region.host = static_cast<uint8_t*>(region.mapping) + shape.file_offset;
  }
  regions_.push_back(std::move(region));
}

FakeGuestMemory::~FakeGuestMemory() {
  for (const Region& region : regions_) {
    if (region.mapping != nullptr) ::munmap(region.mapping, region.mapping_bytes);
  }
}

RegionDescription FakeGuestMemory::description(size_t index) const {
  const FakeRegion& shape = regions_[index].shape;
  return {GuestAddr{shape.guest_address}, shape.bytes,
          FrontendAddr{frontend_address(shape.guest_address)}, shape.file_offset};
}

bool FakeGuestMemory::contains(const GuestSpan& span) const {
  const auto* begin = static_cast<const uint8_t*>(span.address_for_shared_words());
  for (const Region& region : regions_) {
    const auto whole =
        memory_->translate(GuestAddr{region.shape.guest_address}, region.shape.bytes);
    const auto* host = static_cast<const uint8_t*>(whole->address_for_shared_words());
    if (begin >= host && begin + span.size() <= host + region.shape.bytes) return true;
  }
  return false;
}

FakeGuestMemory::Region* FakeGuestMemory::find(uint64_t guest_address) {
  for (Region& region : regions_) {
    if (guest_address - region.shape.guest_address < region.shape.bytes) return &region;
  }
  return nullptr;
}

uint8_t* FakeGuestMemory::at(uint64_t guest_address, uint64_t bytes) {
  Region* region = find(guest_address);
  SLUICE_ASSERT(region != nullptr);
  const uint64_t offset = guest_address - region->shape.guest_address;
  SLUICE_ASSERT(bytes <= region->shape.bytes - offset);
  return region->host + offset;
}

void FakeGuestMemory::write(uint64_t guest_address, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    Region* region = find(guest_address);
    SLUICE_ASSERT(region != nullptr);
    const uint64_t offset = guest_address - region->shape.guest_address;
    const uint64_t run = std::min<uint64_t>(bytes.size(), region->shape.bytes - offset);
    std::memcpy(region->host + offset, bytes.data(), run);
    bytes = bytes.subspan(run);
    guest_address += run;
  }
}

std::vector<uint8_t> FakeGuestMemory::read(uint64_t guest_address, uint64_t bytes) {
  std::vector<uint8_t> out;
  out.reserve(bytes);
  while (out.size() < bytes) {
    Region* region = find(guest_address);
    SLUICE_ASSERT(region != nullptr);
    const uint64_t offset = guest_address - region->shape.guest_address;
    const uint64_t run = std::min(bytes - out.size(), region->shape.bytes - offset);
    out.insert(out.end(), region->host + offset, region->host + offset + run);
    guest_address += run;
  }
  return out;
}

void FakeGuestMemory::fill(uint64_t guest_address, uint64_t bytes, uint8_t value) {
  write(guest_address, std::vector<uint8_t>(bytes, value));
}

uint64_t FakeGuestMemory::allocate(uint64_t bytes, uint64_t alignment) {
  auto& given_back = free_by_bytes_[bytes];
  if (!given_back.empty() && given_back.back() % alignment == 0) {
    const uint64_t address = given_back.back();
    given_back.pop_back();
    return address;
  }
  for (Region& region : regions_) {
    const uint64_t begin = region.shape.guest_address + region.allocated_bytes;
    const uint64_t address = round_up(std::max<uint64_t>(begin, 1), alignment);
    const uint64_t end_offset = address - region.shape.guest_address + bytes;
    if (end_offset > region.shape.bytes) continue;
    region.allocated_bytes = end_offset;
    return address;
  }
  SLUICE_ASSERT(!"the fake guest's memory is used up: give it larger regions");
  return 0;
}

void FakeGuestMemory::give_back(uint64_t guest_address, uint64_t bytes) {
  free_by_bytes_[bytes].push_back(guest_address);
}

void FakeGuestMemory::truncate(size_t index, uint64_t bytes) {
  SLUICE_ASSERT(::ftruncate(regions_[index].file.get(), static_cast<off_t>(bytes)) == 0);
}

}  // namespace sluice
