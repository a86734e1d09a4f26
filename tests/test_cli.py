"""The command line of `sluice`: what it refuses and how, what it removes, what it prints.

What is wrong in itself ends with status 2 before anything starts; what the system refuses ends with
status 1. Either way: one line that names the option, the value and what is allowed.
"""

import os
import re
import signal
import socket
import stat
import struct
import time

from lib import each, read_text, timeout, wait_until
from lib.daemon import Daemon, assert_refused, check_table, run_sluice
from lib.netns import Netns

USAGE, FAILED = 2, 1


def ports(env, vm_options="", tap_options="", socket_path=None):
    """The usual arguments: a VM connected to a TAP."""
    path = socket_path or env.path("vm0.sock")
    return ["--vm", f"vm0,socket={path}{vm_options}", "--tap", f"t0,ifname=tap0{tap_options}",
            "--connect", "vm0:t0"]


def refuse(env, ns, arguments, words, status=USAGE, **options):
    control = [] if "--control" in arguments else ["--control", env.path("refused.sock")]
    return assert_refused(env, ["run", *control, *arguments], words, status, ns, **options)


# Refused in itself.

@timeout(120)
def test_bad_options_are_refused_with_one_line_that_names_them(env):
    ns = Netns(env)
    good_vm, good_tap = f"vm0,socket={env.path('vm0.sock')}", "t0,ifname=tap0"
    table = [
        # arguments, words of the message
        (["--frobnicate"], ["--frobnicate"]),
        (["stray"], ["stray"]),
        ([], ["--vm"]),
        (["--vm"], ["--vm"]),
        (["--vm", "vm0"], ["--vm", "vm0", "socket"]),
        (["--vm", f"socket={env.path('x')}"], ["--vm", "name"]),
        (["--vm", good_vm + ",colour=red"], ["--vm", "colour"]),
        (["--vm", good_vm + ",queues=0"], ["queues", "0", "1"]),
        (["--vm", good_vm + ",queues=many"], ["queues", "many"]),
        (["--vm", good_vm + ",queues=-1"], ["queues", "-1"]),
        (["--vm", good_vm + ",queues=100000"], ["queues", "100000"]),
        (["--vm", good_vm + ",queues=2,queues=3"], ["queues"]),
        (["--vm", good_vm + ",mode=both"], ["mode", "both", "server", "client"]),
        (["--vm", good_vm + ",mac=red"], ["mac", "red"]),
        (["--vm", good_vm + ",mac=01:00:00:00:00:01"], ["mac", "01:00:00:00:00:01"]),
        (["--vm", good_vm + ",mtu=10"], ["mtu", "10", "68"]),
        (["--vm", good_vm + ",mtu=70000"], ["mtu", "70000", "65535"]),
        (["--vm", good_vm + ",socket-mode=999"], ["socket-mode", "999"]),
        (["--vm", good_vm + ",offload=maybe"], ["offload", "maybe", "on", "off"]),
        (["--vm", "vm0,socket=/tmp/" + "x" * 120], ["socket", "107"]),
        (["--vm", "vm0,socket="], ["socket"]),
        (["--tap", "t0"], ["--tap", "t0", "ifname"]),
        (["--tap", good_tap + ",colour=red"], ["--tap", "colour"]),
        (["--tap", good_tap + ",napi=maybe"], ["napi", "maybe", "auto", "on", "off"]),
        (["--tap", good_tap + ",queues=0"], ["queues", "0"]),
        (["--tap", good_tap + ",fd=7"], ["ifname", "fd"]),
        (["--tap", "t0,fd=x"], ["fd", "x"]),
        (["--tap", "t0,ifname=a-name-longer-than-15"], ["ifname", "a-name-longer-than-15", "15"]),
        (["--tap", "t0,ifname=a/b"], ["ifname", "a/b"]),
        (["--vm", good_vm, "--tap", "vm0,ifname=tap0"], ["vm0"]),
        (["--vm", good_vm, "--vm", "vm1" + good_vm[3:]], ["socket", "vm0", "vm1"]),
        (["--tap", good_tap, "--tap", "t1,ifname=tap0"], ["tap0", "t0", "t1"]),
        (["--vm", good_vm, "--tap", good_tap, "--connect", "vm0"], ["--connect", "vm0"]),
        (["--vm", good_vm, "--tap", good_tap, "--connect", "vm0:t9"], ["--connect", "t9"]),
        (["--vm", good_vm, "--tap", good_tap, "--connect", "vm0:vm0"], ["--connect", "vm0"]),
        (["--vm", good_vm, "--tap", good_tap, "--tap", "t1,ifname=tap1", "--connect", "vm0:t0",
          "--connect", "vm0:t1"], ["--connect", "vm0"]),
        ([*ports(env), "--batch", "0"], ["--batch", "0", "1", "64"]),
        ([*ports(env), "--batch", "65"], ["--batch", "65", "64"]),
        ([*ports(env), "--batch", "many"], ["--batch", "many"]),
        ([*ports(env), "--poll-us", "-5"], ["--poll-us", "-5"]),
        ([*ports(env), "--workers", "0"], ["--workers", "0"]),
        ([*ports(env), "--cpus", "red"], ["--cpus", "red"]),
        ([*ports(env), "--control", ""], ["--control"]),
        ([*ports(env), "--help-qemu", "vm9"], ["--help-qemu", "vm9"]),
    ]
    check_table(env, table, lambda row: refuse(env, ns, row[0], row[1]))
    assert not ns.has_link("tap0"), "a refused command left tap0 behind"
    left = [name for name in os.listdir(env.tmp) if name.endswith(".sock")]
    assert not left, f"a refused command left {left} behind"


