// One chain that is wrong, amid good ones: in each ring format, directly and in a table, on each
// way of a VM, with each kind of wake-up, alone and at the first, a middle and the last place of a
// batch. Whatever is wrong with it, it has the result that its row names, the good chains before it
// are carried intact (those behind it as well, where the ring lives on), the driver is told as it
// asked to be, and the same queue works with its next ring. The next cell proves the last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "port/vm_control_queue.h"
#include "testing/ring_formats.h"
#include "testing/vm_test_kit.h"

namespace sluice {
namespace {

enum class Way : uint8_t { from_guest, to_guest, control };
enum class WakeUp : uint8_t { poll, flags, event_idx };

constexpr uint32_t kRingSize = 256;
constexpr uint64_t kMemoryBytes = 64 << 20;
constexpr uint64_t kZeroes = kMemoryBytes - 4096;  // where nobody allocates that much
constexpr uint64_t kHeader = kNetHeaderBytes;
// What carry() says of something that is no good chain's.
constexpr size_t kSomethingElse = SIZE_MAX;

struct Cell {
  Way way;
  bool in_table;
  bool is_packed;
  bool in_order;
  WakeUp wake_up;
  size_t batch;
  size_t position;
};

// What becomes of the bad chain.
struct Expected {
  RingFault fault = RingFault::none;  // the ring is broken there
  std::optional<DropReason> drop;     // or nothing comes of it
  bool comes_through = false;         // or something does, which is no good chain's
};
Expected breaks(RingFault fault) { return {.fault = fault, .drop = {}}; }
Expected drops(DropReason reason) { return {.drop = reason}; }
Expected comes_through() { return {.drop = {}, .comes_through = true}; }

// --- The three ways -----------------------------------------------------------------------------

template <class Driver>
class WayRig {
 public:
  virtual ~WayRig() = default;
  virtual ChainBuilder good(size_t i) const = 0;
  virtual void start(uint64_t features) = 0;
  virtual void stop() = 0;
  // Carries a batch. The numbers of the good chains (to a guest: of the frames) that came through
  // intact, in their order, and kSomethingElse for what else came.
  virtual std::vector<size_t> carry(size_t batch) = 0;
  virtual DeviceRing& ring() = 0;
  virtual bool arm() = 0;
  virtual uint64_t dropped(DropReason reason) const = 0;

  void new_ring(const FakeDriverOptions& options) {
    driven = std::make_unique<BasicDrivenRing<Driver>>(guest, options);
  }

  FakeGuestMemory guest{{{.bytes = kMemoryBytes}}};
  std::unique_ptr<BasicDrivenRing<Driver>> driven;
  // What came back in carry(): chains, and bytes that the driver takes for written.
  size_t used_count = 0;
  uint64_t used_bytes = 0;

 protected:
  std::vector<FakeDriver::Used> take_all_used() {
    auto used = driven->driver.take_all_used();
    used_count = used.size();
    used_bytes = 0;
    for (const auto& entry : used) used_bytes += entry.bytes;
    return used;
  }
};

template <class Driver>
class FrameRig : public WayRig<Driver> {
 public:
  ~FrameRig() override {
    queue->stop(VmQueue::Side::from_guest);
    queue->stop(VmQueue::Side::to_guest);
    queue.reset();
    cache.reset();
    EXPECT_EQ(pool->frames_free(), pool->frames_total());
    EXPECT_EQ(pool->slabs_free(), pool->slabs_total());
  }

