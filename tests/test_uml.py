"""A real Linux driver as an ordinary process, User-Mode Linux, through the daemon to a TAP and back."""

from lib import each, timeout
from lib.daemon import Daemon
from lib.netns import Netns
from lib.traffic import FROM_GUEST, TO_GUEST, Wire
from lib.uml import Uml

MAC = "52:54:00:00:00:01"
HOST_V4, GUEST_V4 = "10.77.0.1", "10.77.0.2"
HOST_V6, GUEST_V6 = "fd77::1", "fd77::2"


def start_daemon(env, packed="on"):
    """One VM port wired to one TAP, which is up with its addresses; returns (daemon, namespace)."""
    ns = Netns(env)
    daemon = Daemon(env, ["--vm", f"vm0,socket={env.path('vm0.sock')},packed={packed}",
                          "--tap", "t0,ifname=tap0", "--connect", "vm0:t0"], ns)
    ns.tap_up("tap0", HOST_V4 + "/24")
    ns.tap_up("tap0", HOST_V6 + "/64")
    return daemon, ns


def boot(env, ns, mtu=None):
    """Boots a guest, configured and reachable; returns its wire."""
    guest = Uml(env, env.path("vm0.sock"))
    guest.configure(MAC, GUEST_V4 + "/24", GUEST_V6 + "/64", mtu)
    guest.wait_link()
    wire = Wire(guest, ns, "tap0", HOST_V4, HOST_V6)
    wire.wait_reachable()
    wire.wait_reachable(ipv6=True)
    return wire


def check_all_traffic(env, wire):
    """Every kind of traffic, both families, both ways."""
    count = 100 if env.full else 20
    for ipv6 in (False, True):
        wire.ping(count, TO_GUEST, ipv6)
        wire.ping(count, FROM_GUEST, ipv6)
    size = 20_000_000 if env.full else 4_000_000
    seconds = 5 if env.full else 1
    datagrams = 5000 if env.full else 1000
    for direction in (FROM_GUEST, TO_GUEST):
        for ipv6 in (False, True) if env.full else (False,):
            wire.iperf(seconds, direction, ipv6)
            wire.check_tcp_bytes(direction, size, ipv6)
    for payload_bytes in (1400, 64):
        for ipv6 in (False, True) if env.full else (payload_bytes == 64,):
            wire.check_udp_both_ways(datagrams, payload_bytes, 1000, ipv6)


@timeout(240)
@each(packed="on", split="off")
def test_a_uml_guest_exchanges_pings_tcp_and_udp_with_the_tap(env, packed):
    daemon, ns = start_daemon(env, packed)
    wire = boot(env, ns)
    assert ("ring_packed" in daemon.negotiated("vm0")) == (packed == "on"), daemon.negotiated("vm0")
    check_all_traffic(env, wire)
    daemon.assert_alive()
    assert daemon.frames("vm0", "from_guest") > 0
    assert daemon.frames("vm0", "to_guest") > 0
    env.note("negotiated: " + " ".join(daemon.negotiated("vm0")))
    check_power_cycle(env, daemon, wire, ns)


def check_power_cycle(env, daemon, wire, ns):
    """The guest switches itself off; the next one on the same socket works like the first."""
    wire.guest.poweroff()
    daemon.assert_alive()
    again = boot(env, ns)
    again.ping(20)
    again.check_tcp_bytes(FROM_GUEST, 1_000_000)
    again.guest.poweroff()


@timeout(180)
def test_a_tap_set_down_and_up_under_traffic_carries_on(env):
    if not env.full:
        return check_tap_down_and_up(env, 2)
    return check_tap_down_and_up(env, 20)


def check_tap_down_and_up(env, times):
    daemon, ns = start_daemon(env)
    wire = boot(env, ns)
    job = wire.guest.start(f"exec ping -q -i 0.01 {HOST_V4}", timeout=160)
    for _ in range(times):
        ns.run(["ip", "link", "set", "tap0", "down"])
        wire.guest.run("sleep 0.2")
        ns.run(["ip", "link", "set", "tap0", "up"])
        wire.wait_reachable()
    wire.guest.signal(job, 2)
    wire.guest.finish(job, 20, check=False)
    # The address of the other family went with the link.
    ns.run(["ip", "addr", "replace", HOST_V6 + "/64", "dev", "tap0", "nodad"])
    wire.wait_reachable(ipv6=True)
    wire.ping(20)
    wire.check_udp_both_ways(1000, 64, 1000)
    daemon.assert_alive()


@timeout(180)
def test_jumbo_frames_of_9000_bytes_arrive_whole(env):
    daemon, ns = start_daemon(env)
    ns.tap_up("tap0", mtu=9000)
    wire = boot(env, ns, mtu=9000)
    # 28 bytes of IPv4 and ICMP headers: exactly one frame of the whole MTU.
    wire.ping(20, TO_GUEST, size=8972)
    wire.ping(20, FROM_GUEST, size=8972)
    wire.check_udp_both_ways(1000 if env.full else 300, 8972, 300)
    for direction in (FROM_GUEST, TO_GUEST):
        wire.check_tcp_bytes(direction, 20_000_000 if env.full else 4_000_000)
    daemon.assert_alive()
