// What tests and the fuzzer of the vhost-user front end share: a driver that records what it is
// told and checks the order of it, and a back end that answers from a script.
//
// For tests only. The driver asserts the promises of FrontEndSession (ready only after an
// agreement, one end for each session, nothing after it), so a fuzzer that drives it finds
// breaches.
//
//   FrontEndBench bench;
//   bench.back_end.protocol_features = protocol_feature::reply_ack;
//   bench.talk();  // until neither has anything to say
//   EXPECT_TRUE(bench.session->is_ready());
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <functional>

#include "vhost/front_end_session.h"
#include "vhost/session_test_kit.h"

namespace sluice {

inline Fd copy_of(const Fd& fd) {
  Fd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  SLUICE_ASSERT(copy.valid());
  return copy;
}

// A non-blocking pair of sockets.
struct SocketPair {
  SocketPair() {
    int ends[2];
    SLUICE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    front = Fd(ends[0]);
    back = Fd(ends[1]);
  }
  Fd front;
  Fd back;
};

inline bool is_readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return fd >= 0 && ::poll(&waiting, 1, 0) > 0;
}

// --- The driver -----------------------------------------------------------------------------

class RecordingDriver final : public FrontEndDriver {
 public:
  // Where the rings lie: 64 KiB each, in one region.
  static constexpr uint64_t kRingAreaBytes = 0x10000;
  static constexpr uint64_t kFrontendBase = 0x7f0000000000;
  static constexpr uint32_t kBase = 0;

  struct Events {
    Fd kick;
    Fd call;
    Fd error;
  };

  const std::string& driver_name() const override { return name_; }
  uint64_t wanted_features() const override { return wanted; }
  uint64_t required_features() const override { return required; }
  uint32_t queue_pairs_wanted() const override { return queue_pairs; }

  Result<FrontEndLayout> agreed(const FrontEndAgreement& agreement) override {
    SLUICE_ASSERT(phase_ == Phase::idle);
    SLUICE_ASSERT((required & ~agreement.features) == 0);
    SLUICE_ASSERT((agreement.features & ~wanted) == 0);
    SLUICE_ASSERT(agreement.queue_pairs >= 1 && agreement.queue_pairs <= queue_pairs);
    phase_ = Phase::agreed;
    last_agreement = agreement;
    events.push_back("agreed");
    if (refuse_agreement) return fail("the test wants no rings");
    FrontEndLayout layout;
    const uint32_t data_rings = 2 * agreement.queue_pairs;
    for (uint32_t i = 0; i < data_rings; ++i) layout.rings.push_back(make_ring(i, i));
    if (agreement.has_control_queue) {
      SLUICE_ASSERT(agreement.control_index >= data_rings);
      layout.rings.push_back(make_ring(agreement.control_index, data_rings));
    }
    layout.memory_bytes = kRingAreaBytes * layout.rings.size();
    memory = make_memory(layout.memory_bytes);
    layout.memory = copy_of(memory);
    layout.frontend_address = FrontendAddr{kFrontendBase};
    return layout;
  }
  void session_ready() override {
    SLUICE_ASSERT(phase_ == Phase::agreed);
    phase_ = Phase::ready;
    events.push_back("ready");
  }
  void session_closed(const std::string& reason) override {
    phase_ = Phase::idle;
    ++times_closed;
    ring_events.clear();
    memory.reset();
    events.push_back(reason.empty() ? "closed" : "closed: " + reason);
  }
  void config_changed(const FrontEndAgreement& agreement) override {
    SLUICE_ASSERT(phase_ == Phase::ready);
    SLUICE_ASSERT(agreement.features == last_agreement.features);
    SLUICE_ASSERT(agreement.queue_pairs == last_agreement.queue_pairs);
    last_agreement = agreement;
    events.push_back("config");
  }

  // What happened since the last time this was asked.
  std::vector<std::string> take_events() { return std::exchange(events, {}); }

  uint64_t wanted = feature::version_1 | feature::mrg_rxbuf | feature::event_idx | feature::mac |
                    feature::mtu | feature::ctrl_vq | feature::mq;
  uint64_t required = feature::version_1;
  uint32_t queue_pairs = 1;
  uint32_t ring_size = 256;
  bool refuse_agreement = false;
  FrontEndAgreement last_agreement;
  Fd memory;
  std::map<uint32_t, Events> ring_events;
  uint32_t times_closed = 0;
  std::vector<std::string> events;

