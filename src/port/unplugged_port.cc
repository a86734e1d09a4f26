#include "port/unplugged_port.h"

namespace sluice {
namespace {

class UnpluggedQueue final : public PortQueue {
 public:
  UnpluggedQueue(PortQueue& source, WakeSet wake) : source_(source), wake_(std::move(wake)) {}

  bool receive(FrameBatch&, const Budget&, FrameCache&) noexcept override { return false; }
  void transmit(FrameBatch& batch) noexcept override {
    for (Frame* frame : batch) {
      source_.count_receive_drop(DropReason::not_connected);
      frame->set_result(FrameResult::done);
    }
  }
  void finish_breath() noexcept override {}
  size_t transmit_room() noexcept override { return kBatchFramesMax; }
  bool arm(bool, bool wants_room) noexcept override { return wants_room; }
  void disarm() noexcept override {}
  int wake_fd() const noexcept override { return wake_.fd(); }
  void on_wake() noexcept override {}

 private:
  PortQueue& source_;
  WakeSet wake_;  // empty: it never fires
};

}  // namespace

Result<std::unique_ptr<UnpluggedPort>> UnpluggedPort::create(Port& source) {
  std::unique_ptr<UnpluggedPort> port(new UnpluggedPort(source.name() + "-unplugged"));
  for (uint32_t i = 0; i < source.queue_count(); ++i) {
    auto wake = WakeSet::create();
    if (!wake) return fail(wake.error());
    port->queues_.push_back(std::make_unique<UnpluggedQueue>(source.queue(i), std::move(*wake)));
  }
  return port;
}

}  // namespace sluice
