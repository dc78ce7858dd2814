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
from typing import Any, Final

import pytest

from poolrt.cachestore import CacheStore

from .libraries import LIBRARIES

#: Seconds for one process: a guard, for a machine that is busy with other things, too.
_LIMIT_S: Final = 1800
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
    found: dict[str, Any] = json.loads(process.communicate(timeout=_LIMIT_S)[0].splitlines()[-1])
    return found


def _creations(home: Path) -> int:
    """Return how many functions a store holds, without the wrappers of generalized ufuncs, and how many were taken over.

    On a machine that is too busy, a creator may be silent for a lease's term: another one then creates the same.
    """
    with CacheStore.connect(f"unix://{home}/none.sock", home=str(home), read_only=True) as store:
        functions = sum(entry.key is not None and "wrapper" not in entry.key.fields for entry in store.entries())
        return functions + store.stats()["takeovers"]


@pytest.mark.slow
@pytest.mark.timeout(2 * _LIMIT_S)
@pytest.mark.parametrize("library", LIBRARIES)
def test_functions_of_libraries_are_compiled_once(library: str, start: Starter, tmp_path: Path) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install librosa datashader pynndescent umap-learn")
    # Given two processes that call the same functions at one moment, then each entry was created once
    first, second, plain_first = start(library), start(library), start("--plain", library)
    together, plain = [_result(first), _result(second)], [_result(plain_first)]
    created = sum(each["counts"]["created"] for each in together)
    assert created == _creations(tmp_path / "home")
    # When a third one calls them, then all that asks for a cache comes from the store
    last, plain_last = start(library), start("--plain", library)
    warm, plain = _result(last), [*plain, _result(plain_last)]
    assert warm["counts"]["created"] == 0
    assert warm["counts"]["hits"] > 0
    assert all(each["counts"]["fallbacks"] == 0 for each in [*together, warm])
    # And it compiles as little, and computes the same, as with Numba's own cache
    assert warm["compilations"] <= plain[1]["compilations"]
    assert {each["digest"] for each in [*together, warm, *plain]} == {plain[0]["digest"]}
    print([[each["compilations"], each.get("counts")] for each in [*together, warm, *plain]])
