"""Traffic between a guest and the host's end of its wire, an interface in a namespace.

A Wire knows both ends and moves real data over them: pings, TCP for speed, TCP with a checksum over
every byte, and numbered datagrams of which none may be missing. Directions are named from the guest:
FROM_GUEST and TO_GUEST.

    wire = Wire(guest, ns, "tap0", host_ipv4="10.0.0.1", host_ipv6="fd00::1")
    wire.ping(100)
    wire.check_tcp_bytes(FROM_GUEST, 20_000_000)
    wire.check_udp(TO_GUEST, count=3000, payload_bytes=64, per_second=1000)

Nothing here passes or fails by how fast it was. The program at both ends is built from
tests/guest/traffic_end.c, static, so that it runs in any guest.
"""

import hashlib
import os
import re
import shutil
import subprocess

from lib import read_text, wait_until

FROM_GUEST, TO_GUEST = "from_guest", "to_guest"
IPERF_PORT = 5201
UDP_QUIET_MS = 4000
# What the TAP holds while a guest is not scheduled: 4 s of 1000 datagrams a second.
TAP_QUEUE_FRAMES = 4000

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "guest", "traffic_end.c")
CACHE = os.path.abspath(os.path.join(HERE, "..", "..", "build", "guest"))

_ports = iter(range(20000, 60000))
_digests = {}


def file_digest(*paths):
    """A short digest of the contents of files, for names in the cache."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def build_traffic_end():
    """Builds the program, unless it is there; returns its path."""
    path = os.path.join(CACHE, f"traffic_end-{file_digest(SOURCE)}")
    if not os.access(path, os.X_OK):
        os.makedirs(CACHE, exist_ok=True)
        part = f"{path}.{os.getpid()}"
        subprocess.run(["gcc", "-std=gnu11", "-static", "-O2", "-Wall", "-Wextra", "-Werror",
                        "-o", part, SOURCE], check=True, timeout=60)
        os.rename(part, path)
    return path


def install_traffic_end(env):
    """Puts the program into the test's folder, which is /run/host in a User-Mode Linux guest."""
    path = env.path("traffic_end")
    if not os.path.exists(path):
        shutil.copy(build_traffic_end(), path)
    return path


def parse_numbers(text):
    """The last line of `name=number` pairs as a dictionary."""
    lines = [line for line in text.splitlines() if re.match(r"\w+=-?\d", line)]
    assert lines, f"no figures in {text!r}"
    return {key: int(value) for key, value in re.findall(r"(\w+)=(-?\d+)", lines[-1])}


def generated_sha256(env, size, seed):
    """The checksum of the bytes that `traffic_end generate` makes."""
    if (size, seed) not in _digests:
        process = subprocess.run([install_traffic_end(env), "generate", str(size), str(seed)],
                                 stdout=subprocess.PIPE, check=True, timeout=60)
        _digests[size, seed] = hashlib.sha256(process.stdout).hexdigest()
    return _digests[size, seed]


