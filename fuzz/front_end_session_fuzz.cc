// Bytes of a hostile back end against a whole front-end session.
//
// The input begins with what the back end offers and what the driver wants; then come steps, each
// one control byte and what it asks for: the oldest question answered well, answered with bytes of
// the input, or not answered but talked over; a message on the back end's own channel; time that
// passes. Descriptors come along or not, messages in one piece or two. The driver of
// front_end_test_kit.h asserts the promises of the session; after each input its end has been told
// once, and no descriptor is left.
#include <deque>

#include "vhost/front_end_test_kit.h"
#include "vhost_input.h"

namespace sluice {
namespace {

class Talk {
 public:
  explicit Talk(FuzzInput input) : input_(input) {}

  void run() {
    arrange();
    bench_.start();
    while (!input_.empty() && !bench_.is_closed()) {
      hear();
      step();
    }
    bench_.back_end.hang_up();
    for (int i = 0; i < 100 && !bench_.is_closed(); ++i) bench_.session->on_readable();
    SLUICE_ASSERT(bench_.is_closed());
    SLUICE_ASSERT(!bench_.reason().empty());
    SLUICE_ASSERT(bench_.session->request_fd() == -1 && bench_.session->deadline_ns() == 0);
    bench_.session.reset();
    SLUICE_ASSERT(bench_.driver.times_closed == 1);
  }

 private:
  void arrange() {
    const uint8_t choice = input_.byte();
    if ((choice & 1) != 0) bench_.back_end.protocol_features = two_bytes() | (two_bytes() << 16);
    if ((choice & 2) != 0) bench_.back_end.features &= ~(feature::mq << (input_.byte() % 9));
    if ((choice & 4) != 0) bench_.driver.required = 0;
    if ((choice & 8) != 0) bench_.back_end.features = feature::version_1;
    bench_.back_end.config_pairs = two_bytes();
    bench_.back_end.queue_num = input_.byte();
    bench_.driver.queue_pairs = 1 + (choice >> 4) % 3;
    bench_.back_end.instead = [this](const ReceivedMessage& message) {
      if (ScriptedBackEnd::expects_answer(message)) questions_.push_back(message.header.request);
      return true;
    };
  }
  uint64_t two_bytes() {
    const uint64_t low = input_.byte();
    return low | uint64_t{input_.byte()} << 8;
  }
  void hear() {
    while (bench_.back_end.hear_one()) {
    }
    bench_.back_end.heard.clear();  // else its descriptors pile up
    bench_.back_end.names.clear();
  }
  void step() {
    const uint8_t control = input_.byte();
    switch ((control >> 2) & 7) {
      case 0:
      case 1:
      case 2: {
        // A run of good answers, or the way to the deep end is long.
        for (int count = 1 + input_.byte() % 16; count > 0; --count) answer_well();
        break;
      }
      case 3:
        answer_with_input(control);
        break;
      case 4:
        send(bench_.back_end.fd(), input_.bytes(input_.byte()), control);
        break;
      case 5:
        say_on_channel(control);
        break;
      case 6:
        send(bench_.back_end.channel.get(), input_.bytes(input_.byte()), control);
        break;
      case 7:
        bench_.now_ns += uint64_t{input_.byte()} * 50'000'000;
        bench_.session->on_deadline();
        break;
    }
    if ((control & 32) == 0) {
      for (int i = 0; i < 8 && bench_.session_reads(); ++i) {
      }
    }
  }
  void answer_well() {
    hear();
    if (!questions_.empty()) {
      ReceivedMessage question;
      question.header.request = questions_.front();
      questions_.pop_front();
      bench_.back_end.answer(question);
    }
    bench_.session_reads();
  }
  void answer_with_input(uint8_t control) {
    if (questions_.empty()) return;
    const uint32_t request = questions_.front();
    questions_.pop_front();
    const uint8_t shape = input_.byte();
    std::vector<uint8_t> payload;
    if ((shape & 7) == 0) payload = input_.bytes(input_.byte());
    if ((shape & 7) == 1) payload = config_access(0, 12, 12);
    if ((shape & 7) == 2)
      payload = inflight_payload(two_bytes() << (shape >> 3), two_bytes(), 2, 256);
    if ((shape & 7) >= 3) payload = input_.bytes(8);
    const uint32_t flags = (shape & 128) != 0 ? input_.byte() : kFlagsVersion | kFlagsReply;
    send(bench_.back_end.fd(), message_bytes(request, flags, payload), control);
  }
  void say_on_channel(uint8_t control) {
    const uint8_t choice = input_.byte();
    const uint32_t flags = kFlagsVersion | ((choice & 1) != 0 ? kFlagsNeedReply : 0);
    const uint32_t request = (choice & 2) != 0 ? 2 : input_.byte();
    const auto message = message_bytes(request, flags, input_.bytes(choice >> 4));
    for (int count = (choice & 12) == 12 ? 100 : 1; count > 0; --count)
      send(bench_.back_end.channel.get(), message, control);
  }
  // In two pieces with the session between them, where bit 7 says so.
  void send(int socket, const std::vector<uint8_t>& bytes, uint8_t control) {
    if (socket < 0 || bytes.empty()) return;
    const size_t split = (control & 128) != 0 ? 1 + input_.byte() % bytes.size() : bytes.size();
    send_with_descriptors(socket, std::span(bytes).first(split), some_things(input_, control));
    if (split == bytes.size()) return;
    bench_.session_reads();
    send_with_descriptors(socket, std::span(bytes).subspan(split), {});
  }

  FuzzInput input_;
  FrontEndBench bench_;
  std::deque<uint32_t> questions_;
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace sluice;
  run_without_a_leak(data, bytes, [](FuzzInput input) { Talk(input).run(); });
  return 0;
}
