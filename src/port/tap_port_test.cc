#include "port/tap_port.h"

#include <gmock/gmock.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include <array>

#include "port/tap_testing.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

uint64_t drops(const QueueCounters& counters, DropReason reason) {
  return counters.drops[static_cast<size_t>(reason)].get();
}

Bytes bytes_of(const Frame& frame) {
  Bytes all(frame.data(), frame.data() + frame.head_bytes());
  if (frame.tail_kind() == TailKind::slab)
    all.insert(all.end(), frame.slab()->data, frame.slab()->data + frame.tail_bytes());
  return all;
}

// Waits for the descriptor as the worker's epoll would.
bool wakes(int wake_fd, int wait_ms = 1000) {
  pollfd watched{wake_fd, POLLIN, 0};
  return ::poll(&watched, 1, wait_ms) == 1;
}

class TapPortTest : public NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (IsSkipped()) return;
    pool_ = std::move(*FramePool::create({.frame_count = 512, .slab_count = 32}));
    cache_ = std::make_unique<FrameCache>(*pool_);
  }
  void open(TapSpec spec = {.name = "t0", .ifname = "tap0"}) {
    Result<std::unique_ptr<TapPort>> opened = TapPort::open(spec);
    ASSERT_TRUE(opened) << opened.error().text;
    port_ = std::move(*opened);
  }
  TapQueue& queue(uint32_t index = 0) { return static_cast<TapQueue&>(port_->queue(index)); }

  // Everything that arrives at a queue until it is empty; frames go back to the pool.
  std::vector<Bytes> receive_all(uint32_t index = 0) {
    std::vector<Bytes> packets;
    for (int burst = 0; burst < 100; ++burst) {
      FrameBatch batch;
      const bool more = queue(index).receive(batch, {}, *cache_);
      for (Frame* frame : batch) {
        packets.push_back(bytes_of(*frame));
        last_meta_ = frame->offload();
        cache_->give(frame);
      }
      if (!more) break;
    }
    return packets;
  }
  Frame* make_frame(const Bytes& packet) {
    Frame* frame = cache_->take();
    const size_t head_bytes = std::min(packet.size(), kFrameDataBytesMax);
    std::copy_n(packet.begin(), head_bytes, frame->data());
    if (head_bytes == packet.size()) {
      frame->set_single(head_bytes);
    } else {
      Slab* slab = cache_->take_slab();
      std::memcpy(slab->data, packet.data() + head_bytes, packet.size() - head_bytes);
      frame->set_slab_tail(head_bytes, slab, packet.size() - head_bytes);
    }
    return frame;
  }
  void give_all(FrameBatch& batch) {
    for (Frame* frame : batch) cache_->give(frame);
    batch.clear();
  }
  FrameResult transmit(const Bytes& packet, uint32_t index = 0) {
    FrameBatch batch;
    batch.push(make_frame(packet));
    queue(index).transmit(batch);
    const FrameResult result = batch[0]->result();
    last_reason_ = batch[0]->drop_reason();
    give_all(batch);
    return result;
  }

  std::unique_ptr<FramePool> pool_;
  std::unique_ptr<FrameCache> cache_;
  std::unique_ptr<TapPort> port_;
  OffloadMeta last_meta_;
  DropReason last_reason_{};
};

// A TCP/IPv4 packet whose checksum and segmentation are left to others: sums as the kernel wants
// them (pseudo-header in the TCP field, the IP header's own complete).
Bytes tcp_super_frame(size_t payload_bytes) {
  constexpr size_t kHeaders = 14 + 20 + 20;
  Bytes packet = test_packet(kHeaders + payload_bytes, 9);
  uint8_t* const ip = packet.data() + 14;
  std::memset(packet.data() + 12, 0, kHeaders - 12);
  packet[12] = 0x08;
  ip[0] = 0x45;
  ip[2] = static_cast<uint8_t>((40 + payload_bytes) >> 8);
  ip[3] = static_cast<uint8_t>(40 + payload_bytes);
  ip[8] = 64;
  ip[9] = 6;
  ip[12] = ip[16] = 10;
  ip[15] = 2;
  ip[19] = 1;
  const auto sum = [](const uint8_t* at, size_t count, uint32_t start) {
    for (size_t i = 0; i < count; i += 2) start += static_cast<uint32_t>(at[i] << 8 | at[i + 1]);
    while (start >> 16) start = (start & 0xffff) + (start >> 16);
    return start;
  };
  const uint32_t ip_sum = ~sum(ip, 20, 0);
  ip[10] = static_cast<uint8_t>(ip_sum >> 8);
  ip[11] = static_cast<uint8_t>(ip_sum);
  uint8_t* const tcp = ip + 20;
  tcp[3] = 9;
  tcp[12] = 5 << 4;
  tcp[13] = 0x10;
  const uint32_t pseudo = sum(ip + 12, 8, static_cast<uint32_t>(6 + 20 + payload_bytes));
  tcp[16] = static_cast<uint8_t>(pseudo >> 8);
  tcp[17] = static_cast<uint8_t>(pseudo);
  return packet;
}

