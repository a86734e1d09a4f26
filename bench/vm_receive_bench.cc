// What a frame costs from a guest's ring into our memory, and back: one VmQueue, one thread, no
// other side that runs. The driver's part is done before: descriptors are written once, and only
// the available index moves ("stuffed" ring). Caches are as warm as they never are in life, so this
// counts our own instructions; what two cores do to one another is for `sluice bench`.
#include <benchmark/benchmark.h>

#include "port/vm_queue.h"
#include "testing/fake_driver.h"
#include "virtio/features.h"

namespace sluice {
namespace {

constexpr uint32_t kRingSize = 256;
constexpr uint32_t kBurst = 64;

struct Stuffed {
  explicit Stuffed(uint64_t features, uint32_t packet_bytes, bool two_pieces)
      : driver(guest, {.size = kRingSize, .event_idx = (features & feature::event_idx) != 0}),
        queue(std::move(*VmQueue::create(&bell))) {
    const uint64_t buffers = guest.allocate(uint64_t{kRingSize} * 4096, 4096);
    for (uint32_t i = 0; i < kRingSize / 2; ++i) {
      ChainBuilder chain;
      const uint64_t at = buffers + uint64_t{i} * 4096;
      if (two_pieces)
        chain.readable_at(at, kNetHeaderBytes).readable_at(at + 64, packet_bytes);
      else
        chain.readable_at(at, kNetHeaderBytes + packet_bytes);
      SLUICE_ASSERT(driver.stage(chain).has_value());
    }
    const SplitQueueSetup setup = driver.setup();
    RingStart start;
    start.index = 1;
    start.size = kRingSize;
    start.features = features;
    start.descriptors = setup.descriptors;
    start.available = setup.available;
    start.used = setup.used;
    start.memory = setup.memory;
    start.enabled = true;
    queue->set_front_end_connected(true);
    SLUICE_ASSERT(static_cast<bool>(queue->start(VmQueue::Side::from_guest, std::move(start))));
    // The second half of the available ring repeats the first.
    for (uint16_t i = kRingSize / 2; i < kRingSize; ++i)
      driver.raw_available_entry(i, heads(i - kRingSize / 2));
  }
  ~Stuffed() { queue->stop(VmQueue::Side::from_guest); }
  uint16_t heads(uint32_t position) {
    uint16_t head = 0;
    std::memcpy(&head, guest.at(driver.available_address() + 4 + 2 * position, 2), 2);
    return head;
  }
  void offer_burst() { driver.raw_available_index(index = static_cast<uint16_t>(index + kBurst)); }

  FakeGuestMemory guest{{{.bytes = 16 << 20}}};
  FaultBell bell = std::move(*FaultBell::create());
  FakeDriver driver;
  std::unique_ptr<VmQueue> queue;
  uint16_t index = 0;
};

void from_guest(benchmark::State& state) {
  Stuffed ring(feature::version_1 | feature::mrg_rxbuf | (state.range(1) ? feature::event_idx : 0) |
                   (state.range(2) ? feature::in_order : 0),
               static_cast<uint32_t>(state.range(0)), state.range(3) != 0);
  auto pool = std::move(*FramePool::create({.frame_count = 512, .slab_count = 4}));
  FrameCache cache(*pool);
  for (auto _ : state) {
    ring.offer_burst();
    FrameBatch batch;
    ring.queue->receive(batch, {}, cache);
    SLUICE_ASSERT(batch.size() == kBurst);
    for (Frame* frame : batch) cache.give(frame);
    ring.queue->finish_breath();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * kBurst);
  state.counters["ns_a_frame"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kBurst / 1e9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(from_guest)
    ->ArgNames({"bytes", "event_idx", "in_order", "two_pieces"})
    ->ArgsProduct({{64, 1500}, {0, 1}, {0, 1}, {0, 1}});

}  // namespace
}  // namespace sluice
