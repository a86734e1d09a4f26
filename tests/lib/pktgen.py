"""`sluice pktgen`, started beside the test, and what it says when it ends.

    receiver = Pktgen(env, socket, "rxonly", "--count", "1000")
    …
    assert receiver.report()["frames_lost"] == 0

With a daemon given, the constructor returns when the daemon's port has it as its front end, so that
nothing that is sent from then on is lost for want of a receiver.
"""

import json
import signal
import subprocess

from lib import read_text, wait_until

READY_SECONDS_MAX = 15
STOP_SECONDS_MAX = 10


class Pktgen:
    def __init__(self, env, socket, mode, *args, ns=None, daemon=None, port=None):
        """`daemon`, `port`: whose front end it is about to be, when that shall be waited for."""
        self.env = env
        self.errors = env.add_log(env.path(env.unique("pktgen-errors") + ".log"))
        argv = ["sh", "-c", f'exec "$@" 2>{self.errors}', "sh", env.sluice, "pktgen", "--socket",
                socket, "--mode", mode, "--json", *map(str, args)]
        lives = daemon.log().count(f"{port}: front end negotiated") if daemon else 0
        self.process = (ns or env).popen(argv, name=f"pktgen-{mode}-")
        if daemon:
            wait_until(lambda: daemon.log().count(f"{port}: front end negotiated") > lives
                       and self._is_served(daemon, port), READY_SECONDS_MAX,
                       lambda: f"{port} got no front end: {self.text()}")

    def _is_served(self, daemon, port):
        argv = [self.env.sluice, "ports", "--json", "--control", daemon.control]
        ports = json.loads(self.env.run(argv, timeout=10).stdout)["ports"]
        queues = {entry["name"]: (entry["active_queues"], entry["queues"]) for entry in ports}
        return queues[port][0] == queues[port][1]

    def errors_text(self):
        return read_text(self.errors)

    def text(self):
        return read_text(self.process.log_path) + self.errors_text()

    def wait(self, seconds, status=0):
        """Waits for its end; returns what it reported. Standard output is the JSON, all of it."""
        try:
            got = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"pktgen did not end within {seconds} s: {self.text()}") from None
        assert got == status, f"pktgen ended with {got}, not {status}: {self.text()}"
        return json.loads(read_text(self.process.log_path))

    def stop(self):
        """Asks it to end, and returns its report."""
        self.process.send_signal(signal.SIGINT)
        return self.wait(STOP_SECONDS_MAX)