OffloadMeta tcp_super_meta() {
  OffloadMeta meta;
  meta.needs_csum = true;
  meta.gso_type = GsoType::tcp4;
  meta.header_bytes = 54;
  meta.gso_size = 1448;
  meta.csum_start = 34;
  meta.csum_offset = 16;
  return meta;
}
constexpr size_t kSuperPayloadBytes = 65535 - 40;

TEST_F(TapPortTest, CarriesFramesBothWaysByteForByte) {
  open({.name = "t0", .ifname = "tap0", .mtu = 9000});
  HostEnd host("tap0");
  uint64_t bytes = 0;
  for (const size_t size : {14u, 59u, 60u, 64u, 1514u, 3519u, 3520u, 3521u, 9014u}) {
    const Bytes down = test_packet(size, 3);
    const Bytes up = test_packet(size, 4);
    ASSERT_EQ(transmit(down), FrameResult::done) << size;
    EXPECT_EQ(host.receive(), down) << size;
    host.send(up);
    EXPECT_THAT(receive_all(), ::testing::ElementsAre(up)) << size;
    bytes += size;
  }
  EXPECT_EQ(queue().transmitted().frames.get(), 9u);
  EXPECT_EQ(queue().transmitted().bytes.get(), bytes);
  EXPECT_EQ(queue().received().frames.get(), 9u);
  EXPECT_EQ(queue().received().bytes.get(), bytes);
  EXPECT_EQ(queue().received().batch_histogram[0].get(), 9u);
  EXPECT_EQ(pool_->slabs_free(), 32u);
}

