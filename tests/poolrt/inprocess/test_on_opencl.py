"""Graphs run in one process on an OpenCL device, and on it and the host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.workers.own_process import ANSWER_S, ROOT


def test_graphs_on_a_device_and_across_it_and_the_host_are_right_and_make_nothing_twice(
    device: str, tmp_path: Path
) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.poolrt.inprocess.opencl", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout) == {
        "interleaved": {"right": True, "created": 0},
        "on the host": {"right": True, "created": 0},
        "on the device": {"right": True, "created": 0},
    }
