"""Resources on OpenCL: programs realized once an engine, constants in its memory, and nothing of it in what is cached."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from poolrt.cachestore import CacheStore

from ..own_process import ANSWER_S, ROOT
from .constants import CHANNELS


def test_what_belongs_to_an_engine_is_made_once_for_it_and_is_never_cached(device: str, tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.workers.execution.on_opencl", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    CacheStore.connect(home=str(tmp_path)).down()
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout)
    # Executed four times on each of two engines, twice nested in another primitive
    assert found["right"] == [True] * 8
    assert found["realized"] == [1, 1, 1, 1]
    assert found["nested"] == [True, "ref:reorder"]
    # Alone and nested it has one resource within a mapper, with constants in a buffer of each engine
    assert found["shared"] == [True, 1, True]
    assert found["gone"]
    # 100 equal convolutions have one set of constants on the device, released with the last of them
    *right, places, nbytes = found["convolutions"]
    assert (right, places) == ([True, True], 1)
    assert 4 * CHANNELS < nbytes < 8 * CHANNELS
    assert found["released"] == [0, 0]
    # What is cached leads to nothing but data
    assert found["data"]
