#include "measure/xdp_run_cost.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "measure/xdp_cost_code.h"
#include "memory/frame_pool.h"
#include "packet/checksum.h"
#include "xdp/map.h"
#include "xdp/xdp_run.h"

namespace sluice {
namespace {

constexpr size_t kFrames = 4096;
constexpr size_t kPacketBytes = 64;
constexpr uint32_t kHostCount = 1000;  // of which every second is in the hash

// The maps, as native code finds them: the array at its place, the hash by a call.
ArrayLayout counters;
XdpMap* entries = nullptr;
HelperFunction lookup_helper = nullptr;

template <typename T>
T* in_counters(const uint32_t* index) {
  if (*index >= counters.max_entries) return nullptr;
  return reinterpret_cast<T*>(counters.base + size_t{*index} * counters.stride);
}
__u64* in_entries(const uint32_t* key) {
  return reinterpret_cast<__u64*>(
      lookup_helper(reinterpret_cast<uint64_t>(entries), reinterpret_cast<uint64_t>(key), 0, 0, 0));
}

#define COST_COUNTER(index) in_counters<cost_counter>(index)
#define COST_ENTRY(key) in_entries(key)
#include "measure/xdp_cost_programs.h"

template <int (*program)(const xdp_md*)>
uint64_t native(uint64_t r1, uint64_t, uint64_t, uint64_t, uint64_t) {
  return static_cast<uint32_t>(program(reinterpret_cast<const xdp_md*>(r1)));
}

struct ProgramRow {
  const char* name;
  std::span<const Instruction> code;
  HelperFunction native;
  bool uses_hash;
};
const ProgramRow kPrograms[] = {{"drop", kCostDrop, native<cost_drop>, false},
                                {"count", kCostCount, native<cost_count>, false},
                                {"lookup", kCostLookup, native<cost_lookup>, true}};
const char* const kEngines[] = {"native", "compiled", "interpreted", "checked"};

}  // namespace

class XdpRunCost::Bench {
 public:
  Bench() {
    array_ = std::move(*create_map({.type = BPF_MAP_TYPE_ARRAY,
                                    .key_size = 4,
                                    .value_size = sizeof(cost_counter),
                                    .max_entries = 8},
                                   {}));
    hash_ = std::move(*create_map(
        {.type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = 8, .max_entries = 1024}, {}));
    counters = *array_->ref().array;
    entries = hash_.get();
    lookup_helper = standard_helpers().find(kHelperMapLookup);
    for (uint32_t host = 0; host < kHostCount; ++host) {
      packets_.push_back(packet_from(host));
      uint32_t key = 0;
      std::memcpy(&key, &packets_.back()[26], sizeof key);
      const uint64_t zero = 0;
      if (host % 2 == 0) SLUICE_ASSERT(hash_->write(&key, &zero, BPF_ANY) == 0);
    }
    for (Frame*& frame : frames_) frame = cache_->take();
  }
  ~Bench() {
    for (Frame* frame : frames_) cache_->give(frame);
  }
  bool is_usable() const { return pool_->below_4gib(); }

  // Nanoseconds a frame of each round, the best.
  double run(const ProgramRow& row, std::string_view engine, uint64_t rounds) {
    const std::unique_ptr<XdpProgram> program = make(row, engine);
    uint64_t best = UINT64_MAX;
    for (uint64_t i = 0; i < rounds; ++i) {
      const uint64_t begin = monotonic_ns();
      run_round(row, program.get());
      best = std::min(best, monotonic_ns() - begin);
    }
    return static_cast<double>(best) / kFrames;
  }

 private:
  static std::vector<uint8_t> packet_from(uint32_t host) {
    // Ethernet, IPv4 (UDP, 50 bytes), ports 53 and 1000; sums are nobody's concern here.
    std::vector<uint8_t> bytes = {2,    0, 0,  0,  0, 1, 2, 0,  0,  0,   0, 2,  8,  0,
                                  0x45, 0, 0,  50, 0, 0, 0, 0,  64, 17,  0, 0,  10, 0,
                                  0,    0, 10, 0,  0, 1, 0, 53, 3,  232, 0, 30, 0,  0};
    bytes[28] = static_cast<uint8_t>(host >> 8);
    bytes[29] = static_cast<uint8_t>(host);
    bytes.resize(kPacketBytes);
    return bytes;
  }

  // Null: native.
  std::unique_ptr<XdpProgram> make(const ProgramRow& row, std::string_view engine) {
    if (engine == "native") return nullptr;
    const MapRef maps[] = {row.uses_hash ? hash_->ref() : array_->ref()};
    XdpProgram::Options options;
    options.engine = engine == "compiled"      ? XdpProgram::Engine::compiled
                     : engine == "interpreted" ? XdpProgram::Engine::interpreted
                                               : XdpProgram::Engine::checked;
    auto made = XdpProgram::create({row.code, maps}, options);
    if (!made) std::fprintf(stderr, "%s\n", made.error().text.c_str());
    SLUICE_ASSERT(static_cast<bool>(made));
    return std::move(*made);
  }

  void run_round(const ProgramRow& row, const XdpProgram* program) {
    const RunPlace place{.port_number = 1, .complete_checksum = complete_checksum};
    for (size_t at = 0; at < kFrames; at += kBatchFramesMax) {
      FrameBatch batch;
      for (size_t i = at; i < at + kBatchFramesMax; ++i) {
        Frame* frame = frames_[i];
        std::memcpy(frame->data(), packets_[i % kHostCount].data(), kPacketBytes);
        frame->set_single(kPacketBytes);
        batch.push(frame);
      }
      if (program != nullptr)
        run_batch(*program, batch, place, verdicts_);
      else
        run_native_batch(row.native, batch, place, verdicts_);
    }
  }

  std::unique_ptr<FramePool> pool_ =
      std::move(*FramePool::create({.frame_count = kFrames + 256, .slab_count = 1}));
  std::unique_ptr<FrameCache> cache_ = std::make_unique<FrameCache>(*pool_);
  std::array<Frame*, kFrames> frames_{};
  std::vector<std::vector<uint8_t>> packets_;
  std::unique_ptr<XdpMap> array_, hash_;
  XdpVerdicts verdicts_;
};

XdpRunCost::XdpRunCost() : bench_(std::make_unique<Bench>()) {}
XdpRunCost::~XdpRunCost() = default;

std::span<const char* const> XdpRunCost::programs() {
  static constexpr const char* kNames[] = {"drop", "count", "lookup"};
  static_assert(std::size(kNames) == std::size(kPrograms));
  return kNames;
}
std::span<const char* const> XdpRunCost::engines() { return kEngines; }
bool XdpRunCost::is_usable() const { return bench_->is_usable(); }

double XdpRunCost::run(std::string_view program, std::string_view engine, uint64_t rounds) {
  for (const ProgramRow& row : kPrograms)
    if (program == row.name) return bench_->run(row, engine, rounds);
  return 0;
}

}  // namespace sluice
