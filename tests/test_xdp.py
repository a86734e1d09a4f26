"""XDP programs on the frames of a port: the examples behind a real guest, verdicts, attach and replace
under traffic, what is refused, and maps that change while packets flow.
"""

import glob
import json
import os
import shutil
import struct
import subprocess

from lib import timeout, wait_until
from lib.daemon import Daemon, check_table, run_sluice
from lib.netns import Netns
from lib.pktgen import Pktgen
from lib.traffic import FROM_GUEST, TO_GUEST, Wire
from lib.uml import Uml

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "examples", "xdp")
MAC, HOST_V4, GUEST_V4 = "52:54:00:00:00:01", "10.77.0.1", "10.77.0.2"
CLANG = "clang-16"
# A process that may not ask the kernel for anything.
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


def build_object(env, source):
    """Compiles a program of examples/xdp or tests/xdp; returns its object file."""
    if shutil.which(CLANG) is None:
        env.skip(f"no {CLANG} to make BPF programs with")
    target = env.path(os.path.basename(source).replace(".c", ".o"))
    machine = os.uname().machine
    subprocess.run([CLANG, "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall",
                    f"-I/usr/include/{machine}-linux-gnu", "-c", source, "-o", target],
                   check=True, timeout=60)
    return target


def example(env, name):
    return build_object(env, os.path.join(EXAMPLES, f"{name}.bpf.c"))


def of_tests(env, name):
    return build_object(env, os.path.join(HERE, "xdp", f"{name}.bpf.c"))


class Xdp:
    """`sluice xdp …` for one daemon."""

    def __init__(self, env, daemon):
        self.env, self.daemon = env, daemon

    def call(self, *words, prefix=()):
        argv = [*prefix, self.env.sluice, "xdp", *words, "--control", self.daemon.control]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    def run(self, *words):
        done = self.call(*words)
        assert done.returncode == 0, f"sluice xdp {' '.join(words)}: {done.stderr}"
        return done.stdout

    def refuse(self, expected, *words, prefix=()):
        done = self.call(*words, prefix=prefix)
        assert done.returncode != 0, f"sluice xdp {' '.join(words)} was not refused"
        assert done.stderr.count("\n") == 1, done.stderr
        for text in expected:
            assert text in done.stderr, f"no {text!r} in: {done.stderr}"

    def attached(self):
        answer = json.loads(self.run("list", "--json"))
        return {entry["port"]: entry for entry in answer["attached"]}

    def entries(self, port, name):
        """key → [value of each copy], as bytes."""
        answer = json.loads(self.run("map", "dump", port, name, "--json"))
        return {bytes.fromhex(entry["key"]): [bytes.fromhex(value) for value in entry["values"]]
                for entry in answer["entries"]}

    def counter(self, port, name, index):
        values = self.entries(port, name)[struct.pack("<I", index)]
        return sum(struct.unpack("<Q", value)[0] for value in values)


def verdicts(daemon, port, direction):
    total = {}
    for queue in daemon.queues(port, direction):
        for name, count in queue["xdp"].items():
            total[name] = total.get(name, 0) + count
    return total


def boot(env, vm_program="", tap_program=""):
    """A guest behind vm0, wired to tap0; programs as `--xdp` takes them, without the port."""
    ns = Netns(env)
    programs = [word for port, text in (("vm0", vm_program), ("t0", tap_program)) if text
                for word in ("--xdp", f"{port},{text}")]
    daemon = Daemon(env, ["--vm", f"vm0,socket={env.path('vm0.sock')}", "--tap", "t0,ifname=tap0",
                          "--connect", "vm0:t0", *programs], ns)
    ns.tap_up("tap0", HOST_V4 + "/24")
    guest = Uml(env, env.path("vm0.sock"))
    guest.configure(MAC, GUEST_V4 + "/24")
    guest.wait_link()
    return daemon, ns, guest


# The examples, behind a real guest.

