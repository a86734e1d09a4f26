// What a front-end session asks and tells in each of its steps.
#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "vhost/front_end_session.h"
#include "virtio/features.h"

namespace sluice {
namespace {

// Where things are in the configuration space. [virtio 5.1.4]
constexpr uint32_t kConfigBytes = 12;
constexpr size_t kMaxPairsOffset = 8;
constexpr size_t kMtuOffset = 10;
constexpr size_t kConfigHeadBytes = 12;
// [virtio 2.1]
constexpr uint64_t kStatusFeaturesOk = 1 | 2 | 8;
constexpr uint64_t kStatusDriverOk = kStatusFeaturesOk | 4;
// A back end's account of what is in flight needs some bytes a descriptor; this is far beyond.
constexpr uint64_t kInflightBytesMax = 64 << 20;

// The index that goes with a descriptor has eight bits. [vhost-user A vring descriptor index]
constexpr uint32_t kRingIndexMax = 0xff;
// About as many as the messages that set up one ring: what is under way must fit a socket that
// nobody has read yet, some 270 messages.
constexpr uint32_t kEnablesBetweenBarriers = 8;

constexpr uint64_t kSpokenProtocolFeatures =
    protocol_feature::mq | protocol_feature::log_shmfd | protocol_feature::reply_ack |
    protocol_feature::mtu | protocol_feature::backend_req | protocol_feature::config |
    protocol_feature::inflight_shmfd | protocol_feature::status;

// [vhost-user Inflight description]
struct InflightWire {
  uint64_t mmap_bytes = 0;
  uint64_t mmap_offset = 0;
  uint16_t queue_count = 0;
  uint16_t queue_size = 0;
};
constexpr size_t kInflightWireBytes = 20;

template <typename T>
std::span<const uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

}  // namespace

void FrontEndSession::ask_features() {
  ask(Request::get_features, {}, [this](ReceivedMessage& message) -> Result<void> {
    auto offered = parse_u64(message.payload);
    if (!offered) return fail(offered.error());
    offered_ = *offered;
    return {};
  });
}

void FrontEndSession::ask_protocol_features() {
  ask(Request::get_protocol_features, {}, [this](ReceivedMessage& message) -> Result<void> {
    auto offered = parse_u64(message.payload);
    if (!offered) return fail(offered.error());
    protocol_features_ = *offered & kSpokenProtocolFeatures;
    return {};
  });
}

void FrontEndSession::ask_capacity() {
  if (has_protocol_features_) {
    // This one is not acked, whatever it says: acks begin behind it.
    const uint64_t value = protocol_features_;
    outgoing_.push_back({Request::set_protocol_features,
                         build_request(Request::set_protocol_features, bytes_of(value), false),
                         {},
                         {}});
  }
  tell(Request::set_owner, {});
  if (speaks(protocol_feature::mq)) {
    ask(Request::get_queue_num, {}, [this](ReceivedMessage& message) -> Result<void> {
      auto number = parse_u64(message.payload);
      if (!number) return fail(number.error());
      if (*number == 0 || *number > 0xffff) return fail("the back end has {} queues", *number);
      queue_num_ = static_cast<uint32_t>(*number);
      return {};
    });
  }
  if (speaks(protocol_feature::config)) ask_config();
}

// Before the agreement, and again whenever the back end says that it has changed.
void FrontEndSession::ask_config() {
  config_is_stale_ = false;
  std::vector<uint8_t> payload(kConfigHeadBytes + kConfigBytes);
  const uint32_t head[3] = {0, kConfigBytes, 0};
  std::memcpy(payload.data(), head, sizeof head);
  ask(Request::get_config, payload, [this](ReceivedMessage& message) -> Result<void> {
    if (auto taken = take_config(message.payload); !taken || !is_ready()) return taken;
    forget_what_features_do_not_cover();
    driver_.config_changed(agreement_);
    return {};
  });
}

Result<void> FrontEndSession::take_config(std::span<const uint8_t> payload) {
  // An empty answer says that there is none. [vhost-user GET_CONFIG]
  if (payload.empty()) return {};
  auto access = parse_config_access(payload);
  if (!access) return fail(access.error());
  if (access->offset != 0 || access->bytes.size() != kConfigBytes)
    return fail("{} bytes of the configuration came where {} were asked for", access->bytes.size(),
                kConfigBytes);
  std::array<uint8_t, 6> mac;
  std::memcpy(mac.data(), access->bytes.data(), mac.size());
  agreement_.mac = mac;
  uint16_t pairs = 0;
  std::memcpy(&pairs, access->bytes.data() + kMaxPairsOffset, sizeof pairs);
  config_pairs_ = pairs;
  uint16_t mtu_bytes = 0;
  std::memcpy(&mtu_bytes, access->bytes.data() + kMtuOffset, sizeof mtu_bytes);
  agreement_.mtu_bytes = mtu_bytes;
  return {};
}

// What both sides can do.
Result<void> FrontEndSession::agree() {
  uint64_t wanted = driver_.wanted_features();
  // A control queue lies behind all pairs that the device has, so that number must be known, and
  // what it makes of the control queue's index must fit its messages.
  if (config_pairs_ == 0 || 2 * config_pairs_ > kRingIndexMax)
    wanted &= ~(feature::ctrl_vq | feature::mq);
  agreement_.features = sanitize_features(wanted, offered_);
  agreement_.protocol_features = protocol_features_;
  const uint64_t missing = driver_.required_features() & ~agreement_.features;
  if (missing != 0)
    return fail("the back end does not offer {}, which was asked for: leave it out, or use another",
                fmt::join(feature_names(missing), " "));
  agreement_.has_control_queue = agreement_.features & feature::ctrl_vq;
  const uint32_t device_pairs = device_queue_pairs();
  agreement_.queue_pairs = std::min(driver_.queue_pairs_wanted(), device_pairs);
  agreement_.control_index = 2 * device_pairs;
  forget_what_features_do_not_cover();
  return {};
}

void FrontEndSession::forget_what_features_do_not_cover() {
  if (!(agreement_.features & feature::mac)) agreement_.mac.reset();
  if (!(agreement_.features & feature::mtu)) agreement_.mtu_bytes.reset();
}

// How many pairs the device has. Back ends that serve no configuration are multi-queue by
// GET_QUEUE_NUM alone, and some count rings in it: believed only where MQ is offered, and where the
// place of no control queue depends on it. [virtio 5.1.2]
uint32_t FrontEndSession::device_queue_pairs() const {
  if (agreement_.features & feature::mq) return config_pairs_;
  if (agreement_.has_control_queue || !(offered_ & feature::mq)) return 1;
  return queue_num_;
}

Result<void> FrontEndSession::set_up() {
  const uint64_t features =
      agreement_.features | (has_protocol_features_ ? feature::protocol_features : 0);
  tell_u64(Request::set_features, features);
  if (speaks(protocol_feature::status)) tell_u64(Request::set_status, kStatusFeaturesOk);
  auto layout = driver_.agreed(agreement_);
  if (!layout) return fail(layout.error());
  if (speaks(protocol_feature::backend_req)) {
    if (auto offered = offer_request_channel(); !offered) return offered;
  }
  // [vhost-user SET_MEM_TABLE]
  struct {
    uint32_t count = 1;
    uint32_t padding = 0;
    WireRegion region;
  } table;
  table.region = {raw(layout->guest_address), layout->memory_bytes, raw(layout->frontend_address),
                  0};
  std::vector<Fd> files;
  files.push_back(std::move(layout->memory));
  tell(Request::set_mem_table, bytes_of(table), std::move(files));
  if (speaks(protocol_feature::log_shmfd)) {
    if (auto shared = share_log(*layout); !shared) return shared;
  }
  if (speaks(protocol_feature::inflight_shmfd)) ask_inflight(*layout);
  for (FrontEndRing& ring : layout->rings) set_up_ring(ring);
  if (has_protocol_features_) {
    uint32_t told = 0;
    for (const FrontEndRing& ring : layout->rings) {
      tell_ring(Request::set_vring_enable, ring.index, 1);
      if (++told % kEnablesBetweenBarriers == 0) barrier();
    }
  }
  if (speaks(protocol_feature::status)) tell_u64(Request::set_status, kStatusDriverOk);
  barrier();
  return {};
}

void FrontEndSession::set_up_ring(FrontEndRing& ring) {
  tell_ring(Request::set_vring_num, ring.index, ring.size);
  tell_ring(Request::set_vring_base, ring.index, ring.base);
  const VringAddresses addresses{.index = ring.index,
                                 .flags = 0,
                                 .descriptors = ring.descriptors,
                                 .used = ring.device_area,
                                 .available = ring.driver_area,
                                 .log = {}};
  tell(Request::set_vring_addr, bytes_of(addresses));
  tell_ring_fd(Request::set_vring_err, ring.index, std::move(ring.error));
  tell_ring_fd(Request::set_vring_call, ring.index, std::move(ring.call));
  tell_ring_fd(Request::set_vring_kick, ring.index, std::move(ring.kick));
  barrier();
}

Result<void> FrontEndSession::offer_request_channel() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail("socketpair: {}", errno_text(errno));
  requests_ = std::make_unique<Connection>(Fd(ends[0]), Expects::requests);
  std::vector<Fd> files;
  files.emplace_back(ends[1]);
  tell(Request::set_backend_req_fd, {}, std::move(files));
  return {};
}

