"""DPDK's testpmd as a front end (net_virtio_user: a driver of virtio-net in userspace) and as a
peer (net_vhost: another back end). It runs without hugepages: --no-huge, all memory in one shared
file (--single-file-segments; otherwise it hands out more regions than vhost-user carries).

Which receive and transmit functions the driver picked is not ours to guess: its own log says so,
and `rx_path()`, `tx_path()` and `feature()` read it there. The forwarding thread polls, it always
takes a whole CPU; that is testpmd's way, not load.

    pmd = VirtioUser(env, socket, "in_order_mergeable", forward="txonly")
    assert pmd.rx_path() == "inorder"
    pmd.start(); time.sleep(1); pmd.stop()
    print(pmd.port_stats()["TX-packets"])
"""

import os
import re
import shutil
import subprocess

from lib import read_text, wait_until

PROMPT = "testpmd> "
START_SECONDS_MAX = 30
COMMAND_SECONDS_MAX = 15
MEMORY_MIB = 256

# What the driver must be told to pick a split-ring path, and what it then says that it picked. It
# names both in-order paths alike; the feature bit tells them apart.
SPLIT_PATHS = {
    "mergeable": dict(options="mrg_rxbuf=1,in_order=0", rx="mergeable buffer", tx="standard",
                      mergeable=True, in_order=False),
    "non_mergeable": dict(options="mrg_rxbuf=0,in_order=0", rx="standard", tx="standard",
                          mergeable=False, in_order=False),
    "in_order_mergeable": dict(options="mrg_rxbuf=1,in_order=1", rx="inorder", tx="inorder",
                               mergeable=True, in_order=True),
    "in_order_non_mergeable": dict(options="mrg_rxbuf=0,in_order=1", rx="inorder", tx="inorder",
                                   mergeable=False, in_order=True),
    "vectorized": dict(options="mrg_rxbuf=0,in_order=0,vectorized=1", rx="vectorized",
                       tx="standard", mergeable=False, in_order=False),
}

FEATURE_BITS = {"MRG_RXBUF": 15, "MQ": 22, "RING_INDIRECT": 28, "RING_EVENT_IDX": 29,
                "VERSION_1": 32, "RING_PACKED": 34, "IN_ORDER": 35}


# The same on packed rings. DPDK's driver has one transmit function for all of them.
PACKED_PATHS = {
    "packed_mergeable": dict(options="mrg_rxbuf=1,in_order=0", rx="mergeable buffer", tx="standard",
                             mergeable=True, in_order=False),
    "packed_non_mergeable": dict(options="mrg_rxbuf=0,in_order=0", rx="standard", tx="standard",
                                 mergeable=False, in_order=False),
    "packed_in_order_mergeable": dict(options="mrg_rxbuf=1,in_order=1", rx="mergeable buffer",
                                      tx="standard", mergeable=True, in_order=True),
    "packed_in_order_non_mergeable": dict(options="mrg_rxbuf=0,in_order=1", rx="standard",
                                          tx="standard", mergeable=False, in_order=True),
    # 512 bits wide only; testpmd has to be allowed it.
    "packed_vectorized": dict(options="mrg_rxbuf=0,in_order=1,vectorized=1", rx="vectorized",
                              tx="vectorized", mergeable=False, in_order=True),
}
PATHS = {**SPLIT_PATHS, **PACKED_PATHS}


def require_testpmd(env):
    if shutil.which("dpdk-testpmd") is None:
        env.skip("dpdk-testpmd is not installed (Debian package dpdk-dev)")


def require_wide_vectors(env):
    with open("/proc/cpuinfo") as file:
        if "avx512f" not in file.read():
            env.skip("DPDK's vectorized path on packed rings needs AVX-512")