 protected:
  std::unique_ptr<FramePool> pool =
      std::move(*FramePool::create({.frame_count = 256, .slab_count = 4}));
  std::unique_ptr<FrameCache> cache = std::make_unique<FrameCache>(*pool);
  FaultBell bell = std::move(*FaultBell::create());
  std::unique_ptr<VmQueue> queue = std::move(*VmQueue::create(&bell));
};

template <class Driver>
class FromGuestRig final : public FrameRig<Driver> {
 public:
  static Bytes packet(size_t i) { return numbered_packet(60 + i, static_cast<uint8_t>(i)); }
  ChainBuilder good(size_t i) const override {
    return ChainBuilder{}.readable(net_header()).readable(packet(i));
  }
  void start(uint64_t features) override {
    ASSERT_TRUE(this->queue->start(VmQueue::Side::from_guest, this->driven->start(1, features)));
  }
  void stop() override { this->queue->stop(VmQueue::Side::from_guest); }
  std::vector<size_t> carry(size_t batch) override {
    std::vector<size_t> numbers;
    FrameBatch frames;
    this->queue->receive(frames, {.frames = batch}, *this->cache);
    for (Frame* frame : frames) {
      const Bytes bytes = content_of(*frame);
      const size_t i = bytes.size() - 60;
      numbers.push_back(i < 64 && bytes == packet(i) ? i : kSomethingElse);
      this->cache->give(frame);
    }
    this->queue->finish_breath();
    this->take_all_used();
    return numbers;
  }
  DeviceRing& ring() override { return this->queue->ring(VmQueue::Side::from_guest); }
  bool arm() override { return this->queue->arm(true, false); }
  uint64_t dropped(DropReason reason) const override {
    return sluice::drops(this->queue->received(), reason);
  }
};

template <class Driver>
class ToGuestRig final : public FrameRig<Driver> {
 public:
  static Bytes packet(size_t i) { return numbered_packet(60 + i, static_cast<uint8_t>(i)); }
  ChainBuilder good(size_t) const override { return ChainBuilder{}.writable(12).writable(1518); }
  void start(uint64_t features) override {
    this->queue->set_front_end_connected(true);
    ASSERT_TRUE(this->queue->start(VmQueue::Side::to_guest, this->driven->start(0, features)));
  }
  void stop() override {
    this->queue->set_front_end_connected(false);  // nobody is waited for
    this->queue->stop(VmQueue::Side::to_guest);
  }
  std::vector<size_t> carry(size_t batch) override {
    FrameBatch frames;
    for (size_t i = 0; i < batch; ++i) {
      Frame* frame = this->cache->take();
      const Bytes bytes = packet(i);
      std::memcpy(frame->data(), bytes.data(), bytes.size());
      frame->set_single(bytes.size());
      frame->offload() = {};
      frames.push(frame);
    }
    this->queue->transmit(frames);
    for (Frame* frame : frames) this->cache->give(frame);
    this->queue->finish_breath();
    std::vector<size_t> numbers;
    for (const auto& used : this->take_all_used()) {
      if (used.bytes == 0) continue;  // given back as it was
      const size_t i = used.bytes - kHeader - 60;
      const Bytes bytes =
          i < 64 ? joined(Bytes{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}, packet(i)) : Bytes{};
      numbers.push_back(used.data == bytes ? i : kSomethingElse);
    }
    return numbers;
  }
  DeviceRing& ring() override { return this->queue->ring(VmQueue::Side::to_guest); }
  bool arm() override { return this->queue->arm(false, true); }
  uint64_t dropped(DropReason reason) const override {
    return sluice::drops(this->queue->transmitted(), reason);
  }
};

struct NoCommands final : ControlCommands {
  bool control_queue_pairs(uint16_t) override { return false; }
  bool control_guest_offloads(uint64_t) override { return false; }
  bool control_rss(const RssRequest&) override { return false; }
  bool control_hash(const HashRequest&) override { return false; }
  bool control_mac(const MacAddress&) override { return false; }
  void control_announced() override {}
};

template <class Driver>
class ControlRig final : public WayRig<Driver> {
 public:
  ~ControlRig() override { control.ring().stop(); }
  ChainBuilder good(size_t) const override {
    return ChainBuilder{}.readable(Bytes{0, 0, 1}).writable(1);
  }
  void start(uint64_t features) override {
    control.ring().start(this->driven->start(2, features));
    control.serve();
  }
  void stop() override { control.ring().stop(); }
  std::vector<size_t> carry(size_t) override {
    control.serve();
    std::vector<size_t> numbers;
    for (const auto& used : this->take_all_used()) {
      const auto at = std::find(this->heads.begin(), this->heads.end(), used.head);
      if (used.bytes == 0) continue;
      const bool is_good = used.data == Bytes{0} && at != this->heads.end();
      numbers.push_back(is_good ? static_cast<size_t>(at - this->heads.begin()) : kSomethingElse);
    }
    return numbers;
  }
  DeviceRing& ring() override { return control.ring(); }
  bool arm() override { return false; }  // it always is, when it does not serve
  uint64_t dropped(DropReason) const override { return 0; }

  std::vector<uint16_t> heads;  // by number