TEST_F(TapPortTest, SendsASuperFrameFromASlabAndFromGuestMemory) {
  open();
  HostEnd host("tap0", /*headers=*/true);
  const Bytes packet = tcp_super_frame(kSuperPayloadBytes);
  Bytes guest(packet.begin() + 100, packet.end());
  std::array<GuestSpan, 2> spans{GuestSpan(guest.data(), 30'000),
                                 GuestSpan(guest.data() + 30'000, guest.size() - 30'000)};
  for (const bool by_reference : {false, true}) {
    FrameBatch batch;
    Frame* frame = make_frame(by_reference ? Bytes(packet.begin(), packet.begin() + 100) : packet);
    if (by_reference) frame->set_span_tail(100, spans, guest.size());
    frame->offload() = tcp_super_meta();
    batch.push(frame);
    queue().transmit(batch);
    ASSERT_EQ(frame->result(), FrameResult::done) << by_reference;
    give_all(batch);
    const std::optional<Bytes> seen = host.receive();
    ASSERT_TRUE(seen);
    ASSERT_EQ(seen->size(), 10 + packet.size());
    EXPECT_EQ((*seen)[1], 1) << "GSO type TCPv4";
    EXPECT_EQ((*seen)[4] | (*seen)[5] << 8, 1448) << "GSO size";
    EXPECT_TRUE(std::equal(packet.begin(), packet.end(), seen->begin() + 10)) << by_reference;
  }
}

TEST_F(TapPortTest, ReceivesASuperFrameWhenThePeerTakesIt) {
  open();
  port_->set_peer_takes({.csum = true, .tso4 = true, .tso6 = true, .tso_ecn = true, .uso = true});
  EXPECT_THAT(port_->negotiated(), Contains("tso4"));
  HostEnd host("tap0", /*headers=*/true);
  // Linux segments by itself what is 64 KiB with its Ethernet header.
  const size_t payload_bytes = kSuperPayloadBytes - 14;
  const Bytes packet = tcp_super_frame(payload_bytes);
  Bytes wire = {1, 1, 54, 0, 1448 & 255, 1448 >> 8, 34, 0, 16, 0};
  wire.insert(wire.end(), packet.begin(), packet.end());
  host.send(wire);
  EXPECT_TRUE(receive_all() == std::vector<Bytes>{packet});
  EXPECT_TRUE(last_meta_.needs_csum && last_meta_.gso_type == GsoType::tcp4);
  EXPECT_EQ(last_meta_.gso_size, 1448);
  EXPECT_EQ(last_meta_.csum_start, 34);
  EXPECT_EQ(last_meta_.csum_offset, 16);
  // And in segments, with their sums complete, when it takes none.
  port_->set_peer_takes({});
  EXPECT_THAT(port_->negotiated(), Not(Contains("tso4")));
  host.send(wire);
  const std::vector<Bytes> segments = receive_all();
  EXPECT_EQ(segments.size(), (payload_bytes + 1447) / 1448);
  EXPECT_FALSE(last_meta_.needs_csum);
  EXPECT_EQ(last_meta_.gso_type, GsoType::none);
  EXPECT_EQ(pool_->slabs_free(), 32u);
}

TEST_F(TapPortTest, KeepsToItsBudget) {
  open();
  HostEnd host("tap0");
  for (int i = 0; i < 100; ++i) host.send(test_packet(1000));
  FrameBatch batch;
  EXPECT_TRUE(queue().receive(batch, {.frames = 10, .bytes = kBurstBytesMax}, *cache_));
  EXPECT_EQ(batch.size(), 10u);
  give_all(batch);
  EXPECT_TRUE(queue().receive(batch, {.frames = 64, .bytes = 5000}, *cache_));
  EXPECT_EQ(batch.size(), 5u);
  give_all(batch);
  EXPECT_EQ(receive_all().size(), 85u);
}

TEST_F(TapPortTest, RefusesFramesOfImpossibleLengthAndSendsTheNext) {
  open();
  HostEnd host("tap0");
  FrameBatch batch;
  for (size_t size = 0; size <= 14; ++size) batch.push(make_frame(test_packet(size)));
  batch.push(make_frame(test_packet(kPacketBytesMax + 1)));
  batch.push(make_frame(test_packet(60)));
  queue().transmit(batch);
  for (size_t i = 0; i < 14; ++i) {
    EXPECT_EQ(batch[i]->result(), FrameResult::dropped) << i;
    EXPECT_EQ(batch[i]->drop_reason(), DropReason::runt) << i;
  }
  EXPECT_EQ(batch[14]->result(), FrameResult::done);
  EXPECT_EQ(batch[15]->drop_reason(), DropReason::oversize);
  EXPECT_EQ(batch[16]->result(), FrameResult::done);
  give_all(batch);
  EXPECT_EQ(host.receive(), test_packet(14));
  EXPECT_EQ(host.receive(), test_packet(60));
  EXPECT_EQ(queue().transmitted().frames.get(), 2u);
}

TEST_F(TapPortTest, NamesWhatTheKernelRefusesAndSendsTheNext) {
  open();
  HostEnd host("tap0");
  // A guest's file that was truncated: its pages are gone.
  const Fd file(::memfd_create("guest", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
  void* const memory = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  const GuestSpan gone(static_cast<uint8_t*>(memory), 8192);

  FrameBatch batch;
  Frame* const vanished = make_frame(test_packet(100));
  vanished->set_span_tail(100, {&gone, 1}, 8192);
  batch.push(vanished);
  Frame* const beyond = make_frame(test_packet(100));
  beyond->offload().needs_csum = true;
  beyond->offload().csum_start = 99;
  beyond->offload().csum_offset = 2;
  batch.push(beyond);
  Frame* const endless = make_frame(test_packet(100));
  endless->offload() = tcp_super_meta();
  endless->offload().gso_size = 0;
  batch.push(endless);
  // A hint is never trusted: it must not cost the frame.
  Frame* const hinted = make_frame(test_packet(100));
  hinted->offload().header_bytes = 60'000;
  batch.push(hinted);
  batch.push(make_frame(test_packet(200)));
  queue().transmit(batch);
  EXPECT_EQ(vanished->drop_reason(), DropReason::guest_memory_gone);
  EXPECT_EQ(beyond->drop_reason(), DropReason::port_rejected);
  EXPECT_EQ(endless->drop_reason(), DropReason::port_rejected);
  EXPECT_EQ(hinted->result(), FrameResult::done);
  EXPECT_EQ(batch[4]->result(), FrameResult::done);
  give_all(batch);
  EXPECT_EQ(host.receive(), test_packet(100));
  EXPECT_EQ(host.receive(), test_packet(200));
  ::munmap(memory, 8192);
}

TEST_F(TapPortTest, DropsByNameWhileDownAndGoesOnWhenUp) {
  open();
  HostEnd host("tap0");
  ::testing::internal::CaptureStderr();
  sh("ip link set tap0 down");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(transmit(test_packet(60)), FrameResult::dropped);
    EXPECT_EQ(last_reason_, DropReason::port_down);
  }
  EXPECT_TRUE(receive_all().empty());
  EXPECT_FALSE(queue().arm(true, false));
  EXPECT_EQ(queue().transmit_room(), kBatchFramesMax) << "frames must go on to be counted";
  sh("ip link set tap0 up");
  EXPECT_EQ(transmit(test_packet(61)), FrameResult::done);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("interface tap0 is down"));
  EXPECT_EQ(log.find("is down"), log.rfind("is down")) << "said once: " << log;
  EXPECT_THAT(log, HasSubstr("is up again"));
  // The packet socket is told of the down state first, then of nothing but frames.
  HostEnd later("tap0");
  EXPECT_EQ(transmit(test_packet(62)), FrameResult::done);
  EXPECT_EQ(later.receive(), test_packet(62));
  later.send(test_packet(63));
  EXPECT_THAT(receive_all(), ::testing::ElementsAre(test_packet(63)));
}

TEST_F(TapPortTest, SurvivesTheDeletionOfItsInterface) {
  open({.name = "t0", .ifname = "tap0", .queues = 2});
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(queue().arm(true, false));
  sh("ip link del tap0");
  EXPECT_TRUE(wakes(queue().wake_fd()));
  queue().on_wake();
  EXPECT_TRUE(receive_all().empty());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(transmit(test_packet(60)), FrameResult::dropped);
    EXPECT_EQ(last_reason_, DropReason::port_down);
    EXPECT_FALSE(queue().arm(true, false));
    EXPECT_FALSE(wakes(queue().wake_fd(), 20)) << "a dead descriptor must not keep us awake";
  }
  port_->set_active_queues({true, false});
  port_->set_peer_takes({.csum = true});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("interface tap0 was deleted"));
  EXPECT_EQ(log.find('\n'), log.size() - 1) << "one line: " << log;
}

