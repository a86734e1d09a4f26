// Bytes of a hostile front end against the vhost-user codec and a whole session.
//
// The input is a list of steps, each one control byte and what it asks for: whether descriptors
// come along and which, whether the session looks in between, and a message, either raw bytes or a
// known request with its right size and a payload from the input. The device of session_test_kit.h
// asserts the promises of the session, and after each input no descriptor may be left.
#include "vhost_input.h"

namespace sluice {
namespace {

// Every parse function sees the bytes as they are.
void try_codec(std::span<const uint8_t> bytes) {
  (void)parse_header(bytes.first(std::min(bytes.size(), kHeaderBytes)));
  (void)parse_u64(bytes);
  (void)parse_vring_state(bytes);
  (void)parse_vring_file(bytes);
  (void)parse_vring_addresses(bytes);
  (void)parse_memory_region(bytes);
  if (auto table = parse_memory_table(bytes))
    SLUICE_ASSERT(table->size() <= kMemoryTableRegionsMax);
  if (auto access = parse_config_access(bytes)) {
    SLUICE_ASSERT(access->bytes.size() <= kConfigBytesMax);
    SLUICE_ASSERT(access->offset + access->bytes.size() <= kConfigBytesMax);
  }
}

// A known request, well-formed in its shape; its content is the input's, with addresses and indices
// pulled to where they can mean something.
std::vector<uint8_t> shaped_message(FuzzInput& input) {
  const uint32_t request = 1 + input.byte() % kRequestMax;
  const uint8_t choice = input.byte();
  const RequestRow& row = *find_request(request);
  std::vector<uint8_t> payload = input.bytes(row.payload_bytes_min);
  if ((choice & 1) != 0) {
    if (row.request == Request::set_mem_table) payload = memory_table({TestFrontEnd::region()});
    if (row.request == Request::add_mem_reg || row.request == Request::rem_mem_reg)
      payload = single_region(TestFrontEnd::region());
    if (row.request == Request::set_vring_addr)
      payload = bytes_of(TestFrontEnd::addresses(input.byte() % 6));
    if (row.request == Request::set_vring_num)
      payload = bytes_of(VringState{input.byte() % 6u, 1u << (input.byte() % 17)});
    if (row.request == Request::get_config) {
      const uint8_t count = input.byte();
      payload = config_access(input.byte(), count, count);
    }
  }
  const uint32_t flags = kFlagsVersion | ((choice & 2) != 0 ? kFlagsNeedReply : 0);
  return message_bytes(request, flags, payload);
}

void run(FuzzInput input) {
  RecordingDevice device(2);
  device.keep_events = false;
  TestFrontEnd front_end(device);
  if ((input.byte() & 1) != 0) front_end.negotiate(device.offered);
  while (!input.empty() && front_end.session->state() == SessionState::open) {
    const uint8_t control = input.byte();
    const std::vector<int> fds = some_things(input, control);
    const std::vector<uint8_t> bytes =
        (control & 4) != 0 ? input.bytes(input.byte()) : shaped_message(input);
    try_codec(bytes);
    if (bytes.empty()) continue;
    const size_t split = (control & 8) != 0 ? 1 + input.byte() % bytes.size() : bytes.size();
    front_end.send_bytes(std::span(bytes).first(split), fds);
    if ((control & 16) != 0) front_end.session->on_readable();
    if (split < bytes.size()) front_end.send_bytes(std::span(bytes).subspan(split));
    if ((control & 32) == 0) front_end.session->on_readable();
    front_end.drain_replies();
    front_end.session->notify_config_change();
    SLUICE_ASSERT(front_end.session->rings_running() == device.running.size());
  }
  front_end.hang_up();
  for (int i = 0; i < 100 && front_end.session->state() == SessionState::open; ++i)
    front_end.session->on_readable();
  SLUICE_ASSERT(front_end.session->state() == SessionState::closed);
  SLUICE_ASSERT(device.running.empty() && !device.session_open);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace sluice;
  run_without_a_leak(data, bytes, [](FuzzInput input) { run(input); });
  return 0;
}
