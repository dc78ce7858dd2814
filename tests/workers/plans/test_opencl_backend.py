"""Plans on OpenCL, on host memory that the device shares and on memory that is transferred."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ..own_process import ANSWER_S, ROOT, python


@pytest.mark.parametrize("memory", ["shared", "transferred"])
@pytest.mark.one_in(2)
def test_a_plan_runs_again_and_again_on_memory_that_moves(device: str, memory: str) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.workers.plans.planning", memory],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    assert found["wrong"] == 0
    assert found["constant"]
    assert "step 'relu' failed" in found["failed"]


def test_a_cpu_device_works_on_host_memory(device: str) -> None:
    code = """
from poolrt.workers.engines.opencl import *
from poolrt.workers.memory.opencl import shares_host_memory
print(dict(opencl_target().device)["type"] == "CPU", shares_host_memory(OpenClEngine()))
"""
    is_cpu, shares = python(code).split()
    assert is_cpu == shares
