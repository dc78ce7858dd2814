"""CPython 3.11's tests of process pools, run on a pool: 59 tests, with a list of those that it does not pass and why."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
import unittest
from concurrent import futures
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from poolrt.errors import RemoteTraceback

from .cpython_executor import Context, PoolExecutor

#: CPython's module, where Debian has it, or this Python.
_MODULE = "test_concurrent_futures"
_FOLDERS = Path("/usr/lib/python3.11/test"), Path(os.__file__).with_name("test")
_FOLDER = next((folder for folder in _FOLDERS if (folder / f"{_MODULE}.py").exists()), _FOLDERS[0])
#: Test -> why a pool does not pass it.
EXCEPTIONS = {
    "Executor.test_killed_child": "a pool replaces a worker that was killed and accepts further functions",
    "Executor.test_max_tasks_per_child_defaults_to_spawn_context": "a pool has no start methods",
    "Executor.test_max_workers_too_large": "it is a test for Windows, skipped elsewhere",
}
#: Run in each `make test`.
_QUICK = ("Executor.test_submit_keyword",)
#: Base class in CPython's module -> number of its tests.
_BASES = {
    "InitializerMixin": 1,
    "FailingInitializerMixin": 1,
    "ProcessPoolShutdownTest": 10,
    "WaitTests": 8,
    "AsCompletedTests": 5,
    "ProcessPoolExecutorTest": 20,
    "ExecutorDeadlockTest": 14,
}


@cache
def _suites() -> dict[str, type[unittest.TestCase]]:
    """Return CPython's test classes by their short names, with a pool in the place of ProcessPoolExecutor."""
    spec = importlib.util.spec_from_file_location(_MODULE, _FOLDER / f"{_MODULE}.py")
    if (
        sys.version_info[:2] != (3, 11)
        or spec is None
        or spec.loader is None
        or not (_FOLDER / f"{_MODULE}.py").exists()
    ):
        return {}
    theirs: Any = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(theirs)
    except ImportError:
        return {}  # without the package `test.support`
    sys.modules[_MODULE] = theirs
    namespace = types.SimpleNamespace(**vars(futures))
    # Not the same class: one test is skipped for ProcessPoolExecutor.
    namespace.ProcessPoolExecutor = type("OtherExecutor", (PoolExecutor,), {})
    namespace.process = types.SimpleNamespace(_RemoteTraceback=RemoteTraceback)
    theirs.futures = namespace
    theirs.assert_python_ok = _assert_python_ok

    class PoolMixin(theirs.ExecutorMixin):  # type: ignore[misc]
        executor_type = PoolExecutor
        ctx = "forkserver"

        def get_context(self) -> Context:
            context = Context()
            self.addCleanup(context.close)
            return context

    found = {}
    for name in _BASES:
        short = name.removesuffix("Mixin").removesuffix("Tests").removesuffix("Test").removeprefix("ProcessPool")
        bases = (getattr(theirs, name), PoolMixin, theirs.BaseTestCase)
        found[short.removeprefix("Executor") or "Executor"] = type(short, bases, {})
    return found


def _assert_python_ok(option: str, code: str) -> Any:
    """Run a program of the tests. One of them uses `multiprocessing`, which it does not import."""
    script_helper: Any = importlib.import_module("test.support.script_helper")

    code = code.replace("from concurrent.futures import", f"from {PoolExecutor.__module__} import")
    code = "import multiprocessing\n" + code.replace("from test.test_concurrent", "from test_concurrent")
    path = f"{Path(__file__).parents[3]}{os.pathsep}{_FOLDER}"
    return script_helper.assert_python_ok(option, code, **{**os.environ, "PYTHONPATH": path})


def _names() -> list[Any]:
    loader = unittest.TestLoader()
    names = [f"{suite}.{name}" for suite, case in _suites().items() for name in loader.getTestCaseNames(case)]
    return [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture
def environment(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"POOLRT_{name.upper()}", str(value))
    monkeypatch.setattr(sys, "path", [*sys.path, str(_FOLDER)])  # workers import the tests' functions from there


@pytest.mark.skipif(not _suites(), reason="CPython 3.11's tests are not installed (Debian: libpython3.11-testsuite)")
@pytest.mark.parametrize("name", _names())
def test_a_pool_passes_cpythons_test(name: str, environment: None) -> None:
    suite, _, method = name.partition(".")
    result = unittest.TestResult()
    _suites()[suite](method).run(result)
    problems = [text for _, text in (*result.failures, *result.errors, *result.skipped)]
    if name in EXCEPTIONS:
        assert problems, "it passes: take it off the list"
    else:
        assert not problems, problems[0]


@pytest.mark.skipif(not _suites(), reason="CPython 3.11's tests are not installed (Debian: libpython3.11-testsuite)")
def test_at_least_55_tests_are_passed() -> None:
    loader = unittest.TestLoader()
    counts = [len(loader.getTestCaseNames(case)) for case in _suites().values()]
    assert counts == list(_BASES.values())
    names = {f"{suite}.{name}" for suite, case in _suites().items() for name in loader.getTestCaseNames(case)}
    assert set(EXCEPTIONS) < names
    assert sum(counts) - len(EXCEPTIONS) >= 55
