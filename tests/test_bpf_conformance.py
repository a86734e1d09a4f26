"""The public BPF conformance suite's programs, through the compiler and both interpreters.

The vectors are test data of that suite and are not part of this project. SLUICE_BPF_VECTORS names
the file: a line a program, with tabs between name, instruction set, groups, memory, instructions
(both in hexadecimal) and what r0 must be at the end.
"""

import os
import subprocess

from lib import Skip, timeout

HERE = os.path.dirname(os.path.abspath(__file__))
BESIDE = os.path.join(HERE, "..", "..", "shared", "bpf-conformance", "vectors.tsv")


def run_vector(plugin, engine, memory, program):
    """What the plugin printed as a number, or why it printed none."""
    words = [plugin, *([memory] if memory else []), engine]
    done = subprocess.run(words, input=program, capture_output=True, text=True, timeout=20,
                          check=False)
    return int(done.stdout, 16) if done.returncode == 0 else done.stderr.strip()


@timeout(300)
def test_every_conformance_vector_ends_as_it_should_in_every_engine(env):
    path = os.environ.get("SLUICE_BPF_VECTORS", BESIDE)
    if not os.path.exists(path):
        raise Skip("the conformance vectors are not here: set SLUICE_BPF_VECTORS")
    plugin = os.path.join(os.path.dirname(env.sluice), "bpf_conformance_plugin")
    with open(path, encoding="ascii") as file:
        vectors = [line.rstrip("\n").split("\t") for line in file]
    assert len(vectors) > 300, f"only {len(vectors)} vectors in {path}"
    wrong = []
    for name, _cpu, _groups, memory, program, expected in vectors:
        for engine in ("--jit", "--interpret", "--checked"):
            got = run_vector(plugin, engine, memory, program)
            if got != int(expected, 16):
                wrong.append(f"{name} {engine}: {got!r} instead of {expected}")
    assert not wrong, "\n".join(wrong)