 private:
  NoCommands commands;
  ControlQueue control{commands};
};

// --- What can be wrong --------------------------------------------------------------------------

// A chain of `way` with one buffer like any, and then one at `address`.
ChainBuilder with_buffer_at(Way way, uint64_t address, uint32_t bytes) {
  switch (way) {
    case Way::from_guest:
      return ChainBuilder{}.readable(net_header()).readable_at(address, bytes);
    case Way::to_guest:
      return ChainBuilder{}.writable(12).writable_at(address, bytes);
    case Way::control:
      break;
  }
  return ChainBuilder{}.readable(Bytes{0, 0, 1}).writable_at(address, bytes);
}

// A chain of nothing but buffers in the way's first direction.
ChainBuilder plain(Way way, std::initializer_list<uint32_t> pieces) {
  ChainBuilder chain;
  for (const uint32_t bytes : pieces)
    way == Way::to_guest ? chain.writable(bytes) : chain.readable(bytes);
  return chain;
}

struct Kind {
  const char* name;
  std::optional<ChainBuilder> (*chain)(Way);  // nullopt: not on this way
  Expected (*expected)(const Cell&);
};

// In a packed table of a way that only reads WRITE is not looked at.
bool reads_tables_only(const Cell& cell) {
  return cell.is_packed && cell.in_table && cell.way == Way::from_guest;
}

const Kind kKinds[] = {
    {"a buffer past all memory",
     [](Way way) { return std::optional(with_buffer_at(way, 1ull << 40, 64)); },
     [](const Cell&) { return breaks(RingFault::address_not_mapped); }},
    {"a buffer that ends one byte past memory",
     [](Way way) { return std::optional(with_buffer_at(way, kMemoryBytes - 1499, 1500)); },
     [](const Cell&) { return breaks(RingFault::address_not_mapped); }},
    {"a buffer that wraps past 2^64",
     [](Way way) { return std::optional(with_buffer_at(way, UINT64_MAX - 15, 32)); },
     [](const Cell&) { return breaks(RingFault::address_not_mapped); }},
    {"a buffer of nearly 4 GiB",
     [](Way way) { return std::optional(with_buffer_at(way, 0, 0xffff'f000)); },
     [](const Cell&) { return breaks(RingFault::address_not_mapped); }},
    {"the wrong direction",
     [](Way way) -> std::optional<ChainBuilder> {
       if (way == Way::from_guest) return ChainBuilder{}.readable(200).writable(100);
       if (way == Way::to_guest) return ChainBuilder{}.readable(12).writable(1518);
       return ChainBuilder{}.readable(Bytes{0, 0, 1});
     },
     [](const Cell& cell) {
       return reads_tables_only(cell) ? drops(DropReason::offload_not_negotiated)
                                      : breaks(RingFault::wrong_direction);
     }},
    {"readable behind writable",
     [](Way) { return std::optional(ChainBuilder{}.writable_at(kZeroes, 112).readable(60)); },
     [](const Cell& cell) {
       return reads_tables_only(cell) ? comes_through()
                                      : breaks(RingFault::readable_after_writable);
     }},
    {"too short for a header",
     [](Way way) {
       ChainBuilder chain = plain(way, {1});
       if (way == Way::control) chain.writable(1);
       return std::optional(chain);
     },
     [](const Cell& cell) {
       if (cell.way == Way::control) return comes_through();  // an answer: no
       return drops(cell.way == Way::from_guest ? DropReason::bad_net_header
                                                : DropReason::bad_chain);
     }},
    {"nothing but empty buffers",
     [](Way way) {
       return std::optional(plain(way, {0, 0, 0}));
     },
     [](const Cell& cell) {
       if (cell.way == Way::control) return breaks(RingFault::wrong_direction);
       return drops(cell.way == Way::from_guest ? DropReason::bad_net_header
                                                : DropReason::bad_chain);
     }},
    {"a frame too short",
     [](Way way) -> std::optional<ChainBuilder> {
       if (way != Way::from_guest) return std::nullopt;
       return ChainBuilder{}.readable(net_header()).readable(13);
     },
     [](const Cell&) { return drops(DropReason::runt); }},
    {"far too long, of one buffer many times",
     [](Way way) -> std::optional<ChainBuilder> {
       if (way == Way::to_guest) return std::nullopt;  // that is only room
       ChainBuilder chain;
       for (int i = 0; i < 20; ++i) chain.readable_at(0, 1 << 20);
       if (way == Way::control) chain.writable(1);
       return chain;
     },
     [](const Cell& cell) {
       return cell.way == Way::control ? comes_through() : drops(DropReason::oversize);
     }},
    {"4 GiB, of one buffer many times",
     [](Way way) {
       ChainBuilder chain;
       for (int i = 0; i < 64; ++i) {
         if (way == Way::to_guest) chain.writable_at(0, kMemoryBytes);
         if (way != Way::to_guest) chain.readable_at(0, kMemoryBytes);
       }
       return std::optional(chain);
     },
     [](const Cell&) { return breaks(RingFault::too_many_bytes); }},
};

// Faults that no builder makes: one descriptor of the ring, as both formats have it.
struct RawKind {
  const char* name;
  uint64_t address;
  uint32_t bytes;
  uint16_t flags;
  bool in_table;
  RingFault fault;
};
constexpr uint16_t kNext = FakeDriver::kNext, kIndirect = FakeDriver::kIndirect;
const RawKind kRawKinds[] = {
    {"a table of no bytes", 0x1000, 0, kIndirect, true, RingFault::indirect_table_size},
    {"a table of an entry and a byte", 0x1000, 17, kIndirect, true, RingFault::indirect_table_size},
    {"a table longer than the ring", 0x1000, 16 * (kRingSize + 1), kIndirect, true,
     RingFault::indirect_table_size},
    {"a table that is chained on", 0x1000, 16, kIndirect | kNext, true, RingFault::nested_indirect},
    {"a table that is nowhere", 1ull << 40, 16, kIndirect, true, RingFault::address_not_mapped},
    {"a table that wraps past 2^64", UINT64_MAX - 15, 32, kIndirect, true,
     RingFault::address_not_mapped},
    {"a chain without an end", 0x1000, 1, kNext, false, RingFault::chain_too_long},
};

void offer_raw(FakeDriver& driver, const RawKind& kind, Way way) {
  const uint16_t write = way == Way::to_guest && !kind.in_table ? FakeDriver::kWrite : uint16_t{0};
  driver.raw_descriptor(kRingSize - 1, {kind.address, kind.bytes,
                                        static_cast<uint16_t>(kind.flags | write), kRingSize - 1});
  driver.raw_offer(kRingSize - 1);
}
void offer_raw(FakePackedDriver& driver, const RawKind& kind, Way way) {
  const uint16_t write = way == Way::to_guest && !kind.in_table ? FakeDriver::kWrite : uint16_t{0};
  // Without an end: to the end of what is free.
  const size_t count = kind.in_table ? 1 : driver.free_descriptors();
  for (size_t i = 0; i < count; ++i)
    driver.raw_offer({kind.address, kind.bytes, 0, static_cast<uint16_t>(kind.flags | write)});
}

// --- One cell -----------------------------------------------------------------------------------

template <class Driver>
class CellRun {
 public:
  CellRun(WayRig<Driver>& rig, const Cell& cell) : rig_(rig), cell_(cell) {
    uint64_t features = feature::version_1 | feature::mrg_rxbuf | feature::indirect_desc;
    if (cell.is_packed) features |= feature::ring_packed;
    if (cell.wake_up == WakeUp::event_idx) features |= feature::event_idx;
    if (cell.in_order) features |= feature::in_order;
    rig.new_ring({.size = kRingSize,
                  .start_index = static_cast<uint16_t>(kRingSize - 32),
                  .event_idx = cell.wake_up == WakeUp::event_idx,
                  .in_order = cell.in_order});
    if (cell.wake_up == WakeUp::poll) rig.driven->driver.disable_interrupts();
    rig.start(features);
    if (cell.wake_up != WakeUp::poll) {
      EXPECT_FALSE(rig.arm());
    }
  }
  ~CellRun() { rig_.stop(); }

  void run(const ChainBuilder& chain, const Expected& expected) {
    for (size_t i = 0; i < cell_.batch; ++i) {
      if (i == cell_.position) {
        ChainBuilder bad = chain;
        if (cell_.in_table) bad.indirect();
        offer(bad);
      } else {
        offer_good(i);
      }
    }
    check(expected);
  }
  void run(const RawKind& kind) {
    for (size_t i = 0; i < cell_.position; ++i) offer_good(i);
    offer_raw(rig_.driven->driver, kind, cell_.way);
    heads_.push_back(0);
    // A chain without an end leaves a packed ring no room.
    for (size_t i = cell_.position + 1; i < cell_.batch && kind.in_table; ++i) offer_good(i);
    check(breaks(kind.fault));
  }

 private:
  void offer(const ChainBuilder& chain) {
    const auto head = rig_.driven->driver.offer(chain);
    ASSERT_TRUE(head);
    heads_.push_back(*head);
  }
  void offer_good(size_t i) {
    ChainBuilder chain = rig_.good(i);
    if (cell_.in_table) chain.indirect();
    offer(chain);
  }

  std::vector<size_t> numbers_expected(const Expected& expected) const {
    std::vector<size_t> numbers(cell_.batch);
    std::iota(numbers.begin(), numbers.end(), size_t{0});
    if (expected.fault != RingFault::none) {
      numbers.resize(cell_.position);
    } else if (expected.comes_through) {
      numbers[cell_.position] = kSomethingElse;
    } else if (cell_.way == Way::to_guest) {
      numbers.pop_back();  // a buffer less, and the frames in their order
    } else {
      numbers.erase(numbers.begin() + static_cast<ptrdiff_t>(cell_.position));
    }
    return numbers;
  }

  void check(const Expected& expected) {
    const bool is_wanted = cell_.way == Way::control || cell_.wake_up != WakeUp::poll;
    EXPECT_EQ(rig_.driven->driver.kick_wanted(), is_wanted);
    if (auto* control = dynamic_cast<ControlRig<Driver>*>(&rig_)) control->heads = heads_;
    const uint64_t drops_before = expected.drop ? rig_.dropped(*expected.drop) : 0;
    EXPECT_EQ(rig_.carry(cell_.batch), numbers_expected(expected));
    if (expected.drop) {
      EXPECT_EQ(rig_.dropped(*expected.drop), drops_before + 1);
    }
    EXPECT_EQ(rig_.ring().take_new_fault(), expected.fault);
    EXPECT_EQ(take_event(rig_.driven->error), expected.fault != RingFault::none ? 1u : 0u);
    const bool is_told = cell_.wake_up != WakeUp::poll && rig_.used_count > 0;
    EXPECT_EQ(take_event(rig_.driven->call), is_told ? 1u : 0u);
    // In a run all is used completely, and what a driver calls writable then is written to it.
    if (cell_.way == Way::from_guest && !(cell_.in_order && reads_tables_only(cell_))) {
      EXPECT_EQ(rig_.used_bytes, 0u);
    }
    // Nothing behind a fault was touched; otherwise all came back but what a guest has left to
    // fill.
    if (expected.fault != RingFault::none) {
      EXPECT_LE(rig_.used_count, cell_.position + 1);
    } else {
      EXPECT_EQ(rig_.used_count, cell_.batch);
    }
  }

  WayRig<Driver>& rig_;
  const Cell cell_;
  std::vector<uint16_t> heads_;
};

template <class Driver>
class VmFaultMatrix : public ::testing::Test {
 protected:
  static constexpr bool kIsPacked = std::is_same_v<Driver, FakePackedDriver>;

  template <class Rig>
  void run(Way way) {
    Rig rig;
    for (const bool in_table : {false, true}) {
      for (const bool in_order : {false, true}) {
        for (const WakeUp wake_up : {WakeUp::poll, WakeUp::flags, WakeUp::event_idx})
          run_places(rig, Cell{way, in_table, kIsPacked, in_order, wake_up, 1, 0});
      }
    }
  }

 private:
  void run_places(WayRig<Driver>& rig, Cell cell) {
    for (const auto& [batch, position] : {std::pair{1u, 0u}, {64u, 0u}, {64u, 31u}, {64u, 63u}}) {
      cell.batch = batch;
      cell.position = position;
      SCOPED_TRACE(testing::Message()
                   << (cell.in_table ? "in a table, " : "direct, ")
                   << (cell.in_order ? "in order, " : "") << "wake-up "
                   << static_cast<int>(cell.wake_up) << ", " << position << " of " << batch);
      run_cell(rig, cell);
    }
  }
  void run_cell(WayRig<Driver>& rig, const Cell& cell) {
    for (const Kind& kind : kKinds) {
      SCOPED_TRACE(kind.name);
      const auto chain = kind.chain(cell.way);
      if (chain) CellRun<Driver>(rig, cell).run(*chain, kind.expected(cell));
    }
    for (const RawKind& kind : kRawKinds) {
      SCOPED_TRACE(kind.name);
      if (kind.in_table == cell.in_table) CellRun<Driver>(rig, cell).run(kind);
    }
  }
};

TYPED_TEST_SUITE(VmFaultMatrix, RingFormats, RingFormatName);

TYPED_TEST(VmFaultMatrix, FromGuest) {
  this->template run<FromGuestRig<TypeParam>>(Way::from_guest);
}
TYPED_TEST(VmFaultMatrix, ToGuest) { this->template run<ToGuestRig<TypeParam>>(Way::to_guest); }
TYPED_TEST(VmFaultMatrix, Control) { this->template run<ControlRig<TypeParam>>(Way::control); }

}  // namespace
}  // namespace sluice
