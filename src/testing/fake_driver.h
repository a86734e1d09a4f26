// FakeDriver: the driver's side of one split virtqueue, for tests, fuzzers and benchmarks.
//
// Written from the specification, and on purpose without the device side's layout or fence: an
// error there must not be mirrored here. It behaves, unless told otherwise by the raw_ calls, which
// write anything anywhere.
//
// What it gives: chains from a ChainBuilder, used entries with what was written to them, and both
// halves of notification suppression. Whoever uses it carries the kicks and interrupts:
//
//   FakeGuestMemory guest;
//   FakeDriver driver(guest, {.size = 256, .event_idx = true});
//   SplitQueue queue(driver.setup());
//   driver.offer(ChainBuilder{}.readable(60));
//   if (driver.kick_wanted()) …
//   …
//   for (const FakeDriver::Used& used : driver.take_all_used()) …
//
// One thread drives it; the device may live in another.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "testing/chain_builder.h"
#include "testing/fake_guest_memory.h"
#include "testing/placed_chain.h"
#include "virtio/split_queue.h"

namespace sluice {

// Of either fake driver, see also fake_packed_driver.h.
struct FakeDriverOptions {
  uint32_t size = 256;
  // Where the ring begins to count. Packed: in slots since it was fresh, so that `size` and more
  // means a wrap counter of 0.
  uint16_t start_index = 0;
  bool event_idx = false;
  bool indirect = true;  // told to the device by setup(); offer() obeys the builder
  bool in_order = false;
  std::optional<uint64_t> ring_address = std::nullopt;  // of all three areas, one behind the other
};

// A descriptor as raw_descriptor() writes it. [virtio 2.7.5]
struct RawDescriptor {
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint16_t flags = 0;
  uint16_t next = 0;
};

class FakeDriver {
 public:
  using Queue = SplitQueue;  // whose counterpart this is
  struct Used {
    uint16_t head = 0;
    uint32_t bytes = 0;         // as the device said
    std::vector<uint8_t> data;  // the first `bytes` of the chain's writable buffers
  };
  static constexpr uint16_t kNext = 1, kWrite = 2, kIndirect = 4;

  FakeDriver(FakeGuestMemory& guest, const FakeDriverOptions& options);

  // What the device needs for its side.
  SplitQueueSetup setup() const;
  uint64_t descriptors_address() const { return descriptors_; }
  uint64_t available_address() const { return available_; }
  uint64_t used_address() const { return used_; }
  uint32_t size() const { return size_; }

  // Writes the chain and makes it available; nullopt when too few descriptors are free.
  std::optional<uint16_t> offer(const ChainBuilder& chain);
  // The same in two steps, to make many available with one index.
  std::optional<uint16_t> stage(const ChainBuilder& chain);
  void make_available();
  // Puts a chain that was taken with take_used_entry() on the ring again, as it is.
  void offer_again(uint16_t head);

  // The next used entry, its descriptors free again.
  std::optional<Used> take_used();
  std::vector<Used> take_all_used();
  // Only the entry: the chain keeps its descriptors and buffers, for offer_again(). No allocation.
  struct UsedEntry {
    uint32_t head;
    uint32_t bytes;
  };
  std::optional<UsedEntry> take_used_entry();
  bool has_used() const { return used_index() != last_used_; }
  size_t free_descriptors() const { return free_.size(); }
  size_t outstanding() const { return outstanding_; }

  // After make_available(): whether the device wants a kick for what was made available since the
  // last time this was asked. Contains the driver's fence.
  bool kick_wanted();
  // Asks for an interrupt at the next used entry; true when there is one already (look again).
  bool enable_interrupts();
  void disable_interrupts();
  // Whether there is a used entry that an interrupt was asked for.
  bool interrupt_expected() const;

  // --- Raw access, for hostile drivers and for looking at what the device wrote. ---
  void raw_descriptor(uint32_t index, const RawDescriptor& descriptor);
  RawDescriptor read_descriptor(uint32_t index) const;
  static void encode(const RawDescriptor& descriptor, uint8_t* out);  // 16 bytes
  void raw_available_entry(uint16_t position, uint16_t head);         // position modulo size
  void raw_available_index(uint16_t index);
  // An entry and the index behind it, whatever they say.
  void raw_offer(uint16_t head);
  void raw_available_flags(uint16_t flags);
  void raw_used_event(uint16_t event);
  void raw_avail_event(uint16_t event);  // the device's word, written by the driver
  void scribble_used(uint8_t value);     // over the whole used ring
  uint16_t available_index() const { return next_available_; }
  uint16_t used_index() const;
  uint16_t used_flags() const;
  uint16_t avail_event() const;
  UsedEntry used_entry(uint16_t position) const;

 private:
  struct Posted {
    std::vector<uint16_t> descriptors;
    PlacedChain chain;
  };
  void write_table(const ChainBuilder& chain, PlacedChain& placed);
  void enqueue(uint16_t head);

  FakeGuestMemory& guest_;
  uint32_t size_;
  bool event_idx_;
  bool indirect_;
  bool in_order_;
  uint64_t descriptors_;
  uint64_t available_;
  uint64_t used_;
  uint8_t* descriptors_host_;
  uint8_t* available_host_;
  uint8_t* used_host_;
  std::vector<uint16_t> free_;
  std::vector<Posted> posted_;  // by head
  size_t outstanding_ = 0;
  uint16_t next_available_;   // where the next head goes
  uint16_t shown_available_;  // what the device can see
  uint16_t kicked_available_;
  uint16_t last_used_;
  uint16_t wished_used_event_ = 0;
  bool interrupts_on_ = true;
};

}  // namespace sluice