class Wire:
    def __init__(self, guest, ns, interface, host_ipv4, host_ipv6=None, in_order=True):
        """`in_order`: no datagram may overtake another. Between several queues some do: the guest
        sends on the queue of the processor that the sender runs on just then."""
        self.env = guest.env
        self.in_order = in_order
        self.guest = guest
        self.ns = ns
        self.interface = interface
        self.host_ipv4 = host_ipv4
        self.host_ipv6 = host_ipv6
        self.program = install_traffic_end(self.env)
        self._iperf_server = None

    def lengthen_tap_queue(self):
        """For tests which count losses while the machine is busy with something else: a guest that
        gets no CPU time is not the path's loss."""
        self.ns.run(["ip", "link", "set", "dev", self.interface, "txqueuelen", str(TAP_QUEUE_FRAMES)])

    def host(self, ipv6=False):
        return self.host_ipv6 if ipv6 else self.host_ipv4

    def far_end(self, direction, ipv6=False):
        """The address that traffic of this direction goes to."""
        if direction == FROM_GUEST:
            return self.host(ipv6)
        return self.guest.ipv6 if ipv6 else self.guest.ipv4

    # Pings.

    def wait_reachable(self, seconds=15, ipv6=False):
        """Until one ping from the host is answered: link up, addresses and neighbours known."""
        argv = ["ping", "-c", "1", "-W", "1", self.far_end(TO_GUEST, ipv6)]
        wait_until(lambda: self.ns.run(argv, check=False).returncode == 0, seconds,
                   f"the guest does not answer to {' '.join(argv)}")

    def ping(self, count, direction=TO_GUEST, ipv6=False, interval=0.02, size=56):
        """All of `count` pings must be answered."""
        # By its path: busybox's shell would take its own.
        words = ["/usr/bin/ping", "-n", "-q", "-c", str(count), "-i", str(interval), "-W", "3", "-s", str(size),
                 self.far_end(direction, ipv6)]
        seconds = int(count * max(interval, 0.2)) + 20
        if direction == FROM_GUEST:
            text = self.guest.run(" ".join(words), timeout=seconds, check=False).stdout
        else:
            text = self.ns.run(words, timeout=seconds, check=False).stdout
        match = re.search(r"(\d+) packets transmitted, (\d+) (?:packets )?received", text)
        assert match, f"{' '.join(words)} gave no count: {text[-300:]}"
        assert match.groups() == (str(count), str(count)), \
            f"{' '.join(words)}: {match.group(2)} of {match.group(1)} answered"

    # TCP.

    def iperf(self, seconds, direction=FROM_GUEST, ipv6=False, extra=""):
        """TCP at full speed; returns the Mbit/s that arrived, which must be more than nothing."""
        if self._iperf_server is None or self._iperf_server.poll() is not None:
            self._iperf_server = self.ns.popen(["iperf3", "-s"])
            self._wait_host_listening(IPERF_PORT)
        reverse = "-R" if direction == TO_GUEST else ""
        command = f"iperf3 -f m -t {seconds} {reverse} {extra} -c {self.host(ipv6)}"
        text = self.guest.run(command, timeout=seconds + 30).stdout
        # With several connections the last line is their sum.
        figures = [float(figure) for figure in re.findall(r"([\d.]+) Mbits/sec.*receiver", text)]
        assert figures and figures[-1] > 0, f"{command} carried nothing: {text[-500:]}"
        self.env.note(f"{command}: {figures[-1]} Mbit/s")
        return figures[-1]

    def check_tcp_bytes(self, direction, size, ipv6=False, seconds=60):
        """Sends `size` known bytes over one connection; what arrives must have the same sha256."""
        port = next(_ports)
        seed = port
        send = f"generate {size} {seed} | %s tcp-send {self.far_end(direction, ipv6)} {port}"
        receive = f"tcp-recv {port} | sha256sum"
        if direction == FROM_GUEST:
            receiver = self.ns.popen(["sh", "-c", f"{self.program} {receive}"], name="tcp-recv-")
            wait_until(lambda: "ready" in read_text(receiver.log_path), 10, "no TCP receiver")
            self.guest.run("traffic_end " + send % "traffic_end", timeout=seconds)
            receiver.wait(seconds)
            text = read_text(receiver.log_path)
        else:
            job = self.guest.start("traffic_end " + receive, timeout=seconds + 30)
            wait_until(lambda: "ready" in self.guest.output(job), 20, "no TCP receiver in the guest")
            self.ns.run(["sh", "-c", f"{self.program} {send % self.program}"], timeout=seconds)
            text = self.guest.finish(job, seconds).stdout
        assert generated_sha256(self.env, size, seed) in text, \
            f"{size} bytes by TCP, {direction}: what arrived is not what was sent ({text.strip()})"

    def _wait_host_listening(self, port):
        pattern = f":{port:04X} .* 0A "
        wait_until(lambda: re.search(pattern, self.ns.run(
            ["cat", "/proc/net/tcp", "/proc/net/tcp6"]).stdout), 10, f"nobody listens on port {port}")

    # Numbered datagrams.

    def check_udp(self, direction, count, payload_bytes, per_second, ipv6=False):
        """Sends numbered datagrams at a rate; none may be lost, repeated, late or damaged."""
        stream = UdpStream(self, direction, payload_bytes, per_second, ipv6, count)
        stream.assert_clean(stream.finish(count // per_second + 60))

    def check_udp_both_ways(self, count, payload_bytes, per_second, ipv6=False):
        """The same in both directions at once."""
        streams = [UdpStream(self, direction, payload_bytes, per_second, ipv6, count)
                   for direction in (FROM_GUEST, TO_GUEST)]
        for stream in streams:
            stream.assert_clean(stream.finish(count // per_second + 60))


class UdpStream:
    """Numbered datagrams one way. With count=0 they go on until stop()."""

    def __init__(self, wire, direction, payload_bytes, per_second, ipv6=False, count=0):
        self.wire = wire
        self.direction = direction
        self.what = f"UDP {payload_bytes} B at {per_second}/s {direction}{' IPv6' if ipv6 else ''}"
        port = next(_ports)
        receive = ["udp-recv", str(port), str(count), str(UDP_QUIET_MS if count else 600_000)]
        send = ["udp-send", wire.far_end(direction, ipv6), str(port), str(count), str(payload_bytes),
                str(per_second)]
        if direction == FROM_GUEST:
            self.receiver = self._start_host(receive)
            self._wait_ready()
            self.sender = self._start_guest(send)
        else:
            self.receiver = self._start_guest(receive)
            self._wait_ready()
            self.sender = self._start_host(send)

    # The jobs of the two sides, told apart by their type: a guest's job is a name.

    def _start_host(self, words):
        return self.wire.ns.popen([self.wire.program, *words], name=words[0] + "-")

    def _start_guest(self, words):
        return self.wire.guest.start("exec traffic_end " + " ".join(words), timeout=1000)

    def _text(self, job):
        if isinstance(job, str):
            return self.wire.guest.output(job)
        return read_text(job.log_path)

    def _wait_ready(self):
        wait_until(lambda: "ready" in self._text(self.receiver), 15, f"{self.what}: no receiver")

    def _finish_job(self, job, seconds):
        if isinstance(job, str):
            return parse_numbers(self.wire.guest.finish(job, seconds).stdout)
        status = job.wait(seconds)
        assert status == 0, f"{self.what}: an end failed: {self._text(job)}"
        return parse_numbers(self._text(job))

    def _terminate(self, job):
        if isinstance(job, str):
            self.wire.guest.signal(job)
        else:
            job.terminate()

    def finish(self, seconds):
        """Waits for the counted end; returns {"sent", "received", …}."""
        return {**self._finish_job(self.sender, seconds), **self._finish_job(self.receiver, seconds)}

    def stop(self, drain_seconds=2.0):
        """Ends an endless stream: first the sender, then, when all had time to arrive, the receiver."""
        self._terminate(self.sender)
        figures = self._finish_job(self.sender, 20)
        self.wire.guest.run(f"sleep {drain_seconds}", timeout=20)
        self._terminate(self.receiver)
        return {**figures, **self._finish_job(self.receiver, 20)}

    def assert_clean(self, figures):
        lost = figures["sent"] - figures["received"]
        faults = ("repeated", "damaged") + (("late",) if self.wire.in_order else ())
        bad = {key: figures[key] for key in faults if figures[key]}
        assert figures["sent"] > 0, f"{self.what}: nothing was sent"
        assert lost == 0 and not bad, \
            f"{self.what}: lost {lost} of {figures['sent']}, the first {figures['first_lost']}, {bad}"
        self.wire.env.note(f"{self.what}: {figures['received']} of {figures['sent']} arrived")
