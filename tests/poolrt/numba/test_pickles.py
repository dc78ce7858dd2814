"""Functions that travel to other processes as pickles: they share the store there too."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import poolrt

from .conftest import Importer

#: Calls what it reads, as a worker of another library would, and prints what the calls returned and the counts.
_READER = """
import json, pickle, sys
call, in_module = pickle.load(sys.stdin.buffer)
results = call()
import poolrt.numba
print(json.dumps({"results": results, **poolrt.numba.stats(), "module": type(in_module).__name__}))
"""


@pytest.mark.slow
def test_functions_that_travel_are_found_in_the_store_by_the_process_that_gets_them(
    home: Path, imported: Importer, tmp_path: Path
) -> None:
    factor = 3.0

    @poolrt.njit
    def inner(value: Any) -> Any:
        return value * factor

    @poolrt.njit
    def lazy(a: Any) -> Any:
        return inner(a[0]) + 1.0

    @poolrt.njit("float64(float64)")  # type: ignore[untyped-decorator]
    def eager(value: Any) -> Any:
        return value + factor

    @poolrt.vectorize
    def each(value: Any) -> Any:
        return value * factor

    @poolrt.guvectorize(["void(float64[:], float64[:])"], "(n)->()")  # type: ignore[untyped-decorator]
    def summed(a: Any, result: Any) -> None:
        result[0] = a.sum() * factor

    @poolrt.kernel("void(f8[::1])")
    def native(a: Any) -> None:
        for i in range(a.shape[0]):
            a[i] *= 2.0

    def call() -> list[float]:
        a = np.ones(4)
        native(a)
        b = np.ones(4)
        return [float(lazy(a)), float(eager(1.0)), float(each(b)[0]), float(summed(b)), float(a[0])]

    module = imported(named="import poolrt\n@poolrt.kernel('void(f8[::1])')\ndef twice(a):\n    a[0] *= 2.0\n")
    # Given functions that this process has created, all but the ufunc
    a = np.ones(4)
    native(a)
    expected = [7.0, 4.0, 3.0, 12.0, 2.0]
    assert [lazy(2 * a / 2), eager(1.0), 3.0, summed(np.ones(4)), a[0]] == expected
    # Then they are the same ones here, and so are those of modules, by name
    assert pickle.loads(pickle.dumps(lazy)) is lazy  # noqa: S301
    assert pickle.loads(pickle.dumps(module.twice)) is module.twice  # noqa: S301
    assert cloudpickle.loads(cloudpickle.dumps(native)).key() == native.key()
    # When another process calls them
    done = subprocess.run(
        [sys.executable, "-c", _READER],
        input=cloudpickle.dumps((call, module.twice)),
        capture_output=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "modules")},
    )
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    # Then it compiles the ufunc only, for all
    assert found["results"] == expected
    assert found["module"] == "Kernel"
    assert [found[name] for name in ("created", "fallbacks", "unshared", "failed")] == [1, 0, 0, 0]
    assert found["hits"] >= 3
