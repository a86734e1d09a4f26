"""The daemon under test: `sluice run`, started, watched and stopped.

The constructor returns when the daemon said `ready` (or fails with its log). It must be alive at
the end of the test, and is then stopped with SIGTERM, which must give exit status 0 within 2 s; a
daemon that died under a test makes the test fail even when nothing else noticed.

    daemon = Daemon(env, ["--vm", f"vm0,socket={env.path('vm0.sock')}",
                          "--tap", "t0,ifname=tap0", "--connect", "vm0:t0"], ns)
    before = daemon.frames("vm0", "from_guest")
"""

import glob
import json
import os
import re
import signal
import subprocess
import time

from lib import read_text, wait_until

READY_SECONDS_MAX = 10
STOP_SECONDS_MAX = 2


class Daemon:
    def __init__(self, env, args, ns=None, prefix=(), extra_env=None, command="run"):
        """`args`: what follows `sluice run` (or another command that serves). `prefix`: a command in front (taskset, setpriv, …)."""
        self.env = env
        self.ns = ns
        self.control = env.path(env.unique("control") + ".sock")
        argv = [*prefix, env.sluice, command, *args, "--control", self.control]
        self.process = (ns or env).popen(argv, name="sluice-", extra_env=extra_env)
        self.ended = False
        env.defer(self._finish)
        wait_until(self._ready_or_dead, READY_SECONDS_MAX,
                   lambda: f"the daemon did not say ready; its log:\n{self.log()}")

    def _ready_or_dead(self):
        # Dead is asked first: whatever a dead daemon wrote is then already in the log.
        status = self.process.poll()
        if re.search(r"\bready\b", self.log()):
            return True
        if status is not None:
            raise AssertionError(f"the daemon ended with {status} before it was ready; "
                                 f"its log:\n{self.log()}")
        return False

    def _finish(self):
        if not self.ended:
            self.stop()

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return read_text(self.process.log_path)

    def wait_log(self, pattern, seconds=10):
        """Waits for a line that matches the regular expression; returns the match."""
        return wait_until(lambda: re.search(pattern, self.log()), seconds,
                          lambda: f"the daemon's log has no {pattern!r}:\n{self.log()}")

    def assert_alive(self):
        status = self.process.poll()
        assert status is None, f"the daemon is dead, status {status}; its log:\n{self.log()}"

    def stop(self, signal_number=signal.SIGTERM):
        """Stops it cleanly; the exit status must be 0 and it must not take long."""
        self.assert_alive()
        self.ended = True
        begin = time.monotonic()
        self.process.send_signal(signal_number)
        try:
            status = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon did not stop within {STOP_SECONDS_MAX} s; "
                                 f"its log:\n{self.log()}") from None
        assert status == 0, f"the daemon stopped with status {status}; its log:\n{self.log()}"
        return time.monotonic() - begin

    def kill(self):
        """Ends it the hard way, for tests of what is left behind."""
        self.ended = True
        self.process.kill()
        self.process.wait(STOP_SECONDS_MAX)

    # Statistics over the control socket.

    def stats(self):
        argv = [self.env.sluice, "stats", "--json", "--control", self.control]
        return json.loads(self.env.run(argv, timeout=10).stdout)

    def port(self, name, stats=None):
        for port in (stats or self.stats())["ports"]:
            if port["name"] == name:
                return port
        raise AssertionError(f"the stats know no port {name}")

    def queues(self, port, direction, stats=None):
        return [queue for queue in self.port(port, stats)["queues"]
                if queue["direction"] == direction]

    def frames(self, port, direction, stats=None):
        """Frames over all queues of a direction."""
        return sum(queue["frames"] for queue in self.queues(port, direction, stats))

    def drops(self, port, direction=None, stats=None):
        """{reason: count} over all queues of a direction (or of both), without zeros."""
        total = {}
        for queue in self.port(port, stats)["queues"]:
            if direction in (None, queue["direction"]):
                for reason, count in queue["drops"].items():
                    if count:
                        total[reason] = total.get(reason, 0) + count
        return total

    def negotiated(self, port):
        return self.port(port)["negotiated"]

    def uses_napi(self, port):
        return any("napi" in name.lower() for name in self.negotiated(port))

    # What it costs.

    def rss_kib(self):
        """Resident memory, all of it."""
        return int(re.search(r"VmRSS:\s+(\d+)", read_text(f"/proc/{self.pid}/status")).group(1))

    def rss_own_kib(self):
        """Resident memory without the shared mappings that front ends handed in."""
        total = 0
        foreign = False
        for line in read_text(f"/proc/{self.pid}/smaps").splitlines():
            head = re.match(r"[0-9a-f]+-[0-9a-f]+ (\S{4}) \S+ \S+ \d+\s*(.*)", line)
            if head:
                foreign = head.group(1)[3] == "s" and "sluice" not in head.group(2)
            elif line.startswith("Rss:") and not foreign:
                total += int(line.split()[1])
        return total

    def fd_count(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def map_count(self):
        return len(read_text(f"/proc/{self.pid}/maps").splitlines())

    def cpu_seconds(self):
        """CPU time of all its threads, from the scheduler's own clock."""
        total_ns = 0
        for path in glob.glob(f"/proc/{self.pid}/task/*/schedstat"):
            fields = read_text(path).split()
            total_ns += int(fields[0]) if fields else 0
        return total_ns / 1e9


def run_sluice(env, args, ns=None, timeout=10, **options):
    """Runs the program to its end, any subcommand; returns the result whatever the status."""
    return (ns or env).run([env.sluice, *args], check=False, timeout=timeout, **options)


def assert_refused(env, args, words, status=2, ns=None, **options):
    """The program must end with `status` and say one line on standard error that has each of
    `words`. Before a failure at run time (1) it may have said what it had set up so far."""
    try:
        result = run_sluice(env, args, ns, **options)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"sluice {' '.join(args)}: it runs, but must be refused") from None
    told = f"sluice {' '.join(args)}\nstatus {result.returncode}, said: {result.stderr.strip()!r}"
    assert result.returncode == status, f"expected status {status}: {told}"
    lines = [line for line in result.stderr.strip().splitlines()
             if not (status == 1 and re.match(r"\S+ info: ", line))]
    assert len(lines) == 1, f"expected one line: {told}"
    missing = [word for word in words if word.lower() not in lines[0].lower()]
    assert not missing, f"the message does not name {missing}: {told}"
    return lines[0]


def check_table(env, table, check):
    """Runs check(row) for each row and fails once, with all that failed."""
    failures = []
    for row in table:
        try:
            check(row)
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, f"{len(failures)} of {len(table)} rows:\n" + "\n".join(failures)
