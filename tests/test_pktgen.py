"""`sluice pktgen`: every mode, through our own back end, in both formats of ring, and against
testpmd's vhost.

What one sent and the other received is compared to the frame, with each other and with what the back
end between them counted. Nothing leaves the sockets, but for what a TAP in a namespace shows to
tcpdump: a judge of the frames that is not ours.
"""

import re
import signal
import time

from lib import each, timeout, wait_stable, wait_until
from lib.daemon import Daemon, assert_refused, check_table, run_sluice
from lib.netns import Netns
from lib.pktgen import Pktgen
from lib.testpmd import Testpmd

USAGE, FAILED = 2, 1
PAIRS = dict(split_split=("", ""), split_packed=("", "--packed"), packed_split=("--packed", ""),
             packed_packed=("--packed", "--packed"))
FORMATS = dict(split="", packed="--packed")
CLEAN = dict(frames_lost=0, frames_reordered=0, frames_duplicate=0, frames_too_late=0,
             frames_foreign=0, frames_bad_checksum=0)


def two_ports(env, options=""):
    """A back end with two VM ports, patched through."""
    sockets = env.path("vm0.sock"), env.path("vm1.sock")
    daemon = Daemon(env, ["--vm", f"vm0,socket={sockets[0]}{options}",
                          "--vm", f"vm1,socket={sockets[1]}{options}", "--connect", "vm0:vm1"])
    return daemon, *sockets


def sink(env, options=""):
    """A back end that takes everything and gives nothing."""
    socket = env.path("vm0.sock")
    return Daemon(env, ["--vm", f"vm0,socket={socket}{options}", "--null", "n0",
                        "--connect", "vm0:n0"]), socket


def words(*options):
    """Options without the empty ones."""
    return [word for option in options for word in str(option).split()]


def assert_figures(report, **expected):
    wrong = {key: (report[key], value) for key, value in expected.items() if report[key] != value}
    assert not wrong, f"(is, should be): {wrong}; all of it: {report}"


def assert_format(report, packed):
    assert report["format"] == ("packed" if packed else "split"), report["format"]
    assert ("ring_packed" in report["negotiated"]) == bool(packed), report["negotiated"]


def send_through(env, daemon, sockets, count, receiver_options, *sender_options, seconds=60):
    """`count` frames from vm0 to vm1, all of them and nothing else; returns both reports."""
    receiver = Pktgen(env, sockets[1], "rxonly", "--verify", "--count", count, "--seconds", seconds,
                      *words(receiver_options), daemon=daemon, port="vm1")
    before = daemon.frames("vm0", "from_guest"), daemon.frames("vm1", "to_guest")
    sent = Pktgen(env, sockets[0], "txonly", "--count", count, *words(*sender_options)).wait(seconds)
    received = receiver.wait(seconds + 5)
    drops = {**daemon.drops("vm0"), **daemon.drops("vm1")}
    assert not drops, f"the back end dropped frames: {drops}"
    assert_figures(sent, frames_sent=count, frames_dropped=0, frames_unused=0, frames_received=0)
    assert_figures(received, frames_received=count, frames_sent=0, **CLEAN)
    assert daemon.frames("vm0", "from_guest") - before[0] == count
    assert daemon.frames("vm1", "to_guest") - before[1] == count
    return sent, received


# Through our own back end.

@timeout(300)
@each(**PAIRS)
def test_pktgen_pairs_lose_reorder_and_repeat_nothing(env, formats):
    daemon, *sockets = two_ports(env)
    count = 10_000_000 if env.full else 300_000
    sent, received = send_through(env, daemon, sockets, count, formats[1], formats[0], "--flows 16",
                                  seconds=120)
    assert_format(sent, formats[0])
    assert_format(received, formats[1])
    assert sent["kicks"] > 0 and received["receive_interrupts"] > 0, (sent, received)
    assert_ordered(received["latency_ns"], count)
    env.note(f"{count} frames: lost {received['frames_lost']}, reordered "
             f"{received['frames_reordered']}, duplicates {received['frames_duplicate']}; "
             f"{sent['frames_sent_per_s'] / 1e6:.2f} M/s sent, "
             f"{received['frames_received_per_s'] / 1e6:.2f} M/s received")


