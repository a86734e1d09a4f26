"""`sluice guest`: an interface of the host that plugs into a back end as a VM does.

Two namespaces, an interface in each, and between them all of it: TAP, nic, vhost-user, VM port, TAP.
Against our own back end everything of a real guest is asked for; against others (testpmd, which
bounces or swallows frames) the counts.
"""

import re

from lib import each, timeout, wait_until
from lib.daemon import Daemon, assert_refused, check_table
from lib.netns import Netns
from lib.testpmd import Testpmd

HOST_V4, GUEST_V4 = "10.90.0.1", "10.90.0.2"


class GuestDaemon(Daemon):
    """`sluice guest`, watched like a daemon."""

    def __init__(self, env, args, ns=None):
        super().__init__(env, args, ns, command="guest")


def start(env, packed="off", tx="napi", queues=1):
    """A back end on a TAP in one namespace, a guest in another; returns both, reachable."""
    host, guest_ns = Netns(env), Netns(env)
    socket = env.path("vm0.sock")
    back = Daemon(env, ["--vm", f"vm0,socket={socket},queues={queues}", "--tap",
                        f"t0,ifname=tap0,queues={queues}", "--connect", "vm0:t0"], host)
    front = GuestDaemon(env, ["--socket", socket, "--ifname", "eth0", "--queues", str(queues),
                              "--tx", tx, *(["--packed"] if packed == "on" else [])], guest_ns)
    host.tap_up("tap0", HOST_V4 + "/24")
    guest_ns.tap_up("eth0", GUEST_V4 + "/24")
    front.wait_log(r"nic0: connected to a back end")
    wait_until(lambda: ping(guest_ns, HOST_V4, 1, check=False) == 0, 15, "the host does not answer")
    return back, front, host, guest_ns


def ping(ns, address, count, check=True):
    result = ns.run(["ping", "-q", "-i", "0.01", "-c", str(count), "-W", "2", address], check=check,
                    timeout=60)
    if check:
        assert f"{count} received" in result.stdout, result.stdout
    return result.returncode


def iperf(env, server_ns, client_ns, address, seconds, *extra):
    server = server_ns.popen(["iperf3", "-s", "-1", "-f", "m"])
    wait_until(lambda: "5201" in server_ns.run(["ss", "-ltn"]).stdout, 10, "iperf3 does not listen")
    text = client_ns.run(["iperf3", "-c", address, "-t", str(seconds), "-f", "m", *extra],
                         timeout=seconds + 30).stdout
    server.wait(15)
    rate = re.findall(r"([\d.]+) Mbits/sec.*receiver", text)
    assert rate and float(rate[-1]) > 0, text
    return float(rate[-1])


def check_bytes(server_ns, client_ns, address, size):
    """`size` random bytes over TCP arrive as they were sent, by their sha256."""
    script = (f"import hashlib,os,socket\ns=socket.create_connection(('{address}',5300))\n"
              f"h=hashlib.sha256()\nleft={size}\nwhile left:\n b=os.urandom(min(left,65536))\n"
              " h.update(b); s.sendall(b); left-=len(b)\ns.shutdown(1)\n"
              "print(h.hexdigest(), s.recv(64).decode())")
    receiver = ("import hashlib,socket\nl=socket.create_server(('0.0.0.0',5300))\n"
                "print('listens',flush=True)\ns,_=l.accept()\nh=hashlib.sha256()\n"
                "while True:\n b=s.recv(65536)\n if not b: break\n h.update(b)\n"
                "s.sendall(h.hexdigest().encode())\ns.close()")
    server = server_ns.popen(["python3", "-c", receiver])
    wait_until(lambda: "5300" in server_ns.run(["ss", "-ltn"]).stdout, 10, "nobody listens")
    sent, got = client_ns.run(["python3", "-c", script], timeout=120).stdout.split()
    assert sent == got, f"sent {sent}, arrived {got}"
    server.wait(15)


@timeout(180)
@each(split_napi=("off", "napi"), split_inline=("off", "inline"), packed_napi=("on", "napi"),
      packed_inline=("on", "inline"))
def test_a_guest_interface_talks_to_a_tap_through_our_own_back_end(env, case):
    packed, tx = case
    back, front, host, guest_ns = start(env, packed, tx)
    assert ("ring_packed" in back.negotiated("vm0")) == (packed == "on"), back.negotiated("vm0")
    count = 100 if env.full else 20
    ping(guest_ns, HOST_V4, count)
    ping(host, GUEST_V4, count)
    seconds = 5 if env.full else 1
    to_host = iperf(env, host, guest_ns, HOST_V4, seconds)
    to_guest = iperf(env, guest_ns, host, GUEST_V4, seconds)
    size = 20_000_000 if env.full else 4_000_000
    check_bytes(host, guest_ns, HOST_V4, size)
    check_bytes(guest_ns, host, GUEST_V4, size)
    env.note(f"{to_host:.0f} Mbit/s to the host, {to_guest:.0f} to the guest interface")
    assert back.frames("vm0", "from_guest") > 0 and front.frames("nic0", "to_device") > 0
    back.assert_alive()
    front.assert_alive()


