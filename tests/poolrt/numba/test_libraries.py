"""Libraries that compile with Numba, after `poolrt.numba.install()`: equal results, each function compiled by one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .libraries import LIBRARIES

#: Starts a process that calls a library's functions; it ends with the test.
Starter = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    own = {"POOLRT_HOME": str(tmp_path / "home"), "POOLRT_REDIS_URL": f"unix://{tmp_path}/none.sock"}
    env = {**os.environ, **own, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    command = [sys.executable, "-m", "tests.poolrt.numba.libraries"]
    root = Path(__file__).resolve().parents[3]
    with ExitStack() as started:

        def start(*words: str) -> subprocess.Popen[str]:
            made = subprocess.Popen([*command, *words], cwd=root, env=env, stdout=subprocess.PIPE, text=True)
            started.enter_context(made)
            started.callback(made.kill)
            return made

        yield start


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(process.communicate(timeout=900)[0].splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("library", LIBRARIES)
def test_functions_of_libraries_are_compiled_once(library: str, start: Starter) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install librosa datashader pynndescent umap-learn")
    # Given two processes that call the same functions at one moment
    together = [_result(each) for each in [start(library) for _ in range(2)]]
    # When a third one calls them, then all that asks for a cache comes from the store
    warm = _result(start(library))
    created = sum(each["counts"]["created"] for each in together)
    assert created <= warm["counts"]["hits"] + 2  # a load may make others unnecessary, never necessary
    assert warm["counts"]["created"] == 0
    assert all(each["counts"]["fallbacks"] == 0 for each in [*together, warm])
    # And it compiles as little, and computes the same, as with Numba's own cache
    plain = [_result(start("--plain", library)) for _ in range(2)]
    assert warm["compilations"] <= plain[1]["compilations"]
    assert {each["digest"] for each in [*together, warm, *plain]} == {plain[0]["digest"]}
