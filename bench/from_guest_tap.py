#!/usr/bin/env python3
"""CPU time a frame of the back end, guest → TAP, sluice against testpmd, alternating in one run.

    bench/from_guest_tap.py                      five rounds of five seconds a half, as a table
    bench/from_guest_tap.py --json               the same as JSON
    bench/from_guest_tap.py --only peer --seconds 2 --rounds 1

A half: testpmd's net_virtio_user sends 64-byte frames as fast as it can (CPU 0); the back end takes
them to a TAP (CPU 1, with nothing else on it), where the kernel drops them in a native XDP program
of two instructions. The back end is `sluice run --vm … --tap …`, or testpmd, net_vhost → net_tap.

CPU time is all that CPU 1 was busy with (user, system, irq and softirq of /proc/stat), divided by
the frames that the TAP counted in the same window. testpmd polls: its CPU is busy for the whole
time, so its CPU time is the wall time, and only a saturated testpmd (whose polls find work) is
compared.
Needs root and two CPUs; wants a quiet machine, and says when it was not.
"""

import argparse
import ctypes
import json
import os
import re
import statistics
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests"))
sys.dont_write_bytecode = True

from lib import Env, Skip, wait_until  # noqa: E402
from lib.daemon import Daemon  # noqa: E402
from lib.netns import Netns  # noqa: E402
from lib.testpmd import SPLIT_PATHS, Testpmd, VirtioUser  # noqa: E402

GENERATOR_CPU, BACK_END_CPU = 0, 1
WARM_UP_SECONDS = 1
SATURATED_SHARE_MIN = 0.95  # of polls that found work, for a comparison to count
FOREIGN_SHARE_MAX = 0.03  # of the back end's CPU busy before the half begins, or stolen during it
CLOCK_HZ = os.sysconf("SC_CLK_TCK")


# The kernel's XDP program: r0 = XDP_DROP; exit.

SYS_BPF, BPF_PROG_LOAD, BPF_LINK_CREATE = 321, 5, 28
BPF_PROG_TYPE_XDP, BPF_XDP, XDP_FLAGS_DRV_MODE = 6, 37, 1 << 2
XDP_DROP_INSTRUCTIONS = struct.pack("<BBhi", 0xB7, 0, 0, 1) + struct.pack("<BBhi", 0x95, 0, 0, 0)


def bpf(command, attributes):
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, 128)
    fd = libc.syscall(SYS_BPF, command, buffer, 128)
    if fd < 0:
        error = ctypes.get_errno()
        raise SystemExit(f"bpf command {command}: {os.strerror(error)}")
    return fd


def hold_xdp_drop(interface):
    """Run inside the namespace: attaches the program and holds it until standard input ends."""
    with open(f"/sys/class/net/{interface}/ifindex") as file:
        index = int(file.read())
    code = ctypes.create_string_buffer(XDP_DROP_INSTRUCTIONS, len(XDP_DROP_INSTRUCTIONS))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    program = bpf(BPF_PROG_LOAD, struct.pack("<IIQQ", BPF_PROG_TYPE_XDP, 2, ctypes.addressof(code),
                                             ctypes.addressof(licence)))
    bpf(BPF_LINK_CREATE, struct.pack("<IIII", program, index, BPF_XDP, XDP_FLAGS_DRV_MODE))
    print("attached", flush=True)
    sys.stdin.read()


def attach_xdp_drop(env, ns, interface):
    process = ns.popen([sys.executable, os.path.abspath(__file__), "--hold-xdp-drop", interface],
                       stdin=-1)

    def attached():
        with open(process.log_path) as log:
            text = log.read()
        assert process.poll() is None, f"no XDP program on {interface}: {text.strip()}"
        return "attached" in text

    wait_until(attached, 10, "the XDP program is not attached")


# What is read before and after a window.

def cpu_times(cpu):
    """(busy, stolen) seconds of a CPU since boot."""
    with open("/proc/stat") as file:
        fields = re.search(rf"^cpu{cpu} (.+)$", file.read(), re.MULTILINE).group(1).split()
    user, nice, system, _idle, _iowait, irq, softirq, stolen = (int(field) for field in fields[:8])
    return (user + nice + system + irq + softirq) / CLOCK_HZ, stolen / CLOCK_HZ


def tap_frames(ns):
    """What reached the TAP: the kernel counts an XDP_DROP as rx_dropped."""
    counters = ns.counters("tap0")
    return counters["rx_packets"] + counters["rx_dropped"]