TEST_F(TapPortTest, NeverCutsAFrameInSilence) {
  open();
  HostEnd host("tap0");
  sh("ip link set tap0 mtu 9000");  // behind our back
  host.send(test_packet(9014));
  host.send(test_packet(9013));
  host.send(test_packet(60));
  EXPECT_THAT(receive_all(), ::testing::ElementsAre(test_packet(9013), test_packet(60)));
  EXPECT_EQ(drops(queue().received(), DropReason::oversize), 1u);
}

TEST_F(TapPortTest, WaitsInTheKernelWhileThePoolIsEmpty) {
  open();
  HostEnd host("tap0");
  host.send(test_packet(60));
  std::vector<Frame*> taken;
  while (Frame* frame = cache_->take()) taken.push_back(frame);
  FrameBatch batch;
  EXPECT_TRUE(queue().receive(batch, {}, *cache_));
  EXPECT_TRUE(batch.empty());
  for (Frame* frame : taken) cache_->give(frame);
  EXPECT_THAT(receive_all(), ::testing::ElementsAre(test_packet(60)));
}

TEST_F(TapPortTest, WakesOnceForFramesAndLooksAgainBeforeItSleeps) {
  open();
  HostEnd host("tap0");
  EXPECT_FALSE(queue().arm(true, false));
  EXPECT_FALSE(wakes(queue().wake_fd(), 0));
  host.send(test_packet(60));
  EXPECT_TRUE(wakes(queue().wake_fd()));
  queue().on_wake();
  EXPECT_FALSE(wakes(queue().wake_fd(), 20)) << "the edge has been taken";
  EXPECT_EQ(queue().received().kicks.get(), 1u);
  EXPECT_TRUE(queue().arm(true, false)) << "what is there must be seen without an edge";
  EXPECT_FALSE(queue().arm(false, false)) << "nobody takes it";
  // Frames that nobody can take wake nobody, and are there when somebody can.
  host.send(test_packet(60));
  EXPECT_FALSE(wakes(queue().wake_fd(), 20));
  EXPECT_TRUE(queue().arm(true, false));
  queue().on_wake();
  EXPECT_EQ(receive_all().size(), 2u);
  EXPECT_FALSE(queue().arm(true, false));
  EXPECT_TRUE(queue().arm(true, true)) << "there is room";
}

