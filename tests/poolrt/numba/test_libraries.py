"""Libraries that compile with Numba, after `poolrt.numba.install()`: equal results, each function compiled by one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .libraries import LIBRARIES


def _start(library: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    own = {"POOLRT_HOME": str(folder / "home"), "POOLRT_REDIS_URL": f"unix://{folder}/none.sock"}
    env = {**os.environ, **own, "NUMBA_CACHE_DIR": str(folder / "numba")}
    command = [sys.executable, "-m", "tests.poolrt.numba.libraries", *words, library]
    root = Path(__file__).resolve().parents[3]
    return subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(process.communicate(timeout=280)[0].splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("library", LIBRARIES)
def test_functions_of_libraries_are_compiled_once(library: str, tmp_path: Path) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install librosa datashader pynndescent umap-learn")
    # Given two processes that call the same functions at one moment
    together = [_result(each) for each in [_start(library, tmp_path) for _ in range(2)]]
    # When a third one calls them, then all that asks for a cache comes from the store
    warm = _result(_start(library, tmp_path))
    created = sum(each["counts"]["created"] for each in together)
    assert created <= warm["counts"]["hits"] + 2  # a load may make others unnecessary, never necessary
    assert warm["counts"]["created"] == 0
    assert all(each["counts"]["fallbacks"] == 0 for each in [*together, warm])
    # And it compiles as little, and computes the same, as with Numba's own cache
    plain = [_result(_start(library, tmp_path, "--plain")) for _ in range(2)]
    assert warm["compilations"] <= plain[1]["compilations"]
    assert {each["digest"] for each in [*together, warm, *plain]} == {plain[0]["digest"]}