@timeout(60)
def test_options_of_later_features_are_unknown_until_then(env):
    ns = Netns(env)
    table = [
        ([*ports(env), "--afxdp", "x0,ifname=lo"], ["--afxdp"]),
        ([*ports(env), "--switch", "s0=vm0,t0"], ["--switch"]),
        ([*ports(env), "--metrics", "127.0.0.1:9"], ["--metrics"]),
        (ports(env, tap_options=",io=uring"), ["io"]),
    ]
    check_table(env, table, lambda row: refuse(env, ns, row[0], row[1]))


@timeout(30)
def test_an_unknown_subcommand_is_refused(env):
    assert_refused(env, ["frobnicate"], ["frobnicate", "run"], status=USAGE)
    result = run_sluice(env, [])
    assert result.returncode == USAGE and "run" in result.stderr, (result.returncode, result.stderr)


# Refused by the system.

@timeout(60)
def test_a_socket_of_a_live_daemon_is_not_taken(env):
    ns = Netns(env)
    first = Daemon(env, ports(env), ns)
    path = env.path("vm0.sock")
    inode = os.stat(path).st_ino
    arguments = ["--vm", f"vm0,socket={path}", "--tap", "t0,ifname=tap1", "--connect", "vm0:t0"]
    refuse(env, ns, arguments, [path], FAILED)
    first.assert_alive()
    assert os.stat(path).st_ino == inode, "the first daemon's socket was replaced"
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
    assert not ns.has_link("tap1"), "the second daemon left its TAP behind"


@timeout(60)
def test_a_control_socket_of_a_live_daemon_is_not_taken(env):
    ns = Netns(env)
    first = Daemon(env, ports(env), ns)
    arguments = ["--vm", f"vm1,socket={env.path('vm1.sock')}", "--tap", "t0,ifname=tap1",
                 "--connect", "vm1:t0", "--control", first.control]
    refuse(env, ns, arguments, [first.control], FAILED)
    assert first.port("vm0")["name"] == "vm0"


