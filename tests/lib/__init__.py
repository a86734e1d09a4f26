"""What every whole-program test stands on: its environment, skips, time bounds, processes.

A test is a function `test_<sentence>(env)` in a file tests/test_*.py. It says what it needs through
`env`, and whatever it starts or creates it hands to `env.defer`, so that all of it is gone again
when the test ends, however it ends. What is not here: namespaces (netns.py), the daemon
(daemon.py), guests and front ends (one file a kind).

    from lib import timeout, wait_until
    from lib.netns import Netns

    @timeout(30)
    def test_a_namespace_has_its_loopback_up(env):
        ns = Netns(env)
        assert "UP" in ns.run(["ip", "-br", "link", "show", "lo"]).stdout
"""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time

TEST_SECONDS_DEFAULT = 120
CLEANUP_SECONDS_MAX = 60
LOG_TAIL_LINES = 30

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class Skip(Exception):
    """Raised by env.skip(): the test cannot run here, and says why."""


class TestTimeout(BaseException):
    """The test's time is up. Not an Exception, so that no test swallows it by accident."""


def timeout(seconds):
    """Gives a test another time bound than the default."""

    def mark(function):
        function.timeout_seconds = seconds
        return function

    return mark


def each(**cases):
    """Runs a test once a case: `@each(a=64, b=1514)` calls test(env, 64) and test(env, 1514)."""

    def mark(function):
        function.cases = cases
        return function

    return mark


def wait_until(condition, seconds, what, interval_seconds=0.02):
    """Polls until condition() is true and returns its value; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            text = what() if callable(what) else what
            raise AssertionError(f"not within {seconds} s: {text}")
        time.sleep(interval_seconds)


def wait_stable(sample, seconds, what, quiet_seconds=0.5, interval_seconds=0.1):
    """Polls sample() until it has not changed for quiet_seconds; returns what it settled at."""
    deadline = time.monotonic() + seconds
    last, since = sample(), time.monotonic()
    while time.monotonic() - since < quiet_seconds:
        if time.monotonic() > deadline:
            raise AssertionError(f"still changing after {seconds} s: {what}, last {last}")
        time.sleep(interval_seconds)
        value = sample()
        if value != last:
            last, since = value, time.monotonic()
    return last


def die_with_parent():
    """In a child before exec: when the test runner is killed, the child is too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_process(process, seconds=3):
    """Ends a process that we started and what it left in its session: first asked, then made."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(seconds)
    try:
        # Children it left behind. The group is ours: each process starts a session of its own.
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


class Env:
    """What a test gets. `sluice`: path of the program. `tmp`: scratch folder with a path short
    enough for sockets. `full`: run at full size, else scaled down."""

    def __init__(self, sluice, full=False, keep=False, verbose=False):
        self._sluice = os.path.abspath(sluice)
        self.full = full
        self.verbose = verbose
        self.tmp = tempfile.mkdtemp(prefix="slt-", dir="/tmp")
        os.chmod(self.tmp, 0o755)
        self._deferred = []
        self._logs = []
        self._counter = 0
        if not keep:
            self.defer(lambda: shutil.rmtree(self.tmp, ignore_errors=True))

    @property
    def sluice(self):
        if not os.access(self._sluice, os.X_OK):
            raise AssertionError(f"no program at {self._sluice}: run `make build`, "
                                 "or give --sluice PATH")
        return self._sluice

    def path(self, name):
        return os.path.join(self.tmp, name)

    def unique(self, stem):
        self._counter += 1
        return f"{stem}{self._counter}"

    def skip(self, reason):
        raise Skip(reason)

    def defer(self, function):
        """Registers clean-up: run in reverse order when the test ends, also after a failure."""
        self._deferred.append(function)

    def note(self, text):
        """Says something about a passing test (a figure, a scale): printed with -v."""
        if self.verbose:
            print(f"     {text}", flush=True)

    def add_log(self, path):
        """A file whose tail is shown when the test fails."""
        self._logs.append(path)
        return path

    def popen(self, argv, name=None, stdin=subprocess.DEVNULL, extra_env=None, **options):
        """Starts a process that ends with the test. Its output goes to process.log_path."""
        name = self.unique(name or os.path.basename(argv[0]) + "-")
        log_path = self.add_log(self.path(name + ".log"))
        environment = dict(os.environ, **(extra_env or {}))
        with open(log_path, "wb") as log:
            process = subprocess.Popen(
                argv, stdin=stdin, stdout=log, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True, preexec_fn=die_with_parent, **options)
        process.log_path = log_path
        self.defer(lambda: end_process(process))
        return process

    def run(self, argv, check=True, timeout=30, **options):
        """Runs a command to its end, output captured as text."""
        options.setdefault("stdin", subprocess.DEVNULL)
        result = subprocess.run(argv, capture_output=True, text=True, errors="replace",
                                timeout=timeout, preexec_fn=die_with_parent, **options)
        if check and result.returncode != 0:
            raise AssertionError(f"{' '.join(argv)} ended with {result.returncode}: "
                                 f"{(result.stderr or result.stdout).strip()[-1000:]}")
        return result

    def run_deferred(self):
        """Cleans up; returns what went wrong on the way, as sentences."""
        problems = []
        while self._deferred:
            function = self._deferred.pop()
            try:
                function()
            except Exception as error:  # clean-up goes on, whatever one step met
                problems.append(f"clean-up: {type(error).__name__}: {error}")
        return problems

    def log_tails(self):
        """The ends of all logs, as one text. Call it before run_deferred() removes them."""
        parts = []
        for path in self._logs:
            lines = read_text(path).splitlines()
            if lines:
                parts.append(f"--- {os.path.basename(path)}, the last {LOG_TAIL_LINES} "
                             f"of {len(lines)} lines")
                parts.extend(lines[-LOG_TAIL_LINES:])
        return "\n".join(parts)


def read_text(path):
    """The file as text, empty when it is not there."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
