#include "port/unplugged_port.h"

#include "port/sink_queue.h"

namespace sluice {
namespace {

class UnpluggedQueue final : public SinkQueue {
 public:
  UnpluggedQueue(PortQueue& source, WakeSet wake) : SinkQueue(std::move(wake)), source_(source) {}

  void transmit(FrameBatch& batch) noexcept override {
    for (Frame* frame : batch) {
      source_.count_receive_drop(DropReason::not_connected);
      frame->set_result(FrameResult::done);
    }
  }

 private:
  PortQueue& source_;
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
