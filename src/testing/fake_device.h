// FakeDevice: the device's side of one virtqueue, split or packed, for tests and fuzzers of the
// driver side.
//
// Written from the specification, and on purpose without the program's layout, formulas or fence:
// an error there must not be mirrored here. It behaves, unless told otherwise by the raw_ calls,
// which write anything anywhere. What it finds wrong with the driver it says in complaint().
//
//   DriverTestRing<PackedDriver> ring({.size = 16, .event_idx = true});
//   ring.add_readable(60, /*token=*/3);
//   ring.driver.publish();
//   const auto taken = ring.device->take();
//   ring.device->use(*taken, 0);
//   ring.device->publish();
//   if (ring.device->interrupt_wanted()) …
//
// One thread drives it; the driver may live in another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "testing/fake_guest_memory.h"
#include "virtio/driver_ring.h"
#include "virtio/packed_driver.h"
#include "virtio/split_driver.h"

namespace sluice {

struct DriverRingOptions {
  uint32_t size = 256;
  bool event_idx = false;
  bool in_order = false;
  uint16_t table_entries = 0;  // not 0: indirect tables were agreed on
  uint16_t direct_pieces_max = 1;
};

// Where a ring lies in the guest's memory.
struct FakeRingAreas {
  uint64_t descriptors = 0;
  uint64_t driver_area = 0;
  uint64_t device_area = 0;
  uint64_t tables = 0;
};

class FakeDevice {
 public:
  struct Piece {
    uint64_t address = 0;
    uint32_t bytes = 0;
    bool is_writable = false;
    bool operator==(const Piece&) const = default;
  };
  struct Taken {
    uint16_t id = 0;     // split: the head; packed: the buffer id
    uint16_t slots = 1;  // packed: descriptors of the ring
    std::vector<Piece> pieces;
  };
  virtual ~FakeDevice() = default;

  // The next available chain.
  virtual std::optional<Taken> take() = 0;
  // Writes a used entry, which the driver sees at the next publish(). In any order.
  virtual void use(const Taken& taken, uint32_t bytes) = 0;
  // One used entry for all of these, which were taken one behind the other (IN_ORDER).
  virtual void use_batch(std::span<const Taken> batch, uint32_t bytes_of_last) = 0;
  virtual void publish() = 0;
  // After publish(): whether the driver wants a callback for what was published since the last time
  // this was asked. Contains the device's fence.
  virtual bool interrupt_wanted() = 0;
  // Asks for a kick once more than `known` further chains (packed: descriptors) are available; true
  // when the next one is already.
  virtual bool ask_for_kick(uint16_t known = 0) = 0;
  virtual void refuse_kicks() = 0;

  // --- Raw access, for hostile devices. ---
  // A used entry out of nothing, visible at once. Packed: at the used position, which moves by one.
  virtual void raw_use(uint32_t id, uint32_t bytes) = 0;
  // The words by which the device says what it wants to hear, whatever they say.
  virtual void raw_wish(uint16_t event, uint16_t flags) = 0;
  // Any 16 bits anywhere in the three areas.
  void raw_store(uint64_t address, uint16_t value);

  // What the driver did wrong first; empty: nothing.
  const std::string& complaint() const { return complaint_; }
  const FakeRingAreas& areas() const { return areas_; }

 protected:
  FakeDevice(FakeGuestMemory& guest, const FakeRingAreas& areas, const DriverRingOptions& options)
      : guest_(guest), areas_(areas), options_(options) {}
  void complain(const std::string& what) {
    if (complaint_.empty()) complaint_ = what;
  }
  void check_order(const Taken& taken);

  FakeGuestMemory& guest_;
  FakeRingAreas areas_;
  DriverRingOptions options_;

 private:
  std::string complaint_;
};

class FakeSplitDevice final : public FakeDevice {
 public:
  FakeSplitDevice(FakeGuestMemory& guest, const FakeRingAreas& areas,
                  const DriverRingOptions& options);
  std::optional<Taken> take() override;
  void use(const Taken& taken, uint32_t bytes) override;
  void use_batch(std::span<const Taken> batch, uint32_t bytes_of_last) override;
  void publish() override;
  bool interrupt_wanted() override;
  bool ask_for_kick(uint16_t known) override;
  void refuse_kicks() override;
  void raw_use(uint32_t id, uint32_t bytes) override;
  void raw_wish(uint16_t event, uint16_t flags) override;

  void raw_used_index(uint16_t index);
  void raw_used_entry(uint16_t position, uint32_t id, uint32_t bytes);  // position modulo size
  uint16_t used_index() const { return used_index_; }

 private:
  void walk(Taken& taken);
  uint8_t* available_;
  uint8_t* used_;
  uint16_t next_available_ = 0;
  uint16_t used_index_ = 0;
  uint16_t signalled_ = 0;
};

class FakePackedDevice final : public FakeDevice {
 public:
  FakePackedDevice(FakeGuestMemory& guest, const FakeRingAreas& areas,
                   const DriverRingOptions& options);
  std::optional<Taken> take() override;
  void use(const Taken& taken, uint32_t bytes) override;
  void use_batch(std::span<const Taken> batch, uint32_t bytes_of_last) override;
  void publish() override;
  bool interrupt_wanted() override;
  bool ask_for_kick(uint16_t known) override;
  void refuse_kicks() override;
  void raw_use(uint32_t id, uint32_t bytes) override;
  void raw_wish(uint16_t event, uint16_t flags) override;

