// Ways for a program to tell a control thread something: ringbuf and perf_event_array.
//
// RecordRing is a ring of bytes in which records lie one behind the other, as the kernel's BPF ring
// buffer has them: a header of 8 bytes with the length, then the data, all rounded up to 8. Its
// pages are mapped twice in a row, so that a record that goes over the end is in one piece. Workers
// reserve a place under a short lock and write into it without one; one control thread takes
// records out, in order, and stops at the first that is still being written. What finds no room is
// counted and gone.
//
// A ringbuf map is one such ring for all workers, of max_entries bytes. A perf_event_array has one
// for each worker; that a program finds an open event there is taken for granted, and entries that
// it names but that are not its worker's get -EOPNOTSUPP, as in the kernel. Neither wakes anybody:
// the control thread comes by.
//
//   map->drain([](uint32_t worker, std::span<const uint8_t> record) { … });
#pragma once

#include <cerrno>
#include <functional>
#include <span>
#include <vector>

#include "xdp/map.h"
#include "xdp/map_lock.h"
#include "xdp/map_memory.h"

namespace sluice {

class RecordRing {
 public:
  // `bytes`: a power of two, and whole pages.
  static Result<std::unique_ptr<RecordRing>> create(size_t bytes);

  // Room for a record; null, and counted, if there is none. Whoever got it must finish it.
  uint8_t* reserve(uint64_t bytes);
  // Needs no ring: the record's header lies in front of it. The reader skips a discarded one.
  static void finish(uint8_t* record, bool is_discarded);
  // Two parts as one record; false if there is no room.
  bool output(std::span<const uint8_t> first, std::span<const uint8_t> second = {});

  // Gives each finished record to `take`, at most those that were there at the start.
  size_t drain(const std::function<void(std::span<const uint8_t>)>& take);

  uint64_t size() const { return size_; }
  uint64_t produced() const { return produced_.load_acquire(); }
  uint64_t consumed() const { return consumed_.load_acquire(); }
  uint64_t dropped() const { return dropped_.load_relaxed(); }

 private:
  struct Header {
    SharedWord<uint32_t> length;  // bytes of the record, kBusy, kDiscarded
    uint32_t unused;
  };
  static_assert(sizeof(Header) == 8);
  static constexpr uint32_t kBusy = 1U << 31;
  static constexpr uint32_t kDiscarded = 1U << 30;
  static constexpr uint64_t kRecordBytesMax = kDiscarded - 1;  // the kernel's bound

  RecordRing(MapMemory memory, size_t bytes) : memory_(std::move(memory)), size_(bytes) {}
  Header& header_at(uint64_t position) const {
    return *reinterpret_cast<Header*>(memory_.data() + position % size_);
  }

  const MapMemory memory_;  // the same pages twice
  const uint64_t size_;
  SpinLock lock_;  // between workers that reserve
  SharedWord<uint64_t> produced_{};
  SharedWord<uint64_t> consumed_{};
  SharedWord<uint64_t> dropped_{};
};

class RecordRingMap : public XdpMap {
 public:
  RecordRingMap(const MapShape& shape, const MapOptions& options,
                std::vector<std::unique_ptr<RecordRing>> rings)
      : XdpMap(shape, options), rings_(std::move(rings)) {}
  uint8_t* lookup(const void*) override { return nullptr; }
  int read(const void*, void*) override { return -EOPNOTSUPP; }
  RecordRing* ring(uint32_t worker) override;
  size_t drain(const RecordCallback& take) override;
  uint64_t dropped() const override;

 private:
  // One, or one a worker.
  const std::vector<std::unique_ptr<RecordRing>> rings_;
};

}  // namespace sluice
