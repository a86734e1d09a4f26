"""A driver of virtio-net in userspace (testpmd, net_virtio_user) on each of its ten paths: five on split
rings, five on packed ones.

The path is proven by the driver's own log. Then frames are counted at every point they pass:
driver, daemon, kernel; after a drain all counts must agree to the frame, drop counters included.
IPv6 is off in the namespace, so that nothing but the test sends.
"""

import json
import os
import sys
import time

from lib import each, timeout, wait_stable, wait_until
from lib.daemon import Daemon
from lib.netns import Netns
from lib.testpmd import PATHS, VirtioUser

ALL_PATHS = {path: path for path in PATHS}
SIZES_BYTES = (64, 1514)
DRAIN_SECONDS_MAX = 20
INJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "inject.py")


class Bench:
    """A namespace, the daemon in it with vm0 connected to tap0, and a driver plugged into vm0."""

    def __init__(self, env, path, forward, queues=1, vm_options="", **pmd_options):
        self.env = env
        self.ns = Netns(env, ipv6=False)
        self.socket = env.path("vm0.sock")
        self.daemon = Daemon(env, ["--vm", f"vm0,socket={self.socket},queues={queues}{vm_options}",
                                   "--tap", f"t0,ifname=tap0,queues={queues}",
                                   "--connect", "vm0:t0"], self.ns)
        self.ns.tap_up("tap0")
        self.pmd = self.plug(path, forward, queues=queues, **pmd_options)

    def plug(self, path, forward, **options):
        pmd = VirtioUser(self.env, self.socket, path, forward, **options)
        pmd.assert_path()
        wait_until(pmd.link_is_up, 10, "testpmd's link is not up", interval_seconds=0.2)
        return pmd

    def settle(self, what):
        """Waits until nothing moves any more."""

        def sample():
            stats = self.daemon.stats()
            return [json.dumps([port["queues"] for port in stats["ports"]]),
                    self.ns.counters("tap0")]

        wait_stable(sample, DRAIN_SECONDS_MAX, what)

    def frame_counters(self, direction):
        stats = self.daemon.stats()
        return (self.daemon.frames("vm0", direction, stats),
                sum(self.daemon.drops("vm0", direction, stats).values()),
                sum(self.daemon.drops("t0", None, stats).values()))

    def inject(self, mode, *numbers, seconds=90):
        argv = [sys.executable, INJECT, mode, "tap0", *map(str, numbers)]
        return json.loads(self.ns.run(argv, timeout=seconds).stdout)

    def assert_from_guest_agrees(self, frames_expected_min=1):
        """Driver → daemon → kernel. Returns how many frames the driver sent."""
        self.settle("frames from the guest")
        sent = self.pmd.port_stats()["TX-packets"]
        frames, vm_drops, tap_drops = self.frame_counters("from_guest")
        tap = self.ns.counters("tap0")
        told = (f"testpmd sent {sent}; sluice took {frames}, dropped {vm_drops} at vm0 and "
                f"{tap_drops} at t0; the TAP received {tap['rx_packets']}, "
                f"dropped {tap['rx_dropped']}, errors {tap['rx_errors']}")
        self.env.note(told)
        assert sent >= frames_expected_min, f"too few frames: {told}"
        assert frames + vm_drops == sent, told
        assert tap["rx_packets"] + tap_drops == frames, told
        assert tap["rx_errors"] == 0, told
        # Each frame that the kernel dropped at the TAP is one that it refused to our face. Without
        # NAPI its per-CPU backlog may drop more, behind our back.
        if self.daemon.uses_napi("t0"):
            assert tap["rx_dropped"] <= tap_drops, told
        return sent

    def assert_to_guest_agrees(self, injected, loss_allowed):
        """Kernel → daemon → driver, for `injected` frames in all."""
        self.settle("frames to the guest")
        pmd = self.pmd.port_stats()
        frames, vm_drops, tap_drops = self.frame_counters("to_guest")
        tap = self.ns.counters("tap0")
        told = (f"injected {injected}; the TAP sent {tap['tx_packets']}, "
                f"dropped {tap['tx_dropped']}; sluice gave {frames}, "
                f"dropped {vm_drops} at vm0 and {tap_drops} at t0; "
                f"testpmd received {pmd['RX-packets']}, missed {pmd['RX-missed']}, "
                f"errors {pmd['RX-errors']}, no buffer {pmd['RX-nombuf']}")
        self.env.note(told)
        assert tap["tx_packets"] + tap["tx_dropped"] == injected, told
        assert frames + vm_drops + tap_drops == tap["tx_packets"], told
        assert pmd["RX-packets"] + pmd["RX-missed"] + pmd["RX-errors"] == frames, told
        if not loss_allowed:
            assert pmd["RX-packets"] == injected, told
        return pmd


