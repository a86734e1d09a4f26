"""A QEMU guest, Debian's kernel in software emulation, through the daemon to a TAP; and QEMU's own
TAP back end on the queues that `sluice tap` opened."""

import ctypes
import fcntl
import os
import struct

from lib import each, timeout
from lib.daemon import Daemon
from lib.netns import Netns
from lib.qemu import Qemu, SluiceTap, VhostUser
from lib.traffic import FROM_GUEST, TO_GUEST, Wire

HOST_V4, GUEST_V4 = "10.78.0.1", "10.78.0.2"
HOST_V6, GUEST_V6 = "fd78::1", "fd78::2"

TUNGETIFF = 0x800454D2
IFF_NAPI = 0x0010
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438


def host_addresses(ns):
    ns.tap_up("tap0", HOST_V4 + "/24")
    ns.tap_up("tap0", HOST_V6 + "/64")


def wire_to(guest, ns, queues=1):
    guest.configure(None, GUEST_V4 + "/24", GUEST_V6 + "/64")
    guest.wait_link()
    wire = Wire(guest, ns, "tap0", HOST_V4, HOST_V6, in_order=queues == 1)
    wire.wait_reachable()
    wire.wait_reachable(ipv6=True)
    return wire


def start(env, queues, packed="off"):
    """A daemon with a VM and a TAP of `queues` pairs and a guest on it; returns (daemon, wire)."""
    ns = Netns(env)
    socket = env.path("vm0.sock")
    daemon = Daemon(env, ["--vm", f"vm0,socket={socket},queues={queues}",
                          "--tap", f"t0,ifname=tap0,queues={queues}", "--connect", "vm0:t0"], ns)
    host_addresses(ns)
    guest = Qemu(env, VhostUser(socket, queues), device_options=f",packed={packed}")
    wire = wire_to(guest, ns, queues)
    assert ("ring_packed" in daemon.negotiated("vm0")) == (packed == "on"), daemon.negotiated("vm0")
    return daemon, wire


def check_all_traffic(env, wire):
    count = 100 if env.full else 20
    for ipv6 in (False, True):
        wire.ping(count, TO_GUEST, ipv6)
        wire.ping(count, FROM_GUEST, ipv6)
    size = 20_000_000 if env.full else 4_000_000
    datagrams = 5000 if env.full else 1000
    for direction in (FROM_GUEST, TO_GUEST):
        for ipv6 in (False, True) if env.full else (True,):
            wire.iperf(5 if env.full else 1, direction, ipv6)
            wire.check_tcp_bytes(direction, size, ipv6)
            for payload_bytes in (1400, 64):
                wire.check_udp(direction, datagrams, payload_bytes, 1000, ipv6)


def assert_both_ways(daemon):
    daemon.assert_alive()
    assert daemon.frames("vm0", "from_guest") > 0
    assert daemon.frames("vm0", "to_guest") > 0


@timeout(400)
@each(split="off", packed="on")
def test_a_qemu_guest_with_one_queue_pair_exchanges_pings_tcp_and_udp(env, packed):
    if not env.full:
        env.skip("one QEMU boot in the scaled-down run, see --full")
    daemon, wire = start(env, 1, packed)
    check_all_traffic(env, wire)
    assert_both_ways(daemon)
    wire.guest.poweroff()
    daemon.assert_alive()


@timeout(500)
@each(packed="on", split="off")
def test_a_qemu_guest_with_two_queue_pairs_uses_both(env, packed):
    if packed == "off" and not env.full:
        env.skip("one QEMU boot in the scaled-down run, see --full")
    daemon, wire = start(env, 2, packed)
    wire.guest.run("ethtool -L eth0 combined 2")
    check_all_traffic(env, wire)
    # So many flows that one queue alone would need a coincidence of 1 in 2^15.
    for direction in (FROM_GUEST, TO_GUEST):
        wire.iperf(5 if env.full else 1, direction, extra="-P 16")
    for direction in (FROM_GUEST, TO_GUEST):
        frames = [queue["frames"] for queue in daemon.queues("vm0", direction)]
        assert len(frames) == 2 and min(frames) > 0, f"{direction}: frames of the queues {frames}"
    # Down to one pair and up again while it runs.
    for pairs in (1, 2):
        wire.guest.run(f"ethtool -L eth0 combined {pairs}")
        wire.ping(20)
        wire.check_udp(FROM_GUEST, 500, 64, 1000)
        wire.check_udp(TO_GUEST, 500, 64, 1000)
    assert_both_ways(daemon)
    wire.guest.poweroff()
    daemon.assert_alive()


@timeout(400)
@each(split="off", packed="on")
def test_a_qemu_guest_reset_from_inside_comes_back(env, packed):
    if not env.full:
        env.skip("one QEMU boot in the scaled-down run, see --full")
    daemon, wire = start(env, 1, packed)
    for _ in range(5):
        wire.guest.run("echo virtio0 >/sys/bus/virtio/drivers/virtio_net/unbind && "
                       "echo virtio0 >/sys/bus/virtio/drivers/virtio_net/bind")
        wire_to(wire.guest, wire.ns).ping(20)
    assert_both_ways(daemon)


def tap_flags(pid):
    """What TUNGETIFF says about each TAP descriptor that the process holds."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    assert pidfd >= 0, "pidfd_open failed"
    flags = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{name}") != "/dev/net/tun":
                continue
        except OSError:
            continue
        fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(name), 0)
        assert fd >= 0, "pidfd_getfd failed"
        answer = fcntl.ioctl(fd, TUNGETIFF, bytes(40))
        flags.append(struct.unpack_from("H", answer, 16)[0])
        os.close(fd)
    os.close(pidfd)
    return flags


@each(on=("on", 1), off=("off", 1), on_two_queues=("on", 2))
@timeout(250)
def test_sluice_tap_hands_qemu_queues_with_the_napi_that_was_asked_for(env, case):
    if not env.full:
        env.skip("one QEMU boot in the scaled-down run, see --full")
    napi, queues = case
    ns = Netns(env)
    guest = Qemu(env, SluiceTap(f"t0,ifname=tap0,queues={queues},napi={napi}", queues), ns)
    host_addresses(ns)
    wire = wire_to(guest, ns, queues)
    if queues > 1:
        guest.run(f"ethtool -L eth0 combined {queues}")
    for ipv6 in (False, True):
        wire.ping(100, TO_GUEST, ipv6)
        wire.ping(100, FROM_GUEST, ipv6)
    wire.check_tcp_bytes(FROM_GUEST, 4_000_000)
    wire.check_tcp_bytes(TO_GUEST, 4_000_000)
    flags = tap_flags(guest.process.pid)
    assert len(flags) == queues, f"{len(flags)} TAP descriptors in QEMU instead of {queues}"
    for word in flags:
        assert bool(word & IFF_NAPI) == (napi == "on"), f"TUNGETIFF says {word:#06x}, napi={napi}"
    guest.poweroff()
