"""Verbose lines of what runs on OpenCL, alone and beside the processor: each execution has one, with its engine and time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.workers.verbose.lines import Line, parsed

from ..own_process import ANSWER_S, ROOT

PARTS = (
    "device, shared memory", "both engines, shared memory", "device, transferred memory",
    "both engines, transferred memory", "reorders between engines",
    "reorders that the processor computes", "the same on threads", "a primitive that others are nested in", "an executor",
)  # fmt: skip


class Part:
    """The lines of a process, and the expected ones: how often each text, within how many milliseconds."""

    def __init__(self, lines: list[Line], wanted: dict[str, int], milliseconds: float) -> None:
        self.lines = lines
        self.wanted = wanted
        self.milliseconds = milliseconds


@pytest.fixture(scope="module")
def parts(device: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Part]:
    """Return the lines of one process by part."""
    command = [sys.executable, "-m", "tests.workers.verbose.opencl_lines", str(tmp_path_factory.mktemp("home"))]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    assert child.returncode == 0, child.stderr
    found, written = {}, child.stderr
    for answer in child.stdout.splitlines():
        name, *facts = json.loads(answer)
        mine, _, written = written.partition(f"{name}\n")
        found[name] = Part(parsed(mine), *facts)
    assert not written
    return found


@pytest.mark.parametrize("name", PARTS)
def test_every_execution_has_one_line_and_their_times_lie_within_the_time_that_passed(
    name: str, parts: dict[str, Part]
) -> None:
    part = parts[name]
    assert {line.operation for line in part.lines} == {"exec"}
    assert Counter(line.text for line in part.lines) == part.wanted
    assert all(line.milliseconds > 0 for line in part.lines)
    assert sum(line.milliseconds for line in part.lines) <= part.milliseconds


def test_lines_name_the_engines_that_computed(parts: dict[str, Part]) -> None:
    engines = {name: {line.fields[0] for line in part.lines} for name, part in parts.items()}
    both, device, crossed = {"cpu", "opencl"}, {"opencl"}, {"cpu2opencl", "opencl2cpu"}
    assert engines == dict(
        zip(PARTS, (device, both, device, both, crossed, crossed, crossed, device, both), strict=True)
    )