@timeout(180)
def test_blocked_sources_are_blocked_and_a_change_counts_from_the_next_packet(env):
    daemon, ns, guest = boot(env, f"object={example(env, 'drop_sources')}")
    xdp = Xdp(env, daemon)
    wire = Wire(guest, ns, "tap0", HOST_V4)
    wire.wait_reachable()
    names = daemon.negotiated("vm0")
    assert "csum" in names and not {"host_tso4", "host_tso6", "host_uso"} & set(names), names
    wire.ping(20, FROM_GUEST)
    wire.check_tcp_bytes(FROM_GUEST, 2_000_000)
    wire.check_tcp_bytes(TO_GUEST, 2_000_000)

    xdp.run("map", "update", "vm0", "blocked", "key", GUEST_V4 + "/32", "value", "1")
    dropped_before = xdp.counter("vm0", "counters", 1)
    guest.run(f"ping -c 10 -i 0.05 -W 0.2 -q {HOST_V4}", check=False)
    assert xdp.counter("vm0", "counters", 1) - dropped_before == 10
    xdp.run("map", "update", "vm0", "blocked", "key", GUEST_V4 + "/32", "value", "0")
    wire.ping(20, FROM_GUEST)
    xdp.run("map", "delete", "vm0", "blocked", "key", GUEST_V4 + "/32")
    xdp.refuse(["no such key"], "map", "delete", "vm0", "blocked", "key", GUEST_V4 + "/32")

    # Every frame was judged, and every verdict was carried out.
    counted = verdicts(daemon, "vm0", "from_guest")
    assert counted["drop"] == daemon.drops("vm0")["xdp_drop"] == xdp.counter("vm0", "counters", 1)
    assert counted["pass"] == xdp.counter("vm0", "counters", 0)
    assert sum(counted.values()) == daemon.frames("vm0", "from_guest"), counted


@timeout(180)
def test_a_source_gets_no_more_than_its_rate(env):
    daemon, ns, guest = boot(env, f"object={example(env, 'rate_limit')}")
    xdp = Xdp(env, daemon)
    wire = Wire(guest, ns, "tap0", HOST_V4)
    wire.wait_reachable()
    # 16 bytes: packets a second, burst.
    xdp.run("map", "update", "vm0", ".data", "key", "0", "value", "hex",
            *struct.pack("<QQ", 1, 5).hex(" ").split())
    guest.run(f"ping -c 40 -i 0.01 -W 0.2 -q {HOST_V4}", check=False)
    buckets = xdp.entries("vm0", "buckets")
    source = bytes(map(int, GUEST_V4.split(".")))
    assert set(buckets) == {source}, buckets
    _last, _tokens, passed, dropped = struct.unpack("<4Q", buckets[source][0])
    counted = verdicts(daemon, "vm0", "from_guest")
    assert dropped == counted["drop"] == daemon.drops("vm0")["xdp_drop"]
    assert dropped >= 30, (passed, dropped)


@timeout(180)
def test_a_vlan_tag_is_pushed_and_popped_without_the_guest_knowing(env):
    vlan = example(env, "vlan")
    daemon, ns, guest = boot(env, f"object={vlan},program=vlan_push",
                             f"object={vlan},program=vlan_pop")
    # A second TAP-side peer that speaks the VLAN: the host answers through AF_PACKET.
    mac = ns.link("tap0")["address"]
    peer = ns.popen(["python3", os.path.join(HERE, "lib", "vlan_peer.py"), "tap0", "10", "10.77.0.9",
                     mac], name="vlan-peer-")
    wait_until(lambda: "ready" in open(peer.log_path).read(), 10, "the peer does not start")
    guest.run("ping -c 10 -i 0.05 -W 2 -q 10.77.0.9")
    # Frames of no VLAN do not reach the guest.
    before = verdicts(daemon, "t0", "from_host").get("drop", 0)
    ns.run(["ping", "-c", "3", "-W", "1", "-q", GUEST_V4], check=False)
    assert verdicts(daemon, "t0", "from_host")["drop"] > before
    daemon.assert_alive()


# Attach, replace, detach.

@timeout(180)
def test_programs_come_and_go_under_traffic_and_no_frame_is_lost(env):
    program = example(env, "drop_sources")
    sockets = [env.path("vm0.sock"), env.path("vm1.sock")]
    daemon = Daemon(env, ["--vm", f"vm0,socket={sockets[0]}", "--vm", f"vm1,socket={sockets[1]}",
                          "--connect", "vm0:vm1"])
    xdp = Xdp(env, daemon)
    count = 5_000_000 if env.full else 300_000
    receiver = Pktgen(env, sockets[1], "rxonly", "--verify", "--count", count, "--seconds", 120,
                      daemon=daemon, port="vm1")
    sender = Pktgen(env, sockets[0], "txonly", "--count", count, "--rate", count / 6)
    for _round in range(10):
        xdp.run("attach", f"vm0,object={program}")
        xdp.run("replace", f"vm0,object={program}")
        xdp.refuse(["verifier"], "replace",
                   f"vm0,object={of_tests(env, 'refused')},program=endless_loop")
        assert xdp.attached()["vm0"]["program"] == "drop_sources"
        xdp.run("detach", "vm0")
    sent, received = sender.wait(120), receiver.wait(125)
    assert sent["frames_sent"] == count
    assert received["frames_received"] == count and received["frames_lost"] == 0, received
    assert received["frames_reordered"] == 0
    judged = verdicts(daemon, "vm0", "from_guest")
    assert set(judged) == {"pass"} and 0 < judged["pass"] <= count, judged
    assert not glob.glob("/sys/fs/bpf/*blocked*"), "a pin was left behind"


