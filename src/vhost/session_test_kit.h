// What tests and the fuzzer of the vhost-user back end share: a device that records what it is told
// and checks the order of it, and a front end that says whatever it is asked to.
//
// For tests only. The device asserts the promises of BackendSession (a ring is started only when
// stopped, areas have their sizes, nothing after the end), so a fuzzer that drives it finds
// breaches.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "vhost/backend_session.h"
#include "virtio/features.h"

namespace sluice {

class RecordingDevice final : public BackendDevice {
 public:
  explicit RecordingDevice(uint32_t queue_pairs = 1) : queue_pairs_(queue_pairs) {}

  const std::string& device_name() const override { return name_; }
  uint64_t offered_features() const override { return offered; }
  uint32_t queue_pairs_max() const override { return queue_pairs_; }

  void session_opened() override {
    SLUICE_ASSERT(!session_open);
    session_open = true;
    record("opened");
  }
  void session_closed() override {
    SLUICE_ASSERT(session_open);
    SLUICE_ASSERT(running.empty());
    session_open = false;
    record("closed");
  }
  void features_negotiated(uint64_t negotiated) override {
    SLUICE_ASSERT(running.empty());
    SLUICE_ASSERT((negotiated & ~offered) == 0);
    features = negotiated;
    record(fmt::format("features {:#x}", negotiated));
  }
  Result<void> ring_start(RingStart start) override {
    SLUICE_ASSERT(session_open);
    SLUICE_ASSERT(start.index <= 2 * queue_pairs_);
    SLUICE_ASSERT(!running.contains(start.index));
    SLUICE_ASSERT(start.memory != nullptr && start.features == features);
    SLUICE_ASSERT(start.size > 0 && start.size <= kRingSizeMax && start.base <= UINT16_MAX);
    SLUICE_ASSERT(start.descriptors.size() == size_t{16} * start.size);
    SLUICE_ASSERT(start.available.size() == 6 + size_t{2} * start.size);
    SLUICE_ASSERT(start.used.size() == 6 + size_t{8} * start.size);
    if (refuse_start) return fail("the test wants no ring");
    record(fmt::format("start {} size {} base {} {}", start.index, start.size, start.base,
                       start.enabled ? "on" : "off"));
    bases[start.index] = start.base;
    running.emplace(start.index, std::move(start));
    return {};
  }
  uint32_t ring_stop(uint32_t index) override {
    SLUICE_ASSERT(running.contains(index));
    running.erase(index);
    record(fmt::format("stop {}", index));
    return bases[index] & 0xffff;
  }
  void ring_set_enabled(uint32_t index, bool enabled) override {
    SLUICE_ASSERT(running.contains(index));
    running.at(index).enabled = enabled;
    record(fmt::format("{} {}", enabled ? "enable" : "disable", index));
  }
  void ring_set_call(uint32_t index, Fd call) override {
    SLUICE_ASSERT(running.contains(index));
    running.at(index).call = std::move(call);
    record(fmt::format("call {}", index));
  }
  void ring_set_error(uint32_t index, Fd error) override {
    SLUICE_ASSERT(running.contains(index));
    running.at(index).error = std::move(error);
    record(fmt::format("error {}", index));
  }
  void read_config(uint32_t offset, std::span<uint8_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = offset + i < config.size() ? static_cast<uint8_t>(config[offset + i]) : 0;
  }
  Result<void> write_config(uint32_t offset, std::span<const uint8_t> bytes) override {
    record(fmt::format("write_config {} {}", offset, bytes.size()));
    return {};
  }
  Result<void> set_mtu(uint16_t mtu_bytes) override {
    record(fmt::format("mtu {}", mtu_bytes));
    return {};
  }

  // What happened since the last time this was asked.
  std::vector<std::string> take_events() { return std::exchange(events, {}); }

