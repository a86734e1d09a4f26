#!/usr/bin/env python3
"""Runs the whole-program tests: real guests, real namespaces, the built program.

    tests/run.py                         all tests, scaled down, against build/release/sluice
    tests/run.py --filter testpmd -v     those with `testpmd` in their name, with notes
    tests/run.py --list                  what there is
    tests/run.py --sluice build/asan/sluice --full

One line a test, then `N passed, N failed, N skipped`. Exit status 1 when a test failed, or was
skipped for a reason that tests/allowed_skips does not list. That file has a line a skip: the name
(may be a pattern with *), a space, and words which the reason must contain.
"""

import argparse
import fnmatch
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

from lib import CLEANUP_SECONDS_MAX, Env, Skip, TEST_SECONDS_DEFAULT, TestTimeout  # noqa: E402

GREEN, RED, YELLOW, PLAIN = "\033[32m", "\033[31m", "\033[33m", "\033[0m"


class Stop(BaseException):
    """The runner was asked to end: clean up first."""


def parse_arguments():
    parser = argparse.ArgumentParser(description="Whole-program tests of sluice.")
    parser.add_argument("--filter", default="", metavar="SUBSTR",
                        help="only tests with this in the name")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--sluice", default=os.path.join(HERE, "..", "build", "release", "sluice"),
                        metavar="PATH", help="the program under test")
    parser.add_argument("--full", action="store_true", help="full size instead of scaled down")
    parser.add_argument("--keep", action="store_true", help="keep the scratch folders")
    parser.add_argument("-v", "--verbose", action="store_true", help="notes, and whole tracebacks")
    return parser.parse_args()


def discover(pattern):
    """[(name, callable(env), seconds)] in the order of files and of lines."""
    found = []
    for file in sorted(os.listdir(HERE)):
        if not (file.startswith("test_") and file.endswith(".py")):
            continue
        module = importlib.import_module(file[:-3])
        for name, function in vars(module).items():
            # A test imported from another module would run twice.
            if name.startswith("test_") and getattr(function, "__module__", "") == module.__name__:
                found += expand(f"{file[:-3]}.{name}", function)
    return [test for test in found if pattern in test[0]]


def expand(name, function):
    seconds = getattr(function, "timeout_seconds", TEST_SECONDS_DEFAULT)
    cases = getattr(function, "cases", None)
    if cases is None:
        return [(name, function, seconds)]
    return [(f"{name}[{label}]", lambda env, value=value: function(env, value), seconds)
            for label, value in cases.items()]


def on_alarm(_signal, _frame):
    raise TestTimeout()


def on_stop(number, _frame):
    raise Stop(f"signal {number}")


def call_test(function, env, seconds, verbose):
    """Runs one test; returns (outcome, sentence, details)."""
    signal.alarm(seconds)
    try:
        function(env)
        return "PASS", "", ""
    except Skip as skip:
        return "SKIP", str(skip), ""
    except TestTimeout:
        return "FAIL", f"not done within {seconds} s", traceback.format_exc(limit=-6)
    except Exception as error:
        text = str(error) or type(error).__name__
        lines = text.splitlines() or [""]
        trace = traceback.format_exc(limit=None if verbose else -4)
        if not isinstance(error, AssertionError):
            lines[0] = f"{type(error).__name__}: {lines[0]}"
        return "FAIL", lines[0], trace
    finally:
        signal.alarm(0)


def run_one(test, options):
    """Runs a test with its clean-up; prints its line; returns (outcome, reason)."""
    name, function, seconds = test
    env = Env(options.sluice, full=options.full, keep=options.keep, verbose=options.verbose)
    begin = time.monotonic()
    logs = ""
    outcome, reason, details = "FAIL", "the runner was stopped", ""
    try:
        outcome, reason, details = call_test(function, env, seconds, options.verbose)
    finally:
        if outcome == "FAIL":
            logs = env.log_tails()
        problems = clean_up(env)
    if problems and outcome != "FAIL":
        outcome, reason = "FAIL", problems[0].splitlines()[0]
    details = "\n".join([details, *problems]).strip()
    print_line(outcome, name, time.monotonic() - begin, reason)
    if outcome == "FAIL":
        print(indent("\n".join(part for part in (details, logs) if part)), flush=True)
    return outcome, reason


def clean_up(env):
    """Runs the deferred functions under a time bound; a second call goes on with the rest."""
    problems = []
    for _attempt in range(8):
        signal.alarm(CLEANUP_SECONDS_MAX)
        try:
            return problems + env.run_deferred()
        except TestTimeout:
            problems.append(f"clean-up took more than {CLEANUP_SECONDS_MAX} s")
        finally:
            signal.alarm(0)
    return problems


def print_line(outcome, name, seconds, reason):
    colour = {"PASS": GREEN, "FAIL": RED, "SKIP": YELLOW}[outcome] if sys.stdout.isatty() else ""
    plain = PLAIN if colour else ""
    tail = "  " + reason if reason else ""
    print(f"{colour}{outcome}{plain} {name} {seconds:.1f} s{tail}", flush=True)


def indent(text):
    return "\n".join("     " + line for line in text.splitlines())


def allowed_skips():
    """[(name pattern, words of the reason)]"""
    rows = []
    path = os.path.join(HERE, "allowed_skips")
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                line = line.split("#")[0].strip()
                if line:
                    name, _, words = line.partition(" ")
                    rows.append((name, words.strip()))
    return rows


def is_allowed(name, reason, rows):
    short = name.partition(".")[2]
    return any((fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(short, pattern))
               and words in reason for pattern, words in rows)


def remove_leftovers():
    """Namespaces of runners that were killed without a chance to clean up."""
    result = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for line in result.stdout.splitlines():
        name = line.split()[0] if line.split() else ""
        parts = name.split("-")
        if len(parts) == 3 and parts[0] == "slt" and not os.path.exists(f"/proc/{parts[1]}"):
            subprocess.run(["ip", "netns", "del", name], check=False)


def main():
    options = parse_arguments()
    tests = discover(options.filter)
    if options.list:
        print("\n".join(name for name, _function, _seconds in tests))
        return 0
    if not tests:
        print(f"no test has {options.filter!r} in its name; --list shows them")
        return 1
    signal.signal(signal.SIGALRM, on_alarm)
    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    if os.geteuid() == 0:
        remove_leftovers()
    if not options.full:
        print("scaled down: fewer frames, seconds and repeats than with --full", flush=True)
    counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}
    allowed = allowed_skips()
    unexpected = []
    try:
        for test in tests:
            outcome, reason = run_one(test, options)
            counts[outcome] += 1
            if outcome == "SKIP" and not is_allowed(test[0], reason, allowed):
                unexpected.append(f"{test[0]}: {reason}")
    except Stop as stop:
        print(f"stopped by {stop}; what the test had started is gone")
        return 1
    for text in unexpected:
        print(f"a skip that tests/allowed_skips does not list: {text}")
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    return 1 if counts["FAIL"] or unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
