#include "vhost/front_end_session.h"

#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "virtio/features.h"

namespace sluice {
namespace {

// Questions that are under way at once: a slow back end must not fill its socket, which is ours,
// too.
constexpr size_t kExpectedMax = 8;

}  // namespace

FrontEndSession::FrontEndSession(Fd socket, FrontEndDriver& driver)
    : FrontEndSession(std::move(socket), driver, monotonic_ns) {}

FrontEndSession::FrontEndSession(Fd socket, FrontEndDriver& driver,
                                 std::function<uint64_t()> now_ns)
    : driver_(driver),
      connection_(std::move(socket), Expects::replies),
      now_ns_(std::move(now_ns)) {
  ask_features();
  finish(pump());
}

FrontEndSession::~FrontEndSession() { close(); }

void FrontEndSession::close() { close_with(""); }

void FrontEndSession::close_with(std::string reason) {
  if (state_ == SessionState::closed) return;
  state_ = SessionState::closed;
  close_reason_ = std::move(reason);
  deadline_ns_ = 0;
  outgoing_.clear();
  expected_.clear();
  end_requests();
  connection_.end();
  driver_.session_closed(close_reason_);
}

// What a back end did not like is mostly what it has not answered.
std::string FrontEndSession::while_unanswered() const {
  if (expected_.empty()) return "";
  return fmt::format(" while {} was unanswered", request_name(uint32_t(expected_.front().request)));
}

void FrontEndSession::end_requests() {
  if (!requests_ || requests_ended_) return;
  requests_ended_ = true;
  requests_->end();
}

// ---- Messages out -------------------------------------------------------------------------------

void FrontEndSession::ask(Request request, std::span<const uint8_t> payload, Handler handler) {
  outgoing_.push_back(
      {request, build_request(request, payload, /*needs_reply=*/false), {}, std::move(handler)});
}

void FrontEndSession::tell(Request request, std::span<const uint8_t> payload, std::vector<Fd> fds) {
  const bool acked = speaks(protocol_feature::reply_ack);
  Handler handler;
  if (acked) {
    handler = [request](ReceivedMessage& message) -> Result<void> {
      auto status = parse_u64(message.payload);
      if (!status) return fail(status.error());
      if (*status != 0) return fail("the back end refused {}", request_name(uint32_t(request)));
      return {};
    };
  }
  outgoing_.push_back(
      {request, build_request(request, payload, acked), std::move(fds), std::move(handler)});
}

void FrontEndSession::tell_u64(Request request, uint64_t value) {
  tell(request, {reinterpret_cast<const uint8_t*>(&value), sizeof value});
}

void FrontEndSession::tell_ring(Request request, uint32_t index, uint32_t value) {
  const VringState state{index, value};
  tell(request, {reinterpret_cast<const uint8_t*>(&state), sizeof state});
}

void FrontEndSession::tell_ring_fd(Request request, uint32_t index, Fd fd) {
  const uint64_t payload = index;
  std::vector<Fd> fds;
  fds.push_back(std::move(fd));
  tell(request, {reinterpret_cast<const uint8_t*>(&payload), sizeof payload}, std::move(fds));
}

// Without acks an answered question says that all before it has been read.
void FrontEndSession::barrier() {
  if (speaks(protocol_feature::reply_ack)) return;
  ask(Request::get_features, {}, [](ReceivedMessage& message) -> Result<void> {
    auto value = parse_u64(message.payload);
    if (!value) return fail(value.error());
    return {};
  });
}

Result<void> FrontEndSession::pump() {
  for (;;) {  // each round sends a message, or is the last but one
    if (connection_.peer_has_gone()) {
      // The answers that are still to be read may say why.
      if (!expected_.empty()) break;
      return fail("the back end closed the connection before {} could be sent",
                  request_name(uint32_t(outgoing_.front().request)));
    }
    if (outgoing_.empty() && expected_.empty()) {
      if (auto stepped = next_step(); !stepped) return stepped;
      if (outgoing_.empty()) break;
    }
    if (outgoing_.empty() || expected_.size() >= kExpectedMax) break;
    // Answers come in the order of the questions, so the one that is waited for is the last.
    if (held_up_ && !expected_.empty()) break;
    Outgoing& message = outgoing_.front();
    held_up_ = message.holds_up;
    std::vector<int> fds;
    for (const Fd& fd : message.fds) fds.push_back(fd.get());
    if (auto sent = connection_.send(message.bytes, fds); !sent) {
      if (connection_.peer_has_gone()) continue;
      return fail("{}: {}{}", request_name(uint32_t(message.request)), sent.error().text,
                  while_unanswered());
    }
    if (message.handler) expected_.push_back({message.request, std::move(message.handler)});
    outgoing_.pop_front();
  }
  // Only an answer moves the deadline, so that no other message keeps a silent back end.
  if (expected_.empty())
    deadline_ns_ = 0;
  else if (deadline_ns_ == 0)
    deadline_ns_ = now_ns_() + kAnswerMillisecondsMax * 1'000'000;
  return {};
}

Result<void> FrontEndSession::next_step() {
  switch (step_) {
    case Step::features:
      step_ = Step::protocol;
      has_protocol_features_ = offered_ & feature::protocol_features;
      if (has_protocol_features_) ask_protocol_features();
      if (has_protocol_features_) return {};
      [[fallthrough]];
    case Step::protocol:
      step_ = Step::capacity;
      ask_capacity();
      if (!outgoing_.empty()) return {};
      [[fallthrough]];
    case Step::capacity:
      step_ = Step::setup;
      if (auto agreed = agree(); !agreed) return agreed;
      return set_up();
    case Step::setup:
      step_ = Step::running;
      driver_.session_ready();
      [[fallthrough]];
    case Step::running:
      if (config_is_stale_) ask_config();
      return {};
  }
  return {};
}

// ---- Messages in --------------------------------------------------------------------------------

SessionState FrontEndSession::finish(const Result<void>& result) {
  if (!result) close_with(result.error().text);
  return state_;
}

SessionState FrontEndSession::on_readable() {
  for (int i = 0; i < kMessagesPerCallMax && state_ == SessionState::open; ++i) {
    ReceivedMessage message;
    switch (connection_.receive(message)) {
      case Receive::need_more:
        return state_;
      case Receive::closed:
        close_with(is_ready() ? "the back end went away"
                              : "the back end closed the connection" + while_unanswered());
        return state_;
      case Receive::error:
        close_with(connection_.error() + while_unanswered());
        return state_;
      case Receive::message:
        break;
    }
    auto handled = handle(message);
    if (handled) handled = pump();
    finish(handled);
  }
  return state_;
}

Result<void> FrontEndSession::handle(ReceivedMessage& message) {
  const std::string name = request_name(message.header.request);
  if (expected_.empty()) return fail("an answer to {}, which was not asked", name);
  if (message.header.request != static_cast<uint32_t>(expected_.front().request))
    return fail("an answer to {} where one to {} belongs", name,
                request_name(uint32_t(expected_.front().request)));
  if (message.fds_lost) return fail("too many descriptors came with the answer to {}", name);
  if (!message.fds.empty() && expected_.front().request != Request::get_inflight_fd)
    return fail("descriptors came with the answer to {}", name);
  Handler handler = std::move(expected_.front().handler);
  expected_.pop_front();
  deadline_ns_ = 0;
  if (auto handled = handler(message); !handled) return fail("{}: {}", name, handled.error().text);
  return {};
}

SessionState FrontEndSession::on_deadline() {
  if (deadline_ns_ == 0 || now_ns_() < deadline_ns_) return state_;
  close_with(fmt::format("the back end did not answer {} within {} s",
                         request_name(uint32_t(expected_.front().request)),
                         kAnswerMillisecondsMax / 1000));
  return state_;
}

// Only the change of the configuration matters to us; whatever else the back end wants is answered
// as not done. However many changes come, one question is under way at a time.
SessionState FrontEndSession::on_request() {
  for (int i = 0; i < kMessagesPerCallMax && request_fd() >= 0; ++i) {
    ReceivedMessage message;
    const Receive received = requests_->receive(message);
    if (received == Receive::need_more) break;
    if (received != Receive::message) {
      if (received == Receive::error)
        log_warning("{}: the back end's own channel is closed: {}", driver_.driver_name(),
                    requests_->error());
      end_requests();
      break;
    }
    const bool known = message.header.request == uint32_t(BackendRequest::config_change_msg);
    if (message.header.needs_reply()) {
      const uint64_t status = known ? 0 : 1;
      if (!requests_->send(build_u64_reply(static_cast<Request>(message.header.request), status)))
        end_requests();
    }
    if (known && speaks(protocol_feature::config)) config_is_stale_ = true;
  }
  if (state_ == SessionState::open && is_ready()) finish(pump());
  return state_;
}

}  // namespace sluice
