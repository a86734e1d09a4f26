// A hostile driver against the device side of a split ring.
//
// The input is a list of steps: what the driver writes (descriptors, tables, indices, event words,
// the used ring, any memory) and what the device is asked to do (pop, complete, un-pop, publish,
// ask and be asked for notifications, stop and go on). After each step: every span of a chain lies
// in memory that the guest has, sums are right, no more than the ring's size is in flight, and the
// used index is the one that was counted here, whatever the driver wrote over it.
#include "device_session.h"

namespace sluice {
namespace {

FakeDriverOptions some_options(RingInput& input) {
  const uint8_t options = input.byte();
  return {.size = 1u << (options % 7),
          .start_index = static_cast<uint16_t>(-4 * (input.byte() % 32)),
          .event_idx = (options & 0x80) != 0,
          .indirect = (options & 0x40) == 0,
          .ring_address = 0x1000};
}

class SplitSession final : public DeviceSession<FakeDriver> {
 public:
  explicit SplitSession(RingInput& input)
      : DeviceSession(input, some_options(input)), used_index_(driver_.used_index()) {}

 private:
  void driver_step(uint8_t choice) override {
    const auto position = static_cast<uint16_t>(input_.byte());
    switch (choice % 10) {
      case 0:
      case 1:
        driver_.raw_descriptor(position % driver_.size(), some_descriptor());
        return;
      case 2:
      case 3:
        driver_.raw_offer(input_.byte() % 16 == 0 ? input_.word() : position % driver_.size());
        return;
      case 4: {  // a table, or whatever lies there
        uint8_t entry[16];
        FakeDriver::encode(some_descriptor(), entry);
        write_somewhere(input_.byte() % 2 ? 16 * uint64_t{position} : input_.address(), entry);
        return;
      }
      case 5:
        driver_.raw_available_index(input_.word());
        return;
      case 6:
        driver_.raw_available_entry(position, input_.byte());
        return;
      case 7:
        driver_.raw_used_event(input_.word());
        driver_.raw_available_flags(position);
        return;
      case 8:
        driver_.raw_avail_event(input_.word());
        return;
      default:
        driver_.scribble_used(static_cast<uint8_t>(position));
        return;
    }
  }

  RawDescriptor some_descriptor() {
    RawDescriptor descriptor{input_.address(), input_.length(), input_.byte(), input_.byte()};
    if (input_.byte() % 32 == 0) descriptor.next = descriptor.flags = input_.word();
    return descriptor;
  }

  void check_head(uint16_t head) override { SLUICE_ASSERT(head < driver_.size()); }
  void check_published(uint16_t count) override {
    used_index_ = static_cast<uint16_t>(used_index_ + count);
    SLUICE_ASSERT(driver_.used_index() == used_index_);
  }
  SplitQueue restarted() override {
    SplitQueueSetup setup = driver_.setup();
    setup.base = queue_.next_avail();
    used_index_ = driver_.used_index();
    return SplitQueue(std::move(setup));
  }

  uint16_t used_index_;
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  sluice::clear_guest();
  sluice::RingInput input(data, bytes);
  sluice::SplitSession(input).run();
  return 0;
}