  struct Place {
    uint32_t index = 0;
    bool wrap = true;
    bool operator==(const Place&) const = default;
  };
  Place used_place() const { return used_; }
  // Id, length and flags of descriptor `index`, whoever owns it.
  void raw_descriptor(uint32_t index, uint16_t id, uint32_t bytes, uint16_t flags);
  // The two owner bits that say "used" for a wrap counter.
  static uint16_t used_bits(bool wrap);

 private:
  struct Staged {
    Place place;
    uint16_t id;
    uint32_t bytes;
    bool is_written;
  };
  void step(Place& place, uint32_t slots) const;
  bool is_available(Place place) const;
  void read_piece(uint8_t* descriptor, Taken& taken);
  uint8_t* descriptor(uint32_t index) const;
  uint8_t* descriptors_;
  uint8_t* driver_event_;
  uint8_t* device_event_;
  Place next_;
  Place used_;
  Place signalled_;
  uint32_t signal_slots_ = 0;
  std::vector<Staged> staged_;
};

template <typename Ring>
struct FakeDeviceOf;
template <>
struct FakeDeviceOf<SplitDriver> {
  using Type = FakeSplitDevice;
};
template <>
struct FakeDeviceOf<PackedDriver> {
  using Type = FakePackedDevice;
};

// A driver side and a fake device on one ring, with a buffer for each token.
template <typename Ring>
struct DriverTestRing {
  static constexpr uint32_t kBufferBytes = 256;
  static constexpr uint32_t kGuestBytes = 32 << 20;

  explicit DriverTestRing(const DriverRingOptions& ring_options = {},
                          DriverView view = DriverView::own)
      : options(ring_options),
        guest({FakeRegion{.bytes = kGuestBytes}}, view),
        areas(place(guest, options)),
        driver(setup(guest, areas, options)),
        device(std::make_unique<typename FakeDeviceOf<Ring>::Type>(guest, areas, options)),
        buffers(guest.allocate(uint64_t{kBufferBytes} * options.size, 64)) {}

  static FakeRingAreas place(FakeGuestMemory& memory, const DriverRingOptions& options) {
    FakeRingAreas areas;
    areas.descriptors = memory.allocate(Ring::descriptors_bytes(options.size), 4096);
    areas.driver_area = memory.allocate(Ring::driver_area_bytes(options.size), 64);
    areas.device_area = memory.allocate(Ring::device_area_bytes(options.size), 64);
    if (options.table_entries > 0)
      areas.tables = memory.allocate(uint64_t{16} * options.table_entries * options.size, 64);
    return areas;
  }
  static DriverRingSetup setup(const FakeGuestMemory& memory, const FakeRingAreas& areas,
                               const DriverRingOptions& options) {
    const auto span = [&](uint64_t address, uint64_t bytes) {
      return *memory.share()->translate(GuestAddr{address}, bytes);
    };
    DriverRingSetup setup;
    setup.size = options.size;
    setup.event_idx = options.event_idx;
    setup.in_order = options.in_order;
    setup.indirect = options.table_entries > 0;
    setup.descriptors = span(areas.descriptors, Ring::descriptors_bytes(options.size));
    setup.driver_area = span(areas.driver_area, Ring::driver_area_bytes(options.size));
    setup.device_area = span(areas.device_area, Ring::device_area_bytes(options.size));
    setup.direct_pieces_max = options.direct_pieces_max;
    if (options.table_entries > 0) {
      setup.table_entries = options.table_entries;
      setup.tables = span(areas.tables, uint64_t{16} * options.table_entries * options.size);
      setup.tables_address = GuestAddr{areas.tables};
    }
    return setup;
  }

  BufferPiece piece(uint16_t token, uint32_t bytes, uint32_t offset = 0) const {
    return {GuestAddr{buffers + uint64_t{kBufferBytes} * token + offset}, bytes};
  }
  bool add_readable(uint32_t bytes, uint16_t token) {
    const BufferPiece one = piece(token, bytes);
    return driver.add({&one, 1}, {}, token);
  }
  bool add_writable(uint32_t bytes, uint16_t token) {
    const BufferPiece one = piece(token, bytes);
    return driver.add({}, {&one, 1}, token);
  }
  // `readable` and `writable` pieces of 8 bytes each.
  bool add_chain(size_t readable, size_t writable, uint16_t token) {
    std::vector<BufferPiece> pieces;
    for (size_t i = 0; i < readable + writable; ++i)
      pieces.push_back(piece(token, 8, 8 * static_cast<uint32_t>(i % (kBufferBytes / 8))));
    const std::span<const BufferPiece> all(pieces);
    return driver.add(all.first(readable), all.subspan(readable), token);
  }
  // The device takes everything that is available and uses it as it came.
  size_t serve(uint32_t bytes = 0) {
    size_t count = 0;
    while (const auto taken = device->take()) {
      device->use(*taken, bytes);
      ++count;
    }
    device->publish();
    return count;
  }
  std::vector<UsedBuffer> take_all() {
    std::vector<UsedBuffer> all;
    UsedBuffer used;
    while (driver.take_used(used) == Take::used) all.push_back(used);
    return all;
  }

  DriverRingOptions options;
  FakeGuestMemory guest;
  FakeRingAreas areas;
  Ring driver;
  std::unique_ptr<typename FakeDeviceOf<Ring>::Type> device;
  uint64_t buffers;
};

}  // namespace sluice
