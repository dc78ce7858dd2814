"""Plans for the processor and a device at once, on host memory that is shared and on memory that is transferred."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.poolrt.graph.every_operation import OPERATIONS

from ..own_process import ANSWER_S, ROOT

#: Operations whose plans have what no others have: several outputs, no floats, views, weights that are reordered, states.
SOME = ("reduction", "comparison", "slices of a blocked tensor", "expand", "matmul of slices", "lstm")


def mixing(*what: str) -> dict[str, Any]:
    """Return what a process finds of each graph."""
    command = [sys.executable, "-m", "tests.workers.plans.mixing", *what]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout)
    return found


@pytest.mark.parametrize("memory", ["shared", "transferred"])
@pytest.mark.one_in(2)
def test_steps_on_both_engines_compute_together_again_and_again(device: str, memory: str) -> None:
    found = mixing(memory)
    assert len(found) == 4
    for name, figures in found.items():
        assert figures["error"] < 1e-4, name
        assert figures["reorders"] >= 2, name
        # Where host and device share memory, a reorder between them copies nothing.
        assert figures["copies"] == (0 if memory == "shared" else figures["reorders"]), name


@pytest.mark.parametrize("names", [SOME, pytest.param(tuple(OPERATIONS), marks=pytest.mark.slow)], ids=["some", "all"])
def test_a_device_computes_every_operation_of_a_graph(device: str, names: tuple[str, ...]) -> None:
    found = mixing("operations", *names)
    assert set(found) == set(names)
    assert all(figures["engines"] == ["opencl:0"] for figures in found.values())
    assert max(figures["error"] for figures in found.values()) < 2e-5
