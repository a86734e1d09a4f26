#include "engine/ring_bench.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "virtio/device_side.h"
#include "virtio/split_driver.h"

namespace sluice {
namespace {

constexpr uint32_t kBufferBytes = 2048;
constexpr uint64_t kWarmUpChains = 100'000;

// Memory that a ring and its buffers lie in, one piece behind the other.
class BenchMemory {
 public:
  static Result<BenchMemory> make(uint64_t bytes) {
    Fd file(::memfd_create("sluice-bench", MFD_CLOEXEC));
    if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
      return fail("no memory for the benchmark ({} bytes): {}", bytes, errno_text(errno));
    GuestMemory::Builder builder;
    if (auto added = builder.add({GuestAddr{0}, bytes, FrontendAddr{0}, 0}, file); !added)
      return fail(added.error());
    BenchMemory memory;
    memory.memory_ = builder.build();
    return memory;
  }
  // The next `bytes`, aligned to a page: areas do not share cache lines by chance.
  GuestAddr take(uint64_t bytes) {
    const GuestAddr address{next_};
    next_ += (bytes + 4095) / 4096 * 4096;
    return address;
  }
  GuestSpan span(GuestAddr address, uint64_t bytes) const {
    const auto span = memory_->translate(address, bytes);
    SLUICE_ASSERT(span);
    return *span;
  }
  std::shared_ptr<const GuestMemory> share() const { return memory_; }

 private:
  std::shared_ptr<const GuestMemory> memory_;
  uint64_t next_ = 0;
};

template <typename Driver>
DriverRingSetup make_setup(BenchMemory& memory, const RingBenchCase& bench_case) {
  const uint32_t size = bench_case.ring_size;
  const auto area = [&](size_t bytes) { return memory.span(memory.take(bytes), bytes); };
  DriverRingSetup setup;
  setup.size = size;
  setup.event_idx = bench_case.event_idx;
  setup.in_order = bench_case.in_order;
  setup.indirect = bench_case.indirect;
  setup.descriptors = area(Driver::descriptors_bytes(size));
  setup.driver_area = area(Driver::driver_area_bytes(size));
  setup.device_area = area(Driver::device_area_bytes(size));
  if (bench_case.indirect) {
    const uint64_t bytes = uint64_t{sizeof(SplitDescriptor)} * bench_case.pieces * size;
    setup.tables_address = memory.take(bytes);
    setup.tables = memory.span(setup.tables_address, bytes);
    setup.table_entries = static_cast<uint16_t>(bench_case.pieces);
    setup.direct_pieces_max = 0;
  }
  return setup;
}

template <typename Driver, typename Queue>
class Bench {
 public:
  Bench(const RingBenchCase& bench_case, BenchMemory& memory)
      : case_(bench_case),
        setup_(make_setup<Driver>(memory, bench_case)),
        driver_(setup_),
        queue_(device_side_of<Driver>(setup_, memory.share())),
        spans_(kChainSpansMax),
        pieces_(size_t{bench_case.burst} * bench_case.pieces) {
    for (BufferPiece& piece : pieces_) piece = {memory.take(kBufferBytes), kBufferBytes};
    queue_.disable_kicks();
    driver_.disable_callbacks();
  }

  RingBenchResult run(uint64_t chains) {
    RingBenchResult result;
    const uint64_t begin_ns = monotonic_ns();
    for (; result.chains < chains; result.chains += case_.burst) round();
    result.ns = monotonic_ns() - begin_ns;
    return result;
  }

 private:
  void round() {
    const bool readable = case_.direction == RingDirection::from_guest;
    const std::span<const BufferPiece> all(pieces_);
    for (uint32_t i = 0; i < case_.burst; ++i) {
      const auto chain = all.subspan(size_t{i} * case_.pieces, case_.pieces);
      const auto none = chain.first(0);
      const bool added =
          driver_.add(readable ? chain : none, readable ? none : chain, static_cast<uint16_t>(i));
      SLUICE_ASSERT(added);
    }
    driver_.publish();
    kicks_ += driver_.device_wants_kick() ? 1 : 0;
    serve(readable ? 0 : kBufferBytes);
    UsedBuffer used;
    uint32_t taken = 0;
    while (driver_.take_used(used) == Take::used) ++taken;  // bounded by what was added
    SLUICE_ASSERT(taken == case_.burst);
  }

