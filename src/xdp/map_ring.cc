#include "xdp/map_ring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "base/fd.h"
#include "xdp/map_kinds.h"

namespace sluice {

namespace {

// What libbpf's examples give each processor: 64 pages.
constexpr size_t kPerfRingBytes = 256 * 1024;

Result<MapMemory> map_twice(size_t bytes) {
  const Fd file(::memfd_create("sluice_ring", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return fail("no memory file of {} bytes: {}", bytes, errno_text(errno));
  }
  void* place = ::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED)
    return fail("no {} bytes of addresses: {}", 2 * bytes, errno_text(errno));
  MapMemory memory = MapMemory::adopt(place, 2 * bytes);
  for (const size_t at : {size_t{0}, bytes}) {
    if (::mmap(memory.data() + at, bytes, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_FIXED | MAP_POPULATE, file.get(), 0) == MAP_FAILED) {
      return fail("a ring of {} bytes cannot be mapped: {}", bytes, errno_text(errno));
    }
  }
  return memory;
}

}  // namespace

Result<std::unique_ptr<RecordRing>> RecordRing::create(size_t bytes) {
  SLUICE_ASSERT(std::has_single_bit(bytes));
  Result<MapMemory> memory = map_twice(bytes);
  if (!memory) return fail(memory.error());
  return std::unique_ptr<RecordRing>(new RecordRing(std::move(*memory), bytes));
}

// [pairs with drain] The header is marked busy before the reader can see that it is there.
uint8_t* RecordRing::reserve(uint64_t bytes) {
  const uint64_t room = round_up(bytes + sizeof(Header), 8);
  if (bytes <= kRecordBytesMax && room <= size_) {
    std::lock_guard guard(lock_);
    const uint64_t position = produced_.load_relaxed();
    // One byte less than all, as in the kernel.
    if (position + room - consumed_.load_acquire() < size_) {
      Header& header = header_at(position);
      header.length.store_relaxed(static_cast<uint32_t>(bytes) | kBusy);
      produced_.store_release(position + room);
      return reinterpret_cast<uint8_t*>(&header + 1);
    }
  }
  dropped_.fetch_add_relaxed(1);
  return nullptr;
}

void RecordRing::finish(uint8_t* record, bool is_discarded) {
  Header& header = *(reinterpret_cast<Header*>(record) - 1);
  const uint32_t length = header.length.load_relaxed() & ~kBusy;
  header.length.store_release(length | (is_discarded ? kDiscarded : 0));
}

bool RecordRing::output(std::span<const uint8_t> first, std::span<const uint8_t> second) {
  uint8_t* record = reserve(first.size() + second.size());
  if (record == nullptr) return false;
  if (!first.empty()) std::memcpy(record, first.data(), first.size());
  if (!second.empty()) std::memcpy(record + first.size(), second.data(), second.size());
  finish(record, false);
  return true;
}

size_t RecordRing::drain(const std::function<void(std::span<const uint8_t>)>& take) {
  const uint64_t end = produced_.load_acquire();
  size_t taken = 0;
  for (uint64_t at = consumed_.load_relaxed(); at < end;) {
    Header& header = header_at(at);
    const uint32_t length = header.length.load_acquire();
    if ((length & kBusy) != 0) break;
    const uint32_t bytes = length & ~kDiscarded;
    if ((length & kDiscarded) == 0) {
      take({reinterpret_cast<const uint8_t*>(&header + 1), bytes});
      ++taken;
    }
    at += round_up(bytes + sizeof(Header), 8);
    consumed_.store_release(at);
  }
  return taken;
}

RecordRing* RecordRingMap::ring(uint32_t worker) {
  if (shape().type == BPF_MAP_TYPE_RINGBUF) return rings_[0].get();
  return worker < rings_.size() && worker < shape().max_entries ? rings_[worker].get() : nullptr;
}

size_t RecordRingMap::drain(const RecordCallback& take) {
  size_t taken = 0;
  for (uint32_t worker = 0; worker < rings_.size(); ++worker) {
    taken += rings_[worker]->drain([&](std::span<const uint8_t> record) { take(worker, record); });
  }
  return taken;
}

uint64_t RecordRingMap::dropped() const {
  uint64_t sum = 0;
  for (const auto& ring : rings_) sum += ring->dropped();
  return sum;
}

MapResult make_record_ring(const MapShape& shape, const MapOptions& options) {
  const bool is_ringbuf = shape.type == BPF_MAP_TYPE_RINGBUF;
  const auto page_bytes = static_cast<uint32_t>(::sysconf(_SC_PAGESIZE));
  if (is_ringbuf && (!std::has_single_bit(shape.max_entries) || shape.max_entries < page_bytes)) {
    return fail("{} bytes: a ring needs a power of two, and at least {}", shape.max_entries,
                page_bytes);
  }
  std::vector<std::unique_ptr<RecordRing>> rings;
  for (uint32_t i = 0; i < (is_ringbuf ? 1 : options.worker_count); ++i) {
    Result<std::unique_ptr<RecordRing>> ring =
        RecordRing::create(is_ringbuf ? shape.max_entries : kPerfRingBytes);
    if (!ring) return fail(ring.error());
    rings.push_back(std::move(*ring));
  }
  return MapResult(std::make_unique<RecordRingMap>(shape, options, std::move(rings)));
}

}  // namespace sluice