class Testpmd:
    """One testpmd, interactive, its standard input kept open."""

    def __init__(self, env, vdevs, app_args=(), ns=None, lcores="0@(0-1),1@(0-1)", mbufs=16384,
                 prefix=(), eal_args=()):
        require_testpmd(env)
        self.env = env
        self.file_prefix = f"slt{os.getpid()}{env.unique('-')}"
        argv = [*prefix, "stdbuf", "-oL", "dpdk-testpmd", "--lcores", lcores, "--no-pci",
                "--no-huge", "-m", str(MEMORY_MIB), "--single-file-segments",
                *eal_args, "--file-prefix", self.file_prefix, "--log-level=pmd.net.virtio.init:debug"]
        for vdev in vdevs:
            argv += ["--vdev", vdev]
        argv += ["--", "-i", f"--total-num-mbufs={mbufs}", *app_args]
        env.defer(self._remove_runtime_folder)
        self.process = (ns or env).popen(argv, name="testpmd-", stdin=subprocess.PIPE)
        env.defer(self._close_input)
        self._wait_prompts(1, START_SECONDS_MAX, "start")

    def _remove_runtime_folder(self):
        shutil.rmtree(f"/var/run/dpdk/{self.file_prefix}", ignore_errors=True)

    def _close_input(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it is gone already; there is nothing left to flush

    def log(self):
        return read_text(self.process.log_path)

    def assert_alive(self):
        status = self.process.poll()
        assert status is None, f"testpmd is dead, status {status}:\n{self.log()[-2000:]}"

    def _wait_prompts(self, count, seconds, what):
        def prompts():
            self.assert_alive()
            return self.log().count(PROMPT) >= count

        wait_until(prompts, seconds,
                   lambda: f"testpmd: no prompt after {what!r}:\n{self.log()[-2000:]}")

    def command(self, text, seconds=COMMAND_SECONDS_MAX):
        """Sends one command line and returns what was printed until the next prompt."""
        before = self.log()
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        self._wait_prompts(before.count(PROMPT) + 1, seconds, text)
        return self.log()[len(before):]

    def start(self):
        return self.command("start")

    def stop(self):
        return self.command("stop")

    def quit(self):
        """Ends it the polite way: the port is stopped and closed."""
        self.process.stdin.write(b"quit\n")
        self.process.stdin.flush()
        self.process.wait(COMMAND_SECONDS_MAX)

    def kill(self):
        self.process.kill()
        self.process.wait(COMMAND_SECONDS_MAX)

    def port_stats(self, port=0):
        """`show port stats` as {"RX-packets": n, "RX-missed": n, "TX-packets": n, …}."""
        text = self.command(f"show port stats {port}")
        return {key: int(value)
                for key, value in re.findall(r"([RT]X-[a-z]+):\s+(\d+)", text)}

    def port_info(self, port=0):
        """`show port info` as {"MTU": "1500", "Link status": "up", …}."""
        text = self.command(f"show port info {port}")
        return {key.strip(): value.strip()
                for key, value in re.findall(r"^([A-Z][^:\n]*): (.*)$", text, re.MULTILINE)}

    def link_is_up(self, port=0):
        return self.port_info(port).get("Link status") == "up"

    def burst_stats(self):
        """Runs of the forwarding loop that found a burst, from the last `stop`; needs
        app_args --record-burst-stats. Returns {"RX": [(percent, packets), …], "TX": …}."""
        found = {}
        for side, text in re.findall(r"([RT]X)-bursts\s*:\s*\d+\s*\[(.*?)\]", self.log()):
            found[side] = [(int(percent), int(packets)) for percent, packets
                           in re.findall(r"(\d+)% of (\d+) pkts", text)]
        return found


class VirtioUser(Testpmd):
    """The front end, on one of PATHS."""

    def __init__(self, env, socket, path, forward="txonly", queues=1, queue_size=256,
                 mac="02:00:00:00:00:01", server=False, app_args=(), **options):
        self.expected = PATHS[path]
        self.packed = path in PACKED_PATHS
        if path == "packed_vectorized":
            require_wide_vectors(env)
            options["eal_args"] = ["--force-max-simd-bitwidth=512"]
        vdev = (f"net_virtio_user0,path={socket},mac={mac},queues={queues},queue_size={queue_size},"
                f"packed_vq={int(self.packed)},{self.expected['options']}" + (",server=1" if server else ""))
        app = [f"--forward-mode={forward}", f"--rxq={queues}", f"--txq={queues}", *app_args]
        super().__init__(env, [vdev], app, **options)

    def _chosen(self, side):
        lines = re.findall(rf"virtio: using (?:packed ring )?(.+) {side} path on port 0", self.log())
        assert lines, f"testpmd's log names no {side} path:\n{self.log()[-2000:]}"
        return lines[-1]

    def rx_path(self):
        """The receive function that the driver says it uses: `mergeable buffer`, `standard`, …"""
        return self._chosen("Rx")

    def tx_path(self):
        return self._chosen("Tx")

    def features(self):
        """The feature bits after negotiation, as a number."""
        found = re.findall(r"features after negotiate = ([0-9a-f]+)", self.log())
        assert found, f"testpmd's log names no features:\n{self.log()[-2000:]}"
        return int(found[-1], 16)

    def feature(self, name):
        return bool(self.features() >> FEATURE_BITS[name] & 1)

    def assert_path(self):
        """The driver runs the path it was started for, by its own log."""
        expected = self.expected
        assert self.rx_path() == expected["rx"], f"Rx path {self.rx_path()}, not {expected['rx']}"
        assert self.tx_path() == expected["tx"], f"Tx path {self.tx_path()}, not {expected['tx']}"
        assert self.feature("MRG_RXBUF") == expected["mergeable"], "MRG_RXBUF is not as asked"
        assert self.feature("IN_ORDER") == expected["in_order"], "IN_ORDER is not as asked"
        assert self.feature("RING_PACKED") == self.packed, "the ring's format is not as asked"
