"""Numba's own tests, with poolrt's caches in place of Numba's, and with every function in the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

UFUNCS: Final = (
    "ufuncbuilding",
    "vectorize_decor",
    "gufunc",
    "errors",
    "ufunc",
    "update_inplace",
    "parallel_env_variable",
    "parallel_low_work",
    "parallel_ufunc_issues",
)
#: Seconds for one run of Numba's tests: a guard, for a machine that is busy with other things, too.
_LIMIT_S: Final = 1800
#: Classes of parfors that take seconds. Those of NumPy's functions, slices, and further ranges take minutes.
PARFORS: Final = (
    "TestParforBasic",
    "TestParforNumericalMisc",
    "TestParforsBitMask",
    "TestParforsDiagnostics",
    "TestParforsLeaks",
    "TestParforsOptions",
    "TestParforsVectorizer",
    "TestParforChunksizing",
    "TestParforReductionSetNumThreads",
)
#: Family -> Numba's tests, which run with every function in the store.
FAMILIES: Final = {
    "dispatcher": (
        "test_dispatcher",
        "test_literal_dispatch",
        "test_vectorization",
        "test_vectorization_type_inference",
    ),
    "first-class functions": ("test_function_type", "test_closure", "test_generators"),
    "vectorize and guvectorize": tuple(f"npyufunc.test_{name}" for name in UFUNCS),
    "ufuncs in functions": tuple(f"npyufunc.test_dufunc.TestDUFunc{name}" for name in ("", "Pickling", "Reduce")),
    "parfors": ("test_parfors_passes", *(f"test_parfors.{name}" for name in PARFORS)),
    "parallel ranges": ("test_parfors.TestPrangeBasic",),
    "array expressions": ("test_array_exprs",),
    "stencils": ("test_stencils.TestStencil",),
    "contexts": ("test_withlifting", "test_object_mode"),
    "extensions": ("test_extending",),
}


def _run(*words: str) -> dict[str, Any]:
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "tests.poolrt.numba.upstream", *words]
    # Numba skips its tests of parfors without this variable, and runs each class in a process with it.
    env = {**os.environ, "SUBPROC_TEST": "1"}
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=_LIMIT_S, env=env, check=False)
    assert done.stdout, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == [], done.stderr[-4000:]
    assert found["counts"]["fallbacks"] == 0
    return found


def _named(*names: str) -> list[str]:
    return [f"numba.tests.{name}" for name in names]


@pytest.mark.slow
def test_numbas_tests_of_recursion_pass_with_every_function_in_the_store() -> None:
    found = _run("--all", *_named("test_recursion"))
    assert found["run"] >= 15
    assert found["counts"]["created"] >= 10


@pytest.mark.slow
@pytest.mark.timeout(2 * _LIMIT_S)
def test_numbas_tests_of_its_cache_pass_but_for_those_of_its_files() -> None:
    found = _run(*_named("test_caching", "npyufunc.test_caching", "test_parfors_caching"))
    assert found["run"] >= 55
    assert found["excluded"] <= 7
    assert found["counts"]["created"] > 60
    assert found["counts"]["hits"] > 30


@pytest.mark.slow
@pytest.mark.timeout(2 * _LIMIT_S)
@pytest.mark.parametrize("family", FAMILIES)
def test_numbas_tests_pass_with_every_function_in_the_store(family: str) -> None:
    found = _run("--all", *_named(*FAMILIES[family]))
    assert found["run"] > 10
    assert found["counts"]["created"] > 10


@pytest.mark.slow
@pytest.mark.timeout(2 * _LIMIT_S)
def test_numbas_tests_pass_with_functions_that_another_process_compiled(tmp_path: Path) -> None:
    names = _named("test_recursion", "test_dispatcher.TestDispatcherMethods", "npyufunc.test_gufunc")
    words = ["--all", "--home", str(tmp_path / "home"), *names]
    created = _run(*words)["counts"]["created"]
    again = _run(*words)["counts"]
    assert again["created"] < created / 10
    assert again["hits"] > created / 2
