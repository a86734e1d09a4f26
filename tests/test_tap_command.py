"""`sluice tap NAME,… -- COMMAND … {fds}`: opens the queues of a TAP and becomes the command.

The command here is a few lines of Python which ask the kernel (TUNGETIFF) what each inherited
descriptor is. That a virtual machine boots on them is shown with the guests.
"""

import json
import os
import signal
import sys

from lib import each, timeout, wait_until
from lib.daemon import assert_refused, check_table, run_sluice
from lib.netns import Netns

IFF_TAP, IFF_NAPI, IFF_MULTI_QUEUE, IFF_NO_PI, IFF_VNET_HDR = 0x2, 0x10, 0x100, 0x1000, 0x4000

# Prints [{"fd", "name", "flags", "inherited"}] for the descriptors in argument 1: `fds=3:4:5`.
REPORT = """
import fcntl, json, struct, sys
TUNGETIFF = 0x800454d2
rows = []
for fd in map(int, sys.argv[1].split("=", 1)[1].split(":")):
    reply = fcntl.ioctl(fd, TUNGETIFF, bytes(40))
    flags = struct.unpack_from("H", reply, 16)[0]
    rows.append({"fd": fd, "name": reply[:16].split(b"\\0")[0].decode(), "flags": flags})
print(json.dumps(rows))
"""


def report(env, ns, options, **run_options):
    """Starts the reporting command under `sluice tap` and returns its rows."""
    command = [sys.executable, "-c", REPORT, "fds={fds}"]
    result = run_sluice(env, ["tap", f"t0,{options}", "--", *command], ns, **run_options)
    assert result.returncode == 0, f"status {result.returncode}: {result.stderr.strip()}"
    return json.loads(result.stdout)


def kernel_offers_napi(env, ns):
    script = ("import fcntl, struct, os; fd = os.open('/dev/net/tun', os.O_RDWR); "
              "print(struct.unpack('I', fcntl.ioctl(fd, 0x800454cf, bytes(4)))[0])")
    return int(ns.run([sys.executable, "-c", script]).stdout) & IFF_NAPI != 0


@timeout(30)
@each(on=("on", True), off=("off", False), auto=("auto", None), default=("", None))
def test_the_descriptor_says_whether_napi_is_on(env, case):
    napi, expected = case
    ns = Netns(env)
    offered = kernel_offers_napi(env, ns)
    if napi == "on" and not offered:
        env.skip("this kernel's TAP has no IFF_NAPI")
    rows = report(env, ns, "ifname=tap0" + (f",napi={napi}" if napi else ""))
    assert len(rows) == 1 and rows[0]["name"] == "tap0", rows
    flags = rows[0]["flags"]
    assert flags & IFF_TAP and flags & IFF_NO_PI and flags & IFF_VNET_HDR, f"flags {flags:#x}"
    expected = offered if expected is None else expected
    assert bool(flags & IFF_NAPI) == expected, f"flags {flags:#x}"


@timeout(30)
@each(two=2, four=4)
def test_each_queue_is_a_descriptor_of_the_same_tap(env, queues):
    ns = Netns(env)
    rows = report(env, ns, f"ifname=tap0,queues={queues},napi=on")
    assert len({row["fd"] for row in rows}) == queues, rows
    for row in rows:
        assert row["name"] == "tap0", rows
        flags = row["flags"]
        assert flags & IFF_MULTI_QUEUE and flags & IFF_NAPI, f"flags {flags:#x}"


@timeout(30)
def test_the_tap_lives_as_long_as_the_command(env):
    ns = Netns(env)
    process = ns.popen([env.sluice, "tap", "t0,ifname=tap0", "--", "sleep", "100", "{fds}"])
    wait_until(lambda: ns.has_link("tap0"), 5, "there is no tap0")
    process.kill()
    process.wait(5)
    wait_until(lambda: not ns.has_link("tap0"), 5, "tap0 outlives the command")


@timeout(30)
def test_a_persistent_tap_is_used_and_left(env):
    ns = Netns(env)
    ns.run(["ip", "tuntap", "add", "dev", "tap0", "mode", "tap", "vnet_hdr"])
    index = ns.link("tap0")["ifindex"]
    assert report(env, ns, "ifname=tap0")[0]["name"] == "tap0"
    assert ns.link("tap0")["ifindex"] == index, "the TAP was made anew"