TEST_F(TapPortTest, GivesEveryFlowToTheQueuesThatAreUsed) {
  open({.name = "t0", .ifname = "tap0", .queues = 4});
  HostEnd host("tap0");
  port_->set_active_queues({true, false, false, false});
  for (uint8_t flow = 0; flow < 200; ++flow) {
    Bytes packet = tcp_super_frame(100);
    packet[14 + 20 + 1] = flow;  // the TCP source port: another hash
    host.send(packet);
  }
  EXPECT_EQ(receive_all(0).size(), 200u);
  for (uint32_t i = 1; i < 4; ++i) {
    EXPECT_TRUE(receive_all(i).empty());
    EXPECT_FALSE(queue(i).arm(true, false));
    EXPECT_FALSE(wakes(queue(i).wake_fd(), 20)) << "a detached queue must not keep us awake";
    EXPECT_NE(transmit(test_packet(60), i), FrameResult::blocked);
  }
  port_->set_active_queues({true, true, true, true});
  for (uint32_t i = 1; i < 4; ++i) queue(i).arm(true, false);
  for (uint8_t flow = 0; flow < 200; ++flow) {
    Bytes packet = tcp_super_frame(100);
    packet[14 + 20 + 1] = flow;
    host.send(packet);
  }
  size_t seen = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(wakes(queue(i).wake_fd())) << i;
    const size_t here = receive_all(i).size();
    EXPECT_GT(here, 0u) << i;
    seen += here;
  }
  EXPECT_EQ(seen, 200u);
}

TEST_F(TapPortTest, WorksOnADescriptorThatWasHandedIn) {
  Fd handed = attach_tun("tap0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
  sh("ip link set tap0 up");
  open({.name = "t0", .fds = {handed.release()}});
  EXPECT_EQ(port_->ifname(), "tap0");
  HostEnd host("tap0");
  EXPECT_EQ(transmit(test_packet(60)), FrameResult::done);
  EXPECT_EQ(host.receive(), test_packet(60));
  host.send(test_packet(1514));
  EXPECT_THAT(receive_all(), ::testing::ElementsAre(test_packet(1514)));
}

TEST_F(TapPortTest, AMacvtapIsTheSameCode) {
  sh("ip link add veth0 type veth peer name veth1 && ip link set veth0 up && ip link set veth1 up");
  sh("ip link add link veth0 name m0 type macvtap mode passthru && ip link set m0 up");
  const std::string device = "/dev/tap" + std::to_string(::if_nametoindex("m0"));
  if (::access(device.c_str(), F_OK) != 0) GTEST_SKIP() << "nobody makes macvtap device nodes here";
  open({.name = "m", .ifname = "m0", .macvtap = true});
  EXPECT_EQ(port_->kind(), "macvtap");
  HostEnd host("veth1");
  EXPECT_EQ(transmit(test_packet(60)), FrameResult::done);
  EXPECT_EQ(host.receive(), test_packet(60));
  EXPECT_FALSE(queue().arm(true, false));
  host.send(test_packet(1514));
  EXPECT_TRUE(wakes(queue().wake_fd()));
  EXPECT_THAT(receive_all(), ::testing::ElementsAre(test_packet(1514)));
  EXPECT_EQ(transmit(test_packet(13)), FrameResult::dropped);
}

// A full kernel queue is rare on a TAP; a socket with the same calls is full on demand.
TEST_F(TapPortTest, BlocksInOrderWhenTheKernelIsFull) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Fd far(ends[1]);
  TapLink link("t0", "tap0");
  TapQueue full(Fd(ends[0]), std::move(*WakeSet::create()), link);
  ASSERT_TRUE(full.watch());
  Bytes guest(100);
  const GuestSpan span(guest.data(), guest.size());
  FrameBatch batch;
  int sent = 0;
  for (int burst = 0; burst < 1000 && full.transmit_room() > 0; ++burst) {
    give_all(batch);
    for (int i = 0; i < 8; ++i) batch.push(make_frame(test_packet(1000)));
    batch[7]->set_span_tail(1000, {&span, 1}, span.size());
    full.transmit(batch);
    for (Frame* frame : batch) sent += frame->result() == FrameResult::done;
  }
  ASSERT_EQ(full.transmit_room(), 0u);
  bool blocked = false;
  for (size_t i = 0; i < 7; ++i) {
    blocked = blocked || batch[i]->result() == FrameResult::blocked;
    EXPECT_EQ(batch[i]->result(), blocked ? FrameResult::blocked : FrameResult::done) << i;
  }
  EXPECT_EQ(batch[7]->drop_reason(), DropReason::port_full) << "by reference means now or never";
  give_all(batch);
  EXPECT_FALSE(full.arm(false, true));
  Bytes sink(4096);
  for (int i = 0; i < sent; ++i) EXPECT_GT(::recv(far.get(), sink.data(), sink.size(), 0), 0) << i;
  EXPECT_TRUE(wakes(full.wake_fd())) << "room must wake who waits for it";
  full.on_wake();
  EXPECT_TRUE(full.arm(false, true));
  EXPECT_EQ(full.transmit_room(), kBatchFramesMax);
}

}  // namespace
}  // namespace sluice