@timeout(60)
def test_a_stale_socket_file_is_replaced(env):
    ns = Netns(env)
    path = env.path("vm0.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    Daemon(env, ports(env), ns)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)


@timeout(60)
def test_a_file_that_is_no_socket_is_left_alone(env):
    ns = Netns(env)
    path = env.path("precious")
    with open(path, "w") as file:
        file.write("data")
    refuse(env, ns, ports(env, socket_path=path), [path], FAILED)
    assert read_text(path) == "data"


@timeout(60)
def test_a_missing_folder_is_named(env):
    ns = Netns(env)
    path = env.path("no/such/vm0.sock")
    refuse(env, ns, ports(env, socket_path=path), [os.path.dirname(path)], FAILED)
    assert not ns.has_link("tap0"), "a failed start left tap0 behind"


@timeout(60)
def test_an_interface_that_is_no_tap_is_refused(env):
    ns = Netns(env)
    ns.run(["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"])
    for name in ("lo", "veth0"):
        refuse(env, ns, ["--vm", f"vm0,socket={env.path('vm0.sock')}", "--tap", f"t0,ifname={name}",
                         "--connect", "vm0:t0"], [name, "TAP"], FAILED)
    ns.run(["ip", "tuntap", "add", "dev", "tun0", "mode", "tun"])
    refuse(env, ns, ["--vm", f"vm0,socket={env.path('vm0.sock')}", "--tap", "t0,ifname=tun0",
                     "--connect", "vm0:t0"], ["tun0", "TAP"], FAILED)


@timeout(60)
def test_a_tap_that_another_process_holds_is_refused(env):
    ns = Netns(env)
    Daemon(env, ports(env), ns)
    refuse(env, ns, ["--vm", f"vm1,socket={env.path('vm1.sock')}", "--tap", "t0,ifname=tap0",
                     "--connect", "vm1:t0"], ["tap0"], FAILED)


@timeout(60)
def test_without_dev_net_tun_the_message_says_what_to_do(env):
    ns = Netns(env)
    hide = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/net && exec "$@"', "sh"]
    result = ns.run([*hide, env.sluice, "run", *ports(env), "--control", env.path("c.sock")],
                    check=False, timeout=10)
    told = result.stderr.strip()
    assert result.returncode == FAILED, (result.returncode, told)
    assert "/dev/net/tun" in told and "modprobe tun" in told and len(told.splitlines()) == 1, told


@timeout(60)
def test_without_net_admin_the_capability_is_named(env):
    ns = Netns(env)
    less = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]
    result = ns.run([*less, env.sluice, "run", *ports(env), "--control", env.path("c.sock")],
                    check=False, timeout=10)
    told = result.stderr.strip()
    assert result.returncode == FAILED, (result.returncode, told)
    assert "CAP_NET_ADMIN" in told and len(told.splitlines()) == 1, told
    assert not os.path.exists(env.path("vm0.sock")), "a failed start left its socket behind"


@timeout(60)
def test_an_unknown_network_namespace_is_named(env):
    refuse(env, None, ports(env, tap_options=",netns=no-such-place"), ["no-such-place"], FAILED)


@timeout(30)
def test_a_word_that_is_no_number_is_in_no_range(env):
    for value in ("nan", "-nan", "inf", "0", "-1", "many"):
        assert_refused(env, ["bench", "rings", "--seconds", value], ["--seconds", value, "0.1"])


# Starting and stopping.

@timeout(60)
@each(SIGTERM=signal.SIGTERM, SIGINT=signal.SIGINT)
def test_a_signal_stops_it_and_removes_what_it_made(env, number):
    ns = Netns(env)
    daemon = Daemon(env, ports(env), ns)
    assert ns.has_link("tap0")
    assert len([line for line in daemon.log().splitlines() if "ready" in line]) == 1, daemon.log()
    seconds = daemon.stop(number)
    env.note(f"stopped in {seconds:.2f} s")
    for path in (env.path("vm0.sock"), daemon.control):
        assert not os.path.exists(path), f"{path} is left"
    assert not ns.has_link("tap0"), "tap0 is left"


@timeout(60)
def test_a_persistent_tap_is_used_and_stays(env):
    ns = Netns(env)
    ns.run(["ip", "tuntap", "add", "dev", "tap0", "mode", "tap", "vnet_hdr"])
    index = ns.link("tap0")["ifindex"]
    Daemon(env, ports(env), ns).stop()
    assert ns.has_link("tap0") and ns.link("tap0")["ifindex"] == index


@timeout(60)
def test_persist_on_leaves_the_tap_for_the_next_daemon(env):
    ns = Netns(env)
    Daemon(env, ports(env, tap_options=",persist=on"), ns).stop()
    index = ns.link("tap0")["ifindex"]
    Daemon(env, ports(env), ns).stop()
    assert ns.link("tap0")["ifindex"] == index


@timeout(60)
def test_after_a_kill_it_starts_again_at_once(env):
    ns = Netns(env)
    Daemon(env, ports(env), ns).kill()
    Daemon(env, ports(env), ns).stop()