 private:
  enum class Phase : uint8_t { idle, agreed, ready };

  FrontEndRing make_ring(uint32_t index, uint64_t slot) {
    Events& own = ring_events[index];
    own = {make_event(), make_event(), make_event()};
    const uint64_t begin = kFrontendBase + slot * kRingAreaBytes;
    FrontEndRing ring;
    ring.index = index;
    ring.size = ring_size;
    ring.base = kBase;
    ring.descriptors = FrontendAddr{begin};
    ring.driver_area = FrontendAddr{begin + 0x4000};
    ring.device_area = FrontendAddr{begin + 0x8000};
    ring.kick = copy_of(own.kick);
    ring.call = copy_of(own.call);
    ring.error = copy_of(own.error);
    return ring;
  }

  std::string name_ = "nic-test";
  Phase phase_ = Phase::idle;
};

// --- The back end ---------------------------------------------------------------------------

// GET_INFLIGHT_FD's payload. [vhost-user Inflight description]
inline std::vector<uint8_t> inflight_payload(uint64_t mmap_bytes, uint64_t mmap_offset,
                                             uint16_t queue_count, uint16_t queue_size) {
  std::vector<uint8_t> payload = bytes_of(mmap_bytes);
  const auto add = [&](const std::vector<uint8_t>& part) {
    payload.insert(payload.end(), part.begin(), part.end());
  };
  add(bytes_of(mmap_offset));
  add(bytes_of(queue_count));
  add(bytes_of(queue_size));
  return payload;
}

// The twelve bytes of configuration that a front end asks for, with their header.
inline std::vector<uint8_t> config_payload(uint16_t queue_pairs, uint16_t mtu_bytes,
                                           uint8_t mac_last) {
  std::vector<uint8_t> payload = config_access(0, 12, 12);
  const uint8_t mac[] = {0x52, 0x54, 0, 0x12, 0x34, mac_last};
  std::copy(std::begin(mac), std::end(mac), payload.begin() + 12);
  std::memcpy(payload.data() + 20, &queue_pairs, sizeof queue_pairs);
  std::memcpy(payload.data() + 22, &mtu_bytes, sizeof mtu_bytes);
  return payload;
}

// Hears each message and answers it as a good back end does, unless `instead` does something else.
class ScriptedBackEnd {
 public:
  static constexpr uint64_t kAllProtocolFeatures =
      protocol_feature::mq | protocol_feature::log_shmfd | protocol_feature::reply_ack |
      protocol_feature::mtu | protocol_feature::backend_req | protocol_feature::config |
      protocol_feature::inflight_shmfd | protocol_feature::status;

  explicit ScriptedBackEnd(Fd socket) : connection_(std::in_place, std::move(socket)) {}

  // Hears and answers what has arrived; false when nothing had.
  bool hear_one() {
    ReceivedMessage message;
    if (!connection_ || connection_->receive(message) != Receive::message) return false;
    const auto request = static_cast<Request>(message.header.request);
    names.push_back(request_name(message.header.request));
    heard.push_back(std::move(message));
    if (request == Request::set_backend_req_fd) channel = copy_of(heard.back().fds.at(0));
    const bool due = expects_answer(heard.back());
    if (due) ++answers_due;
    if (instead && instead(heard.back())) return true;
    if (due) answer(heard.back());
    return true;
  }
  static bool expects_answer(const ReceivedMessage& message) {
    return message.header.needs_reply() || find_request(message.header.request)->has_own_reply;
  }
  // What a good back end says to it.
  void answer(const ReceivedMessage& message) {
    std::vector<Fd> fds;
    const std::vector<uint8_t> payload = good_answer(message, fds);
    reply(message.header.request, payload, fds);
  }
  std::vector<uint8_t> good_answer(const ReceivedMessage& message, std::vector<Fd>& fds) const {
    switch (static_cast<Request>(message.header.request)) {
      case Request::get_features:
        return bytes_of(features);
      case Request::get_protocol_features:
        return bytes_of(protocol_features);
      case Request::get_queue_num:
        return bytes_of(queue_num);
      case Request::get_config:
        return config_payload(config_pairs, config_mtu_bytes, mac_last);
      case Request::get_inflight_fd:
        if (inflight_bytes != 0) fds.push_back(copy_of(inflight));
        return inflight_payload(inflight_bytes, 0, 2, 256);
      default:
        return bytes_of(uint64_t{0});
    }
  }
  void reply(uint32_t request, const std::vector<uint8_t>& payload,
             const std::vector<Fd>& fds = {}) {
    send(message_bytes(request, kFlagsVersion | kFlagsReply, payload), fds);
  }
  void send(const std::vector<uint8_t>& bytes, const std::vector<Fd>& fds = {}) {
    std::vector<int> numbers;
    for (const Fd& fd : fds) numbers.push_back(fd.get());
    if (!one_byte_at_a_time) {
      if (connection_) send_with_descriptors(connection_->fd(), bytes, numbers);
      return;
    }
    for (size_t i = 0; i < bytes.size() && connection_; ++i) {
      send_with_descriptors(connection_->fd(), std::span(bytes).subspan(i, 1),
                            i == 0 ? numbers : std::vector<int>{});
      if (after_byte) after_byte();
    }
  }
  void hang_up() {
    connection_.reset();
    channel.reset();
  }
  int fd() const { return connection_ ? connection_->fd() : -1; }
  // Heard messages of one kind.
  std::vector<const ReceivedMessage*> all(Request request) const {
    std::vector<const ReceivedMessage*> found;
    for (const ReceivedMessage& message : heard)
      if (message.header.request == static_cast<uint32_t>(request)) found.push_back(&message);
    return found;
  }

