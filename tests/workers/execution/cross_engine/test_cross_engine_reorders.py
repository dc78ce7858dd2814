"""Reorders between engines: to a device, back, and to another one; found again with any engine objects.

`execute` never waits, on streams of devices and on those of threadpools.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore
from tests.workers.implementations.reference.drawing import TYPES
from tests.workers.threadpools.kinds import KINDS

from ...own_process import ANSWER_S, ROOT

BOTH = ("opencl:cross_engine", "native:cross_engine")


def run(home: Path, parts: int) -> dict[str, Any]:
    seed = int.from_bytes(os.urandom(4))
    child = subprocess.run(
        [sys.executable, "-m", "tests.workers.execution.cross_engine.reorders", str(home), str(seed), str(parts)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert child.returncode == 0, f"seed {seed}: {child.stderr}"
    found: dict[str, Any] = json.loads(child.stdout)
    return found


@pytest.mark.parametrize("parts", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_tensors_are_reordered_from_engine_to_engine(device: str, parts: int, tmp_path: Path) -> None:
    try:
        found = run(tmp_path, parts)
    finally:
        CacheStore.connect(home=str(tmp_path)).down()
    # Every data type, by device and by host; device and host share memory or do not
    for what, types in (("right", TYPES), ("apart", TYPES[::4])):
        assert found[what] == {
            route: [f"{dtype} {name}" for dtype in types[part % parts :: parts] for name in BOTH]
            for part, route in enumerate(("there", "back", "across"))
        }
    # Threads share primitives, and streams or not
    assert found["side by side"] == [[], []]
    # The key knows no engine, and no engine is kept
    assert found["again"] == ["created", [True, True, True], "memory", [True, True, True], 1]
    # A query returns both engines, the scratchpad's, and that streams are the device's
    assert found["queries"] == {
        f"{kind} {name}": [True, name.partition(":")[0].replace("native", "cpu"), True, True]
        for kind in ("cpu", "opencl")
        for name in BOTH
    }
    stream, source, target, other, kinds, no_engine = found["refused"]
    assert stream == "stream: expect one on Engine('opencl', 0), got one on Engine('cpu', 0)"
    assert source.startswith(
        "argument 1 (SRC): expect memory on Engine('cpu', 0), got Memory(f32:ab:2x3, Engine('opencl'"
    )
    assert target.startswith(
        "argument 17 (DST): expect memory on Engine('opencl', 0), got Memory(f32:ba:2x3, Engine('cpu'"
    )
    assert other.endswith(", on another engine of the same device")
    assert kinds.startswith(
        "dst_engine: expect an Engine: describe a reorder between two engines by (engine, src, dst_engine"
    )
    assert no_engine == "dst_engine: expect an Engine, got str"
    assert_streams(found["streams"])


def assert_streams(found: dict[str, Any]) -> None:
    # Every threadpool, in order with what came before, from its tasks too
    assert found["pools"] == [f"{kind} {threads}" for kind in KINDS for threads in (1, 2)]
    # Nothing is written before a wait, or before the device's stream is free; all is right then
    assert found["held back"] == [True, True]
    assert found["held up"] == [[True] * 5] * 2
    # Streams that are let go of come to an end
    assert found["mixed"] == [True] * 4
    # Failures are raised by the wait, or at once by a synchronous pool
    assert found["failures"] == [
        "wait: native:cross_engine", "execute: native:cross_engine", "wait: native:cross_engine", "wait: opencl:cross_engine",
    ]  # fmt: skip
    gpu, cpu = "Engine('opencl', 0)", "Engine('cpu', 0)"
    other = f"got one on {gpu}, another engine of the same device"
    either = f"stream: expect one on {gpu} or on one of kind cpu, {other}"
    assert found["refused"] == [
        either,
        f"stream: expect one on {gpu}, {other}",
        f"stream: expect one on {gpu}, got one on {cpu}",
        either,
        either,
        f"stream: expect one on {cpu}, got one on {gpu}",
        "stream: expect a Stream, got Engine",
    ]
    # On a stream of a CPU only what the CPU computes is offered
    assert found["offered"] == {
        f"{name} {kind}": ["native:cross_engine"] if kind == "cpu" else list(BOTH)
        for name in ("there", "across")
        for kind in ("cpu", "opencl")
    }