@timeout(120)
def test_the_interface_has_the_address_that_the_device_names(env):
    host, guest_ns = Netns(env), Netns(env)
    socket = env.path("vm0.sock")
    Daemon(env, ["--vm", f"vm0,socket={socket},mac=52:54:00:aa:bb:cc", "--null", "n0", "--connect",
                 "vm0:n0"], host)
    GuestDaemon(env, ["--socket", socket, "--ifname", "eth0"], guest_ns)
    wait_until(lambda: "52:54:00:aa:bb:cc" in guest_ns.run(["ip", "link", "show", "eth0"]).stdout,
               10, "eth0 does not take the address of the device")


@timeout(120)
def test_several_queue_pairs_carry_flows_each(env):
    back, front, host, guest_ns = start(env, queues=2)
    back.wait_log(r"guest uses 2 of 2 queue pairs")
    front.wait_log(r"the device uses all queue pairs")
    iperf(env, host, guest_ns, HOST_V4, 1, "-P", "16")
    frames = [queue["frames"] for queue in back.queues("vm0", "from_guest")]
    assert len(frames) == 2 and min(frames) > 0, f"frames of the queues {frames}"


@timeout(120)
def test_a_back_end_that_is_killed_and_returns_is_found_again(env):
    host, guest_ns = Netns(env), Netns(env)
    socket = env.path("vm0.sock")
    arguments = ["--vm", f"vm0,socket={socket}", "--tap", "t0,ifname=tap0", "--connect", "vm0:t0"]
    front = GuestDaemon(env, ["--socket", socket, "--ifname", "eth0", "--packed"], guest_ns)
    guest_ns.tap_up("eth0", GUEST_V4 + "/24")
    fds = None
    for life in range(10 if env.full else 3):
        back = Daemon(env, arguments, host)
        host.tap_up("tap0", HOST_V4 + "/24")
        wait_until(lambda: ping(guest_ns, HOST_V4, 1, check=False) == 0, 20,
                   f"no answer in life {life}")
        fds = fds or front.fd_count()
        assert front.fd_count() <= fds, f"{front.fd_count()} descriptors, {fds} before"
        back.kill()
        front.assert_alive()
    ns_drops = front.drops("nic0")
    assert set(ns_drops) <= {"no_back_end"}, ns_drops


@timeout(120)
@each(split="off", packed="on")
def test_testpmd_bounces_every_frame_of_a_guest_interface(env, packed):
    """testpmd's net_vhost, forward mode icmpecho, answers ARP and pings by itself."""
    ns = Netns(env, ipv6=False)
    socket = env.path("pmd.sock")
    pmd = Testpmd(env, [f"net_vhost0,iface={socket}"], ["--forward-mode=icmpecho"])
    pmd.start()
    front = GuestDaemon(env, ["--socket", socket, "--ifname", "eth0",
                              *(["--packed"] if packed == "on" else [])], ns)
    ns.tap_up("eth0", GUEST_V4 + "/24")
    front.wait_log(r"nic0: connected to a back end")
    assert ("ring_packed" in front.negotiated("nic0")) == (packed == "on"), front.negotiated("nic0")
    wait_until(lambda: ping(ns, HOST_V4, 1, check=False) == 0, 15, "testpmd does not answer")
    ping(ns, HOST_V4, 1000 if env.full else 200)
    front.assert_alive()


@timeout(60)
def test_bad_options_of_a_guest_are_refused_in_its_own_words(env):
    base = ["guest", "--socket", env.path("vm0.sock"), "--ifname", "eth0"]
    table = [
        (base[:3], ["--ifname"]),
        ([base[0], *base[3:]], ["--socket"]),
        (base + ["stray"], ["stray", "sluice guest --help"]),
        (base + ["--queues", "0"], ["queues", "0", "1 to 128"]),
        (base + ["--mode", "both"], ["mode", "both", "client", "server"]),
        (base + ["--ring-size", "100"], ["ring-size", "100", "power of two", "packed"]),
        (base + ["--mac", "red"], ["mac", "red", "unicast"]),
        (base[:4] + ["x" * 16], ["ifname", "x" * 16, "15"]),
    ]

    def check(row):
        line = assert_refused(env, row[0], row[1])
        for foreign in ("--nic", "--tap", "nic0", "t0:"):
            assert foreign not in line, f"it names {foreign}, which nobody has typed: {line}"

    check_table(env, table, check)
