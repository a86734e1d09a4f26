#!/usr/bin/env python3
"""What `make demo` shows: a real Linux guest, its virtio driver, the daemon, a TAP, traffic both ways.

The guest is User-Mode Linux, a Linux kernel as an ordinary process, which needs neither KVM nor an
image. Guest, daemon and TAP live in namespaces of their own; the host's network is not touched. Then the
same behind an XDP program of examples/xdp, which blocks the guest and lets it through again. All of it is
gone at the end, also after Ctrl-C. Exit status 0 says that everything worked.

    tests/demo.py [--sluice PATH]
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

from lib import Env, Skip  # noqa: E402
from lib.daemon import Daemon, run_sluice  # noqa: E402
from lib.netns import Netns  # noqa: E402
from lib.traffic import FROM_GUEST, TO_GUEST, Wire  # noqa: E402
from lib.uml import KERNEL, Uml  # noqa: E402

IPERF_SECONDS = 3
PINGS = 20
SECONDS_MAX = 170
HOST_V4, GUEST_V4 = "10.99.0.1", "10.99.0.2"
HOST_V6, GUEST_V6 = "fd99::1", "fd99::2"
NEEDED = {"ip": "iproute2", "iperf3": "iperf3", "ping": "iputils-ping", "unshare": "util-linux",
          "gcc": "gcc", "clang-16": "clang-16", "make": "make", KERNEL: "user-mode-linux"}
EXAMPLES = os.path.join(HERE, "..", "examples", "xdp")


class Screen:
    """Lines with a clock; colour on a terminal, plain text in a pipe."""

    def __init__(self):
        self.begin = time.monotonic()
        self.colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def paint(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.colour else text

    def step(self, text):
        clock = f"{time.monotonic() - self.begin:5.1f} s"
        print(f"{self.paint('2', clock)}  {text}", flush=True)

    def good(self, text):
        self.step(self.paint("32", text))

    def bad(self, text):
        print(self.paint("31", text), flush=True)

    def table(self, rows):
        width = max(len(row[0]) for row in rows)
        print()
        for name, value in rows:
            print(f"  {self.paint('1', name.ljust(width))}  {value}")
        print(flush=True)


class Interrupted(BaseException):
    """Ctrl-C, a signal, or the time is up."""


def on_signal(number, _frame):
    raise Interrupted("its time is up" if number == signal.SIGALRM else f"signal {number}")


def missing():
    """What stands in the way, as sentences."""
    problems = []
    if os.geteuid() != 0:
        problems.append("namespaces and TAPs need root: run it with sudo")
    if not os.path.exists("/dev/net/tun"):
        problems.append("there is no /dev/net/tun: load the module tun, or give the container the device")
    for program, package in NEEDED.items():
        if not shutil.which(program):
            problems.append(f"{os.path.basename(program)} is missing: apt install {package}")
    return problems


def show(screen, env):
    """The demonstration itself; fails with an AssertionError."""
    ns = Netns(env)
    socket = env.path("vm0.sock")
    arguments = ["--vm", f"vm0,socket={socket}", "--tap", "t0,ifname=tap0", "--connect", "vm0:t0"]
    screen.step("sluice run " + " ".join(arguments))
    daemon = Daemon(env, arguments, ns)
    ns.tap_up("tap0", HOST_V4 + "/24")
    ns.tap_up("tap0", HOST_V6 + "/64")
    screen.good(f"ready; tap0 is {HOST_V4} and {HOST_V6} in the namespace {ns.name}")
    screen.step("booting a guest: User-Mode Linux, its root is this machine's, read-only")
    guest = Uml(env, socket)
    guest.configure("52:54:00:99:00:02", GUEST_V4 + "/24", GUEST_V6 + "/64")
    guest.wait_link()
    kernel = guest.run("uname -r").stdout.strip()
    screen.good(f"Linux {kernel} is up and has its link; eth0 is {GUEST_V4} and {GUEST_V6}")
    wire = Wire(guest, ns, "tap0", HOST_V4, HOST_V6)
    wire.wait_reachable()
    for ipv6 in (False, True):
        wire.ping(PINGS, TO_GUEST, ipv6)
        wire.ping(PINGS, FROM_GUEST, ipv6)
        screen.good(f"ping, IPv{6 if ipv6 else 4}: {PINGS} of {PINGS} answered in each direction")
    speeds = {}
    for direction, words in ((FROM_GUEST, "guest to host"), (TO_GUEST, "host to guest")):
        screen.step(f"iperf3, TCP, {words}, {IPERF_SECONDS} s")
        speeds[direction] = wire.iperf(IPERF_SECONDS, direction)
        screen.good(f"{speeds[direction]:.0f} Mbit/s")
    rows = figures(daemon, speeds)
    guest.poweroff()
    daemon.stop()
    screen.good("guest and daemon ended cleanly")
    screen.table(rows)
    show_program(screen, env)


def show_program(screen, env):
    """The same behind an XDP program, from the first packet on."""
    screen.step("compiling examples/xdp/drop_sources.bpf.c: an XDP program like any other")
    subprocess.run(["make", "-s", "-C", EXAMPLES, f"OUT={env.path('xdp')}"], check=True, timeout=60,
                   stdout=subprocess.DEVNULL)
    ns = Netns(env)
    socket = env.path("vm1.sock")
    arguments = ["--vm", f"vm0,socket={socket}", "--tap", "t0,ifname=tap0", "--connect", "vm0:t0",
                 "--xdp", f"vm0,object={env.path('xdp')}/drop_sources.bpf.o"]
    screen.step("sluice run " + " ".join(arguments))
    daemon = Daemon(env, arguments, ns)
    ns.tap_up("tap0", HOST_V4 + "/24")
    guest = Uml(env, socket)
    guest.configure("52:54:00:99:00:02", GUEST_V4 + "/24")
    guest.wait_link()
    wire = Wire(guest, ns, "tap0", HOST_V4)
    wire.wait_reachable()
    wire.ping(PINGS, FROM_GUEST)
    screen.good(f"the guest is up again, each of its frames goes through the program; {PINGS} of {PINGS} "
                "pings answered")

    def set_blocked(value):
        words = ["xdp", "map", "update", "vm0", "blocked", "key", GUEST_V4 + "/32", "value", value]
        screen.step("sluice " + " ".join(words))
        done = run_sluice(env, [*words, "--control", daemon.control])
        assert done.returncode == 0, done.stderr

    set_blocked("1")
    before = daemon.drops("vm0").get("xdp_drop", 0)
    guest.run(f"ping -c 10 -i 0.05 -W 0.2 -q {HOST_V4}", check=False)
    dropped = daemon.drops("vm0").get("xdp_drop", 0) - before
    assert dropped == 10, f"{dropped} of 10 pings were dropped"
    screen.good("10 of 10 pings dropped, before the kernel saw anything of them")
    set_blocked("0")
    wire.ping(PINGS, FROM_GUEST)
    screen.good(f"{PINGS} of {PINGS} answered again")
    print()
    print(run_sluice(env, ["xdp", "list", "--control", daemon.control]).stdout)
    guest.poweroff()
    daemon.stop()


def figures(daemon, speeds):
    """The rows of the table, most of them from `sluice stats`."""
    stats = daemon.stats()
    rows = []
    for direction, words in ((FROM_GUEST, "guest to host"), (TO_GUEST, "host to guest")):
        queues = daemon.queues("vm0", direction, stats)
        frames = sum(queue["frames"] for queue in queues)
        size = sum(queue["bytes"] for queue in queues)
        sent = sum(queue["notifications"] for queue in queues)
        kicks = sum(queue["kicks"] for queue in queues)
        drops = daemon.drops("vm0", direction, stats)
        assert frames > 0, f"the daemon counted no frame {words}"
        rows.append((words, f"{speeds[direction]:7.0f} Mbit/s  {frames:8} frames  {size / 1e6:8.1f} MB  "
                            f"{kicks} kicks, {sent} interrupts"))
        if drops:
            rows.append(("", "dropped: " + ", ".join(f"{reason} {count}" for reason, count in drops.items())))
    rows.append(("negotiated", wrap(daemon.port("vm0", stats)["negotiated"])))
    rows.append(("daemon", f"{daemon.rss_own_kib() / 1024:.1f} MiB resident without the guest's memory, "
                           f"{daemon.cpu_seconds():.1f} s of CPU time"))
    return rows


def wrap(words, width=80):
    """The words as lines below one another, in the table's second column."""
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return ("\n" + " " * 17).join(lines) if words else "nothing"


