#include "port/null_port.h"

namespace sluice {

void NullQueue::transmit(FrameBatch& batch) noexcept {
  if (batch.empty()) return;
  size_t bytes = 0;
  for (Frame* const frame : batch) {
    bytes += frame->packet_bytes();
    frame->set_result(FrameResult::done);
  }
  transmitted_.count_batch(batch.size(), bytes);
}

Result<std::unique_ptr<NullPort>> NullPort::create(std::string name, uint32_t queue_count) {
  SLUICE_ASSERT(queue_count > 0 && queue_count <= kQueuePairsMax);
  std::unique_ptr<NullPort> port(new NullPort(std::move(name)));
  for (uint32_t i = 0; i < queue_count; ++i) {
    Result<WakeSet> wake = WakeSet::create();
    if (!wake) return fail("{}: {}", port->name(), wake.error().text);
    port->queues_.push_back(std::make_unique<NullQueue>(std::move(*wake)));
  }
  return port;
}

PortQueue& NullPort::queue(uint32_t index) {
  SLUICE_ASSERT(index < queues_.size());
  return *queues_[index];
}

}  // namespace sluice
