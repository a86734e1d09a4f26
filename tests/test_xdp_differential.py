"""XDP programs of other people, in the kernel and in our engines: the same packets, well-formed and
broken, must end the same, and the maps must stay the same. `xdp_differential` compares.

The objects are those of Debian's libxdp1, our own xdp/oracle.bpf.c, and the kernel's selftests,
built with clang from Debian's linux-source package. SLUICE_SELFTESTS names a folder where those are unpacked already
(tools/testing/selftests/bpf)."""

import glob
import json
import os
import shutil
import subprocess
import tarfile

from lib import Skip, timeout

HERE = os.path.dirname(os.path.abspath(__file__))
PACKETS = 500
PACKETS_FULL = 20_000
SECONDS_MAX = 3000

LIBXDP_OBJECTS = ["xdpfilt_*.o", "xdp-dispatcher.o", "xsk_def_xdp_prog*.o", "xdpdump_xdp.o"]

SELFTESTS = "tools/testing/selftests/bpf/"
# Source, and the programs that the kernel passes; others in it are for other hooks.
AGREE = {
    "xdp_dummy": ["xdp_dummy_prog"],
    "xdp_tx": ["xdp_tx"],
    "test_xdp_link": ["xdp_handler"],
    "test_xdp": ["_xdp_tx_iptunnel"],
    "test_xdp_loop": ["_xdp_tx_iptunnel"],
    "test_xdp_noinline": ["balancer_ingress_v4", "balancer_ingress_v6"],
    "test_xdp_vlan": ["xdp_prognum0", "xdp_prognum1", "xdp_prognum2", "xdp_prognum3"],
    "test_xdp_adjust_tail_grow": ["_xdp_adjust_tail_grow"],
    "test_xdp_adjust_tail_shrink": ["_xdp_adjust_tail_shrink"],
    "test_xdp_context_test_run": ["xdp_context"],
    "test_xdp_do_redirect": ["xdp_redirect", "xdp_count_pkts"],
    "xdp_redirect_map": ["xdp_redirect_map_0", "xdp_redirect_map_2"],
    "xdp_redirect_multi_kern": ["xdp_redirect_map_multi_prog", "xdp_redirect_map_all_prog"],
    "test_xdp_with_devmap_helpers": ["xdp_redir_prog"],
    "xdpwall": ["edgewall"],
    "xdping_kern": ["xdping_client", "xdping_server"],
    "test_xdp_update_frags": ["xdp_adjust_frags"],
    "test_check_mtu": ["xdp_use_helper_basic", "xdp_use_helper", "xdp_exceed_mtu",
                       "xdp_minus_delta", "xdp_input_len", "xdp_input_len_exceed"],
}
# Maps that hold times.
IGNORED_MAPS = {"test_xdp_noinline": ["lru_cache"], "xdping_kern": ["ping_results"]}
# The kernel passes it, we must not: it asks the kernel's sockets.
REFUSED_BY_US = {"test_tcp_check_syncookie_kern": ("check_syncookie_xdp", "bpf_skc_lookup_tcp")}
HEADERS = ["test_iptunnel_common.h", "xdping.h"]


def compare(env, path, program=None, ignored=()):
    """The answers of xdp_differential, a dict a program."""
    words = [os.path.join(os.path.dirname(env.sluice), "xdp_differential"), "--packets",
             str(PACKETS_FULL if env.full else PACKETS)]
    words += ["--program", program] if program else []
    for name in ignored:
        words += ["--ignore-map", name]
    done = subprocess.run([*words, path], capture_output=True, text=True, check=False,
                          timeout=SECONDS_MAX)
    if done.returncode == 77:
        raise Skip(done.stderr.strip())
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in (0, 1) and answers, f"{path}: {done.returncode} {done.stderr}"
    return answers


def judge(env, title, answer, wrong, agreed):
    """A refusal of the kernel's is noted: older and smaller kernels lack helpers."""
    refused = answer.get("refused", "")
    if refused.startswith("the kernel refuses"):
        env.note(f"{title}: {refused[:60]}")
    elif refused or "differs" in answer:
        wrong.append(f"{title}: {refused or answer['differs']}")
    else:
        agreed.append(title)
        env.note(f"{title}: {answer['verdicts']}, {answer['entries']} entries")