@timeout(120)
def test_pktgen_frames_of_every_size_and_protocol_arrive_whole(env):
    daemon, *sockets = two_ports(env)
    count, bytes_before = 5000, 0
    for protocol, size in (("udp", 60), ("udp", 65), ("udp", 1514), ("udp", 3520), ("tcp", 72),
                           ("tcp", 1001), ("tcp", 3520)):
        sent, _ = send_through(env, daemon, sockets, count, "--packed", "--proto", protocol,
                               "--size", size, "--flows 3")
        assert sent["frame_bytes"] == size
        bytes_now = sum(queue["bytes"] for queue in daemon.queues("vm1", "to_guest"))
        assert bytes_now - bytes_before == count * size, f"{protocol} {size}: {bytes_now}"
        bytes_before = bytes_now


@timeout(120)
def test_pktgen_uses_all_queue_pairs(env):
    daemon, *sockets = two_ports(env, ",queues=2")
    count = 100_001
    send_through(env, daemon, sockets, count, "--queues 2", "--queues 2 --packed", "--flows 16")
    for port, direction in (("vm0", "from_guest"), ("vm1", "to_guest")):
        frames = [queue["frames"] for queue in daemon.queues(port, direction)]
        assert len(frames) == 2 and min(frames) >= count // 4, f"{port}: {frames}"


@timeout(120)
@each(**FORMATS)
def test_pktgen_echo_gets_every_frame_back_from_a_reflector(env, packed):
    daemon, *sockets = two_ports(env)
    mirror = Pktgen(env, sockets[1], "reflect", *words(packed), daemon=daemon, port="vm1")
    count = 2_000_000 if env.full else 100_000
    echo = Pktgen(env, sockets[0], "echo", "--count", count, "--flows", 16, "--verify",
                  *words(packed)).wait(60)
    assert_figures(echo, frames_sent=count, frames_received=count, frames_dropped=0, **CLEAN)
    assert_ordered(echo["latency_ns"], count)
    assert_figures(mirror.stop(), frames_received=count, frames_sent=count, frames_dropped=0)
    daemon.assert_alive()


@timeout(120)
@each(**FORMATS)
def test_pktgen_latency_sends_one_at_a_time_and_has_a_histogram(env, packed):
    daemon, *sockets = two_ports(env)
    Pktgen(env, sockets[1], "reflect", *words(packed), daemon=daemon, port="vm1")
    count = 5000 if env.full else 500
    report = Pktgen(env, sockets[0], "latency", "--count", count, *words(packed)).wait(60)
    assert_format(report, packed)
    assert report["burst_frames"] == 1
    assert_figures(report, frames_sent=count, frames_received=count, **CLEAN)
    assert_ordered(report["latency_ns"], count)
    # A frame alone: no batch was larger than one.
    sizes = daemon.queues("vm0", "from_guest")[0]["batch_histogram"]
    assert sizes[0] == count and not any(sizes[1:]), sizes


def assert_ordered(latency, count):
    assert set(latency) == {"count", "min", "p50", "p99", "p999", "max"}, latency
    assert latency["count"] == count, latency
    order = [latency[key] for key in ("min", "p50", "p99", "p999", "max")]
    assert 0 < order[0] and order == sorted(order), latency


@timeout(120)
def test_pktgen_echo_without_an_answer_says_that_all_is_lost(env):
    daemon, socket = sink(env)
    # Its window is full at once; what is not back after a second makes room for the rest.
    report = Pktgen(env, socket, "echo", "--window", 40, "--count", 60).wait(60)
    assert_figures(report, frames_sent=60, frames_received=0, frames_lost=60)
    assert daemon.frames("vm0", "from_guest") == 60


@timeout(120)
def test_pktgen_keeps_its_rate_and_ends_after_its_time(env):
    daemon, socket = sink(env)
    report = Pktgen(env, socket, "txonly", "--rate", 2000, "--burst", 10, "--seconds", 1).wait(60)
    assert report["seconds"] >= 1, report
    # Whatever the machine was doing meanwhile: never more than were due, and a burst.
    assert 10 < report["frames_sent"] <= 2000 * report["seconds"] + 11, report
    assert daemon.frames("vm0", "from_guest") == report["frames_sent"]