def sample(ns):
    """(time, frames, busy, stolen) of one moment. Reading the TAP takes a while, so the clocks are
    read on both sides of it and their middle is taken."""
    clocks = [(time.monotonic(), *cpu_times(BACK_END_CPU))]
    frames = tap_frames(ns)
    clocks.append((time.monotonic(), *cpu_times(BACK_END_CPU)))
    now, busy, stolen = (statistics.fmean(pair) for pair in zip(*clocks))
    return now, frames, busy, stolen


class SluiceHalf:
    """sluice as the back end."""

    name = "sluice"

    def __init__(self, env, ns, socket, options):
        self.daemon = Daemon(
            env, ["--vm", f"vm0,socket={socket}", "--tap", f"t0,ifname=tap0,napi={options.napi}",
                  "--connect", "vm0:t0", "--poll-us", str(options.poll_us), "--batch",
                  str(options.batch), "--cpus", str(BACK_END_CPU)],
            ns, prefix=["taskset", "-c", str(BACK_END_CPU)])
        ns.tap_up("tap0")

    def mark(self):
        self.before = self.daemon.stats()

    def read(self):
        """What the program itself says about the time since mark()."""
        after = self.daemon.stats()
        delta = {key: sum(worker[key] for worker in after["workers"]) -
                 sum(worker[key] for worker in self.before["workers"])
                 for key in ("breaths", "sleeps")}

        def batches(stats):
            return sum(sum(queue["batch_histogram"])
                       for queue in self.daemon.queues("vm0", "from_guest", stats))

        found = batches(after) - batches(self.before)
        return {"saturation": min(1.0, found / delta["breaths"]) if delta["breaths"] else 0.0,
                "sleeps": delta["sleeps"],
                "drops": {**self.daemon.drops("vm0", stats=after),
                          **self.daemon.drops("t0", stats=after)}}


class PeerHalf:
    """testpmd, net_vhost → net_tap, as the back end."""

    name = "testpmd"

    def __init__(self, env, ns, socket, options):
        lcores = f"0@{BACK_END_CPU},1@{BACK_END_CPU}"
        self.pmd = Testpmd(env, [f"net_vhost0,iface={socket}", "net_tap0,iface=tap0"],
                           ["--forward-mode=io", "--record-burst-stats",
                            f"--burst={options.peer_burst}"], ns=ns, lcores=lcores)

        self.pmd.start()

    def mark(self):
        self.pmd.command("clear fwd stats all")

    def read(self):
        """The polls of the guest's ring, as testpmd counted them since mark()."""
        text = self.pmd.command("show fwd stats all")
        bursts = re.search(r"statistics for port 0 .*?RX-bursts : \d+ \[(\d+)% of 0 pkts", text,
                           re.DOTALL)
        return {"saturation": 1.0 - int(bursts.group(1)) / 100 if bursts else None}


def run_half(kind, options):
    """One measurement with processes, namespace and TAP of its own. Returns a row."""
    env = Env(options.sluice)
    try:
        ns = Netns(env, ipv6=False)
        socket = env.path("vm0.sock")
        idle_before = cpu_times(BACK_END_CPU)[0]
        time.sleep(0.5)
        foreign = (cpu_times(BACK_END_CPU)[0] - idle_before) / 0.5
        half = kind(env, ns, socket, options)
        attach_xdp_drop(env, ns, "tap0")
        generator = VirtioUser(env, socket, options.path, "txonly",
                               lcores=f"0@{GENERATOR_CPU},1@{GENERATOR_CPU}")
        generator.assert_path()
        wait_until(generator.link_is_up, 10, "the generator's link is not up", interval_seconds=0.2)
        generator.command(f"set txpkts {options.size}")
        return measure(half, generator, ns, options, foreign)
    finally:
        for problem in env.run_deferred():
            print(f"# {problem}", file=sys.stderr)


def measure(half, generator, ns, options, foreign):
    sent_before = generator.port_stats()["TX-packets"]
    tap_before = tap_frames(ns)
    generator.start()
    time.sleep(WARM_UP_SECONDS)
    half.mark()
    before = sample(ns)
    time.sleep(options.seconds)
    seconds, frames, busy, stolen = (after - old for after, old in zip(sample(ns), before))
    said = half.read()
    generator.stop()
    time.sleep(0.5)
    sent = generator.port_stats()["TX-packets"] - sent_before
    arrived = tap_frames(ns) - tap_before
    return {"back_end": half.name, "frames": frames, "seconds": round(seconds, 3),
            "busy_seconds": round(busy, 3), "busy_share": round(busy / seconds, 3),
            "ns_a_frame": round(busy * 1e9 / frames, 1) if frames else None,
            "frames_a_second": round(frames / seconds), "foreign_share_before": round(foreign, 3),
            "stolen_share": round(stolen / seconds, 3), "generator_sent": sent,
            "tap_counted": arrived, **said}


