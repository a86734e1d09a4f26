// FakePackedDriver: the driver's side of one packed virtqueue, for tests, fuzzers and benchmarks.
// It has the methods of FakeDriver where a packed ring has something to answer, so that one test
// can be about either format.
//
// Written from the specification, and on purpose without the device side's layout, positions or
// fence: places are stepped slot by slot, and events are found by walking to them. It behaves,
// unless told otherwise by the raw_ calls, which write anything anywhere.
//
// What a device must not rely on is arbitrary here: buffer ids have nothing to do with slots or
// with the ring's size, and descriptors of a chain before its last carry another id.
//
//   FakeGuestMemory guest;
//   FakePackedDriver driver(guest, {.size = 5, .event_idx = true});
//   PackedQueue queue(driver.setup());
//   driver.offer(ChainBuilder{}.readable(60));
//
// With IN_ORDER one used descriptor may stand for a run of buffers; they come out one by one, those
// before its own as used completely. [virtio 2.8.8]
//
// One thread drives it; the device may live in another.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "testing/chain_builder.h"
#include "testing/fake_driver.h"
#include "testing/fake_guest_memory.h"
#include "testing/placed_chain.h"
#include "virtio/packed_queue.h"

namespace sluice {

// A descriptor as raw_descriptor() writes it. [virtio 2.8.13]
struct RawPackedDescriptor {
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint16_t id = 0;
  uint16_t flags = 0;
};

class FakePackedDriver {
 public:
  using Queue = PackedQueue;  // whose counterpart this is
  using Used = FakeDriver::Used;
  using UsedEntry = FakeDriver::UsedEntry;
  static constexpr uint16_t kNext = 1, kWrite = 2, kIndirect = 4;
  static constexpr uint16_t kAvail = 0x80, kUsed = 0x8000;
  static constexpr uint16_t kEventOn = 0, kEventOff = 1, kEventPlace = 2;
  // A slot and the wrap counter that goes with it.
  struct Place {
    uint32_t index = 0;
    bool wrap = true;
    bool operator==(const Place&) const = default;
  };

  FakePackedDriver(FakeGuestMemory& guest, const FakeDriverOptions& options);

  // What the device needs for its side, to go on behind what was taken back.
  PackedQueueSetup setup() const;
  uint64_t descriptors_address() const { return descriptors_; }
  uint64_t device_event_address() const { return device_event_; }
  uint32_t size() const { return size_; }

  // As FakeDriver; what is returned is the chain's buffer id. At most a ring full can be staged.
  std::optional<uint16_t> offer(const ChainBuilder& chain);
  std::optional<uint16_t> stage(const ChainBuilder& chain);
  // All that was staged appears at once: the flags of its first descriptor are written last.
  void make_available();
  void offer_again(uint16_t id);
  std::optional<Used> take_used();
  std::vector<Used> take_all_used();
  std::optional<UsedEntry> take_used_entry();
  bool has_used() const { return run_is_open_ || is_used(last_used_); }
  size_t free_descriptors() const { return free_slots_; }
  size_t outstanding() const { return outstanding_; }

  bool kick_wanted();
  bool enable_interrupts();
  void disable_interrupts();
  bool interrupt_expected() const;

  // --- Raw access, for hostile drivers and for looking at what the device wrote. ---
  Place next_available() const { return next_; }
  Place last_used() const { return last_used_; }
  void step(Place& place, uint64_t slots) const;
  static uint16_t event_word(Place place);
  static uint16_t available_bits(bool wrap);
  static uint16_t used_bits(bool wrap);
  void raw_descriptor(uint32_t index, const RawPackedDescriptor& descriptor);
  RawPackedDescriptor read_descriptor(uint32_t index) const;
  static void encode(const RawPackedDescriptor& descriptor, uint8_t* out);  // 16 bytes
  // A descriptor at the next place, available whatever else it says; the place moves by one. Slots
  // are not counted. Only the flags' lower 7 bits are taken.
  void raw_offer(const RawPackedDescriptor& descriptor);
  void raw_driver_event(uint16_t offset_wrap, uint16_t flags);
  void raw_device_event(uint16_t offset_wrap, uint16_t flags);  // written by the driver
  void scribble(uint8_t value);                                 // over every descriptor of the ring
  uint16_t device_event_flags() const;
  uint16_t device_event_place() const;

 private:
  struct Posted {
    PlacedChain placed;
    uint32_t slots = 0;
    bool has_table = false;
  };
  bool is_used(Place place) const;
  void write_table(const ChainBuilder& chain, PlacedChain& placed);
  void write_chain(uint16_t id);
  Posted& posted(uint16_t id);
  uint32_t slots_of(uint16_t id) const;  // 0 of what is no id of ours
  UsedEntry take_of_run();

  FakeGuestMemory& guest_;
  uint32_t size_;
  bool event_idx_;
  bool indirect_;
  bool in_order_;
  uint64_t descriptors_;
  uint64_t driver_event_;
  uint64_t device_event_;
  uint8_t* descriptors_host_;
  uint8_t* driver_event_host_;
  uint8_t* device_event_host_;
  std::vector<uint16_t> free_ids_;
  std::vector<Posted> posted_;  // by the id's number
  std::deque<uint16_t> order_;  // IN_ORDER: what the device has
  size_t free_slots_;
  size_t outstanding_ = 0;
  Place next_;
  Place last_used_;
  uint64_t staged_slots_ = 0;
  uint8_t* held_flags_at_ = nullptr;  // of the first descriptor that was staged
  uint16_t held_flags_ = 0;
  Place kicked_;              // up to here the device was asked about
  uint64_t shown_slots_ = 0;  // made available since
  bool run_is_open_ = false;  // IN_ORDER: up to and with run_id_ all are used
  uint16_t run_id_ = 0;
  uint32_t run_bytes_ = 0;
  Place wished_;
  bool interrupts_on_ = true;
};

}  // namespace sluice