@timeout(120)
@each(udp=("udp", 300), tcp=("tcp", 301))
def test_pktgen_frames_are_valid_for_tcpdump(env, case):
    protocol, size = case
    ns = Netns(env, ipv6=False)
    socket = env.path("vm0.sock")
    Daemon(env, ["--vm", f"vm0,socket={socket}", "--tap", "t0,ifname=tap0", "--connect", "vm0:t0"],
           ns)
    ns.tap_up("tap0")
    count = 32
    watcher = ns.popen(["tcpdump", "-i", "tap0", "-Q", "in", "-nn", "-e", "-vv", "-l", "-c",
                        str(count)], name="tcpdump-")
    wait_until(lambda: "listening on" in log_of(watcher), 15, "tcpdump does not listen")
    Pktgen(env, socket, "txonly", "--count", count, "--flows", 16, "--proto", protocol, "--size",
           size, "--src-mac", "02:00:00:00:aa:01", "--dst-mac", "02:00:00:00:aa:02").wait(30)
    wait_until(lambda: watcher.poll() is not None, 15, lambda: f"not all arrived: {log_of(watcher)}")
    text = log_of(watcher)
    assert text.count(f"02:00:00:00:aa:01 > 02:00:00:00:aa:02, ethertype IPv4 (0x0800), length {size}"
                      ) == count, text
    assert "bad" not in text and "incorrect" not in text and "wrong" not in text, text
    fine = "[udp sum ok]" if protocol == "udp" else "(correct)"
    assert text.count(fine) == count, text
    ports = {int(port) for port in re.findall(r"198\.18\.0\.1\.(\d+) > 198\.19\.0\.1\.9", text)}
    assert ports == set(range(1024, 1040)), ports


def log_of(process):
    with open(process.log_path, errors="replace") as file:
        return file.read()


@timeout(60)
def test_pktgen_waits_for_a_back_end_that_connects(env):
    socket = env.path("vm0.sock")
    sender = Pktgen(env, socket, "txonly", "--socket-mode", "server", "--count", 1000, "--packed")
    daemon = Daemon(env, ["--vm", f"vm0,socket={socket},mode=client", "--null", "n0",
                          "--connect", "vm0:n0"])
    assert_figures(sender.wait(30), frames_sent=1000, frames_dropped=0, frames_unused=0)
    assert daemon.frames("vm0", "from_guest") == 1000


# What it says.

@timeout(60)
def test_pktgen_tells_a_person_in_lines_and_a_table(env):
    _daemon, socket = sink(env)
    result = run_sluice(env, ["pktgen", "--socket", socket, "--mode", "txonly", "--rate", "100",
                              "--seconds", "1.5"], timeout=30)
    assert result.returncode == 0, result
    assert re.search(r"^ +1 s +sent +[\d.]+ M/s +received", result.stderr, re.MULTILINE), result
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["pktgen", "frames", "M/s", "Gbit/s"], lines
    assert lines[1].split()[0] == "sent" and int(lines[1].split()[1]) > 1, lines
    assert "of CPU time a frame" in lines[-1] and "\033" not in result.stdout, lines


@timeout(60)
def test_pktgen_json_is_all_that_is_printed(env):
    _daemon, socket = sink(env)
    sender = Pktgen(env, socket, "txonly", "--rate", 100, "--seconds", 1.2)
    report = sender.wait(30)  # parses all of standard output
    assert report["mode"] == "txonly" and "failure" not in report, report
    assert sender.errors_text() == "", sender.errors_text()


@timeout(60)
def test_pktgen_help_names_every_option(env):
    result = run_sluice(env, ["pktgen", "--help"])
    assert result.returncode == 0 and not result.stderr, result
    for word in ("txonly", "rxonly", "echo", "reflect", "latency", "--socket-mode", "--size",
                 "--burst", "--flows", "--rate", "--window", "--seconds", "--count", "--proto",
                 "--src-mac", "--dst-mac", "--verify", "--packed", "--tx", "--queues", "--ring-size",
                 "--poll-us", "--cpu", "--irq-cpu", "--wait", "--json"):
        assert word in result.stdout, f"no {word} in the help"