@timeout(60)
def test_the_tap_may_be_in_another_namespace(env):
    ns = Netns(env)
    Daemon(env, ports(env, tap_options=f",netns={ns.name}"))
    assert ns.has_link("tap0")


@timeout(60)
def test_the_socket_has_the_mode_that_was_asked_for(env):
    ns = Netns(env)
    daemon = Daemon(env, ports(env), ns)
    assert stat.S_IMODE(os.stat(env.path("vm0.sock")).st_mode) == 0o660
    daemon.stop()
    Daemon(env, ports(env, vm_options=",socket-mode=0600"), ns)
    assert stat.S_IMODE(os.stat(env.path("vm0.sock")).st_mode) == 0o600


@timeout(60)
def test_an_inherited_descriptor_is_a_tap_port(env):
    ns = Netns(env)
    # `sluice tap` opens it, `sluice run` gets it: the two fit each other.
    argv = [env.sluice, "tap", "t0,ifname=tap0", "--", env.sluice, "run",
            "--vm", f"vm0,socket={env.path('vm0.sock')}", "--tap", "t0,fd={fds}",
            "--connect", "vm0:t0", "--control", env.path("c.sock")]
    process = ns.popen(argv)
    wait_until(lambda: "ready" in read_text(process.log_path) or process.poll() is not None, 10,
               "it does not say ready")
    assert process.poll() is None, read_text(process.log_path)
    process.terminate()
    assert process.wait(2) == 0


# What it prints.

@timeout(30)
def test_help_goes_to_standard_output(env):
    for arguments, words in (
            (["--help"], ["run", "tap", "stats"]),
            (["run", "--help"], ["--vm", "--tap", "--connect", "--batch", "--help-qemu",
                                 "socket="]),
            (["tap", "--help"], ["{fds}", "napi"]),
            (["stats", "--help"], ["--json", "--control"])):
        result = run_sluice(env, arguments)
        assert result.returncode == 0, f"{arguments}: status {result.returncode}"
        missing = [word for word in words if word not in result.stdout]
        assert not missing, f"{arguments}: {missing} missing in {result.stdout!r}"
    result = run_sluice(env, ["--version"])
    assert result.returncode == 0 and "sluice" in result.stdout, result


# What `--help` of each command says, the manual page and the completion say, too.

COMMANDS = ("run", "guest", "pktgen", "tap", "stats", "ports", "xdp", "bench")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPTION = r"--([a-z][a-z-]+)"


def help_of(env, command):
    """({option: its placeholder or ''}, {option that takes a list: {key: placeholder}})"""
    options, keys, owner = {}, {}, command
    for line in run_sluice(env, [command, "--help"]).stdout.splitlines():
        key = re.match(r"      ([a-z][a-z-]*)=(\S+)", line)
        if key:
            keys.setdefault(owner, {})[key.group(1)] = key.group(2)
        elif re.match(r"\s+(-\w, )?--[a-z]", line):
            found = re.findall(OPTION + r"(?: ((?:NAME,)?[A-Z:]+|[a-z]+(?:\|[a-z]+)+)(?![\w|]))?", line)
            options.update(found)
            owner = found[0][0]
        elif line.startswith(f"  sluice {command} "):  # an example
            options.update({name: "" for name in re.findall(OPTION, line) if name not in options})
    options.pop("help", None)
    return options, keys


def manual_of(command):
    """The same from the manual page; it has no placeholders."""
    with open(os.path.join(ROOT, "docs", "sluice.1")) as file:
        section = re.search(rf"^\.Sh {command.upper()}\n(.*?)(?=^\.Sh )", file.read(), re.M | re.S)
    assert section, f"the manual page has no section {command.upper()}"
    options, keys, owner = set(), {}, command
    for line in section.group(1).splitlines():
        option = re.match(r"\.It Fl -([a-z-]+)", line)
        key = re.match(r"\.It Cm ([a-z-]+)= Ns", line)
        if option:
            owner = option.group(1)
            options.add(owner)
        elif key:
            keys.setdefault(owner, set()).add(key.group(1))
    return options - {"help"}, keys