@timeout(60)
def test_attach_says_what_it_took_and_what_runs(env):
    program = example(env, "drop_sources")
    daemon = Daemon(env, ["--vm", f"vm0,socket={env.path('vm0.sock')}", "--null", "n0", "--connect",
                          "vm0:n0"])
    xdp = Xdp(env, daemon)
    assert "no port runs a program" in xdp.run("list")
    answer = json.loads(xdp.run("attach", f"vm0,object={program}", "--json"))
    assert answer["program"] == "drop_sources" and len(answer["tag"]) == 16, answer
    assert {m["name"]: m["type"] for m in answer["maps"]} == {"blocked": "lpm_trie",
                                                             "counters": "percpu_array"}
    env.note(f"the kernel took {answer['kernel_us']} us, we {answer['own_us']} us")
    table = [
        (["attach", f"vm0,object={program}"], ["runs drop_sources already", "replace"]),
        (["replace", f"n0,object={program}"], ["runs no program", "attach"]),
        (["attach", f"x9,object={program}"], ["no port x9"]),
        (["attach", "vm0"], ["object=FILE"]),
        (["attach", f"n0,object={program},program=other"], ["other", "drop_sources"]),
        (["attach", "n0,object=/nonexistent.o"], ["No such file"]),
        (["attach", "n0,object=/etc/passwd"], ["no BPF object"]),
        (["detach", "n0"], ["runs no program"]),
        (["map", "dump", "vm0", "other"], ["no map other", "blocked, counters"]),
        (["map", "update", "vm0", "blocked", "key", "10.0.0.0/33", "value", "1"], ["10.0.0.0/33"]),
        (["map", "update", "vm0", "blocked", "key", "10.0.0.0/8"], ["value"]),
        (["map", "update", "vm0", "blocked", "key", "10.0.0.0/8", "value", "1", "exist"],
         ["no such key"]),
        (["map", "delete", "vm0", "counters", "key", "0"], ["percpu_array"]),
        (["fly"], ["fly", "attach"]),
    ]
    check_table(env, table, lambda row: xdp.refuse(row[1], *row[0]))


# What is refused.