@timeout(120)
def test_pktgen_refuses_bad_options_with_what_is_allowed(env):
    base = ["--socket", env.path("none.sock"), "--mode", "txonly", "--wait", "0"]
    table = [
        # arguments, words of the message
        ([], ["--socket"]),
        (["--mode", "txonly"], ["--socket PATH"]),
        (["--socket", "x"], ["--mode", "txonly", "rxonly", "echo", "reflect", "latency"]),
        (["--socket", "x", "--mode", "both"], ["both", "txonly", "latency"]),
        (["--socket", "x" * 120, "--mode", "txonly"], ["--socket", "107"]),
        (base + ["--frobnicate"], ["--frobnicate", "--help"]),
        (base + ["stray"], ["stray", "--help"]),
        (base + ["--mode", "rxonly"], ["--mode"]),
        (base + ["--size", "59"], ["--size", "59", "60", "3520", "udp"]),
        (base + ["--size", "3521"], ["3521", "60", "3520"]),
        (base + ["--size", "71", "--proto", "tcp"], ["71", "72", "3520", "tcp"]),
        (base + ["--size", "-1"], ["--size", "-1"]),
        (base + ["--size", "many"], ["--size", "many"]),
        (base + ["--proto", "sctp"], ["--proto", "sctp", "udp", "tcp"]),
        (base + ["--burst", "0"], ["--burst", "0", "1 to 4096"]),
        (base + ["--burst", "4097"], ["--burst", "4097", "1 to 4096"]),
        (base + ["--flows", "0"], ["--flows", "0", "64512"]),
        (base + ["--flows", "64513"], ["--flows", "64513", "64512"]),
        (base + ["--rate", "0"], ["--rate", "0.001"]),
        (base + ["--rate", "-5"], ["--rate", "-5", "0.001"]),
        (base + ["--rate", "nan"], ["--rate", "nan", "0.001"]),
        (base + ["--seconds", "0"], ["--seconds", "0.001"]),
        (base + ["--seconds", "nan"], ["--seconds", "nan"]),
        (base + ["--wait", "-1"], ["--wait"]),
        (base[:-2] + ["--wait", "nan"], ["--wait", "nan"]),
        (base + ["--window", "0"], ["--window", "0", "65536"]),
        (base + ["--count", "0"], ["--count", "1"]),
        (base + ["--count", "-1"], ["--count", "-1"]),
        (base + ["--count", "1e3"], ["--count", "1e3"]),
        (base + ["--count"], ["--count"]),
        (base + ["--src-mac", "red"], ["--src-mac: ", "red", "unicast"]),
        (base + ["--dst-mac", "ff:ff:ff:ff:ff:ff"], ["--dst-mac: ", "ff:ff:ff:ff:ff:ff", "unicast"]),
        (base + ["--socket-mode", "both"], ["--socket-mode: ", "both", "client", "server"]),
        (base + ["--tx", "fast"], ["--tx: ", "fast", "napi", "inline"]),
        (base + ["--queues", "0"], ["--queues: ", "0", "1 to 128"]),
        (base + ["--queues", "129"], ["--queues: ", "129", "1 to 128"]),
        (base + ["--ring-size", "100"], ["ring-size", "100", "power of two", "packed"]),
        (base + ["--ring-size", "65536", "--packed"], ["--ring-size: ", "65536", "2 to 32768"]),
        (base + ["--poll-us", "1000001"], ["--poll-us", "1000001", "1000000"]),
        (base + ["--cpu", "-1"], ["--cpu", "-1"]),
        (base + ["--irq-cpu", "4096"], ["--irq-cpu", "4096", "1023"]),
    ]

    def check(row):
        line = assert_refused(env, ["pktgen", *row[0]], row[1], status=USAGE)
        assert "--nic" not in line, f"it names an option that nobody has typed: {line}"

    check_table(env, table, check)


# Back ends that are not there, or not what is needed, or go.

@timeout(60)
@each(client="client", server="server")
def test_pktgen_gives_up_without_a_back_end(env, side):
    socket = env.path("none.sock")
    result = run_sluice(env, ["pktgen", "--socket", socket, "--mode", "rxonly", "--wait", "0.3",
                              "--socket-mode", side], timeout=20)
    last = result.stderr.splitlines()[-1]
    assert result.returncode == FAILED and not result.stdout, result
    assert f"no back end at {socket} within 0.3 seconds" in last, last
    assert ("there is no socket" if side == "client" else "nobody came") in last, last


@timeout(60)
def test_pktgen_that_waits_ends_with_a_signal(env):
    waiting = Pktgen(env, env.path("none.sock"), "rxonly", "--wait", 1000)
    wait_until(lambda: "there is no socket" in waiting.text(), 10, "it does not say that it waits")
    waiting.process.send_signal(signal.SIGTERM)
    assert waiting.process.wait(10) == FAILED, waiting.text()
    assert "signal before there was a back end" in waiting.text(), waiting.text()


@timeout(60)
def test_pktgen_asks_for_no_more_queue_pairs_than_there_are(env):
    daemon, socket = sink(env)
    assert_refused(env, ["pktgen", "--socket", socket, "--mode", "txonly", "--queues", "2",
                         "--count", "10"], ["1 queue pair", "--queues 1"], status=FAILED)
    assert daemon.frames("vm0", "from_guest") == 0