@timeout(90)
@each(**ALL_PATHS)
def test_counts_from_the_guest_agree_to_the_frame(env, path):
    bench = Bench(env, path, "txonly")
    sent_before, bytes_before = 0, 0
    for size in SIZES_BYTES:
        bench.pmd.command(f"set txpkts {size}")
        bench.pmd.start()
        time.sleep(5 if env.full else 0.5)
        bench.pmd.stop()
        sent = bench.assert_from_guest_agrees(frames_expected_min=sent_before + 1000)
        tap = bench.ns.counters("tap0")
        if not bench.daemon.drops("t0"):
            assert tap["rx_bytes"] - bytes_before == (sent - sent_before) * size, (
                f"{sent - sent_before} frames of {size} bytes arrived as "
                f"{tap['rx_bytes'] - bytes_before} bytes")
        sent_before, bytes_before = sent, tap["rx_bytes"]


@timeout(120)
@each(**ALL_PATHS)
def test_counts_to_the_guest_agree_to_the_frame(env, path):
    bench = Bench(env, path, "rxonly")
    bench.pmd.start()
    count = 200000 if env.full else 20000
    injected, bytes_injected = 0, 0
    for size in SIZES_BYTES:
        # No more in flight than the TAP's and the guest's queue hold: nothing may be lost.
        injected += bench.inject("send", count, size, 128)["attempts"]
        bytes_injected += count * size
        pmd = bench.assert_to_guest_agrees(injected, loss_allowed=False)
        assert pmd["RX-bytes"] == bytes_injected, f"{pmd['RX-bytes']} bytes, not {bytes_injected}"


@timeout(90)
@each(**ALL_PATHS)
def test_a_flood_to_the_guest_is_counted_to_the_frame(env, path):
    bench = Bench(env, path, "rxonly")
    bench.pmd.start()
    injected = bench.inject("send", 200000 if env.full else 20000, 64, 0)["attempts"]
    # The driver stops taking frames in the middle: what does not fit is dropped by name.
    bench.assert_to_guest_agrees(injected, loss_allowed=True)
    bench.pmd.stop()
    injected += bench.inject("send", 5000, 64, 0)["attempts"]
    bench.settle("frames to a guest that does not take them")
    bench.pmd.start()
    bench.assert_to_guest_agrees(injected, loss_allowed=True)


@timeout(90)
@each(**ALL_PATHS)
def test_frames_come_back_unchanged_and_in_order(env, path):
    bench = Bench(env, path, "io")
    bench.pmd.start()
    count = 50000 if env.full else 5000
    assert bench.inject("echo", count, 1)["returned"] == count


@timeout(60)
@each(mergeable="mergeable", in_order="in_order_mergeable", packed="packed_mergeable",
      packed_in_order="packed_in_order_mergeable")
def test_one_frame_fills_several_small_guest_buffers(env, path):
    # 1152 bytes a buffer, 128 of them headroom: a frame of 1514 bytes needs two.
    bench = Bench(env, path, "io", app_args=["--mbuf-size=1152", "--enable-scatter"])
    bench.pmd.start()
    count = 20000 if env.full else 2000
    assert bench.inject("echo", count, 2)["returned"] == count


@timeout(60)
@each(**ALL_PATHS)
def test_frames_from_the_guest_may_lie_in_several_descriptors(env, path):
    bench = Bench(env, path, "txonly")
    # The first segment holds at least the headers that testpmd writes.
    bench.pmd.command("set txpkts 64,1,100,1349")
    bench.pmd.start()
    time.sleep(2 if env.full else 0.3)
    bench.pmd.stop()
    sent = bench.assert_from_guest_agrees(frames_expected_min=100)
    if not bench.daemon.drops("t0"):
        assert bench.ns.counters("tap0")["rx_bytes"] == sent * 1514


