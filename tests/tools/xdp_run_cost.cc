// What an XDP program costs a frame, by engine, beside the same C compiled by our compiler.
//
//   xdp_run_cost [--rounds N]                            all, alternating: the best round of each
//   xdp_run_cost --program NAME --engine NAME --rounds N one, for a profiler to count instructions
//
// A round copies 64 bytes into each of 4096 frames, in batches of 64, and runs the program over
// them: drop, count (looks at Ethernet, IPv4 and UDP and counts in an array) or lookup (an address
// in a hash). One JSON line a program and engine.
#include <getopt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/clock.h"
#include "memory/frame_pool.h"
#include "packet/checksum.h"
#include "testing/packet_builder.h"
#include "xdp/map.h"
#include "xdp/xdp_run.h"
#include "xdp_cost_code.h"

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
#include "xdp_cost_programs.h"

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

class Bench {
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
    Ipv4Fields fields;
    fields.source = {10, 0, static_cast<uint8_t>(host >> 8), static_cast<uint8_t>(host)};
    std::vector<uint8_t> bytes =
        packet().eth().ipv4(fields).udp(53, 1000).payload(22).build().bytes;
    SLUICE_ASSERT(bytes.size() == kPacketBytes);
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

int run(std::string_view program, std::string_view engine, uint64_t rounds) {
  Bench bench;
  if (!bench.is_usable()) {
    std::fprintf(stderr, "no memory below 4 GiB is free here\n");
    return 77;
  }
  int count = 0;
  for (const ProgramRow& row : kPrograms) {
    if (!program.empty() && program != row.name) continue;
    for (const char* name : kEngines) {
      if (!engine.empty() && engine != name) continue;
      ++count;
      std::printf(
          "{\"program\": \"%s\", \"engine\": \"%s\", \"frames\": %llu, "
          "\"ns_a_frame\": %.2f}\n",
          row.name, name, static_cast<unsigned long long>(rounds * kFrames),
          bench.run(row, name, rounds));
    }
  }
  return count > 0 ? 0 : 2;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  static const option words[] = {{"program", required_argument, nullptr, 'p'},
                                 {"engine", required_argument, nullptr, 'e'},
                                 {"rounds", required_argument, nullptr, 'r'},
                                 {nullptr, 0, nullptr, 0}};
  std::string_view program, engine;
  uint64_t rounds = 200;
  int got = 0;
  while ((got = ::getopt_long(argc, argv, "", words, nullptr)) != -1) {
    if (got == 'p') program = optarg;
    if (got == 'e') engine = optarg;
    if (got == 'r') rounds = std::strtoull(optarg, nullptr, 10);
    if (got == '?') return 2;
  }
  return sluice::run(program, engine, rounds);
}
