#include "memory/frame_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace sluice {
namespace {

constexpr size_t kHugepageBytes = 2 * 1024 * 1024;
// Where the search for a free range begins and ends: above the lowest addresses, where programs
// without position independence live, and below 4 GiB. The steps reach 0x7fff8000, where the
// address sanitizer's shadow begins, only after every lower place.
constexpr uintptr_t kSearchBegin = 0x10000000;
constexpr uintptr_t kSearchEnd = 0x100000000;
constexpr uintptr_t kSearchStep = 0x04000000;
static_assert(kSearchBegin % kHugepageBytes == 0 && kSearchStep % kHugepageBytes == 0);

void* map_at(uintptr_t address, size_t bytes, int extra_flags) {
  const int placement = address == 0 ? 0 : MAP_FIXED_NOREPLACE;
  void* wanted = reinterpret_cast<void*>(address);
  void* got = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | placement | extra_flags, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  if (address != 0 && got != wanted) {  // kernels before 4.17 take the address as a hint
    ::munmap(got, bytes);
    return nullptr;
  }
  return got;
}

void* map_below_4gib(size_t bytes, int extra_flags) {
  if (bytes >= kSearchEnd - kSearchBegin) return nullptr;
  for (uintptr_t at = kSearchBegin; at + bytes <= kSearchEnd; at += kSearchStep) {
    if (void* got = map_at(at, bytes, extra_flags)) return got;
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<FramePool>> FramePool::create(const FramePoolOptions& options) {
  std::unique_ptr<FramePool> pool(new FramePool);
  const size_t wanted = options.frame_count * kChunkBytes + options.slab_count * kSlabBytes;
  const size_t bytes = (wanted + kHugepageBytes - 1) / kHugepageBytes * kHugepageBytes;
  void* memory = nullptr;
  if (options.want_hugepages) {
    // Hugepages are reserved now, or mmap refuses: without a reservation it succeeds though there
    // are none, and the first touch is a SIGBUS.
    memory = map_below_4gib(bytes, MAP_HUGETLB | MAP_POPULATE);
    pool->has_hugepages_ = memory != nullptr;
  }
  if (memory == nullptr) memory = map_below_4gib(bytes, MAP_NORESERVE);
  if (memory == nullptr) memory = map_at(0, bytes, MAP_NORESERVE);
  if (memory == nullptr)
    return fail("cannot map {} MiB of frame memory: {}", bytes >> 20, errno_text(errno));
  pool->memory_ = static_cast<uint8_t*>(memory);
  pool->memory_bytes_ = bytes;

  pool->frames_.resize(options.frame_count);
  pool->slabs_.resize(options.slab_count);
  pool->free_frames_.reserve(options.frame_count);
  pool->free_slabs_.reserve(options.slab_count);
  // The last one given is the first one taken: begin with the lowest addresses.
  for (size_t i = options.frame_count; i-- > 0;) {
    pool->frames_[i].chunk_ = pool->memory_ + i * kChunkBytes;
    pool->free_frames_.push_back(&pool->frames_[i]);
  }
  uint8_t* slab_begin = pool->memory_ + options.frame_count * kChunkBytes;
  for (size_t i = options.slab_count; i-- > 0;) {
    pool->slabs_[i].data = slab_begin + i * kSlabBytes;
    pool->free_slabs_.push_back(&pool->slabs_[i]);
  }
  return pool;
}

FramePool::~FramePool() {
  if (memory_ != nullptr) ::munmap(memory_, memory_bytes_);
}

bool FramePool::below_4gib() const {
  return reinterpret_cast<uintptr_t>(memory_) + memory_bytes_ <= kSearchEnd;
}

size_t FramePool::frames_free() {
  const std::lock_guard lock(mutex_);
  return free_frames_.size();
}

size_t FramePool::slabs_free() {
  const std::lock_guard lock(mutex_);
  return free_slabs_.size();
}

size_t FramePool::take_frames(Frame** out, size_t count) {
  const std::lock_guard lock(mutex_);
  const size_t taken = std::min(count, free_frames_.size());
  for (size_t i = 0; i < taken; ++i) {
    out[i] = free_frames_.back();
    free_frames_.pop_back();
  }
  return taken;
}

void FramePool::give_frames(Frame* const* frames, size_t count) {
  const std::lock_guard lock(mutex_);
  SLUICE_ASSERT(free_frames_.size() + count <= frames_.size());
  for (size_t i = 0; i < count; ++i) free_frames_.push_back(frames[i]);
}

Slab* FramePool::take_slab() {
  const std::lock_guard lock(mutex_);
  if (free_slabs_.empty()) return nullptr;
  Slab* slab = free_slabs_.back();
  free_slabs_.pop_back();
  return slab;
}

void FramePool::give_slab(Slab* slab) {
  const std::lock_guard lock(mutex_);
  SLUICE_ASSERT(free_slabs_.size() < slabs_.size());
  free_slabs_.push_back(slab);
}

FrameCache::~FrameCache() { pool_.give_frames(frames_.data(), count_); }

void FrameCache::give_tail(Frame* frame) {
  if (frame->tail_kind() == TailKind::slab) {
    give_slab(frame->slab());
    return;
  }
  for (Frame* part = frame->first_appended(); part != nullptr;) {  // at most a batch
    Frame* const next = part->next_appended();
    give(part);
    part = next;
  }
}

bool FrameCache::refill() {
  count_ = pool_.take_frames(frames_.data(), kBatchFramesMax);
  return count_ > 0;
}

void FrameCache::spill() {
  // Give back the older half; the newer, still warm in the processor's cache, stays.
  pool_.give_frames(frames_.data(), kBatchFramesMax);
  std::copy(frames_.begin() + kBatchFramesMax, frames_.end(), frames_.begin());
  count_ -= kBatchFramesMax;
}

}  // namespace sluice
