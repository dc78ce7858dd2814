"""Reorders between engines: to a device, back, and to another one; found again whatever engines are asked with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from poolrt.cachestore import CacheStore
from tests.workers.primitives.reference.drawing import TYPES

from .processes import ANSWER_S, ROOT

BOTH = ("opencl:crossing", "native:crossing")


def run(home: Path) -> dict[str, Any]:
    seed = int.from_bytes(os.urandom(4))
    child = subprocess.run(
        [sys.executable, "-m", "tests.workers.opencl.crossing", str(home), str(seed)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert child.returncode == 0, f"seed {seed}: {child.stderr}"
    found: dict[str, Any] = json.loads(child.stdout)
    return found


def test_tensors_are_reordered_from_engine_to_engine(device: str, tmp_path: Path) -> None:
    try:
        found = run(tmp_path)
    finally:
        CacheStore.connect(home=str(tmp_path)).down()
    # Every data type, by device and by host; device and host share memory or do not
    for what, types in (("right", TYPES), ("apart", TYPES[::4])):
        expected = [f"{dtype} {name}" for dtype in types for name in BOTH]
        assert found[what] == {"there": expected, "back": expected, "across": expected}
    # Threads share primitives, and streams or not
    assert found["side by side"] == [[], []]
    # The key knows no engine, and no engine is kept
    assert found["again"] == ["created", [True, True, True], "memory", [True, True, True], 1]
    # Both engines are told, the scratchpad's, and that streams are the device's
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
        "dst_engine: expect an Engine: a reorder between two is described by (engine, src, dst_engine"
    )
    assert no_engine == "dst_engine: expect an Engine, got str"
