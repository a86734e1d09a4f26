#include "port/tap_port.h"

#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "virtio/net_header.h"

namespace sluice {
namespace {

constexpr uint32_t kFrames = EPOLLIN | EPOLLET;
constexpr uint32_t kFramesAndRoom = EPOLLIN | EPOLLOUT | EPOLLET;
// Events that on_wake() takes at most: one descriptor has one entry in its set.
constexpr int kWakeEventsMax = 4;
static_assert(kHeadroomBytes >= kNetHeaderBytes, "the header is read and written in front of data");
static_assert(kFrameDataBytesMax + kSlabBytes > kPacketBytesMax,
              "a read that brings a slab is never cut short without our seeing it");

// The kernel makes these headers; a peer on the host can have had a hand in them (packet sockets).
bool header_fits(const OffloadMeta& meta, size_t packet_bytes) {
  // No overflow: three 16-bit values in size_t.
  if (meta.needs_csum && size_t{meta.csum_start} + meta.csum_offset + 2 > packet_bytes)
    return false;
  switch (meta.gso_type) {
    case GsoType::none:
      return true;
    case GsoType::udp_fragment:
      return false;  // we never ask for it
    case GsoType::tcp4:
    case GsoType::tcp6:
    case GsoType::udp_l4:
      return meta.gso_size != 0 && meta.gso_size < packet_bytes;
  }
  return false;
}

// The header in front of a frame that goes to the kernel. hdr_len is a guest's word that the kernel
// would refuse when wrong, and does well without. [virtio 5.1.6.2.2]
NetHeaderBytes header_for(const Frame& frame) {
  OffloadMeta meta = frame.offload();
  if (meta.header_bytes < kPacketBytesMin || meta.header_bytes > frame.packet_bytes())
    meta.header_bytes = 0;
  return build_net_header(meta, 0);
}

// The state of a descriptor now, not its edges.
short level(int fd, short events) {
  pollfd watched{fd, events, 0};
  return ::poll(&watched, 1, 0) == 1 ? watched.revents : 0;
}

bool is_gone(int error) { return error == EBADFD || error == ENXIO || error == ENODEV; }

}  // namespace

void TapLink::change(State now) noexcept {
  State before = state();
  do {
    if (before == State::gone || before == now) return;  // what was deleted stays so
  } while (!state_.compare_exchange_weak(before, now, std::memory_order_relaxed));
  switch (now) {
    case State::up:
      log_info("{}: interface {} is up again", port_, ifname_);
      break;
    case State::down:
      log_warning(
          "{}: interface {} is down: frames to it are dropped until it is set up (ip link "
          "set {} up)",
          port_, ifname_, ifname_);
      break;
    case State::gone:
      log_error("{}: interface {} was deleted: frames to it are dropped; restart to make it again",
                port_, ifname_);
      break;
  }
}

TapQueue::TapQueue(Fd fd, WakeSet wake, TapLink& link)
    : fd_(std::move(fd)), wake_(std::move(wake)), link_(link), watched_events_(kFrames) {}

Result<void> TapQueue::watch() { return wake_.add(fd_.get(), watched_events_, 0); }

TapQueue::Read TapQueue::read_frame(Frame& frame, Slab*& slab) noexcept {
  uint8_t* const begin = frame.data() - kNetHeaderBytes;
  constexpr size_t kChunkRoom = kNetHeaderBytes + kFrameDataBytesMax;
  ssize_t got;
  size_t room_bytes = kChunkRoom;
  if (slab == nullptr) {
    got = ::read(fd_.get(), begin, kChunkRoom);
  } else {
    const iovec parts[2] = {{begin, kChunkRoom}, {slab->data, kSlabBytes}};
    room_bytes += kSlabBytes;
    got = ::readv(fd_.get(), parts, 2);
  }
  if (got >= 0) [[likely]]
    return take_in(frame, slab, static_cast<size_t>(got), room_bytes);
  // Down, deleted or just detached: nothing to count, and no event of ours until that changes.
  if (is_gone(errno) && attached()) link_.note(TapLink::State::gone);
  return Read::nothing;
}

TapQueue::Read TapQueue::take_in(Frame& frame, Slab*& slab, size_t read_bytes,
                                 size_t room_bytes) noexcept {
  // A read that fills everything may have been cut: the kernel does not say.
  if (read_bytes >= room_bytes || read_bytes > kNetHeaderBytes + kPacketBytesMax) [[unlikely]] {
    count_receive_drop(DropReason::oversize);
    expect_large_frames(true);  // such as after `ip link set mtu`: from now on they fit
    return Read::refused;
  }
  if (read_bytes < kNetHeaderBytes + kPacketBytesMin) [[unlikely]] {
    count_receive_drop(DropReason::runt);
    return Read::refused;
  }
  const size_t packet_bytes = read_bytes - kNetHeaderBytes;
  NetHeaderBytes wire;
  std::memcpy(wire.data(), frame.data() - kNetHeaderBytes, kNetHeaderBytes);
  const std::optional<OffloadMeta> meta = parse_net_header(wire);
  if (!meta || !header_fits(*meta, packet_bytes)) [[unlikely]] {
    count_receive_drop(DropReason::bad_net_header);
    return Read::refused;
  }
  frame.offload() = *meta;
  if (packet_bytes <= kFrameDataBytesMax) {
    frame.set_single(packet_bytes);
  } else {
    frame.set_slab_tail(kFrameDataBytesMax, slab, packet_bytes - kFrameDataBytesMax);
    slab = nullptr;
  }
  return Read::frame;
}

bool TapQueue::receive(FrameBatch& batch, const Budget& budget, FrameCache& cache) noexcept {
  if (!attached()) return false;
  const size_t reads_max = std::min(budget.frames, batch.room());
  Slab* slab = nullptr;
  size_t bytes = 0;
  bool more = true;
  for (size_t reads = 0; reads < reads_max && bytes < budget.bytes; ++reads) {
    // Looked at each time: the first frame that does not fit a chunk switches it on.
    if (slab == nullptr && large_frames_.load(std::memory_order_relaxed)) {
      slab = cache.take_slab();
      if (slab == nullptr) break;  // the kernel's queue holds what is left until slabs come back
    }
    Frame* const frame = cache.take();
    if (frame == nullptr) break;
    const Read outcome = read_frame(*frame, slab);
    if (outcome != Read::frame) {
      cache.give(frame);
      if (outcome == Read::refused) continue;
      more = false;
      break;
    }
    bytes += frame->packet_bytes();
    batch.push(frame);
  }
  if (slab != nullptr) cache.give_slab(slab);
  if (!batch.empty()) {
    received_.count_batch(batch.size(), bytes);
  }
  return more;
}

// By reference means now or never; what lies in our memory may be offered again.
void TapQueue::refuse_full(Frame& frame) noexcept {
  if (frame.tail_kind() == TailKind::spans)
    frame.set_dropped(DropReason::port_full);
  else
    frame.set_result(FrameResult::blocked);
}

void TapQueue::note_refusal(Frame& frame, int error) noexcept {
  switch (error) {
    case EAGAIN:
    case ENOBUFS:
      if (!blocked_) blocked_at_ns_ = monotonic_ns();
      blocked_ = true;
      refuse_full(frame);
      return;
    case EIO:
    case ENETDOWN:
      link_.note(TapLink::State::down);
      frame.set_dropped(DropReason::port_down);
      return;
    case EBUSY:  // a detached queue
    case EBADFD:
    case ENXIO:
    case ENODEV:
      if (is_gone(error) && attached()) link_.note(TapLink::State::gone);
      frame.set_dropped(DropReason::port_down);
      return;
    case EINVAL:
      frame.set_dropped(DropReason::port_rejected);
      return;
    case EFAULT:
      frame.set_dropped(frame.tail_kind() == TailKind::spans ? DropReason::guest_memory_gone
                                                             : DropReason::port_error);
      return;
    default:
      frame.set_dropped(DropReason::port_error);
      return;
  }
}

void TapQueue::offer(Frame& frame) noexcept {
  SLUICE_ASSERT(frame.headroom_bytes() >= kNetHeaderBytes);
  if (frame.packet_bytes() < kPacketBytesMin) return frame.set_dropped(DropReason::runt);
  if (frame.packet_bytes() > kPacketBytesMax) return frame.set_dropped(DropReason::oversize);
  const NetHeaderBytes header = header_for(frame);
  uint8_t* const begin = frame.data() - kNetHeaderBytes;
  std::memcpy(begin, header.data(), kNetHeaderBytes);
  const size_t head_bytes = kNetHeaderBytes + frame.head_bytes();
  ssize_t written = 0;
  if (frame.is_single()) [[likely]] {
    written = ::write(fd_.get(), begin, head_bytes);
  } else {
    iovec parts[kPacketPartsMax];
    int count = 0;
    for_each_part(frame, [&](const uint8_t* bytes, size_t part_bytes) {
      parts[count++] = {const_cast<uint8_t*>(bytes), part_bytes};
    });
    parts[0] = {begin, head_bytes};
    written = ::writev(fd_.get(), parts, count);
  }
  if (written < 0) [[unlikely]]
    return note_refusal(frame, errno);
  blocked_ = false;
  link_.note(TapLink::State::up);
  frame.set_result(FrameResult::done);
}

void TapQueue::transmit(FrameBatch& batch) noexcept {
  size_t sent = 0;
  size_t bytes = 0;
  bool full = false;  // in this batch: order holds, so the rest waits too
  for (Frame* const frame : batch) {
    if (full) {
      refuse_full(*frame);
      continue;
    }
    offer(*frame);
    if (frame->result() == FrameResult::done) {
      ++sent;
      bytes += frame->packet_bytes();
    } else {
      full = blocked_;
    }
  }
  if (sent == 0) return;
  transmitted_.count_batch(sent, bytes);
}

size_t TapQueue::transmit_room() noexcept {
  if (!blocked_) [[likely]]
    return kBatchFramesMax;
  // After the longest wait a write is tried whatever poll says: an interface that went down while
  // we were blocked never becomes writable, and its frames are to be counted as port_down.
  const bool waited = monotonic_ns() - blocked_at_ns_ > kHeldMillisecondsMax * 1'000'000;
  if (!waited && !(level(fd_.get(), POLLOUT) & POLLOUT)) return 0;
  blocked_ = false;
  return kBatchFramesMax;
}

bool TapQueue::arm(bool wants_frames, bool wants_room) noexcept {
  // Without takers for them frames must not wake us: masked, and put back by a later arm(), which
  // looks again by itself. Only changes cost a call, and a descriptor in error is woken by each, so
  // doing it always would spin.
  uint32_t events = EPOLLET;
  if (wants_frames) events |= EPOLLIN;
  if (wants_room) events |= EPOLLOUT;
  const bool again = watch_again_.exchange(false, std::memory_order_acquire);
  if (events != watched_events_ || again) {
    watched_events_ = events;
    wake_.modify(fd_.get(), events, 0);
  }
  // Edges before this line have no waiter: look at the level. Edges after it wake us.
  if (wants_room && transmit_room() > 0) return true;
  return wants_frames && attached() && (level(fd_.get(), POLLIN) & POLLIN);
}

void TapQueue::on_wake() noexcept {
  uint32_t key = 0;
  uint32_t events = 0;
  for (int i = 0; i < kWakeEventsMax && wake_.next(key, events); ++i)
    if (events & EPOLLIN) received_.kicks.add(1);
}

Result<void> TapQueue::set_attached(bool attach) {
  if (attach == attached()) return {};
  if (!attach) {
    // First out of sight: a detached descriptor is in error for good.
    attached_.store(false);
    wake_.remove(fd_.get());
  }
  ifreq request{};
  request.ifr_flags = attach ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE;
  const int error = ::ioctl(fd_.get(), TUNSETQUEUE, &request) == 0 ? 0 : errno;
  if (attach == (error == 0)) {  // attached by this call, or still
    attached_.store(true);
    watch_again_.store(true, std::memory_order_release);
    // All events: the worker wakes at once and then asks for those that it wants.
    if (auto added = wake_.add(fd_.get(), kFramesAndRoom, 0); !added) return added;
  }
  if (error != 0) return fail("{}", errno_text(error));
  return {};
}

TapPort::TapPort(TapHandles& handles)
    : Port(handles.name),
      ifname_(handles.ifname),
      description_(handles.describe()),
      macvtap_(handles.macvtap),
      multi_queue_(handles.multi_queue),
      mtu_(handles.mtu),
      flags_(handles.negotiated()),
      kernel_offloads_(handles.offloads),
      link_(handles.name, handles.ifname) {}

Result<std::unique_ptr<TapPort>> TapPort::open(const TapSpec& spec) {
  Result<TapHandles> handles = open_tap(spec);
  if (!handles) return handles.error();
  return adopt(std::move(*handles));
}

Result<std::unique_ptr<TapPort>> TapPort::adopt(TapHandles handles) {
  std::unique_ptr<TapPort> port(new TapPort(handles));
  for (Fd& fd : handles.queues) {
    Result<WakeSet> wake = WakeSet::create();
    if (!wake) return fail("{}: {}", handles.name, wake.error().text);
    port->queues_.push_back(
        std::make_unique<TapQueue>(std::move(fd), std::move(*wake), port->link_));
    if (auto watched = port->queues_.back()->watch(); !watched)
      return fail("{}: {}", handles.name, watched.error().text);
  }
  port->set_peer_takes({});
  return port;
}

PortQueue& TapPort::queue(uint32_t index) {
  SLUICE_ASSERT(index < queues_.size());
  return *queues_[index];
}

std::vector<std::string> TapPort::negotiated() const {
  std::vector<std::string> names = flags_;
  for (std::string& name : offload_names(switched_on_)) names.push_back(std::move(name));
  return names;
}

OffloadSet TapPort::takes() const {
  // On the way in the kernel does all of these in software; UDP segmentation since the release that
  // lets it be switched on for the way out.
  return {.csum = true, .tso4 = true, .tso6 = true, .tso_ecn = true, .uso = kernel_offloads_.uso};
}

void TapPort::set_peer_takes(const OffloadSet& peer) {
  peer_takes_ = peer;
  const OffloadSet& kernel = kernel_offloads_;
  OffloadSet wanted{};
  wanted.csum = peer.csum && kernel.csum;
  wanted.tso4 = wanted.csum && peer.tso4 && kernel.tso4;
  wanted.tso6 = wanted.csum && peer.tso6 && kernel.tso6;
  wanted.tso_ecn = (wanted.tso4 || wanted.tso6) && peer.tso_ecn && kernel.tso_ecn;
  wanted.uso = wanted.csum && peer.uso && kernel.uso;
  if (brings_whole_frames_) wanted = {.csum = wanted.csum};
  const bool segments = wanted.tso4 || wanted.tso6 || wanted.uso;
  const bool jumbo = !mtu_ || *mtu_ + 14 + 8 >= kFrameDataBytesMax;  // Ethernet and two VLAN tags
  // Before the kernel sends the first large frame, and not taken back: some may be on their way.
  if (segments || jumbo)
    for (auto& queue : queues_) queue->expect_large_frames(true);
  // One descriptor speaks for the whole interface, except that each macvtap queue has its own set.
  for (size_t i = 0; i < (macvtap_ ? queues_.size() : 1); ++i) {
    if (::ioctl(queues_[i]->fd(), TUNSETOFFLOAD,
                static_cast<unsigned long>(tun_offload_flags(wanted))) == 0)
      continue;
    if (link_.state() != TapLink::State::gone)
      log_warning("{}: cannot switch the offloads of {}: {}", name(), ifname_, errno_text(errno));
    return;
  }
  switched_on_ = wanted;
}

Result<void> TapPort::bring_whole_frames() {
  constexpr size_t kHeaderBytes = 14 + 8;  // Ethernet and two VLAN tags
  if (mtu_ && *mtu_ + kHeaderBytes > kFrameDataBytesMax)
    return fail("the MTU of {} is {}, and a program cannot see such frames whole: at most {}",
                ifname_, *mtu_, kFrameDataBytesMax - kHeaderBytes);
  brings_whole_frames_ = true;
  set_peer_takes(peer_takes_);
  return {};
}

void TapPort::set_active_queues(const std::vector<bool>& active) {
  if (!multi_queue_ || queues_.size() == 1) return;
  SLUICE_ASSERT(active.size() == queues_.size());
  for (size_t i = 1; i < queues_.size(); ++i) {
    if (auto done = queues_[i]->set_attached(active[i]);
        !done && link_.state() != TapLink::State::gone)
      log_warning("{}: cannot {} queue {} of {}: {}", name(), active[i] ? "attach" : "detach", i,
                  ifname_, done.error().text);
  }
}

Result<void> TapPort::set_mac(const std::array<uint8_t, 6>& mac) {
  ifreq request{};
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  std::memcpy(request.ifr_hwaddr.sa_data, mac.data(), mac.size());
  // On the TAP's own descriptor, so that its namespace does not matter.
  if (::ioctl(queues_[0]->fd(), SIOCSIFHWADDR, &request) != 0)
    return fail("{} does not take the address {:02x}: {}", ifname_, fmt::join(mac, ":"),
                errno_text(errno));
  return {};
}

}  // namespace sluice