  uint64_t offered = feature::version_1 | feature::mrg_rxbuf | feature::event_idx |
                     feature::indirect_desc | feature::csum | feature::guest_csum |
                     feature::host_tso4 | feature::guest_tso4 | feature::ctrl_vq | feature::mq |
                     feature::mac | feature::status;
  std::string config = "ABCDEFGHIJKL";
  bool refuse_start = false;
  bool keep_events = true;
  bool session_open = false;
  uint64_t features = 0;
  std::map<uint32_t, RingStart> running;
  std::map<uint32_t, uint32_t> bases;  // where each ring would stop; a test may move it

 private:
  void record(std::string event) {
    if (keep_events) events.push_back(std::move(event));
  }

  std::string name_ = "vm-test";
  uint32_t queue_pairs_;
  std::vector<std::string> events;
};

// --- What a front end hands over ------------------------------------------------------------

inline Fd make_event() { return Fd(::eventfd(0, EFD_CLOEXEC)); }

inline Fd make_memory(size_t bytes) {
  Fd fd(::memfd_create("guest", MFD_CLOEXEC));
  SLUICE_ASSERT(fd.valid());
  SLUICE_ASSERT(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  return fd;
}

template <typename T>
std::vector<uint8_t> bytes_of(const T& value) {
  const auto* first = reinterpret_cast<const uint8_t*>(&value);
  return {first, first + sizeof value};
}

inline std::vector<uint8_t> message_bytes(uint32_t request, uint32_t flags,
                                          const std::vector<uint8_t>& payload) {
  std::vector<uint8_t> bytes =
      bytes_of(MessageHeader{request, flags, static_cast<uint32_t>(payload.size())});
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

inline std::vector<uint8_t> memory_table(const std::vector<WireRegion>& regions) {
  std::vector<uint8_t> payload = bytes_of(uint64_t{regions.size()});
  for (const WireRegion& region : regions) {
    const auto bytes = bytes_of(region);
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  }
  return payload;
}

inline std::vector<uint8_t> single_region(const WireRegion& region) {
  std::vector<uint8_t> payload = bytes_of(uint64_t{0});
  const auto bytes = bytes_of(region);
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  return payload;
}

inline std::vector<uint8_t> config_access(uint32_t offset, uint32_t bytes, size_t carried) {
  std::vector<uint8_t> payload;
  for (const uint32_t word : {offset, bytes, uint32_t{0}}) {
    const auto part = bytes_of(word);
    payload.insert(payload.end(), part.begin(), part.end());
  }
  payload.resize(payload.size() + carried);
  return payload;
}

// Whether the socket took all bytes.
inline bool send_with_descriptors(int socket, std::span<const uint8_t> bytes,
                                  const std::vector<int>& fds) {
  iovec part{const_cast<uint8_t*>(bytes.data()), bytes.size()};
  std::vector<char> control(fds.empty() ? 0 : CMSG_SPACE(sizeof(int) * fds.size()));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(head), fds.data(), sizeof(int) * fds.size());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

// --- The front end --------------------------------------------------------------------------

struct Reply {
  MessageHeader header;
  std::vector<uint8_t> payload;

  uint64_t number() const {
    uint64_t value = 0;
    SLUICE_ASSERT(payload.size() == sizeof value);
    std::memcpy(&value, payload.data(), sizeof value);
    return value;
  }
};

// One end of a socket pair; the other end belongs to a session.
class TestFrontEnd {
 public:
  // The guest's memory: one region, whose front-end addresses begin at kFrontendBase.
  static constexpr uint64_t kMemoryBytes = 1 << 20;
  static constexpr uint64_t kFrontendBase = 0x7f0000000000;

  explicit TestFrontEnd(RecordingDevice& device) {
    int pair[2];
    SLUICE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    mine_ = Fd(pair[0]);
    session.emplace(Fd(pair[1]), device);
  }

  bool send_bytes(std::span<const uint8_t> bytes, const std::vector<int>& fds = {}) {
    return send_with_descriptors(mine_.get(), bytes, fds);
  }

  // Sends one message and lets the session handle it.
  SessionState say(Request request, const std::vector<uint8_t>& payload = {},
                   const std::vector<int>& fds = {}, uint32_t flags = kFlagsVersion) {
    send_bytes(message_bytes(static_cast<uint32_t>(request), flags, payload), fds);
    return session->on_readable();
  }
  SessionState say_u64(Request request, uint64_t value, const std::vector<int>& fds = {}) {
    return say(request, bytes_of(value), fds);
  }
  SessionState say_state(Request request, uint32_t index, uint32_t value) {
    return say(request, bytes_of(VringState{index, value}));
  }
  // The same with NEED_REPLY: the acknowledgement's number, nullopt when none came.
  std::optional<uint64_t> ask(Request request, const std::vector<uint8_t>& payload = {},
                              const std::vector<int>& fds = {}) {
    say(request, payload, fds, kFlagsVersion | kFlagsNeedReply);
    auto answer = read_reply();
    if (!answer) return std::nullopt;
    return answer->number();
  }

  // The next reply that has arrived.
  std::optional<Reply> read_reply() {
    Reply reply;
    if (::recv(mine_.get(), &reply.header, kHeaderBytes, MSG_DONTWAIT) !=
        static_cast<ssize_t>(kHeaderBytes))
      return std::nullopt;
    SLUICE_ASSERT((reply.header.flags & (kFlagsReply | kFlagsVersionMask)) ==
                  (kFlagsReply | kFlagsVersion));
    reply.payload.resize(reply.header.payload_bytes);
    if (!reply.payload.empty()) {
      SLUICE_ASSERT(::recv(mine_.get(), reply.payload.data(), reply.payload.size(), MSG_DONTWAIT) ==
                    static_cast<ssize_t>(reply.payload.size()));
    }
    return reply;
  }
  void drain_replies() {
    char bytes[4096];
    while (::recv(mine_.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
  }

  static WireRegion region() { return {0, kMemoryBytes, kFrontendBase, 0}; }
  void say_memory() {
    const Fd memory = make_memory(kMemoryBytes);
    say(Request::set_mem_table, memory_table({region()}), {memory.get()});
  }
  // Where the rings of this front end lie: 64 KiB each, 16 of them.
  static VringAddresses addresses(uint32_t index) {
    const uint64_t begin = kFrontendBase + uint64_t{index} * 0x10000;
    return {index,
            0,
            FrontendAddr{begin},
            FrontendAddr{begin + 0x8000},
            FrontendAddr{begin + 0x4000},
            GuestAddr{0}};
  }
  SessionState say_addresses(uint32_t index) {
    return say(Request::set_vring_addr, bytes_of(addresses(index)));
  }
  SessionState say_event(Request request, uint32_t index) {
    const Fd event = make_event();
    return say_u64(request, index, {event.get()});
  }
  // The whole set-up of one ring, in QEMU's order.
  void say_ring(uint32_t index, uint32_t size = 256, uint32_t base = 0) {
    say_state(Request::set_vring_num, index, size);
    say_state(Request::set_vring_base, index, base);
    say_addresses(index);
    say_event(Request::set_vring_kick, index);
    say_event(Request::set_vring_call, index);
  }
  void negotiate(uint64_t features, uint64_t protocol_features = kOfferedProtocolFeatures) {
    say(Request::set_owner);
    say_u64(Request::set_protocol_features, protocol_features);
    say_u64(Request::set_features, features);
  }

  int fd() const { return mine_.get(); }
  void hang_up() { mine_.reset(); }

  std::optional<BackendSession> session;

 private:
  Fd mine_;
};

// How many descriptors this process has open.
inline size_t open_descriptor_count() {
  size_t count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  SLUICE_ASSERT(directory != nullptr);
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

}  // namespace sluice