@timeout(30)
def test_the_tap_may_be_in_another_namespace(env):
    ns = Netns(env)
    # The probe runs outside: the descriptor works there, the interface is inside.
    process = env.popen([env.sluice, "tap", f"t0,ifname=tap7,netns={ns.name}", "--", "sh", "-c",
                         "echo {fds}; exec sleep 100"])
    wait_until(lambda: ns.has_link("tap7"), 5, "there is no tap7 in the namespace")
    assert not os.path.exists("/sys/class/net/tap7"), "tap7 is in the caller's namespace"
    assert process.poll() is None


@timeout(30)
def test_the_command_takes_the_place_of_sluice(env):
    ns = Netns(env)
    process = ns.popen([env.sluice, "tap", "t0,ifname=tap0", "--", "sh", "-c",
                        "echo pid=$$ fds={fds}; exit 7"])
    assert process.wait(10) == 7, "the exit status of the command is passed on"
    with open(process.log_path) as log:
        words = log.read().split()
    assert f"pid={process.pid}" in words, f"another process id: {words}"


@timeout(30)
def test_a_signal_that_ends_the_command_is_seen(env):
    ns = Netns(env)
    command = ["sh", "-c", "kill -TERM $$ # {fds}"]
    result = run_sluice(env, ["tap", "t0,ifname=tap0", "--", *command], ns)
    assert result.returncode == -signal.SIGTERM, f"status {result.returncode}"


@timeout(30)
def test_every_fds_in_the_arguments_is_replaced(env):
    ns = Netns(env)
    result = run_sluice(env, ["tap", "t0,ifname=tap0,queues=2", "--", "echo",
                              "tap,id=n0,fds={fds},vhost=off", "{fds}", "{other}"], ns)
    assert result.returncode == 0, result.stderr
    first, second, third = result.stdout.split()
    assert first == f"tap,id=n0,fds={second},vhost=off", result.stdout
    assert len(second.split(":")) == 2, result.stdout
    assert third == "{other}", "a word in braces that is not ours was changed"


@timeout(60)
def test_what_makes_no_sense_is_refused_before_anything_starts(env):
    ns = Netns(env)
    command = ["--", "echo", "{fds}"]
    table = [
        # arguments, status, words of the message
        (["tap", "t0,ifname=tap0", "--", "echo", "fds"], 2, ["{fds}"]),
        (["tap", "t0,ifname=tap0", "--"], 2, ["command"]),
        (["tap", "t0,ifname=tap0"], 2, ["--"]),
        (["tap", *command], 2, ["NAME"]),
        (["tap", "t0", *command], 2, ["ifname"]),
        (["tap", "t0,ifname=tap0,colour=red", *command], 2, ["colour"]),
        (["tap", "t0,ifname=tap0,napi=maybe", *command], 2, ["napi", "maybe", "auto", "on", "off"]),
        (["tap", "t0,ifname=tap0,queues=0", *command], 2, ["queues", "0", "1"]),
        (["tap", "t0,ifname=tap0,queues=many", *command], 2, ["queues", "many"]),
        (["tap", "t0,ifname=tap0,queues=100000", *command], 2, ["queues", "100000"]),
        (["tap", "t0,ifname=a-name-longer-than-15", *command], 2,
         ["ifname", "a-name-longer-than-15", "15"]),
        (["tap", "t0,ifname=a/b", *command], 2, ["ifname", "a/b"]),
        (["tap", "t0,ifname=", *command], 2, ["ifname"]),
        (["tap", "t0,ifname=lo", *command], 1, ["lo", "TAP"]),
        (["tap", "t0,ifname=tap0,netns=no-such-place", *command], 1, ["no-such-place"]),
        (["tap", "t0,ifname=tap0", "--", "no-such-command-at-all", "{fds}"], 1,
         ["no-such-command-at-all"]),
    ]
    check_table(env, table, lambda row: assert_refused(env, row[0], row[2], status=row[1], ns=ns))
    assert not ns.has_link("tap0"), "a refused command left tap0 behind"