  uint64_t features = feature::version_1 | feature::mrg_rxbuf | feature::event_idx | feature::mac |
                      feature::mtu | feature::ctrl_vq | feature::mq | feature::protocol_features;
  uint64_t protocol_features = kAllProtocolFeatures;
  uint64_t queue_num = 1;
  uint16_t config_pairs = 1;
  uint16_t config_mtu_bytes = 1500;
  uint8_t mac_last = 0x56;
  uint64_t inflight_bytes = 4096;  // 0: it keeps no account
  Fd inflight = make_memory(4096);
  bool one_byte_at_a_time = false;
  std::function<void()> after_byte;
  // True: it has been dealt with.
  std::function<bool(const ReceivedMessage&)> instead;

  std::vector<ReceivedMessage> heard;
  std::vector<std::string> names;
  size_t answers_due = 0;
  Fd channel;  // its own, once SET_BACKEND_REQ_FD came

 private:
  std::optional<Connection> connection_;
};

// --- Both, over one socket --------------------------------------------------------------------

class FrontEndBench {
 public:
  static constexpr int kRoundsMax = 10'000;

  FrontEndBench() : FrontEndBench(SocketPair()) {}
  ~FrontEndBench() { session.reset(); }

  // A new session of the same driver with a new back end.
  void reconnect() {
    session.reset();
    SocketPair sockets;
    back_end = ScriptedBackEnd(std::move(sockets.back));
    begin(std::move(sockets.front));
  }
  void begin(Fd socket) {
    session =
        std::make_unique<FrontEndSession>(std::move(socket), driver, [this] { return now_ns; });
  }
  // The session is made when talk() is called first, so that a test can arrange all before.
  void start() {
    if (session == nullptr) begin(std::move(front_socket_));
  }
  // What the session does with what has arrived. False: nothing had.
  bool session_reads() {
    bool any = false;
    if (session->state() == SessionState::open && is_readable(session->fd())) {
      session->on_readable();
      any = true;
    }
    if (is_readable(session->request_fd())) {
      session->on_request();
      any = true;
    }
    return any;
  }
  // Until neither has anything to say; the bound catches a talk without end.
  void talk() {
    start();
    for (int i = 0; i < kRoundsMax; ++i) {
      bool any = session_reads();
      while (back_end.hear_one()) any = true;
      if (!any) return;
    }
    SLUICE_ASSERT(!"the talk does not end");
  }
  const std::string& reason() const { return session->close_reason(); }
  bool is_closed() const { return session->state() == SessionState::closed; }

  RecordingDriver driver;
  uint64_t now_ns = 1'000'000'000;
  ScriptedBackEnd back_end;
  std::unique_ptr<FrontEndSession> session;

 private:
  explicit FrontEndBench(SocketPair sockets)
      : back_end(std::move(sockets.back)), front_socket_(std::move(sockets.front)) {}
  Fd front_socket_;
};

}  // namespace sluice