def where_next(screen, sluice):
    path = os.path.relpath(sluice)
    path = path if not path.startswith("..") else sluice
    print("Where to go next:")
    print(f"  {path} run --help-qemu vm0 --vm vm0,socket=/run/sluice/vm0.sock   how to plug in QEMU or libvirt")
    print(f"  {path} run --help                                                 all options")
    print("  make test                                                                  all tests")
    print("  README.md, ARCHITECTURE.md                                                 what it is, how it is made")


def main():
    parser = argparse.ArgumentParser(description="A real guest's traffic through sluice, in a minute.")
    parser.add_argument("--sluice", default=os.path.join(HERE, "..", "build", "release", "sluice"),
                        metavar="PATH", help="the program")
    options = parser.parse_args()
    screen = Screen()
    problems = missing()
    if not os.access(options.sluice, os.X_OK):
        problems.append(f"there is no program at {os.path.relpath(options.sluice)}: run `make build`")
    for problem in problems:
        screen.bad(problem)
    if problems:
        return 1
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, on_signal)
    return run(screen, options.sluice)


def run(screen, sluice):
    """Shows it and cleans up, whatever happens; returns the exit status."""
    status = 1
    env = Env(sluice)
    signal.alarm(SECONDS_MAX)
    try:
        show(screen, env)
        status = 0
    except Interrupted as reason:
        screen.bad(f"stopped: {reason}")
    except (AssertionError, Skip) as problem:
        screen.bad(f"it did not work: {problem}")
        print(env.log_tails())
    finally:
        # A second Ctrl-C must not leave half of it behind.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        for problem in env.run_deferred():
            screen.bad(problem)
            status = 1
    screen.step("everything it made is removed")
    if status == 0:
        where_next(screen, env.sluice)
    return status


if __name__ == "__main__":
    sys.exit(main())
