#include "memory/guest_memory.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <type_traits>

#include "memory/sigbus.h"

namespace sluice {

namespace {

// What stays the same when a file's descriptor is sent again.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

FileIdentity identity_of(const Fd& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

}  // namespace

class GuestMemory::Mapping {
 public:
  Mapping(uint8_t* begin, size_t bytes, size_t lead_bytes, FileIdentity file, SigbusGuard guard)
      : begin_(begin),
        bytes_(bytes),
        lead_bytes_(lead_bytes),
        file_(file),
        guard_(std::move(guard)) {}
  ~Mapping() {
    guard_.release();  // first: the handler must not touch a range that is being given back
    ::munmap(begin_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Where the region itself begins: its offset need not be page aligned.
  uint8_t* region_begin() const { return begin_ + lead_bytes_; }
  bool vanished() const { return guard_.tripped(); }
  const FileIdentity& file() const { return file_; }

 private:
  uint8_t* begin_;
  size_t bytes_;
  size_t lead_bytes_;
  FileIdentity file_;
  SigbusGuard guard_;
};

namespace {

bool ranges_overlap(uint64_t a_begin, uint64_t a_bytes, uint64_t b_begin, uint64_t b_bytes) {
  // Neither sum overflows: add() refused such regions.
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

// The page size that mappings of this file must be aligned to.
Result<uint64_t> page_bytes_of(const Fd& fd) {
  struct statfs filesystem {};
  if (::fstatfs(fd.get(), &filesystem) != 0) return fail("fstatfs: {}", errno_text(errno));
  if (filesystem.f_type == HUGETLBFS_MAGIC) return static_cast<uint64_t>(filesystem.f_bsize);
  return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

Result<void> check_file(const RegionDescription& region, const Fd& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fail("fstat: {}", errno_text(errno));
  if (!S_ISREG(status.st_mode))
    return fail("the file behind the region is no memory file; share guest memory by memfd");
  // mmap_offset + bytes cannot overflow: checked by the caller.
  if (static_cast<uint64_t>(status.st_size) < region.mmap_offset + region.bytes)
    return fail("the file behind the region has {} bytes, the region needs {}", status.st_size,
                region.mmap_offset + region.bytes);
  return {};
}

}  // namespace

SpanList::SpanList(size_t capacity)
    : spans_(static_cast<GuestSpan*>(::operator new(capacity * sizeof(GuestSpan)))),
      capacity_(capacity) {
  static_assert(std::is_trivially_copyable_v<GuestSpan>);
}

GuestMemory::Builder::Builder(const GuestMemory& base) {
  for (const GuestMemory::Region& region : base.regions_)
    regions_.push_back({region.description, region.mapping});
}

Result<void> GuestMemory::Builder::add(const RegionDescription& region, const Fd& fd) {
  uint64_t end = 0;
  if (region.bytes == 0) return fail("a region of 0 bytes");
  if (__builtin_add_overflow(raw(region.guest_address), region.bytes, &end) ||
      __builtin_add_overflow(raw(region.frontend_address), region.bytes, &end) ||
      __builtin_add_overflow(region.mmap_offset, region.bytes, &end) || end > INT64_MAX)
    return fail("a region whose address or offset plus size ({:#x} bytes) overflows", region.bytes);
  if (regions_.size() >= kMemorySlotsMax) return fail("more than {} regions", kMemorySlotsMax);
  for (const Region& other : regions_) {
    if (ranges_overlap(raw(region.guest_address), region.bytes,
                       raw(other.description.guest_address), other.description.bytes))
      return fail("region at guest address {:#x} overlaps another", raw(region.guest_address));
    if (ranges_overlap(raw(region.frontend_address), region.bytes,
                       raw(other.description.frontend_address), other.description.bytes))
      return fail("region at front-end address {:#x} overlaps another",
                  raw(region.frontend_address));
  }
  if (auto checked = check_file(region, fd); !checked) return fail(checked.error());
  auto page_bytes = page_bytes_of(fd);
  if (!page_bytes) return fail(page_bytes.error());

  const uint64_t file_begin = region.mmap_offset / *page_bytes * *page_bytes;
  const uint64_t lead_bytes = region.mmap_offset - file_begin;
  // Cannot overflow: lead + size <= offset + size <= INT64_MAX, and a page fits above that.
  const uint64_t map_bytes =
      (lead_bytes + region.bytes + *page_bytes - 1) / *page_bytes * *page_bytes;
  void* begin = ::mmap(nullptr, map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                       fd.get(), static_cast<off_t>(file_begin));
  if (begin == MAP_FAILED)
    return fail("mapping a region of {} bytes failed: {}", region.bytes, errno_text(errno));
  // A guest's RAM is not ours to dump; and it must not be inherited by a child.
  ::madvise(begin, map_bytes, MADV_DONTDUMP);
  ::madvise(begin, map_bytes, MADV_DONTFORK);
  auto guard = SigbusGuard::watch(begin, map_bytes);
  if (!guard) {
    ::munmap(begin, map_bytes);
    return fail(guard.error());
  }
  regions_.push_back(
      {region, std::make_shared<Mapping>(static_cast<uint8_t*>(begin), map_bytes, lead_bytes,
                                         identity_of(fd), std::move(*guard))});
  return {};
}

Result<void> GuestMemory::Builder::remove(const RegionDescription& region) {
  for (auto it = regions_.begin(); it != regions_.end(); ++it) {  // bounded by kMemorySlotsMax
    const RegionDescription& known = it->description;
    if (known.guest_address == region.guest_address && known.bytes == region.bytes &&
        known.frontend_address == region.frontend_address) {
      regions_.erase(it);
      return {};
    }
  }
  return fail("no region at guest address {:#x} with {} bytes to remove", raw(region.guest_address),
              region.bytes);
}

std::shared_ptr<const GuestMemory> GuestMemory::Builder::build() {
  auto memory = std::make_shared<GuestMemory>();
  for (const Region& region : regions_) {
    memory->regions_.push_back({raw(region.description.guest_address), region.description.bytes,
                                raw(region.description.frontend_address),
                                region.mapping->region_begin(), region.mapping,
                                region.description});
  }
  return memory;
}

GuestMemory::Translation GuestMemory::translate(GuestAddr address, uint64_t bytes,
                                                SpanList& out) const {
  const size_t count_before = out.size();
  uint64_t at = raw(address);
  while (bytes > 0) {  // bounded: each round ends in another region, of which there are few
    const Region* region = find(at);
    if (region == nullptr) {
      out.truncate(count_before);
      return Translation::not_mapped;
    }
    const uint64_t offset = at - region->guest_begin;
    const uint64_t run = std::min(bytes, region->bytes - offset);
    if (!out.push(GuestSpan(region->host + offset, run))) {
      out.truncate(count_before);
      return Translation::list_full;
    }
    at += run;  // wraps only past the last address, where no region is: add() refused those
    bytes -= run;
  }
  return Translation::ok;
}

std::optional<GuestSpan> GuestMemory::translate(FrontendAddr address, uint64_t bytes) const {
  for (const Region& region : regions_) {  // bounded by kMemorySlotsMax
    const uint64_t offset = raw(address) - region.frontend_begin;
    if (offset < region.bytes) {
      if (bytes > region.bytes - offset) return std::nullopt;
      return GuestSpan(region.host + offset, bytes);
    }
  }
  return std::nullopt;
}

bool GuestMemory::contains(const RegionDescription& region, const Fd& fd) const {
  for (const Region& known : regions_) {  // bounded by kMemorySlotsMax
    const RegionDescription& other = known.description;
    if (other.guest_address == region.guest_address && other.bytes == region.bytes &&
        other.frontend_address == region.frontend_address &&
        other.mmap_offset == region.mmap_offset && known.mapping->file() == identity_of(fd))
      return true;
  }
  return false;
}

uint64_t GuestMemory::total_bytes() const {
  uint64_t sum = 0;
  for (const Region& region : regions_) sum += region.bytes;
  return sum;
}

std::vector<RegionDescription> GuestMemory::descriptions() const {
  std::vector<RegionDescription> all;
  for (const Region& region : regions_) all.push_back(region.description);
  return all;
}

bool GuestMemory::vanished() const {
  for (const Region& region : regions_) {
    if (region.mapping->vanished()) return true;
  }
  return false;
}

}  // namespace sluice
