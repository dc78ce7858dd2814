"""Functions of Numba in a warm process: loaded, not compiled, without a store, and as soon as Numba's own cache."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .conftest import Importer

_FUNCTIONS = """
@DECORATOR
def helper(x, n):
    return x * n + 1.0
@DECORATOR
def f(x, n):
    total = 0.0
    for i in range(x.shape[0]):
        total += helper(x[i], n)
    return total
"""
OURS = "import poolrt" + _FUNCTIONS.replace("DECORATOR", "poolrt.njit")
NUMBAS = "import numba" + _FUNCTIONS.replace("DECORATOR", "numba.njit(cache=True)")

#: Calls `f` of the module `warm_user` in a folder, and prints the seconds, Numba's events and what was loaded.
_CALL = """
import json, sys, time
import numpy as np
import numba
from numba.core.event import install_recorder
sys.path.insert(0, sys.argv[1])
def waited():
    # Seconds that this thread has been ready and another one had the processor
    with open("/proc/thread-self/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9
with install_recorder("numba:compile") as compilations, install_recorder("numba:run_pass") as passes:
    begin = time.perf_counter() - waited()
    import warm_user
    result = warm_user.f(np.ones(4), 2.0)
    took = time.perf_counter() - waited() - begin
loaded = [name for name in sys.modules if name.startswith("poolrt")]
hits = sum(warm_user.f.stats.cache_hits.values())
print(json.dumps([result, took, len(compilations.buffer), len(passes.buffer), hits, loaded]))
"""


def _call(folder: Path) -> tuple[float, float, int, int, int, list[str]]:
    # Numba's cache is beside the module, and is made again if the module's file is newer.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", _CALL, str(folder)],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result, took, compilations, passes, hits, loaded = json.loads(done.stdout)
    return result, took, compilations, passes, hits, loaded


def test_a_warm_function_runs_no_pass_of_the_compiler_and_opens_no_store(
    home: Path, imported: Importer, tmp_path: Path
) -> None:
    module = imported(warm_user=OURS)
    assert module.f(np.ones(4), 2.0) == 12.0
    result, _, compilations, passes, hits, loaded = _call(tmp_path / "modules")
    assert (result, compilations, passes, hits) == (12.0, 0, 0, 1)
    assert {"poolrt.cachestore.store", "poolrt.cachestore.components", "poolrt.settings"}.isdisjoint(loaded)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_warm_function_is_as_soon_as_with_numbas_cache(home: Path, tmp_path: Path) -> None:
    folders = {"ours": tmp_path / "ours", "numbas": tmp_path / "numbas"}
    for name, text in (("ours", OURS), ("numbas", NUMBAS)):
        folders[name].mkdir()
        (folders[name] / "warm_user.py").write_text(text)
        assert _call(folders[name])[2] > 0  # the cold one
    # In turn, so that what else the machine does meets both; more often on a busy machine
    took: dict[str, list[float]] = {"ours": [], "numbas": []}
    ratio = math.inf
    while len(took["ours"]) < 5 or (ratio > 1.1 and len(took["ours"]) < 15):
        for name, folder in folders.items():
            result, seconds, compilations, passes, _, _ = _call(folder)
            assert (result, compilations, passes) == (12.0, 0, 0)
            took[name].append(seconds)
        ratio = statistics.median(ours / theirs for ours, theirs in zip(took["ours"], took["numbas"], strict=True))
    print(f"\nmedian of ours: {1e3 * statistics.median(took['ours']):.0f} ms, {ratio:.2f} of Numba's")
    assert ratio <= 1.1


def test_numbas_classes_are_told_apart_as_isinstance_does() -> None:
    from numba import njit, types
    from numba.core import registry

    from poolrt.numba.internals import is_of

    values = [
        types.int64,
        types.float32[::1],
        types.literal(3),
        types.Omitted(1),
        types.UniTuple(types.int8, 2),
        3,
        "text",
    ]
    values += [njit(lambda x: x), registry.cpu_target, types.Module(math), None]
    kinds = [types.Type, types.Literal, types.Omitted, types.Array, types.Module, types.Dispatcher, types.StructRef]
    for value in values:
        for kind in kinds:
            assert is_of(value, kind) == isinstance(value, kind)
        assert is_of(value, types.Literal, types.Module) == isinstance(value, (types.Literal, types.Module))
