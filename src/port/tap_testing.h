// For the tests of TAP ports: a network namespace of the test's own, and the host's end of a TAP.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace sluice {

using Bytes = std::vector<uint8_t>;

// Moves the test's thread into a fresh namespace, whose end takes all that was made in it along.
class NetnsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    if (::access("/dev/net/tun", R_OK | W_OK) != 0) GTEST_SKIP() << "there is no /dev/net/tun";
    outside_ = Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (::unshare(CLONE_NEWNET) != 0) GTEST_SKIP() << "network namespaces need CAP_SYS_ADMIN";
    inside_ = true;
    // No router solicitations: frame counts are exact.
    for (const char* which : {"all", "default"})
      std::ofstream(std::string("/proc/sys/net/ipv6/conf/") + which + "/disable_ipv6") << "1";
  }
  void TearDown() override {
    if (!inside_) return;
    ASSERT_EQ(::setns(outside_.get(), CLONE_NEWNET), 0);
  }

  static void sh(const std::string& command) {
    ASSERT_EQ(std::system((command + " 2>&1").c_str()), 0) << command;
  }
  // A second namespace: usable as /proc/self/fd/N.
  static Fd make_netns() {
    Fd made;
    std::thread([&made] {
      if (::unshare(CLONE_NEWNET) == 0)
        made = Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    }).join();
    return made;
  }

 private:
  Fd outside_;
  bool inside_ = false;
};

// The flags that TUNGETIFF tells.
inline unsigned tun_flags(int fd) {
  ifreq request{};
  EXPECT_EQ(::ioctl(fd, TUNGETIFF, &request), 0) << std::strerror(errno);
  return static_cast<uint16_t>(request.ifr_flags);
}

// A /dev/net/tun descriptor attached with these flags, as another program would hold one.
inline Fd attach_tun(const std::string& ifname, unsigned flags) {
  Fd fd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC));
  ifreq request{};
  std::memcpy(request.ifr_name, ifname.data(), ifname.size());
  request.ifr_flags = static_cast<short>(flags);
  EXPECT_EQ(::ioctl(fd.get(), TUNSETIFF, &request), 0) << std::strerror(errno);
  return fd;
}

// The host's end: a packet socket on the interface. With headers each packet has the kernel's
// 10-byte virtio-net header in front, both ways.
class HostEnd {
 public:
  explicit HostEnd(const std::string& ifname, bool headers = false)
      : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    const int one = 1;
    if (headers) {
      EXPECT_EQ(::setsockopt(socket_.get(), SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one), 0);
    }
    EXPECT_EQ(::setsockopt(socket_.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one), 0);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(ifname.c_str()));
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
        << ifname;
  }
  void send(const Bytes& packet) {
    ASSERT_EQ(::send(socket_.get(), packet.data(), packet.size(), 0),
              static_cast<ssize_t>(packet.size()))
        << std::strerror(errno);
  }
  // The next packet that came in from the TAP's descriptor; nothing after `wait_ms`.
  std::optional<Bytes> receive(int wait_ms = 2000) {
    pollfd watched{socket_.get(), POLLIN, 0};
    if (::poll(&watched, 1, wait_ms) != 1) return std::nullopt;
    Bytes packet(128 * 1024);
    const ssize_t got = ::recv(socket_.get(), packet.data(), packet.size(), 0);
    if (got < 0) return std::nullopt;
    packet.resize(static_cast<size_t>(got));
    return packet;
  }

 private:
  Fd socket_;
};

// An Ethernet frame of a protocol that nobody answers; its bytes depend on `seed`.
inline Bytes test_packet(size_t bytes, uint8_t seed = 1) {
  Bytes packet(bytes);
  for (size_t i = 0; i < bytes; ++i) packet[i] = static_cast<uint8_t>(seed + i * 7 + i / 251);
  const uint8_t header[] = {0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, seed, 0x88, 0xb5};
  std::copy_n(header, std::min(bytes, sizeof header), packet.begin());
  return packet;
}

}  // namespace sluice
