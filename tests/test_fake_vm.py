"""VMs without a guest: `fake_vm`, a front end of our own that comes, goes, lies and dies at will.

What one VM does costs its neighbour no frame, and the daemon nothing that stays. Each neighbour is a
fake VM cabled to a TAP, with numbered frames both ways; its peer sits behind the TAP."""

import json
import os
import signal
import time

from lib import each, read_text, timeout, wait_stable, wait_until
from lib.daemon import Daemon
from lib.netns import Netns

RSS_SLACK_KIB = 512
RATE = 1000
AHEAD = -10  # what must keep up goes before whatever else the machine does


def program(env, beside=None):
    path = os.path.join(os.path.dirname(beside or env.sluice), "fake_vm")
    if not os.access(path, os.X_OK):
        raise AssertionError(f"no program at {path}: run `make build`")
    return path


class FakeVm:
    """One run of fake_vm; figures() waits for its end."""

    def __init__(self, env, words, ns=None, nice=0, wait_ready=True):
        argv = ["nice", "-n", str(nice), program(env), *[str(word) for word in words]]
        self.what = " ".join(argv[4:])
        self.process = (ns or env).popen(argv + (["--ready"] if wait_ready else []), name="fake_vm-")
        if wait_ready:
            wait_until(lambda: "ready" in read_text(self.process.log_path) or self.process.poll() is not None,
                       20, f"fake_vm {self.what} did not get ready")
            assert self.process.poll() is None or "ready" in read_text(self.process.log_path), \
                f"fake_vm {self.what}: {read_text(self.process.log_path)}"

    def figures(self, seconds=60):
        status = self.process.wait(seconds)
        text = read_text(self.process.log_path)
        assert status == 0, f"fake_vm {self.what} ended with {status}: {text}"
        return json.loads(text.strip().splitlines()[-1])

    def terminate(self):
        self.process.terminate()

    def kill(self):
        self.process.kill()
        self.process.wait(5)


class Neighbours:
    """A daemon with VMs cabled to TAPs, in a namespace; the last VM's traffic is watched."""

    def __init__(self, env, count=2, options="", workers=1):
        self.env = env
        self.ns = Netns(env, ipv6=False)
        arguments = ["--workers", str(workers)]
        for i in range(count):
            arguments += ["--vm", f"vm{i},socket={self.socket(i)}{options}",
                          "--tap", f"t{i},ifname=tap{i}", "--connect", f"vm{i}:t{i}"]
        self.daemon = Daemon(env, arguments, self.ns, prefix=["nice", "-n", str(AHEAD)])
        for i in range(count):
            self.ns.tap_up(f"tap{i}")
            self.ns.run(["ip", "link", "set", "dev", f"tap{i}", "txqueuelen", "10000"])

    def socket(self, i):
        return self.env.path(f"vm{i}.sock")

    def traffic(self, i, frames=0, rate=RATE, extra=(), queues=1):
        """Starts numbered frames both ways between VM i and its TAP."""
        words = ["--mode", "traffic", "--rate", rate, "--frames", frames, "--expect", frames,
                 "--quiet-ms", 15000 if frames else 4000, "--hold"]
        vm = FakeVm(self.env, ["--socket", self.socket(i), "--queues", queues, *words, *extra], nice=AHEAD)
        peer = FakeVm(self.env, ["--ifname", f"tap{i}", *words], self.ns, nice=AHEAD)
        for end in (vm, peer):
            end.process.send_signal(signal.SIGUSR1)
        return vm, peer

    def check(self, ends, seconds=60):
        """Waits for both ends and says that nothing was lost, repeated or damaged."""
        vm, peer = [end.figures(seconds) for end in ends]
        told = f"at the VM {vm}, behind the TAP {peer}; drops {self.drops()}"
        assert vm["sent"] > 0 and peer["sent"] > 0, f"nothing was sent: {told}"
        assert vm["sent"] == peer["received"] and peer["sent"] == vm["received"], f"frames were lost: {told}"
        for figures in (vm, peer):
            for bad in ("repeated", "damaged"):
                assert figures[bad] == 0, f"{bad}: {told}"
        return vm, peer

    def stop(self, ends, seconds=60):
        for end in ends:
            end.terminate()
        return self.check(ends, seconds)

    def drops(self):
        return {port["name"]: self.daemon.drops(port["name"]) for port in self.daemon.stats()["ports"]}

    def holdings(self):
        """(descriptors, mappings) once they have settled."""
        return wait_stable(lambda: (self.daemon.fd_count(), self.daemon.map_count()), 10,
                           "descriptors and mappings")

    def check_works(self, i, extra=()):
        self.check(self.traffic(i, frames=200, extra=extra))


