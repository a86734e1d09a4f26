#!/usr/bin/env python3
"""Builds, runs every test, and ends with one line: `N passed, N failed, N skipped`.

    tools/run_tests.py           unit tests (release and asan builds), then the whole program
    tools/run_tests.py --full    also thread sanitizer, fuzzers (30 s each), tests at full size, and
                                 unit tests with ctest's label `long`
    tools/run_tests.py --only unit|fuzz|program    one part

Exit status 1 when something failed, did not build, or was skipped without tests/allowed_skips
listing it. All parts run even when an earlier one failed.
"""

import argparse
import fnmatch
import glob
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FUZZ_SECONDS = 30
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


class Counts:
    """Sums over all parts. A part that could not run at all is one failure."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.not_allowed = False

    def add(self, passed, failed, skipped):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def say(text):
    print(f"\n== {text}", flush=True)


def build(preset, counts):
    """Configures and builds one preset; False, and one failure, if that did not work."""
    say(f"build {preset}")
    for command in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset]):
        quiet = subprocess.PIPE if "--build" not in command else None
        result = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=quiet,
                                stderr=subprocess.STDOUT if quiet else None, text=True, check=False)
        if result.returncode:
            print(f"{result.stdout or ''}`{' '.join(command)}` failed", flush=True)
            counts.add(0, 1, 0)
            return False
    return True


def unit_tests(preset, full, counts):
    """ctest's own summary looks like ours, so it is read from its report, not from its last line."""
    if not build(preset, counts):
        return
    say(f"unit tests, {preset}")
    folder = os.path.join(ROOT, "build", preset)
    report = os.path.join(folder, "unit_tests.xml")
    if os.path.exists(report):
        os.unlink(report)
    result = subprocess.run(
        ["ctest", "--test-dir", folder, "--output-junit", report, "--output-on-failure",
         "--progress", "-j", str(os.cpu_count() or 1)] + ([] if full else ["-LE", "long"]),
        cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    passed, failed, skipped = read_report(report)
    if result.returncode and not failed:
        failed = 1
    if passed + failed + skipped == 0:
        print("no unit test was found: that is a failure too")
        failed = 1
    for name, reason in skipped_cases(report):
        allowed = is_allowed(name, reason)
        print(f"skipped: {name}" + ("" if allowed else ", and tests/allowed_skips does not list it"))
        counts.not_allowed = counts.not_allowed or not allowed
    counts.add(passed, failed, skipped)
    print(f"-- {preset}: {passed} of {passed + failed + skipped} unit tests passed", flush=True)


def test_cases(report):
    try:
        return list(ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def read_report(report):
    status = [case.get("status") for case in test_cases(report)]
    skipped = sum(s in ("notrun", "disabled") for s in status)
    passed = sum(s == "run" for s in status)
    return passed, len(status) - passed - skipped, skipped


def skipped_cases(report):
    """(name, what it printed) of each test that did not run."""
    return [(case.get("name"), case.findtext("system-out") or "") for case in test_cases(report)
            if case.get("status") in ("notrun", "disabled")]


def is_allowed(name, reason):
    """tests/allowed_skips: a line a skip, the name (or a pattern), and words of the reason."""
    path = os.path.join(ROOT, "tests", "allowed_skips")
    with open(path, encoding="utf-8") as file:
        rows = [line.split("#")[0].strip().partition(" ") for line in file]
    return any(fnmatch.fnmatchcase(name, pattern) and words.strip() in reason
               for pattern, _, words in rows if pattern)


def fuzz(counts):
    """Each fuzzer for a short while: finds what broke since yesterday, not what hides for weeks."""
    if not build("fuzz", counts):
        return
    programs = sorted(glob.glob(os.path.join(ROOT, "build", "fuzz", "fuzz", "*_fuzz")))
    for program in programs:
        name = os.path.basename(program)
        say(f"fuzz {name}, {FUZZ_SECONDS} s")
        corpus = os.path.join(ROOT, "build", "fuzz", "corpus", name)
        os.makedirs(corpus, exist_ok=True)
        seeds = os.path.join(ROOT, "fuzz", "seeds", name)
        # A crash leaves its input in the corpus' parent, named after the fuzzer.
        command = [program, f"-max_total_time={FUZZ_SECONDS}", "-timeout=10", "-rss_limit_mb=2048",
                   f"-artifact_prefix={os.path.dirname(corpus)}/{name}-", "-print_final_stats=1",
                   "-verbosity=0", corpus] + ([seeds] if os.path.isdir(seeds) else [])
        failed = run_bounded(command, FUZZ_SECONDS + 60)
        counts.add(int(not failed), int(failed), 0)


def run_bounded(command, seconds):
    try:
        return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=seconds,
                              check=False).returncode != 0
    except subprocess.TimeoutExpired:
        print(f"{command[0]} did not end within {seconds} s")
        return True


def program_tests(full, counts):
    """tests/run.py, passed through line by line; its own summary is added to ours."""
    sluice = os.path.join(ROOT, "build", "release", "sluice")
    if not build("release", counts):
        return
    say("whole program" + (", full size" if full else ", scaled down"))
    as_root = [] if os.geteuid() == 0 else ["sudo"]  # namespaces and TAPs
    command = as_root + [sys.executable, "-u", os.path.join("tests", "run.py"), "--sluice", sluice]
    process = subprocess.Popen(command + (["--full"] if full else []), cwd=ROOT, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    summary = None
    for line in process.stdout:
        match = SUMMARY.match(line.strip())
        if match:
            summary = [int(number) for number in match.groups()]
        else:
            print(line, end="", flush=True)
    status = process.wait()
    if summary is None:
        print(f"tests/run.py ended with status {status} and no summary")
        counts.add(0, 1, 0)
        return
    counts.add(*summary)
    print(f"-- whole program: {summary[0]} of {sum(summary)} passed", flush=True)
    if status and not summary[1]:
        counts.not_allowed = True


def main():
    parser = argparse.ArgumentParser(description="Runs every test of sluice.")
    parser.add_argument("--full", action="store_true", help="also tsan, fuzzers, full size")
    parser.add_argument("--only", choices=("unit", "fuzz", "program"), help="one part")
    options = parser.parse_args()
    counts = Counts()
    begin = time.monotonic()
    if options.only in (None, "unit"):
        for preset in ["release", "asan"] + (["tsan"] if options.full else []):
            unit_tests(preset, options.full, counts)
    if options.only == "fuzz" or (options.full and options.only is None):
        fuzz(counts)
    if options.only in (None, "program"):
        program_tests(options.full, counts)
    bad = counts.failed or counts.not_allowed or not counts.passed
    if counts.not_allowed:
        print("something was skipped that tests/allowed_skips does not list: see above")
    say(f"{'FAILED' if bad else 'all good'} after {time.monotonic() - begin:.0f} s")
    print(counts, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