@timeout(60)
def test_frames_for_a_tap_that_is_down_are_dropped_by_name(env):
    bench = Bench(env, "mergeable", "txonly")
    bench.ns.run(["ip", "link", "set", "tap0", "down"])
    bench.pmd.start()
    time.sleep(0.3)
    bench.pmd.stop()
    sent = bench.assert_from_guest_agrees(frames_expected_min=100)
    drops = bench.daemon.drops("t0")
    assert drops == {"port_down": sent}, f"{sent} frames sent, dropped: {drops}"
    bench.ns.tap_up("tap0")
    bench.pmd.start()
    wait_until(lambda: bench.ns.counters("tap0")["rx_packets"] > 100, 10,
               "no frames after the TAP came up")


@timeout(60)
def test_a_worker_sleeps_while_the_guest_is_idle(env):
    bench = Bench(env, "mergeable", "rxonly")
    # More than ring and TAP hold, and testpmd does not look: idle also with frames that cannot go.
    bench.inject("send", 2000, 64, 0)
    bench.settle("frames to a guest that does not take them")
    seconds = 10 if env.full else 2

    def breaths():
        return sum(worker["breaths"] for worker in bench.daemon.stats()["workers"])

    before, cpu_before = breaths(), bench.daemon.cpu_seconds()
    time.sleep(seconds)
    cpu = bench.daemon.cpu_seconds() - cpu_before
    count = breaths() - before
    env.note(f"idle: {count} breaths and {cpu / seconds:.3%} of a CPU over {seconds} s; "
             f"{bench.daemon.rss_own_kib()} KiB of its own")
    # Housekeeping may wake it now and then; a loop that spins breathes a million times.
    assert count < 1000 * seconds, f"{count} breaths in {seconds} s without work"


@timeout(60)
def test_two_queue_pairs_carry_frames_each(env):
    bench = Bench(env, "mergeable", "txonly", queues=2)
    bench.pmd.start()
    time.sleep(2 if env.full else 0.5)
    bench.pmd.stop()
    bench.assert_from_guest_agrees(frames_expected_min=1000)
    per_queue = [queue["frames"] for queue in bench.daemon.queues("vm0", "from_guest")]
    assert len(per_queue) == 2 and all(per_queue), f"frames a queue: {per_queue}"


@timeout(90)
def test_a_driver_that_is_killed_comes_back_to_the_same_socket(env):
    bench = Bench(env, "mergeable", "txonly")
    rounds = 10 if env.full else 3
    fds = None
    for _round in range(rounds):
        bench.pmd.start()
        time.sleep(0.2)
        bench.pmd.kill()
        bench.settle("frames of a dead guest")
        bench.daemon.assert_alive()
        # The first round may open what stays open (logs, timers); after it nothing may grow.
        fds = fds or bench.daemon.fd_count()
        now = bench.daemon.fd_count()
        assert now <= fds, f"{now} descriptors, {fds} before"
        bench.pmd = bench.plug("mergeable", "txonly")
    before = bench.ns.counters("tap0")["rx_packets"]
    bench.pmd.start()
    wait_until(lambda: bench.ns.counters("tap0")["rx_packets"] > before + 1000, 10,
               "no frames from the driver that came back")


@timeout(60)
def test_a_driver_that_listens_is_connected_to(env):
    ns = Netns(env, ipv6=False)
    socket = env.path("server.sock")
    daemon = Daemon(env, ["--vm", f"vm0,socket={socket},mode=client", "--tap", "t0,ifname=tap0",
                          "--connect", "vm0:t0"], ns)
    ns.tap_up("tap0")
    for _round in range(2):
        # The second one listens where the first was killed: the daemon tries again by itself.
        pmd = VirtioUser(env, socket, "mergeable", "txonly", server=True)
        before = daemon.frames("vm0", "from_guest")
        pmd.start()
        wait_until(lambda: daemon.frames("vm0", "from_guest") > before + 1000, 15,
                   "no frames from a driver that listens")
        pmd.kill()
        os.path.exists(socket) and os.unlink(socket)
    daemon.assert_alive()
