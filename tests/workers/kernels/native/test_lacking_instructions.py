"""Programs that tests start have the instructions that a variable names, and compute with them on any host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.workers.compiled import STARTUP
from tests.workers.levels import EVERYTHING

PROGRAM = """
import numpy as np
import poolrt
from poolrt.workers.engines.target import cpu_target

graph = poolrt.Graph()
x = graph.input("x", (5, 37))
graph.output("y", graph.softmax(x, axis=1))
given = np.random.default_rng().standard_normal((5, 37), np.float32)
found = poolrt.Executor(graph).run(x=given)["y"]
powers = np.exp(given.astype(np.float64))
assert np.abs(found - powers / powers.sum(1, keepdims=True)).max() < 1e-6
print(cpu_target().instructions)
"""


def test_a_program_computes_with_instructions_that_its_host_may_lack(tmp_path: Path) -> None:
    environment = {**os.environ, "INSTRUCTIONS_OF_TESTS": EVERYTHING, "PYTHONPATH": STARTUP}
    # A home of its own, and no Redis.
    environment |= {"POOLRT_HOME": str(tmp_path), "POOLRT_REDIS_URL": f"unix://{tmp_path}/none.sock"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stdout.strip()) == (0, EVERYTHING), done.stderr
