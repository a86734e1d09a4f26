#!/usr/bin/env python3
"""CPU time a frame of the back end, guest → nowhere, sluice against testpmd, alternating in one run.

    bench/from_guest_null.py                       five rounds of five seconds a half, as a table
    bench/from_guest_null.py --generator virtio_user --path packed_in_order_mergeable --json
    bench/from_guest_null.py --only peer --seconds 2 --rounds 1

A half: a front end offers 64-byte frames (CPU 0); the back end takes them off the ring and drops
them (CPU 1). The back end is `sluice run --vm … --null …`, or testpmd, net_vhost in forward mode
rxonly. No kernel is in between, so this is what a ring costs. The front end is `ring_stuffer`, which
keeps its ring full and so saturates either, or testpmd's net_virtio_user, which saturates neither.

CPU time is what the back end's worker thread used (the scheduler's own clock), divided by the
frames that the back end counted in the same window. testpmd polls: its thread always runs, and only
polls that find work are fair to count, so the share of those is printed for both.
Needs root and two CPUs; wants a quiet machine, and says when it was not.
"""

import argparse
import glob
import json
import os
import re
import statistics
import sys
import time

import from_guest_tap as tap
from from_guest_tap import BACK_END_CPU, GENERATOR_CPU, HERE
from lib import Env, Skip, wait_until
from lib.daemon import Daemon
from lib.testpmd import PATHS, Testpmd, VirtioUser


def thread_seconds(pid, name):
    """CPU seconds of the busiest thread of a process whose name begins with `name`."""
    seconds = []
    for path in glob.glob(f"/proc/{pid}/task/*/comm"):
        with open(path) as file:
            if not file.read().startswith(name):
                continue
        with open(os.path.join(os.path.dirname(path), "schedstat")) as file:
            seconds.append(int(file.read().split()[0]) / 1e9)
    assert seconds, f"process {pid} has no thread {name}"
    return max(seconds)


class SluiceHalf:
    name = "sluice"

    def __init__(self, env, socket, options):
        self.daemon = Daemon(
            env, ["--vm", f"vm0,socket={socket}", "--null", "n0", "--connect", "vm0:n0",
                  "--poll-us", str(options.poll_us), "--batch", str(options.batch), "--cpus",
                  str(BACK_END_CPU)], prefix=["taskset", "-c", str(BACK_END_CPU)])

    def sample(self):
        stats = self.daemon.stats()
        frames = sum(queue["frames"] for queue in self.daemon.queues("vm0", "from_guest", stats))
        batches = sum(sum(queue["batch_histogram"])
                      for queue in self.daemon.queues("vm0", "from_guest", stats))
        breaths = sum(worker["breaths"] for worker in stats["workers"])
        return frames, thread_seconds(self.daemon.pid, "sluice-worker"), batches, breaths


class PeerHalf:
    name = "testpmd"

    def __init__(self, env, socket, options):
        lcores = f"0@{BACK_END_CPU},1@{BACK_END_CPU}"
        self.pmd = Testpmd(env, [f"net_vhost0,iface={socket}"],
                           ["--forward-mode=rxonly", "--record-burst-stats",
                            f"--burst={options.peer_burst}"], lcores=lcores)
        self.pmd.start()

    def pid(self):
        # stdbuf executes testpmd in its own place.
        return self.pmd.process.pid

    def sample(self):
        frames = self.pmd.port_stats()["RX-packets"]
        text = self.pmd.command("show fwd stats all")
        found = re.search(r"RX-bursts : (\d+) \[(.*?)\]", text)
        polls = int(found.group(1)) if found else 0
        empty = re.search(r"(\d+)% of 0 pkts", found.group(2)) if found else None
        share = 1.0 - int(empty.group(1)) / 100 if empty else 1.0
        return frames, thread_seconds(self.pid(), "rte-worker"), polls * share, polls


def start_generator(env, socket, options):
    if options.generator == "virtio_user":
        generator = VirtioUser(env, socket, options.path, "txonly",
                               lcores=f"0@{GENERATOR_CPU},1@{GENERATOR_CPU}")
        generator.assert_path()
        wait_until(generator.link_is_up, 10, "the generator's link is not up", interval_seconds=0.2)
        generator.command(f"set txpkts {options.size}")
        generator.start()
        return
    argv = ["taskset", "-c", str(GENERATOR_CPU),
            os.path.join(os.path.dirname(options.sluice), "ring_stuffer"), "--socket", socket,
            "--size", str(options.size), "--ring", str(options.ring), "--seconds", "3600"]
    if "in_order" not in options.path:
        argv.append("--no-in-order")
    process = env.popen(argv, name="stuffer-")

    def stuffing():
        with open(process.log_path) as log:
            text = log.read()
        assert process.poll() is None, f"the ring stuffer ended: {text.strip()}"
        return "frames" in text

    wait_until(stuffing, 10, "the ring stuffer does not start")