// A log of writes to memory that nobody reads: it is not switched on (LOG_ALL is not agreed). What
// it is for is to be there when that comes. The answer is always sent. [vhost-user SET_LOG_BASE]
Result<void> FrontEndSession::share_log(const FrontEndLayout& layout) {
  const uint64_t pages = (raw(layout.guest_address) + layout.memory_bytes + 4095) / 4096;
  const uint64_t bytes = ((pages + 7) / 8 + 4095) / 4096 * 4096;
  Fd file(::memfd_create("sluice-log", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return fail("a log of {} bytes: {}", bytes, errno_text(errno));
  const uint64_t payload[2] = {bytes, 0};
  std::vector<Fd> files;
  files.push_back(std::move(file));
  outgoing_.push_back({Request::set_log_base,
                       build_request(Request::set_log_base, bytes_of(payload), false),
                       std::move(files), [](ReceivedMessage&) -> Result<void> { return {}; }});
  return {};
}

// The back end's account of what it has taken: made by it and given back to it. A successor gets
// new rings, and a new account. The rings wait for it. [vhost-user GET_INFLIGHT_FD]
void FrontEndSession::ask_inflight(const FrontEndLayout& layout) {
  InflightWire wire;
  wire.queue_count = static_cast<uint16_t>(layout.rings.size());
  for (const FrontEndRing& ring : layout.rings)
    wire.queue_size = std::max(wire.queue_size, static_cast<uint16_t>(ring.size));
  ask(Request::get_inflight_fd, bytes_of(wire).first(kInflightWireBytes),
      [this](ReceivedMessage& message) { return take_inflight(message); });
  outgoing_.back().holds_up = true;
}

Result<void> FrontEndSession::take_inflight(ReceivedMessage& message) {
  InflightWire wire;
  if (message.payload.size() < kInflightWireBytes || message.payload.size() > sizeof wire)
    return fail("a description of {} bytes", message.payload.size());
  std::memcpy(static_cast<void*>(&wire), message.payload.data(), kInflightWireBytes);
  if (wire.mmap_bytes == 0) return {};  // it keeps none
  if (message.fds.size() != 1) return fail("{} descriptors came with it", message.fds.size());
  if (wire.mmap_bytes > kInflightBytesMax || wire.mmap_offset > kInflightBytesMax)
    return fail("{} bytes at {} are more than an account needs", wire.mmap_bytes, wire.mmap_offset);
  std::vector<Fd> files;
  files.push_back(std::move(message.fds[0]));
  tell(Request::set_inflight_fd, bytes_of(wire).first(kInflightWireBytes), std::move(files));
  // In front of the rings, which wait behind this answer.
  outgoing_.push_front(std::move(outgoing_.back()));
  outgoing_.pop_back();
  return {};
}

}  // namespace sluice
