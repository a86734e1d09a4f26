"""Our driver side against our device side of a ring, in two threads: `ring_stress`.

Nothing is lost, nothing comes twice, and no wake-up is missed, for many more chains than the unit
tests have time for."""

import json
import os

from lib import each, read_text, timeout

SECONDS_MAX = 3000


@each(split="split", packed="packed")
@timeout(SECONDS_MAX + 10)
def test_two_threads_exchange_chains_without_a_loss_or_a_stall(env, ring_format):
    program = os.path.join(os.path.dirname(env.sluice), "ring_stress")
    assert os.access(program, os.X_OK), f"no program at {program}: run `make build`"
    chains = 50_000_000 if env.full else 2_000_000
    process = env.popen([program, "--chains", str(chains), "--format", ring_format])
    status = process.wait(SECONDS_MAX)
    lines = read_text(process.log_path).strip().splitlines()
    assert status == 0, f"ring_stress ended with {status}: {lines[-2:]}"
    figures = json.loads(lines[-1])
    assert figures[ring_format] == chains, f"{chains} chains were asked for: {figures}"
    assert figures["kicks"] and figures["interrupts"], f"nobody was ever woken: {figures}"
    env.note(f"{figures}")
