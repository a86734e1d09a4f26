// FramePool: all packet memory of the daemon, in one mapping. FrameCache: one worker's share of it.
//
// The mapping lies below 4 GiB when a free range is found there, so that an XDP program's 32-bit
// packet pointers are true pointers; below_4gib() says whether that worked. Pages are backed on
// first use, frames are reused last-in-first-out, so memory follows the traffic and not the size of
// the pool. Hugepages are used when asked for and had, never needed.
//
// A FrameCache belongs to one thread; only an empty or full cache goes to the pool, under its
// mutex.
//
//   auto pool = FramePool::create({.frame_count = 4096, .slab_count = 64});
//   FrameCache cache(**pool);
//   Frame* frame = cache.take();  // nullptr when the pool is empty
//   cache.give(frame);            // its slab, if it has one, too
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "memory/frame.h"

namespace sluice {

struct FramePoolOptions {
  size_t frame_count = 4096;
  size_t slab_count = 64;
  bool want_hugepages = false;
};

class FramePool {
 public:
  static Result<std::unique_ptr<FramePool>> create(const FramePoolOptions& options);
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  bool below_4gib() const;
  bool has_hugepages() const { return has_hugepages_; }
  size_t frames_total() const { return frames_.size(); }
  size_t slabs_total() const { return slabs_.size(); }
  // Frames and slabs in the pool itself; those in caches and in use are not counted.
  size_t frames_free();
  size_t slabs_free();
  uint8_t* begin() const { return memory_; }
  size_t bytes() const { return memory_bytes_; }

 private:
  friend class FrameCache;
  FramePool() = default;
  size_t take_frames(Frame** out, size_t count);
  void give_frames(Frame* const* frames, size_t count);
  Slab* take_slab();
  void give_slab(Slab* slab);

  uint8_t* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  bool has_hugepages_ = false;
  std::vector<Frame> frames_;
  std::vector<Slab> slabs_;
  std::mutex mutex_;  // guards the two free lists
  std::vector<Frame*> free_frames_;
  std::vector<Slab*> free_slabs_;
};

class FrameCache {
 public:
  explicit FrameCache(FramePool& pool) : pool_(pool) {}
  ~FrameCache();
  FrameCache(const FrameCache&) = delete;
  FrameCache& operator=(const FrameCache&) = delete;

  // An empty frame with full headroom, or nullptr when the pool has none.
  Frame* take() {
    if (count_ == 0 && !refill()) [[unlikely]]
      return nullptr;
    Frame* frame = frames_[--count_];
    frame->reset();
    return frame;
  }
  void give(Frame* frame) {
    if (frame->tail_kind() >= TailKind::slab) [[unlikely]]
      give_tail(frame);
    if (count_ == frames_.size()) [[unlikely]]
      spill();
    frames_[count_++] = frame;
  }
  Slab* take_slab() { return pool_.take_slab(); }
  void give_slab(Slab* slab) { pool_.give_slab(slab); }

 private:
  bool refill();
  void give_tail(Frame* frame);
  void spill();

  FramePool& pool_;
  // Two bursts, so that a worker which takes and gives whole bursts rarely goes to the pool.
  std::array<Frame*, 2 * kBatchFramesMax> frames_;
  size_t count_ = 0;
};

}  // namespace sluice