@timeout(120)
def test_programs_that_are_not_safe_or_not_ours_are_refused_with_the_reason(env):
    refused = of_tests(env, "refused")
    daemon = Daemon(env, ["--vm", f"vm0,socket={env.path('vm0.sock')}", "--null", "n0", "--connect",
                          "vm0:n0"])
    xdp = Xdp(env, daemon)
    table = [
        ("unchecked_packet", ["verifier", "invalid access to packet"]),
        ("unchecked_value", ["verifier", "map_value_or_null"]),
        ("endless_loop", ["verifier", "infinite loop", "for (volatile int i = 1"]),
        ("looks_up_routes", ["bpf_fib_lookup"]),
        ("wants_fragments", ["fragments", "xdp.frags"]),
        ("second_program", ["behind a redirect"]),
    ]
    check_table(env, table, lambda row: xdp.refuse(row[1], "attach",
                                                   f"vm0,object={refused},program={row[0]}"))
    assert xdp.attached() == {}
    with open(refused, "rb") as file:
        content = file.read()
    for length in (0, 1, 63, 64, 200, len(content) // 2, len(content) - 1):
        cut = env.path(f"cut{length}.o")
        with open(cut, "wb") as file:
            file.write(content[:length])
        xdp.refuse(["cut"], "attach", f"vm0,object={cut},program=unchecked_packet")
    daemon.assert_alive()


@timeout(60)
def test_without_capabilities_a_program_is_refused_or_interpreted_with_checks(env):
    program = example(env, "drop_sources")
    arguments = ["--vm", f"vm0,socket={env.path('vm0.sock')}", "--null", "n0", "--connect", "vm0:n0",
                 "--xdp", f"vm0,object={program}"]
    done = subprocess.run([*WITHOUT_CAPABILITIES, env.sluice, "run", *arguments, "--control",
                           env.path("c.sock")], capture_output=True, text=True, timeout=20,
                          check=False)
    assert done.returncode == 1, done
    for word in ("CAP_BPF", "CAP_PERFMON", "--xdp-unverified=interpret"):
        assert word in done.stderr, done.stderr
    daemon = Daemon(env, [*arguments, "--xdp-unverified", "interpret"], prefix=WITHOUT_CAPABILITIES)
    xdp = Xdp(env, daemon)
    assert xdp.attached()["vm0"]["engine"] == "interpreted with checks"
    sent = Pktgen(env, env.path("vm0.sock"), "txonly", "--count", 20_000).wait(30)
    assert sent["frames_sent"] == 20_000
    assert verdicts(daemon, "vm0", "from_guest") == {"pass": 20_000}
    assert xdp.counter("vm0", "counters", 0) == 20_000
    # A daemon without capabilities takes what a client has had verified.
    xdp.run("replace", f"vm0,object={program}")
    assert xdp.attached()["vm0"]["engine"] == "compiled"
    xdp.refuse(["CAP_BPF", "CAP_PERFMON"], "replace", f"vm0,object={program}",
               prefix=WITHOUT_CAPABILITIES)
    assert xdp.attached()["vm0"]["engine"] == "compiled"


@timeout(60)
def test_verdicts_are_carried_out(env):
    """Frames that say what shall become of them, from one TAP; t2 is where the device map points."""
    ns = Netns(env)
    daemon = Daemon(env, ["--tap", "t0,ifname=tap0", "--tap", "t1,ifname=tap1", "--tap",
                          "t2,ifname=tap2", "--connect", "t0:t1", "--null", "n0", "--connect",
                          "t2:n0", "--xdp", f"t0,object={of_tests(env, 'verdicts')}"], ns)
    for name in ("tap0", "tap1", "tap2"):
        ns.sysctl(f"net.ipv6.conf.{name}.disable_ipv6", 1)
        ns.tap_up(name)
    xdp = Xdp(env, daemon)
    numbers = {port["name"]: port["number"] for port in json.loads(
        run_sluice(env, ["ports", "--json", "--control", daemon.control]).stdout)["ports"]}
    xdp.run("map", "update", "t0", "ports", "key", "1", "value", str(numbers["t2"]))
    done = ns.run(["python3", os.path.join(HERE, "lib", "verdict_frames.py"), "tap0", "tap1", "tap2"])
    seen = json.loads(done.stdout)
    #                 dropped, aborted, passed, sent back, redirected, to nobody, unknown
    assert seen == {"tap0": [3], "tap1": [2], "tap2": [4]}, seen
    counted = verdicts(daemon, "t0", "from_host")
    assert counted.pop("pass") >= 1, counted  # the kernel may have had something to say, too
    assert counted == {"aborted": 2, "drop": 1, "tx": 1, "redirect": 1, "unknown": 1}, counted
    drops = daemon.drops("t0")
    assert drops == {"xdp_drop": 1, "xdp_aborted": 2, "xdp_unknown_verdict": 1}, drops


@timeout(60)
def test_what_programs_write_to_rings_comes_out_once(env):
    socket = env.path("vm0.sock")
    daemon = Daemon(env, ["--vm", f"vm0,socket={socket}", "--null", "n0", "--connect", "vm0:n0",
                          "--xdp", f"vm0,object={of_tests(env, 'records')}"])
    xdp = Xdp(env, daemon)
    Pktgen(env, socket, "txonly", "--count", 20, "--size", 100).wait(20)
    for name in ("lengths", "events"):
        answer = json.loads(xdp.run("map", "dump", "vm0", name, "--json"))
        assert [record["bytes"] for record in answer["records"]] == ["64000000"] * 20, answer
        assert answer["lost"] == 0
        assert "0 records, 0 lost" in xdp.run("map", "dump", "vm0", name)
    # A ring of 4096 bytes has no room for a thousand records; what was lost is counted.
    Pktgen(env, socket, "txonly", "--count", 1000, "--size", 100).wait(20)
    answer = json.loads(xdp.run("map", "dump", "vm0", "lengths", "--json"))
    assert len(answer["records"]) + answer["lost"] == 1000 and answer["lost"] > 0, answer["lost"]