@timeout(300)
def test_kills_of_one_front_end_cost_its_neighbour_nothing_and_leave_nothing_behind(env):
    kills = 90 if env.full else 20
    house = Neighbours(env)
    steady = house.traffic(1)
    victim = house.traffic(0)  # a warm-up: what is allocated once stays
    victim[0].kill()
    victim[1].kill()
    away, rss_kib = [house.holdings()], [house.daemon.rss_own_kib()]
    for _ in range(kills):
        victim = FakeVm(env, ["--socket", house.socket(0), "--mode", "traffic", "--rate", 20000])
        time.sleep(0.05)
        victim.kill()
        house.daemon.assert_alive()
    away.append(house.holdings())
    rss_kib.append(house.daemon.rss_own_kib())
    house.check_works(0)
    house.stop(steady)
    env.note(f"{kills} kills; (descriptors, mappings) {away}, RSS {rss_kib} KiB")
    assert away[0] == away[1], f"descriptors and mappings: before and after {kills} kills {away}"
    assert rss_kib[1] <= rss_kib[0] + RSS_SLACK_KIB, f"resident memory grew: {rss_kib} KiB"


@each(seed_1=1, seed_2=2)
@timeout(300)
def test_a_hostile_vm_harms_neither_the_daemon_nor_its_neighbour_and_may_come_back(env, seed):
    seconds = 20 if env.full else 5
    house = Neighbours(env, options=",queues=2")
    steady = house.traffic(1, queues=2)
    for round_number in range(2):
        attacker = FakeVm(env, ["--socket", house.socket(0), "--mode", "hostile", "--queues", 2,
                                "--seconds", (seconds + 1) // 2,
                                "--seed", 10 * seed + round_number], wait_ready=False)
        figures = attacker.figures(seconds + 60)
        house.daemon.assert_alive()
        env.note(f"attack: {figures}")
        assert figures["ring_rounds"] > 5, f"the attack did not get to the rings: {figures}"
        house.check_works(0)
    house.stop(steady)


@timeout(120)
def test_a_vm_whose_memory_vanishes_is_dropped_alone(env):
    house = Neighbours(env)
    steady = house.traffic(1)
    for _ in range(5):
        cut = FakeVm(env, ["--socket", house.socket(0), "--mode", "truncate", "--seconds", 10])
        figures = cut.figures(30)
        house.daemon.assert_alive()
        assert figures["thrown_out"], f"the front end was kept:\n{house.daemon.log()}"
        house.check_works(0)
    house.stop(steady)


@each(kick=["--no-kick"], call=["--no-call"], both=["--no-kick", "--no-call"])
@timeout(120)
def test_a_vm_works_without_kicks_and_calls(env, switches):
    house = Neighbours(env)
    steady = house.traffic(1)
    house.check(house.traffic(0, frames=3000, extra=switches))
    house.stop(steady)


@timeout(300)
def test_memory_tables_and_rings_are_replaced_under_traffic_without_a_loss(env):
    swaps = 200 if env.full else 60
    house = Neighbours(env, options=",queues=2")
    frames = swaps * 50
    vm, _ = house.check(house.traffic(0, frames=frames, rate=5000, queues=2, extra=["--swaps", swaps]), 200)
    assert vm["swaps"] >= swaps - 1, f"only {vm['swaps']} swaps: {vm}"


@timeout(120)
def test_two_vms_exchange_frames_over_a_cable(env):
    sockets = [env.path("a.sock"), env.path("b.sock")]
    daemon = Daemon(env, ["--vm", f"a,socket={sockets[0]},queues=2", "--vm", f"b,socket={sockets[1]},queues=2",
                          "--connect", "a:b", "--workers", "2"])
    echo = FakeVm(env, ["--socket", sockets[1], "--mode", "echo", "--queues", 2])
    sender = FakeVm(env, ["--socket", sockets[0], "--mode", "traffic", "--queues", 2, "--frames", 20000,
                          "--rate", 20000, "--bytes", 1500, "--expect", 20000])
    figures = sender.figures(90)
    # The addresses come back exchanged, so each is "damaged": what counts is that all come back.
    assert figures["received"] + figures["damaged"] == 20000, f"{figures}; drops {daemon.drops('b')}"
    echo.terminate()
    echo.figures()
