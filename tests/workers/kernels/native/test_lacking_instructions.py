"""Programs that tests start have the instructions that a variable names, and compute with them on any host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers.compiled import STARTUP
from tests.workers.levels import EVERYTHING

from .tile_emulator import can_be_emulated

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

#: A product in f32 whose factors may be rounded to bf16, in this process and in workers, which are other processes.
TILES = """
import numpy as np
import poolrt

rng = np.random.default_rng()
graph = poolrt.Graph("product", fpmath_mode="bf16")
x, weights = rng.standard_normal((40, 70), np.float32), rng.standard_normal((70, 50), np.float32)
graph.output("y", graph.matmul(graph.input("x", x.shape), weights))

def rounded(values):
    bits = values.view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)

a, b = rounded(x), rounded(weights)
bound = 72 * 2.0**-24 * (np.abs(a) @ np.abs(b))
with poolrt.Pool(workers=2) as pool:
    model = pool.load(graph)
    results = [poolrt.Executor(graph).run(x=x), *(each.result() for each in [model.submit(x=x) for _ in range(8)])]
for found in results:
    assert (np.abs(found["y"] - a @ b) <= bound).all()
"""


def run(program: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program on a processor with everything, with a home of its own and without Redis."""
    environment = {**os.environ, "INSTRUCTIONS_OF_TESTS": EVERYTHING, "PYTHONPATH": STARTUP, **variables}
    environment |= {"POOLRT_HOME": str(home), "POOLRT_REDIS_URL": f"unix://{home}/none.sock", "POOLRT_MAX_CPU_ISA": ""}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.mark.skipif(not can_be_emulated(), reason="needs gcc or a processor with AMX")
def test_workers_compute_with_tiles_that_their_host_may_lack(tmp_path: Path) -> None:
    done = run(TILES, tmp_path, POOLRT_VERBOSE="1")
    assert done.returncode == 0, done.stderr
    lines = [
        line for line in (done.stdout + done.stderr).splitlines() if ",exec," in line and ",inner_product," in line
    ]
    assert len(lines) == 9
    assert all(",native:amx_bf16," in line for line in lines), lines


@pytest.mark.skipif(not can_be_emulated(), reason="needs gcc or a processor with AMX")
def test_a_program_computes_with_instructions_that_its_host_may_lack(tmp_path: Path) -> None:
    done = run(PROGRAM, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, EVERYTHING), done.stderr