def completion_of(env, line):
    """What bash offers behind these words."""
    script = ('compopt() { :; }; source "$1"; COMP_LINE=$2; COMP_POINT=${#2}; _sluice; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    path = os.path.join(ROOT, "packaging", "completion", "sluice.bash")
    return set(env.run(["bash", "-c", script, "bash", path, line]).stdout.split())


@timeout(60)
def test_each_command_is_in_the_help_the_manual_and_the_completion(env):
    listed = re.findall(r"^  sluice (\w+) {2,}", run_sluice(env, ["--help"]).stdout, re.M)
    assert set(listed) == set(COMMANDS), f"the help lists {listed}"
    assert completion_of(env, "sluice ") == {*COMMANDS, "--help", "--version"}
    lines = run_sluice(env, ["bench", "--list"]).stdout.splitlines()[1:]
    benchmarks = {line.split()[0] for line in lines}
    offered = {word for word in completion_of(env, "sluice bench ") if not word.startswith("-")}
    assert benchmarks and offered == benchmarks, f"benchmarks: {benchmarks}, completed: {offered}"


@timeout(60)
@each(**{command: command for command in COMMANDS})
def test_the_manual_page_has_the_options_of_the_help(env, command):
    options, keys = help_of(env, command)
    assert command == "tap" or options, "no option was found in the help"
    manual_options, manual_keys = manual_of(command)
    assert manual_options == set(options), f"differ: {manual_options ^ set(options)}"
    if command != "tap":  # its keys are those of --tap
        for option in keys:
            differ = set(keys[option]) ^ manual_keys.get(option, set())
            assert not differ, f"--{option}: {differ}"


@timeout(60)
@each(**{command: command for command in COMMANDS})
def test_the_completion_has_the_options_and_values_of_the_help(env, command):
    options, keys = help_of(env, command)
    offered = completion_of(env, f"sluice {command} --")
    assert offered - {"--help", "--"} == {f"--{name}" for name in options}, \
        f"differ: {offered ^ {f'--{name}' for name in options}}"
    for option, placeholder in options.items():
        offered = completion_of(env, f"sluice {command} --{option} ")
        wrong = {word for word in offered if word.startswith("--")}
        assert bool(wrong) == (placeholder == ""), f"behind --{option} {placeholder}: {offered}"
        if "|" in placeholder:
            assert offered == set(placeholder.split("|")), f"behind --{option}: {offered}"
    for option, names in keys.items():
        words = f"sluice {command} " + ("" if option == command else f"--{option} ") + "x,"
        differ = completion_of(env, words) ^ {f"x,{name}=" for name in names}
        assert not differ, f"{words}: {differ}"
        for name, placeholder in names.items():
            if "|" in placeholder:
                differ = completion_of(env, f"{words}{name}=") ^ set(placeholder.split("|"))
                assert not differ, f"{words}{name}=: {differ}"


@timeout(30)
def test_help_qemu_prints_arguments_and_libvirt_xml(env):
    ns = Netns(env)
    arguments = ports(env, vm_options=",queues=2,mac=02:00:00:00:00:07")
    result = run_sluice(env, ["run", *arguments, "--help-qemu", "vm0"], ns)
    assert result.returncode == 0, result.stderr
    path = env.path("vm0.sock")
    for word in ("-chardev", f"path={path}", "-netdev", "vhost-user", "queues=2", "-device",
                 "virtio-net-pci", "mq=on", "02:00:00:00:00:07", "share=on", "<interface",
                 "vhostuser", f"'{path}'", "</interface>"):
        assert word in result.stdout.replace('"', "'"), f"no {word} in:\n{result.stdout}"
    assert not os.path.exists(path) and not ns.has_link("tap0"), "it only prints, it starts nothing"


CONFIG = """
poll-us = 20
batch = 32
connect = ["vm0:t0"]
[[vm]]
name = "vm0"
socket = "{socket}"
queues = 2
mac = "02:00:00:00:00:07"
mtu = 1400
[[tap]]
name = "t0"
ifname = "tap0"
queues = 2
napi = "off"
"""


@timeout(60)
def test_a_config_file_says_the_same_as_the_command_line(env):
    ns = Netns(env)
    path = env.path("sluice.toml")
    with open(path, "w") as file:
        file.write(CONFIG.format(socket=env.path("vm0.sock")))
    line = [*ports(env, ",queues=2,mac=02:00:00:00:00:07,mtu=1400", ",queues=2,napi=off"),
            "--poll-us", "20", "--batch", "32"]

    def seen(arguments):
        text = run_sluice(env, ["run", *arguments, "--help-qemu", "vm0"], ns).stdout
        assert "02:00:00:00:00:07" in text, text
        daemon = Daemon(env, arguments, ns)
        shape = [(port["name"], port["kind"], port["negotiated"],
                  [queue["direction"] for queue in port["queues"]])
                 for port in daemon.stats()["ports"]]
        daemon.stop()
        return text, shape

    assert seen(["--config", path]) == seen(line)


@timeout(60)
def test_a_bad_config_file_is_refused_with_the_place(env):
    ns = Netns(env)
    path = env.path("bad.toml")
    good = CONFIG.format(socket=env.path("vm0.sock"))
    table = [
        (good.replace("mtu =", "mut ="), ["bad.toml", "mut"]),
        (good.replace("poll-us", "poll-me"), ["bad.toml", "poll-me"]),
        (good.replace('"off"', '"maybe"'), ["bad.toml", "napi", "maybe"]),
        (good.replace("queues = 2", 'queues = "two"', 1), ["bad.toml", "queues"]),
        (good.replace("batch = 32", "batch = 65"), ["bad.toml", "batch", "65"]),
        (good.replace("[[vm]]", "[[vm"), ["bad.toml", "line"]),
        (good.replace("vm0:t0", "vm0:t9"), ["bad.toml", "t9"]),
    ]

    def check(row):
        with open(path, "w") as file:
            file.write(row[0])
        refuse(env, ns, ["--config", path], row[1])

    check_table(env, table, check)
    result = run_sluice(env, ["run", "--config", env.path("none.toml")], ns)
    assert result.returncode in (FAILED, USAGE) and "none.toml" in result.stderr, result


@timeout(60)
def test_stats_have_the_promised_keys(env):
    ns = Netns(env)
    daemon = Daemon(env, ports(env, vm_options=",queues=2", tap_options=",queues=2"), ns)
    stats = daemon.stats()
    assert isinstance(stats["version"], str)
    assert {port["name"]: port["kind"] for port in stats["ports"]} == {"vm0": "vm", "t0": "tap"}
    for port in stats["ports"]:
        assert isinstance(port["negotiated"], list), port
        for queue in port["queues"]:
            for key, kind in (("direction", str), ("frames", int), ("bytes", int), ("drops", dict),
                              ("batch_histogram", list), ("kicks", int), ("notifications", int),
                              ("notifications_suppressed", int)):
                assert isinstance(queue[key], kind), f"{port['name']}: {key} in {queue}"
    directions = [queue["direction"] for queue in daemon.port("vm0", stats)["queues"]]
    assert sorted(directions) == ["from_guest"] * 2 + ["to_guest"] * 2, directions
    assert stats["workers"], stats
    for worker in stats["workers"]:
        assert {"cpu", "breaths", "sleeps"} <= set(worker), worker
    table = run_sluice(env, ["stats", "--control", daemon.control])
    assert table.returncode == 0, table.stderr
    for word in ("vm0", "t0", "from_guest", "to_guest"):
        assert word in table.stdout, f"no {word} in:\n{table.stdout}"


@timeout(30)
def test_stats_without_a_daemon_say_so(env):
    path = env.path("nobody.sock")
    assert_refused(env, ["stats", "--control", path], [path], status=FAILED)
    assert_refused(env, ["stats", "--json", "--control", path], [path], status=FAILED)
    assert_refused(env, ["stats", "--frobnicate"], ["--frobnicate"], status=USAGE)


@timeout(30)
def test_napi_is_in_the_log_and_in_the_stats(env):
    ns = Netns(env)
    on = Daemon(env, ports(env, tap_options=",napi=on"), ns)
    assert any("napi" in name.lower() for name in on.negotiated("t0")), on.negotiated("t0")
    assert "napi" in on.log().lower(), on.log()
    on.stop()
    off = Daemon(env, ports(env, tap_options=",napi=off"), ns)
    assert "IFF_NAPI" not in off.negotiated("t0"), off.negotiated("t0")


# Front ends that speak nonsense: their connection is closed, nothing else happens.

GET_FEATURES, SET_FEATURES, SET_OWNER, SET_MEM_TABLE = 1, 2, 3, 5
SET_VRING_NUM, SET_VRING_KICK = 8, 12
VERSION_1 = 1 << 32 | 1 << 30


def message(request, payload=b"", size=None, version=1):
    return struct.pack("<III", request, version, len(payload) if size is None else size) + payload


def is_closed(connection):
    """Reads until the other side closes; whatever it answers before is passed over."""
    connection.settimeout(5)
    try:
        for _answer in range(100):
            if connection.recv(4096) == b"":
                return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        pass
    return False


def mem_table(count, size=1 << 20, padding=0):
    regions = b"".join(struct.pack("<QQQQ", index << 21, size, index << 21, 0)
                       for index in range(count))
    return message(SET_MEM_TABLE, struct.pack("<II", count, padding) + regions)


@timeout(60)
def test_a_front_end_without_shared_memory_is_told_how(env):
    ns = Netns(env)
    daemon = Daemon(env, ports(env), ns)
    with socket.socket(socket.AF_UNIX) as front_end:
        front_end.connect(env.path("vm0.sock"))
        front_end.sendall(message(SET_OWNER) + message(SET_FEATURES, struct.pack("<Q", VERSION_1)))
        front_end.sendall(mem_table(1))
        assert is_closed(front_end), "the connection stays open"
    daemon.wait_log(r"share=on", 5)


@timeout(120)
def test_nonsense_closes_the_connection_and_leaks_nothing(env):
    ns = Netns(env)
    daemon = Daemon(env, ports(env), ns)
    first_features = None
    table = [
        # what is sent, how many descriptors ride along
        (message(9999), 0),
        (message(SET_OWNER, version=2), 0),
        (message(SET_FEATURES, b"", size=0xFFFFFFFF), 0),
        (message(SET_FEATURES, b"1234"), 0),
        (message(SET_FEATURES, b"12345678" * 100), 0),
        (message(SET_VRING_NUM, struct.pack("<II", 4096, 256)), 0),
        (message(SET_VRING_NUM, struct.pack("<II", 0, 3)), 0),
        (message(SET_VRING_NUM, struct.pack("<II", 0, 65536)), 0),
        (mem_table(1, size=0), 1),
        (mem_table(1, size=1 << 40), 1),
        (mem_table(64), 0),
        (message(SET_VRING_KICK, struct.pack("<Q", 255)), 1),
        (message(SET_VRING_KICK, struct.pack("<Q", 0)), 0),
        (message(SET_VRING_KICK, struct.pack("<Q", 0)), 3),
    ]
    fds = daemon.fd_count()

    def check(row):
        nonlocal first_features
        data, count = row
        files = [os.memfd_create("guest") for _ in range(count)]
        with socket.socket(socket.AF_UNIX) as front_end:
            front_end.connect(env.path("vm0.sock"))
            front_end.sendall(message(GET_FEATURES))
            front_end.settimeout(5)
            features = front_end.recv(20)
            first_features = first_features or features
            socket.send_fds(front_end, [data], files)
            for file in files:
                os.close(file)
            closed = is_closed(front_end)
        daemon.assert_alive()
        assert closed, f"the connection stays open after {data[:24].hex()}"
        assert features == first_features, f"other features than before: {features.hex()}"

    check_table(env, table, check)
    for length in (1, 11, 12, 19):
        # A front end that dies in the middle of a message, descriptors already delivered.
        with socket.socket(socket.AF_UNIX) as front_end, open("/dev/null") as file:
            front_end.connect(env.path("vm0.sock"))
            data = message(SET_VRING_KICK, struct.pack("<Q", 0))[:length]
            socket.send_fds(front_end, [data], [file.fileno()])
    wait_until(lambda: daemon.fd_count() <= fds, 5,
               lambda: f"{daemon.fd_count()} descriptors are open, {fds} before")


@timeout(60)
def test_a_second_front_end_waits_or_is_turned_away_while_the_first_works(env):
    ns = Netns(env)
    daemon = Daemon(env, ports(env), ns)
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        first.connect(env.path("vm0.sock"))
        first.sendall(message(GET_FEATURES))
        assert len(first.recv(20)) == 20
        second.connect(env.path("vm0.sock"))
        time.sleep(0.2)
        first.sendall(message(GET_FEATURES))
        first.settimeout(5)
        assert len(first.recv(20)) == 20, "the first front end lost its connection"
    daemon.assert_alive()
