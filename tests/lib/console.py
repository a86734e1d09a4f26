"""A command channel into a guest: runs shell commands there and brings back output and exit status.

The other end is tests/guest/agent.sh. Guest is the base of the two kinds of guest, uml.Uml and
qemu.Qemu, which bring the transport: a descriptor to read from and one to write to.

    result = guest.run("ip -br link", timeout=5)
    job = guest.start("iperf3 -s -1")           # goes on in the background
    ...
    print(guest.finish(job, timeout=10).stdout)

A command is one line, shorter than COMMAND_BYTES_MAX. Every wait has a bound; a guest that died or
hangs fails the test with the end of its console.
"""

import collections
import os
import re
import select
import time

from lib import read_text

COMMAND_BYTES_MAX = 3500
# The guest ends a command by itself after its time; the answer may take this much longer.
GRACE_SECONDS = 15

Result = collections.namedtuple("Result", "returncode stdout")


class Guest:
    """A booted guest. A subclass sets `process`, `console_path` and the channel's descriptors."""

    def __init__(self, env, name):
        self.env = env
        self.name = name
        self.process = None
        self.console_path = ""
        self.interface = "eth0"
        self.mac = self.ipv4 = self.ipv6 = ""
        self._read_fd = self._write_fd = -1
        self._buffer = b""
        self._requests = 0
        self._jobs = 0

    # The channel.

    def console(self):
        """What the guest's kernel and init printed."""
        return read_text(self.console_path)

    def _fail(self, what):
        tail = "\n".join(self.console().splitlines()[-25:])
        raise AssertionError(f"guest {self.name}: {what}; the end of its console:\n{tail}")

    def _read_until(self, pattern, seconds, what):
        """Collects output until the regular expression (bytes) matches; returns (before, match)."""
        deadline = time.monotonic() + seconds
        while True:
            match = re.search(pattern, self._buffer)
            if match:
                before, self._buffer = self._buffer[:match.start()], self._buffer[match.end():]
                return before, match
            left = deadline - time.monotonic()
            if left <= 0:
                self._fail(f"{what}: no answer within {seconds:.0f} s")
            ready, _, _ = select.select([self._read_fd], [], [], min(left, 0.5))
            if ready:
                data = os.read(self._read_fd, 65536)
                if not data:
                    self._fail(f"{what}: the command channel was closed")
                self._buffer += data
            elif self.process.poll() is not None:
                self._fail(f"{what}: it ended with status {self.process.returncode}")

    def _wait_ready(self, seconds):
        self._read_until(rb"@guest-ready@\r?\n", seconds, "boot")

    def run(self, command, timeout=30, check=True):
        """Runs a shell command; with check a failure fails the test."""
        line = " ".join(command.split("\n"))
        assert len(line) <= COMMAND_BYTES_MAX, f"command of {len(line)} bytes is too long"
        self._requests += 1
        number = self._requests
        os.write(self._write_fd, f"{number} {timeout} {line}\n".encode())
        output, match = self._read_until(rb"\r?\n@guest-done %d (\d+)@\r?\n" % number,
                                         timeout + GRACE_SECONDS, command)
        text = output.decode(errors="replace").replace("\r\n", "\n")
        result = Result(int(match.group(1)), text)
        if check and result.returncode != 0:
            raise AssertionError(f"guest {self.name}: {command!r} ended with {result.returncode}: "
                                 f"{text.strip()[-800:]}")
        return result

    def start(self, command, timeout=120):
        """Starts a shell command in the background; returns a job for finish(). For signal() to reach
        a program and not a shell around it, write `exec` in front of it."""
        self._jobs += 1
        job = f"/run/job{self._jobs}"
        command = f"echo $$ >{job}.pid; {command}"
        # The status goes into a FIFO: the writer waits for finish(), and finish() for the writer.
        self.run(f"mkfifo {job}.status; (timeout -s KILL {timeout} sh -c {quote(command)} "
                 f">{job}.out 2>&1 </dev/null; echo $? >{job}.status) >/dev/null 2>&1 &")
        return job

    def signal(self, job, number=15):
        self.run(f"kill -{number} $(cat {job}.pid)")

    def output(self, job):
        """What a job has printed so far."""
        return self.run(f"cat {job}.out").stdout

    def finish(self, job, timeout=30, check=True):
        """Waits for a job, once; returns its Result."""
        result = self.run(f"read status <{job}.status && echo $status && cat {job}.out",
                          timeout=timeout, check=False)
        if result.returncode != 0:
            self._fail(f"a job is not done after {timeout} s; it printed: {self.output(job)[-800:]}")
        status, _, text = result.stdout.partition("\n")
        if check and status != "0":
            raise AssertionError(f"guest {self.name}: a job ended with {status}: {text[-800:]}")
        return Result(int(status), text)

    # The network.

    def configure(self, mac=None, ipv4=None, ipv6=None, mtu=None):
        """Brings the interface up with addresses in prefix notation."""
        steps = []
        if mac:
            steps.append(f"ip link set {self.interface} address {mac}")
        if mtu:
            steps.append(f"ip link set {self.interface} mtu {mtu}")
        if ipv4:
            steps.append(f"ip addr add {ipv4} dev {self.interface}")
        if ipv6:
            # No duplicate address detection: nobody else is on this wire, and it takes a second.
            steps.append(f"echo 0 >/proc/sys/net/ipv6/conf/{self.interface}/accept_dad")
            steps.append(f"ip addr add {ipv6} dev {self.interface}")
        steps.append(f"ip link set {self.interface} up")
        self.run(" && ".join(steps))
        self.mac = mac or self.run(f"cat /sys/class/net/{self.interface}/address").stdout.strip()
        self.ipv4 = (ipv4 or "").split("/")[0]
        self.ipv6 = (ipv6 or "").split("/")[0]

    def wait_link(self, seconds=10):
        """Waits until the interface has its carrier."""
        carrier = f"/sys/class/net/{self.interface}/carrier"
        self.run(f"i=0; until [ \"$(cat {carrier} 2>/dev/null)\" = 1 ]; do i=$((i + 1)); "
                 f"[ $i -lt {int(seconds * 10)} ] || exit 1; sleep 0.1; done", timeout=seconds + 20)

    # The end.

    def poweroff(self, seconds=20):
        """Switches the guest off from inside and waits for the process to end."""
        os.write(self._write_fd, b"0 5 sync; echo o >/proc/sysrq-trigger; sleep 5\n")
        try:
            self.process.wait(seconds)
        except Exception:
            self._fail(f"not switched off within {seconds} s")
        self._close()

    def kill(self):
        """Ends the guest the hard way, as one."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._close()

    def _close(self):
        for fd in {self._read_fd, self._write_fd} - {-1}:
            os.close(fd)
        self._read_fd = self._write_fd = -1


def quote(text):
    """The text as one word of a shell command."""
    return "'" + text.replace("'", "'\\''") + "'"
