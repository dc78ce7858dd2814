"""Fixtures that more than one part of the tests needs."""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, settings

from poolrt.blas_threads import SPIN_POWER, SPIN_VARIABLE
from poolrt.workers.primitives.compiler_pool import compiler_pool
from tests.left_behind import nothing_left_behind
from tests.startup.shared_compiler import FOLDER
from tests.workers.compiled import STARTUP, shared_kernels
from tests.workers.own_process import python

# The time that an example takes on a busy machine says nothing about the example.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test` draws a quarter of the examples, others in each run.
settings.register_profile("quarter", settings.get_profile("patient"), max_examples=25)
settings.load_profile("patient")

# BLAS threads of tests, and of processes that they start, do not spin for 0.1 s after each product and each import of NumPy.
os.environ.setdefault(SPIN_VARIABLE, SPIN_POWER)

#: Files of tests that wait for clocks most of the time, two minutes together. They come first: one process waits in them while
#: the others keep the processors busy.
WAITING = (
    "tests/cachestore/drills/test_short_drills.py",
    "tests/poolrt/cli/test_metrics.py",
    "tests/poolrt/pool/test_idle.py",
)

# What tests count does not depend on whether a developer has made the file of prebuilt kernels.
os.environ["POOLRT_PREBUILT"] = "none"

# Stores refuse the folders that tests make if a group may write to them.
os.umask(0o022)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of examples, and have the processes of this run share what they compile.

    Those of pytest-xdist inherit the folder of kernels from the first.
    """
    if config.option.markexpr == "not slow":
        settings.load_profile("quarter")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        # Collecting tests leaves next to no garbage, and looking for it takes a seventh of the time.
        gc.disable()
    if not hasattr(config, "workerinput"):
        shared = ExitStack()
        shared.enter_context(shared_kernels())
        config.add_cleanup(shared.close)
    # Pools and compilers give their processes the path of modules that this one has.
    sys.path.append(STARTUP)


def pytest_xdist_auto_num_workers() -> int:
    """Return two processes more than processors: tests wait for processes, servers and clocks for half of their time."""
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Have each process of pytest-xdist begin with other modules: pytest rewrites a module once, the others read the result.

    To rewrite all takes 12 s of processor time, to read them 2 s.
    """
    worker = getattr(session.config, "workerinput", None)
    folder = Path(__file__).parent
    if worker is None or folder.name not in session.config.args:
        return
    paths = sorted(folder.rglob("test_*.py"))
    for path in paths[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        # pytest reports it when it collects the module.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but one in ``n`` of what is marked ``one_test_in(n)`` or ``one_in(n)`` to the thorough tier, others in each run.

    Of a file's tests with the first mark, one in ``n`` stays; then of each test's cases with the second. What is in the
    thorough tier anyway does not count. All processes of a run choose the same ones: they share a folder.
    """
    _leave_all_but(items, "one_test_in", lambda item: item.nodeid.partition("::")[0])
    _leave_all_but(items, "one_in", lambda item: item.nodeid.partition("[")[0])
    items.sort(key=lambda item: not item.nodeid.startswith(WAITING))


def _leave_all_but(items: list[pytest.Item], mark: str, place_of: Callable[[pytest.Item], str]) -> None:
    """Mark as slow what is not drawn of each place. ``one_test_in`` draws tests with all of their cases, ``one_in`` cases."""
    places: dict[tuple[str, int], dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        marker = item.get_closest_marker(mark)
        if marker is not None and item.get_closest_marker("slow") is None:
            drawn = item.nodeid if mark == "one_in" else item.nodeid.partition("[")[0]
            places[place_of(item), marker.args[0]][drawn].append(item)
    for (place, share), found in places.items():
        kept = Random(f"{os.environ[FOLDER]} {place} {share}").sample([*found], -(-len(found) // share))
        for name in found.keys() - {*kept}:
            for item in found[name]:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking at all tests and modules each time, and at all else too often."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail at the end of a process's tests where they have left something; begins before and ends after all other fixtures."""
    # Folders of tests stay where they are without this.
    tmp_path_factory.getbasetemp()
    with nothing_left_behind():
        yield
        # Idle compilers end some time later, at the latest with this process.
        compiler_pool().close()


@pytest.fixture(scope="module", autouse=True)
def _only_new_objects_are_collected() -> None:
    """Keep collections of garbage short: those of a module's tests look at nothing that was there before.

    Tests collect some thousand times, and what earlier modules have imported takes 30 ms each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def device() -> str:
    """Return the name of the first OpenCL device; without one the test is skipped at home and fails in CI."""
    code = "from poolrt.workers.engines.opencl import *; print(dict(opencl_target().device)['name'] if count() else '')"
    name = python(code).strip()
    if not name and "CI" not in os.environ:
        pytest.skip("there is no OpenCL device")
    assert name, "CI must have an OpenCL device: pyopencl[pocl] brings one"
    return name