@timeout(SECONDS_MAX)
def test_the_programs_of_libxdp_do_the_same_in_the_kernel_and_in_our_engines(env):
    paths = sorted({path for pattern in LIBXDP_OBJECTS
                    for path in glob.glob("/usr/lib/*/bpf/" + pattern)})
    if not paths:
        raise Skip("libxdp1 is not installed")
    wrong, agreed = [], []
    for path in paths:
        for answer in compare(env, path):
            judge(env, f"{os.path.basename(path)} {answer['program']}", answer, wrong, agreed)
    assert not wrong, "\n".join(wrong)
    assert len(agreed) >= 10, f"only these were compared: {agreed}"


def unpack_selftests(env):
    """The folder of the selftests, from the package if need be."""
    given = os.environ.get("SLUICE_SELFTESTS")
    if given:
        return given
    archives = sorted(glob.glob("/usr/src/linux-source-*.tar.xz"))
    if not archives:
        raise Skip("the kernel's selftests are not here: install linux-source-6.1, or set "
                   "SLUICE_SELFTESTS")
    if not env.full:
        raise Skip("the kernel's selftests are unpacked in the full run only")
    wanted = {f"progs/{name}.c" for name in [*AGREE, *REFUSED_BY_US]} | set(HEADERS)
    folder = env.path("selftests")
    with tarfile.open(archives[-1], "r|xz") as archive:
        for member in archive:
            name = member.name.partition(SELFTESTS)[2]
            if name in wanted or (name.startswith("progs/") and name.endswith(".h")):
                member.name = name
                archive.extract(member, folder)
    return folder


def compile_bpf(source, path, *flags):
    """What the compiler said, empty if all is well."""
    if shutil.which("clang-16") is None:
        raise Skip("clang-16 is not installed")
    machine = os.uname().machine
    done = subprocess.run(["clang-16", "-target", "bpf", "-O2", "-g", "-mcpu=v3",
                           f"-D__{machine}__", f"-I/usr/include/{machine}-linux-gnu", *flags,
                           "-c", source, "-o", path], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode != 0 else ""


def build(env, folder, name):
    """The object of a selftest, or None where it does not compile."""
    types = env.path("types")
    if not os.path.exists(types):
        os.mkdir(types)
        with open(os.path.join(types, "vmlinux.h"), "w", encoding="utf-8") as file:
            subprocess.run(["bpftool", "btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format",
                            "c"], stdout=file, check=False)
    path = env.path(name + ".o")
    fault = compile_bpf(f"{folder}/progs/{name}.c", path, f"-I{types}", f"-I{folder}/progs",
                        f"-I{folder}")
    if fault:
        env.note(f"{name} does not compile: {fault[:200]}")
        return None
    return path


@timeout(SECONDS_MAX)
def test_programs_that_exercise_maps_helpers_and_calls_do_the_same_in_both(env):
    path = env.path("oracle.o")
    fault = compile_bpf(os.path.join(HERE, "xdp", "oracle.bpf.c"), path)
    assert not fault, fault
    wrong, agreed = [], []
    for answer in compare(env, path):
        judge(env, answer["program"], answer, wrong, agreed)
    assert not wrong, "\n".join(wrong)
    assert len(agreed) >= 5, f"only these were compared: {agreed}"


@timeout(SECONDS_MAX)
def test_the_kernels_selftests_do_the_same_in_the_kernel_and_in_our_engines(env):
    folder = unpack_selftests(env)
    wrong, agreed = [], []
    for name, programs in AGREE.items():
        path = build(env, folder, name)
        if path is None:
            continue
        for program in programs:
            answer, = compare(env, path, program, IGNORED_MAPS.get(name, ()))
            judge(env, f"{name} {program}", answer, wrong, agreed)
    for name, (program, helper) in REFUSED_BY_US.items():
        path = build(env, folder, name)
        if path is not None:
            answer, = compare(env, path, program)
            if helper not in answer.get("refused", ""):
                wrong.append(f"{name} {program} was not refused for {helper}: {answer}")
    assert not wrong, "\n".join(wrong)
    assert len(agreed) >= 20, f"only these were compared: {agreed}"
