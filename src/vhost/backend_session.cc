#include "vhost/backend_session.h"

#include <fmt/ranges.h>
#include <sys/socket.h>

#include "virtio/features.h"

namespace sluice {

BackendSession::BackendSession(Fd socket, BackendDevice& device)
    : device_(device), connection_(std::move(socket)), rings_(device) {
  device_.session_opened();
}

BackendSession::~BackendSession() { close(); }

SessionState BackendSession::on_readable() {
  ReceivedMessage message;
  for (int i = 0; i < kMessagesPerCallMax && state_ == SessionState::open; ++i) {
    switch (connection_.receive(message)) {
      case Receive::need_more:
        return state_;
      case Receive::closed:
        log_info("{}: front end disconnected", device_.device_name());
        close();
        return state_;
      case Receive::error:
        close_with(connection_.error());
        return state_;
      case Receive::message:
        handle(message);
        break;
    }
    message.fds.clear();  // what no handler has taken is closed here
  }
  return state_;
}

void BackendSession::close() {
  if (state_ == SessionState::closed) return;
  state_ = SessionState::closed;
  rings_.release_all();
  memory_.reset();
  backend_channel_.reset();
  device_.session_closed();
}

void BackendSession::close_with(std::string reason) {
  if (state_ == SessionState::closed) return;
  log_warning("{}: connection closed: {}", device_.device_name(), reason);
  close_reason_ = std::move(reason);
  close();
}

void BackendSession::handle(ReceivedMessage& message) {
  const Result<void> done = check_and_dispatch(message);
  if (state_ == SessionState::closed) return;
  if (!done) return refuse(message, done.error().text);
  // Asked after the message has had its effect: User-Mode Linux wants an answer already to the
  // SET_PROTOCOL_FEATURES that turns answers on. [vhost-user REPLY_ACK]
  if (wants_ack(message)) {
    const auto request = static_cast<Request>(message.header.request);
    (void)reply(build_u64_reply(request, 0));
  }
  log_negotiation_once();
}

Result<void> BackendSession::check_and_dispatch(ReceivedMessage& message) {
  auto row = check_request(message.header, message.fds.size());
  if (!row) return fail(row.error());
  if (message.fds_lost)
    return fail(
        "more file descriptors came along than {}, or than this process may open: raise "
        "its limit (ulimit -n)",
        kMessageFdsMax);
  if (((*row)->needs & ~kOfferedProtocolFeatures) != 0)
    return fail("the protocol feature {} was not offered",
                fmt::join(protocol_feature_names((*row)->needs), ", "));
  return dispatch((*row)->request, message);
}

bool BackendSession::wants_ack(const ReceivedMessage& message) const {
  const RequestRow* row = find_request(message.header.request);
  return message.header.needs_reply() && (protocol_features_ & protocol_feature::reply_ack) != 0 &&
         (row == nullptr || !row->has_own_reply);
}

void BackendSession::refuse(const ReceivedMessage& message, const std::string& reason) {
  const std::string name = request_name(message.header.request);
  // A request with a reply of its own cannot say no: a number would be taken for the reply.
  if (!wants_ack(message)) return close_with(fmt::format("{} refused: {}", name, reason));
  if (refusal_limit_.admit())
    log_warning("{}: {} refused: {}", device_.device_name(), name, reason);
  const auto request = static_cast<Request>(message.header.request);
  (void)reply(build_u64_reply(request, 1));
}

Result<void> BackendSession::reply(const std::vector<uint8_t>& message) {
  if (auto sent = connection_.send(message); !sent) close_with(sent.error().text);
  return {};
}

// GET_ requests that are answered with one number.
uint64_t BackendSession::number_asked_for(Request request) const {
  if (request == Request::get_features)
    return device_.offered_features() | feature::protocol_features;
  if (request == Request::get_protocol_features) return kOfferedProtocolFeatures;
  if (request == Request::get_max_mem_slots) return kMemorySlotsMax;
  if (request == Request::get_status) return status_;
  SLUICE_ASSERT(request == Request::get_queue_num);
  // QEMU compares this with its queue pairs, Cloud Hypervisor with its rings: the number of data
  // rings lets both have as many as there are.
  return uint64_t{2} * device_.queue_pairs_max();
}

Result<void> BackendSession::dispatch(Request request, ReceivedMessage& message) {
  const std::span<const uint8_t> payload = message.payload;
  switch (request) {
    case Request::get_features:
    case Request::get_protocol_features:
    case Request::get_queue_num:
    case Request::get_max_mem_slots:
    case Request::get_status:
      return reply(build_u64_reply(request, number_asked_for(request)));
    case Request::set_features:
      return set_features(payload);
    case Request::set_protocol_features:
      return set_protocol_features(payload);
    case Request::set_owner:
      return {};  // a session has one front end anyway
    case Request::set_mem_table:
      return set_mem_table(message);
    case Request::add_mem_reg:
      return add_mem_reg(message);
    case Request::rem_mem_reg:
      return rem_mem_reg(payload);
    case Request::net_set_mtu:
      return net_set_mtu(payload);
    case Request::set_backend_req_fd:
      return set_backend_req_fd(message);
    case Request::get_config:
      return get_config(payload);
    case Request::set_config:
      return set_config(payload);
    case Request::set_status:
      return set_status(payload);
    case Request::reset_owner:
    case Request::reset_device:
      return reset(request);
    case Request::set_vring_num:
    case Request::set_vring_addr:
    case Request::set_vring_base:
    case Request::get_vring_base:
    case Request::set_vring_kick:
    case Request::set_vring_call:
    case Request::set_vring_err:
    case Request::set_vring_enable:
      return dispatch_ring(request, message);
    case Request::set_log_base:
    case Request::set_log_fd:
    case Request::send_rarp:
    case Request::get_inflight_fd:
    case Request::set_inflight_fd:
    case Request::iotlb_msg:
    case Request::set_vring_endian:
    case Request::create_crypto_session:
    case Request::close_crypto_session:
    case Request::postcopy_advise:
    case Request::postcopy_listen:
    case Request::postcopy_end:
    case Request::gpu_set_socket:
    case Request::vring_kick:
    case Request::get_shared_object:
    case Request::set_device_state_fd:
    case Request::check_device_state:
    case Request::get_shmem_config:
      break;
  }
  return fail("this back end does not serve it and has not offered to");
}

Result<void> BackendSession::reset(Request request) {
  // RESET_OWNER is deprecated and may be ignored, but Cloud Hypervisor sends it when the guest
  // resets its device, after which the old rings must not be touched.
  if (request == Request::reset_owner) {
    rings_.stop_all();
  } else {
    rings_.reset_all();
    status_ = 0;
  }
  return {};
}

Result<void> BackendSession::dispatch_ring(Request request, ReceivedMessage& message) {
  const std::span<const uint8_t> payload = message.payload;
  if (request == Request::set_vring_addr) return set_vring_addr(payload);
  if (request == Request::set_vring_enable) return set_vring_enable(payload);
  if (request == Request::get_vring_base) return get_vring_base(payload);
  if (request == Request::set_vring_num || request == Request::set_vring_base) {
    auto state = parse_vring_state(payload);
    if (!state) return fail(state.error());
    return request == Request::set_vring_num ? rings_.set_size(state->index, state->value)
                                             : rings_.set_base(state->index, state->value);
  }
  return set_vring_file(request, message);
}

void BackendSession::log_negotiation_once() {
  if (negotiation_logged_ || rings_.running_count() == 0) return;
  negotiation_logged_ = true;
  log_info("{}: front end negotiated {}; protocol: {}", device_.device_name(),
           fmt::join(feature_names(features_), " "),
           fmt::join(protocol_feature_names(protocol_features_), " "));
}

bool BackendSession::notify_config_change() {
  if (!backend_channel_ || (protocol_features_ & protocol_feature::config) == 0) return false;
  const std::vector<uint8_t> message = build_backend_request(BackendRequest::config_change_msg);
  const ssize_t sent =
      ::send(backend_channel_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(message.size());
}

}  // namespace sluice