def doubts(row):
    """Why a row should not be believed, as a list of sentences."""
    found = []
    if row["ns_a_frame"] is None:
        found.append("no frame reached the TAP")
    if row["saturation"] is not None and row["saturation"] < SATURATED_SHARE_MIN:
        found.append(f"not saturated: {row['saturation']:.0%} of polls found work")
    if row["foreign_share_before"] > FOREIGN_SHARE_MAX:
        found.append(f"CPU {BACK_END_CPU} was {row['foreign_share_before']:.0%} busy before it")
    if row["stolen_share"] > FOREIGN_SHARE_MAX:
        found.append(f"{row['stolen_share']:.0%} of CPU {BACK_END_CPU} was stolen by the host")
    if abs(row["tap_counted"] - row["generator_sent"]) > row["generator_sent"] // 100:
        found.append(f"the TAP counted {row['tap_counted']} frames of {row['generator_sent']} sent")
    return found


def summary(rows):
    result = {}
    for name in ("sluice", "testpmd"):
        values = [row["ns_a_frame"] for row in rows
                  if row["back_end"] == name and row["ns_a_frame"]]
        if values:
            result[name] = {"ns_a_frame_median": statistics.median(values), "min": min(values),
                            "max": max(values), "halves": len(values)}
    if len(result) == 2:
        result["ratio"] = round(result["sluice"]["ns_a_frame_median"] /
                                result["testpmd"]["ns_a_frame_median"], 3)
    return result


def print_row(row):
    saturation = "?" if row["saturation"] is None else f"{row['saturation']:.0%}"
    print(f"{row['back_end']:>8} {row['ns_a_frame'] or 0:>11.1f} "
          f"{row['frames_a_second'] / 1e6:>10.3f} {row['busy_share']:>6.0%} "
          f"{saturation:>10}", flush=True)
    for doubt in doubts(row):
        print(f"         ! {doubt}", flush=True)


def print_summary(result):
    for name in ("sluice", "testpmd"):
        if name in result:
            part = result[name]
            print(f"{name}: median {part['ns_a_frame_median']:.1f} ns of CPU a frame, "
                  f"{part['min']:.1f} to {part['max']:.1f} over {part['halves']} halves")
    if "ratio" in result:
        print(f"sluice / testpmd: {result['ratio']:.3f} (ratio of medians; below 1 is less)")
    print("testpmd polls: its CPU is always busy, its CPU time is the wall time")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="CPU time a frame, guest to TAP, sluice against testpmd.")
    parser.add_argument("--sluice", default=os.path.join(HERE, "..", "build", "release", "sluice"))
    parser.add_argument("--seconds", type=float, default=5, help="of each half (default 5)")
    parser.add_argument("--rounds", type=int, default=5, help="of both halves (default 5)")
    parser.add_argument("--size", type=int, default=64, help="bytes a frame (default 64)")
    parser.add_argument("--path", default="in_order_mergeable", choices=SPLIT_PATHS,
                        help="the generator's ring")
    parser.add_argument("--poll-us", type=int, default=50, help="of sluice (default 50)")
    parser.add_argument("--batch", type=int, default=64, help="of sluice (default 64)")
    parser.add_argument("--napi", default="auto", choices=("auto", "on", "off"),
                        help="of sluice's TAP")
    parser.add_argument("--peer-burst", type=int, default=32,
                        help="of testpmd (default 32, its own)")
    parser.add_argument("--only", choices=("sluice", "peer"), help="one back end, to try it")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hold-xdp-drop", metavar="IFACE", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.hold_xdp_drop:
        hold_xdp_drop(options.hold_xdp_drop)
        return 0
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        print("from_guest_tap needs root (namespaces, TAP, XDP) and two CPUs", file=sys.stderr)
        return 1
    # Whatever is started inherits this; only the back ends are placed on the other CPU.
    os.sched_setaffinity(0, {GENERATOR_CPU})
    kinds = {"sluice": [SluiceHalf], "peer": [PeerHalf], None: [SluiceHalf, PeerHalf]}[options.only]
    if not options.json:
        print("back end  ns a frame  Mframes/s   busy  saturated")
    rows = []
    try:
        for _round in range(options.rounds):
            for kind in kinds:
                rows.append(run_half(kind, options))
                if not options.json:
                    print_row(rows[-1])
    except (AssertionError, Skip) as error:
        print(f"from_guest_tap: {error}", file=sys.stderr)
        return 1
    result = summary(rows)
    if options.json:
        told = [{**row, "doubts": doubts(row)} for row in rows]
        print(json.dumps({"rows": told, **result}, indent=2))
    else:
        print_summary(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
