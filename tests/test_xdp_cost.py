"""What a compiled XDP program costs, beside the same C compiled by our own compiler and called
through the same loop. Counted in instructions, which are the same on a busy machine."""

import json
import os
import re
import shutil

from lib import Skip, each, timeout

RATIO_MAX = 1.3
FRAMES_A_ROUND = 4096
ROUNDS = (2, 12)  # what is the same in both is set-up


def instructions_a_frame(env, program, engine):
    tool = os.path.join(os.path.dirname(env.sluice), "xdp_run_cost")
    counts = []
    for rounds in ROUNDS:
        done = env.run(["valgrind", "--tool=callgrind",
                        "--callgrind-out-file=" + env.path("callgrind.out"), tool, "--program",
                        program, "--engine", engine, "--rounds", str(rounds)],
                       check=False, timeout=120)
        if done.returncode == 77:
            raise Skip("no memory below 4 GiB is free here")
        found = re.search(r"Collected : (\d+)", done.stderr)
        assert done.returncode == 0 and found, done.stderr[-1000:]
        assert json.loads(done.stdout)["frames"] == rounds * FRAMES_A_ROUND
        counts.append(int(found.group(1)))
    return (counts[1] - counts[0]) / ((ROUNDS[1] - ROUNDS[0]) * FRAMES_A_ROUND)


@each(drop="drop", count="count", lookup="lookup")
@timeout(600)
def test_a_compiled_program_takes_few_more_instructions_than_native_code(env, program):
    if shutil.which("valgrind") is None:
        raise Skip("valgrind is not installed")
    if os.uname().machine != "x86_64":
        raise Skip("there is no compiler for this processor")
    native = instructions_a_frame(env, program, "native")
    compiled = instructions_a_frame(env, program, "compiled")
    env.note(f"{program}: {compiled:.0f} instructions a frame, native {native:.0f}")
    assert compiled <= RATIO_MAX * native, f"{compiled:.0f} instructions, native {native:.0f}"
