"""Primitives of a process on OpenCL: many threads and streams, and found again with a new context and a new process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..own_process import ANSWER_S, ROOT


def run(home: Path) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-m", "tests.workers.primitives.on_opencl", str(home)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout)
    return found


def test_a_primitive_outlives_its_engine_and_is_shared_by_threads_and_streams(device: str, tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found["wrong"] == [[[], []], []]
    assert (found["library"], found["user"]) == ([False, "created"], [True, "derived"])
    assert found["held"]
    assert found["gone"] == [True, True]
    assert found["again"] == ["memory", True]
    assert found["creations"] == 1
    stream, source, host = found["refused"]
    assert stream.startswith("stream: expect one on the primitive's Engine('opencl', 0), got one on another engine, ")
    assert source.startswith("argument 1 (SRC): expect memory on Engine('opencl', 0), got Memory(f32:abcd:1x32x6x6")
    assert host == "argument 1 (SRC): expect memory on Engine('opencl', 0), got Memory(f32:abcd:1x32x6x6)"
    # A new process creates nothing
    again = run(tmp_path)
    assert (again["library"][1], again["user"][1], again["creations"]) == ("files", "derived", 1)
