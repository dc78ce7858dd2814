"""Functions of a script in its children: multiprocessing gives the main module another name there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import poolrt
from poolrt.numba.fingerprint import Fingerprint

#: Calls its functions in a child first, or in itself first, and prints the counts of both, the first one first.
_SCRIPT = """
import json, multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import numba, numpy as np
import poolrt

BIAS = 2.0

@numba.njit
def plain(x):
    return x + BIAS

@poolrt.njit
def shared(x):
    return plain(x) * 2

@poolrt.kernel("void(f8[::1])")
def kernel(x):
    x[0] = x[0] + BIAS

def call():
    x = np.ones(1)
    kernel(x)
    assert (shared(1.0), x[0]) == (6.0, 3.0)
    return poolrt.numba.stats(), poolrt.kernels.stats()

if __name__ == "__main__":
    found = [call()] if sys.argv[2] == "parent" else []
    with ProcessPoolExecutor(1, multiprocessing.get_context(sys.argv[1])) as processes:
        found.append(processes.submit(call).result(60))
    if len(found) < 2:
        found.append(call())
    print(json.dumps(found))
"""


def _function(module: str) -> FunctionType:
    names: dict[str, Any] = {"__name__": module}
    exec("def inner(x):\n    return x\ndef f(x):\n    x[0] = inner(x[0])\n", names)
    found: FunctionType = names["f"]
    return found


def test_the_main_module_of_a_child_is_the_main_module() -> None:
    parent, child = _function("__main__"), _function("__mp_main__")
    assert Fingerprint(child).name == "__main__.f"
    assert Fingerprint(child).callees == Fingerprint(parent).callees
    kernels = [poolrt.kernel("void(f8[::1])")(function) for function in (parent, child)]
    assert kernels[0].key() == kernels[1].key()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("first", ["parent", "child"])
def test_a_script_and_its_children_compile_once(home: Path, tmp_path: Path, method: str, first: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    done = subprocess.run(
        [sys.executable, script, method, first],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (functions, kernels), (later_functions, later_kernels) = json.loads(done.stdout)
    assert (functions["created"], kernels["created"]) == (1, 1)
    assert (later_functions["hits"], later_kernels["hits"]) == (1, 1)
    assert later_functions["created"] + later_functions["fallbacks"] + later_kernels["created"] == 0
