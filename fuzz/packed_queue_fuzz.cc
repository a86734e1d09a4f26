// A hostile driver against the device side of a packed ring.
//
// The input is a list of steps: what the driver writes (descriptors with any owner bits, tables,
// event words, the whole ring, any memory) and what the device is asked to do (pop, complete,
// un-pop, publish, ask and be asked for notifications, stop and go on). What is checked after each
// step is in device_session.h; here: the used flags stand where the batch began, with the wrap
// counter that was counted here, whatever the driver wrote over them.
#include "device_session.h"
#include "testing/fake_packed_driver.h"

namespace sluice {
namespace {

using Place = FakePackedDriver::Place;

FakeDriverOptions some_options(RingInput& input) {
  const uint8_t options = input.byte();
  return {.size = 1u + input.byte() % 64,
          .start_index = input.byte(),
          .event_idx = (options & 1) != 0,
          .indirect = (options & 2) == 0,
          .in_order = (options & 4) != 0,
          .ring_address = 0x1000};
}

Place place_of(uint32_t word) { return {.index = word & 0x7fff, .wrap = (word & 0x8000) != 0}; }

class PackedSession final : public DeviceSession<FakePackedDriver> {
 public:
  explicit PackedSession(RingInput& input) : DeviceSession(input, some_options(input)) {}

 private:
  void driver_step(uint8_t choice) override {
    const uint16_t position = input_.byte();
    switch (choice % 10) {
      case 0:
      case 1:
        driver_.raw_descriptor(position % driver_.size(), some_descriptor());
        return;
      case 2:
      case 3:
        driver_.raw_offer(some_descriptor());
        return;
      case 4: {  // a table, or whatever lies there
        uint8_t entry[16];
        FakePackedDriver::encode(some_descriptor(), entry);
        write_somewhere(input_.byte() % 2 ? 16 * uint64_t{position} : input_.address(), entry);
        return;
      }
      case 5:
      case 6: {  // just where the device looks next
        const Place next = place_of(queue_.base());
        RawPackedDescriptor descriptor = some_descriptor();
        descriptor.flags = static_cast<uint16_t>((descriptor.flags & 0x7f) |
                                                 FakePackedDriver::available_bits(next.wrap));
        driver_.raw_descriptor(next.index, descriptor);
        return;
      }
      case 7:
        driver_.raw_driver_event(input_.word(), position % 8);
        return;
      case 8:
        driver_.raw_device_event(input_.word(), position);
        return;
      default:
        driver_.scribble(static_cast<uint8_t>(position));
        return;
    }
  }

  RawPackedDescriptor some_descriptor() {
    RawPackedDescriptor descriptor{input_.address(), input_.length(), input_.byte(), 0};
    const uint8_t flags = input_.byte();
    // NEXT, WRITE, INDIRECT, and the owner bits from the upper two.
    descriptor.flags =
        static_cast<uint16_t>((flags & 7) | (flags & 0x40) << 1 | (flags & 0x80) << 8);
    if (input_.byte() % 32 == 0) descriptor.id = descriptor.flags = input_.word();
    return descriptor;
  }

  void check_head(uint16_t) override {}  // any 16 bits
  void check_published(uint16_t) override {
    const Place first = place_of(batch_base_ >> 16);
    const uint16_t flags = driver_.read_descriptor(first.index).flags;
    constexpr uint16_t kOwner = FakePackedDriver::kAvail | FakePackedDriver::kUsed;
    SLUICE_ASSERT((flags & kOwner) == FakePackedDriver::used_bits(first.wrap));
    const Place next = place_of(queue_.base()), used = place_of(queue_.base() >> 16);
    SLUICE_ASSERT(next.index < driver_.size() && used.index < driver_.size());
  }
  PackedQueue restarted() override {
    PackedQueueSetup setup = driver_.setup();
    SLUICE_ASSERT((queue_.base() & 0xffff) == queue_.base() >> 16);  // nothing is in flight
    setup.base = queue_.base() & 0xffff;
    setup.reads_only = input_.byte() % 2;
    return PackedQueue(std::move(setup));
  }
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  sluice::clear_guest();
  sluice::RingInput input(data, bytes);
  sluice::PackedSession(input).run();
  return 0;
}