  // In batches, as a port does: from the guest they are taken at once, towards it one by one.
  void serve(uint32_t written_bytes) {
    for (uint32_t done = 0; done < case_.burst;) {
      const size_t wanted = std::min<size_t>(case_.burst - done, chains_.size());
      spans_.clear();
      if (written_bytes == 0) {
        Pop end{};
        const uint16_t popped =
            queue_.pop_batch(spans_, chains_.data(), static_cast<uint16_t>(wanted), end);
        SLUICE_ASSERT(popped == wanted);
      } else {
        for (size_t i = 0; i < wanted; ++i) {
          const Pop pop = queue_.pop(spans_, chains_[i]);
          SLUICE_ASSERT(pop == Pop::chain);
        }
      }
      for (size_t i = 0; i < wanted; ++i) queue_.complete(std::move(chains_[i]), written_bytes);
      queue_.publish();
      notifications_ += queue_.driver_wants_notification() ? 1 : 0;
      done += static_cast<uint32_t>(wanted);
    }
  }

  const RingBenchCase case_;
  const DriverRingSetup setup_;
  Driver driver_;
  Queue queue_;
  SpanList spans_;
  std::array<Chain, kBatchFramesMax> chains_;
  std::vector<BufferPiece> pieces_;
  // With event indices a fresh ring's first ones are due unasked; nobody waits for them here.
  uint64_t kicks_ = 0;
  uint64_t notifications_ = 0;
};

template <typename Driver, typename Queue>
RingBenchResult run(const RingBenchCase& bench_case, uint64_t chains, BenchMemory& memory) {
  Bench<Driver, Queue> bench(bench_case, memory);
  (void)bench.run(std::min(chains, kWarmUpChains));
  return bench.run(chains);
}

}  // namespace

std::span<const RingBenchCase> ring_bench_cases() {
  using enum RingDirection;
  // Each format with the same rows, side by side.
  static const auto cases = [] {
    std::vector<RingBenchCase> all;
    const auto both = [&all](RingBenchCase row) {
      for (const RingFormat format : {RingFormat::split, RingFormat::packed}) {
        row.format = format;
        all.push_back(row);
      }
    };
    for (const RingDirection direction : {from_guest, to_guest}) {
      for (const bool event_idx : {false, true}) {
        for (const bool in_order : {false, true})
          both({.direction = direction, .event_idx = event_idx, .in_order = in_order});
      }
      both({.direction = direction, .event_idx = true, .pieces = 2});
      both({.direction = direction, .event_idx = true, .indirect = true, .pieces = 2});
      both({.direction = direction, .event_idx = true, .burst = 1});
      both({.direction = direction, .event_idx = true, .ring_size = 1024, .burst = 256});
    }
    return all;
  }();
  return cases;
}

std::string ring_bench_name(const RingBenchCase& bench_case) {
  std::string name = bench_case.format == RingFormat::split ? "split" : "packed";
  name += bench_case.direction == RingDirection::from_guest ? " from_guest" : " to_guest";
  if (bench_case.event_idx) name += " event_idx";
  if (bench_case.in_order) name += " in_order";
  if (bench_case.indirect) name += " indirect";
  if (bench_case.pieces != 1) name += fmt::format(" {} pieces", bench_case.pieces);
  if (bench_case.ring_size != 256) name += fmt::format(" ring {}", bench_case.ring_size);
  if (bench_case.burst != 64) name += fmt::format(" burst {}", bench_case.burst);
  return name;
}

Result<RingBenchResult> run_ring_bench(const RingBenchCase& bench_case, uint64_t chains) {
  const uint32_t size = bench_case.ring_size;
  const bool is_split = bench_case.format == RingFormat::split;
  if (size == 0 || size > kRingSizeMax || (is_split && !std::has_single_bit(size)))
    return usage_failure("a ring of {}: choose a power of two up to {}", size, kRingSizeMax);
  const uint64_t slots = uint64_t{bench_case.burst} * (bench_case.indirect ? 1 : bench_case.pieces);
  if (bench_case.burst == 0 || bench_case.pieces == 0 || slots > size || bench_case.pieces > size)
    return usage_failure("a burst of {} chains of {} pieces has no room on a ring of {}",
                         bench_case.burst, bench_case.pieces, size);
  const uint64_t pieces = uint64_t{bench_case.burst} * bench_case.pieces;
  const uint64_t tables = bench_case.indirect ? 16 * uint64_t{bench_case.pieces} * size : 0;
  auto memory = BenchMemory::make(64 * 1024 + 64 * uint64_t{size} + tables + 4096 * pieces);
  if (!memory) return fail(memory.error());
  chains = std::max<uint64_t>(chains, 1);
  if (is_split) return run<SplitDriver, SplitQueue>(bench_case, chains, *memory);
  return run<PackedDriver, PackedQueue>(bench_case, chains, *memory);
}

}  // namespace sluice