def run_half(kind, options):
    env = Env(options.sluice)
    try:
        socket = env.path("vm0.sock")
        half = kind(env, socket, options)
        start_generator(env, socket, options)
        time.sleep(tap.WARM_UP_SECONDS)
        stolen_before = tap.cpu_times(BACK_END_CPU)[1]
        begin = time.monotonic()
        before = half.sample()
        time.sleep(options.seconds)
        frames, busy, found, polls = (new - old for new, old in zip(half.sample(), before))
        seconds = time.monotonic() - begin
        stolen = tap.cpu_times(BACK_END_CPU)[1] - stolen_before
        return {"back_end": half.name, "frames": frames, "seconds": round(seconds, 3),
                "frames_a_second": round(frames / seconds), "busy_share": round(busy / seconds, 3),
                "ns_a_frame": round(busy * 1e9 / frames, 1) if frames else None,
                "frames_a_batch": round(frames / found, 1) if found else None,
                "saturation": round(found / polls, 3) if polls else None,
                "stolen_share": round(stolen / seconds, 3)}
    finally:
        for problem in env.run_deferred():
            print(f"# {problem}", file=sys.stderr)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="CPU time a frame, guest to nowhere, sluice against testpmd.")
    parser.add_argument("--sluice", default=os.path.join(HERE, "..", "build", "release", "sluice"))
    parser.add_argument("--seconds", type=float, default=5, help="of each half (default 5)")
    parser.add_argument("--rounds", type=int, default=5, help="of both halves (default 5)")
    parser.add_argument("--size", type=int, default=64, help="bytes a frame (default 64)")
    parser.add_argument("--generator", default="stuffer", choices=("stuffer", "virtio_user"),
                        help="the front end (default stuffer)")
    parser.add_argument("--ring", type=int, default=256, help="of the stuffer (default 256)")
    parser.add_argument("--path", default="in_order_mergeable", choices=PATHS,
                        help="the generator's ring")
    parser.add_argument("--poll-us", type=int, default=50, help="of sluice (default 50)")
    parser.add_argument("--batch", type=int, default=64, help="of sluice (default 64)")
    parser.add_argument("--peer-burst", type=int, default=32,
                        help="of testpmd (default 32, its own)")
    parser.add_argument("--only", choices=("sluice", "peer"), help="one back end, to try it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.generator == "stuffer" and options.path.startswith("packed"):
        # A packed ring's descriptors are written anew for every lap, so its driver is never idle.
        parser.error(f"--path {options.path}: the stuffer has split rings only; "
                     "add --generator virtio_user")
    return options


def print_row(row):
    saturation = "?" if row["saturation"] is None else f"{row['saturation']:.0%}"
    print(f"{row['back_end']:>8} {row['ns_a_frame'] or 0:>11.1f} "
          f"{row['frames_a_second'] / 1e6:>10.3f} {row['busy_share']:>6.0%} {saturation:>10} "
          f"{row['frames_a_batch'] or 0:>13.1f}", flush=True)
    if row["stolen_share"] > tap.FOREIGN_SHARE_MAX:
        print(f"         ! {row['stolen_share']:.0%} of CPU {BACK_END_CPU} was stolen by the host")


def main():
    options = parse_arguments()
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        print("from_guest_null needs root (testpmd's shared memory) and two CPUs", file=sys.stderr)
        return 1
    os.sched_setaffinity(0, {GENERATOR_CPU})
    kinds = {"sluice": [SluiceHalf], "peer": [PeerHalf], None: [SluiceHalf, PeerHalf]}[options.only]
    if not options.json:
        print("back end  ns a frame  Mframes/s   busy  saturated  frames/batch")
    rows = []
    try:
        for _round in range(options.rounds):
            for kind in kinds:
                rows.append(run_half(kind, options))
                if not options.json:
                    print_row(rows[-1])
    except (AssertionError, Skip) as error:
        print(f"from_guest_null: {error}", file=sys.stderr)
        return 1
    result = {}
    for name in ("sluice", "testpmd"):
        values = [row["ns_a_frame"] for row in rows
                  if row["back_end"] == name and row["ns_a_frame"]]
        if values:
            result[name] = {"ns_a_frame_median": statistics.median(values), "min": min(values),
                            "max": max(values), "halves": len(values)}
    if len(result) == 2:
        result["testpmd_over_sluice"] = round(result["testpmd"]["ns_a_frame_median"] /
                                              result["sluice"]["ns_a_frame_median"], 3)
    if options.json:
        print(json.dumps({"rows": rows, **result}, indent=2))
    else:
        for name, part in result.items():
            print(f"{name}: {part}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