@timeout(60)
@each(txonly="rxonly", echo="reflect")
def test_pktgen_says_when_its_back_end_goes(env, peer_mode):
    daemon, *sockets = two_ports(env)
    Pktgen(env, sockets[1], peer_mode, daemon=daemon, port="vm1")
    mode = "echo" if peer_mode == "reflect" else "txonly"
    running = Pktgen(env, sockets[0], mode, "--packed")
    wait_until(lambda: daemon.frames("vm1", "to_guest") > 1000, 15, "no frames")
    daemon.kill()
    report = running.wait(20, status=FAILED)
    assert report["failure"].startswith("the back end went away"), report
    assert report["frames_sent"] > 1000, report
    last = running.errors_text().splitlines()[-1]
    assert last.startswith("sluice pktgen: the back end went away"), last


@timeout(60)
def test_pktgen_that_only_receives_notices_too_that_its_back_end_goes(env):
    daemon, socket = sink(env)
    running = env.popen([env.sluice, "pktgen", "--socket", socket, "--mode", "rxonly"])
    wait_until(lambda: "1 s  sent" in log_of(running), 15, "no line after a second")
    daemon.stop()
    assert running.wait(20) == FAILED, log_of(running)
    text = log_of(running)
    assert "sluice pktgen: the back end went away" in text, text
    assert re.search(r"^received +0 ", text, re.MULTILINE), f"no table: {text}"


@timeout(60)
@each(SIGINT=signal.SIGINT, SIGTERM=signal.SIGTERM)
def test_pktgen_reports_what_it_did_until_a_signal(env, number):
    daemon, socket = sink(env)
    sender = Pktgen(env, socket, "txonly", "--rate", 10000)
    wait_until(lambda: daemon.frames("vm0", "from_guest") > 100, 15, "no frames")
    sender.process.send_signal(number)
    report = sender.wait(20)
    assert_figures(report, frames_unused=0, frames_dropped=0)
    assert report["frames_sent"] == daemon.frames("vm0", "from_guest") > 100, report


# testpmd's vhost at the other end.

def testpmd_back_end(env, forward):
    socket = env.path("pmd.sock")
    return Testpmd(env, [f"net_vhost0,iface={socket}"], [f"--forward-mode={forward}"]), socket


@timeout(120)
@each(**FORMATS)
def test_pktgen_sends_to_testpmd_what_both_count(env, packed):
    pmd, socket = testpmd_back_end(env, "rxonly")
    pmd.start()
    count = 5_000_000 if env.full else 200_000
    report = Pktgen(env, socket, "txonly", "--count", count, "--flows", 16, *words(packed)).wait(60)
    assert_format(report, packed)
    assert_figures(report, frames_sent=count, frames_dropped=0, frames_unused=0)
    stats = wait_stable(pmd.port_stats, 20, "what testpmd receives")
    assert (stats["RX-packets"], stats["RX-bytes"]) == (count, count * 64), stats


@timeout(120)
@each(**FORMATS)
def test_pktgen_receives_from_testpmd_what_both_count(env, packed):
    pmd, socket = testpmd_back_end(env, "txonly")
    receiver = Pktgen(env, socket, "rxonly", "--count", 10**15, *words(packed))
    wait_until(pmd.link_is_up, 15, "testpmd's link is not up", interval_seconds=0.2)
    pmd.start()
    time.sleep(3 if env.full else 0.3)
    pmd.stop()
    stats = wait_stable(pmd.port_stats, 20, "what testpmd sends")
    report = receiver.stop()
    assert_format(report, packed)
    assert stats["TX-packets"] > 1000, stats
    # testpmd's frames are not numbered: they are counted as somebody else's.
    assert_figures(report, frames_received=stats["TX-packets"], frames_foreign=stats["TX-packets"],
                   frames_lost=0)


@timeout(120)
@each(**FORMATS)
def test_pktgen_echo_comes_back_from_testpmd_unharmed(env, packed):
    pmd, socket = testpmd_back_end(env, "macswap")
    pmd.start()
    count = 1_000_000 if env.full else 50_000
    report = Pktgen(env, socket, "echo", "--count", count, "--window", 64, "--flows", 16, "--verify",
                    *words(packed)).wait(90)
    assert_figures(report, frames_sent=count, frames_received=count, **CLEAN)
    assert_ordered(report["latency_ns"], count)
    stats = pmd.port_stats()
    assert (stats["RX-packets"], stats["TX-packets"]) == (count, count), stats
