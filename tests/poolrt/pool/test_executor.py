"""A pool as an executor: cancelled futures, ends that wait, lost workers, replaced workers, and the libraries that use it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CoordinatorLost, PoolClosed, WorkerLost

from .processes import BOUND_S, family, is_alive, relu_graph, until_there, wait_until, workers_of


def test_a_future_that_is_cancelled_is_never_called(pool: poolrt.Pool, tmp_path: Path) -> None:
    holding = [pool.submit(exec, until_there(tmp_path / "end")) for _ in range(2)]
    wait_until(lambda: all(future.running() for future in holding), "both workers are busy")
    assert not holding[0].cancel()
    waiting = [pool.submit(Path.touch, tmp_path / f"{number}") for number in range(300)]
    model = pool.load(relu_graph())
    run = model.submit(x=np.ones((4, 8), np.float32))
    assert all(future.cancel() for future in waiting[::2])
    assert run.cancel()
    assert run.cancelled()
    assert run.cancel()
    done, _ = concurrent.futures.wait(waiting, timeout=0)
    assert done == set(waiting[::2])
    (tmp_path / "end").touch()
    concurrent.futures.wait([*waiting, *holding], BOUND_S)
    assert {path.name for path in tmp_path.iterdir()} == {"end", *map(str, range(1, 300, 2))}
    assert model.run(x=np.ones((4, 8), np.float32))["y"].sum() == 32
    assert pool.stats()["queue"] == {"waiting": 0, "in_flight": 0, "creating": 0}
    assert not pool._session.client._requests


def test_the_end_of_a_block_waits_for_futures_and_their_callbacks(settings: dict[str, Any]) -> None:
    called = []

    def note(future: concurrent.futures.Future[None]) -> None:
        time.sleep(0.05)
        called.append(future)

    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        assert isinstance(pool, concurrent.futures.Executor)
        model = pool.load(relu_graph())
        futures: list[Any] = [pool.submit(time.sleep, 0.02) for _ in range(10)]
        futures.append(model.submit(x=np.ones((4, 8), np.float32)))
        for future in futures:
            future.add_done_callback(note)
    assert set(called) == set(futures)
    assert futures[-1].result()["y"].sum() == 32
    x = np.ones((4, 8), np.float32)
    for attempt in (lambda: pool.submit(len, "a"), lambda: pool.map(len, ["a"]), lambda: model.submit(x=x)):
        with pytest.raises(RuntimeError):
            attempt()


@pytest.mark.slow
def test_a_shutdown_without_waiting_completes_what_was_submitted_and_ends_the_processes(
    settings: dict[str, Any],
) -> None:
    before = set(family())
    pool = poolrt.Pool(workers=1, threads=1, **settings)
    futures = [pool.submit(time.sleep, 0.02) for _ in range(10)]
    pool.shutdown(wait=False)
    with pytest.raises(PoolClosed, match="cannot schedule new futures after shutdown"):
        pool.submit(len, "a")
    assert all(future.result(BOUND_S) is None for future in futures)
    wait_until(lambda: set(family()) <= before, "all processes are gone")


@pytest.mark.slow
def test_a_pool_that_is_dropped_completes_what_was_submitted_and_ends(settings: dict[str, Any]) -> None:
    before = set(family())
    results = poolrt.Pool(workers=1, threads=1, **settings).map(abs, range(-5, 5))
    gc.collect()
    assert list(results) == [abs(n) for n in range(-5, 5)]
    wait_until(lambda: set(family()) <= before, "all processes are gone")


_EXIT = """
import sys, time
import poolrt
pool = poolrt.Pool(workers=1, threads=1)
pool.submit(time.sleep, 0.3).add_done_callback(lambda _: print("done", flush=True))
pool.submit(print, "printed")
if sys.argv[1] == "raise":
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize("how", ["exit", pytest.param("raise", marks=pytest.mark.slow)])
def test_the_interpreters_exit_waits_for_futures_except_after_an_interrupt(settings: dict[str, Any], how: str) -> None:
    environ = os.environ | {f"POOLRT_{name.upper()}": str(value) for name, value in settings.items()}
    words = [sys.executable, "-c", _EXIT, how]
    found = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=BOUND_S, check=False)
    if how == "exit":
        assert (found.stdout, found.stderr, found.returncode) == ("done\nprinted\n", "", 0)
    else:
        assert found.stdout == ""
        assert found.returncode == -signal.SIGINT


def test_a_lost_worker_or_coordinator_is_a_broken_process_pool(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        with pytest.raises(BrokenProcessPool) as lost:
            pool.submit(os.kill, workers_of(pool)[0], signal.SIGKILL).result(BOUND_S)
        assert type(lost.value) is WorkerLost
        assert pool.submit(len, "abc").result(BOUND_S) == 3  # unlike a ProcessPoolExecutor, it goes on
        os.kill(pool.stats()["pid"], signal.SIGKILL)
        with pytest.raises(BrokenProcessPool) as lost:
            pool.submit(len, "abc").result(BOUND_S)
        assert type(lost.value) is CoordinatorLost
    assert issubclass(CoordinatorLost, PoolClosed)


@pytest.mark.slow
def test_a_worker_is_replaced_after_so_many_functions_and_does_not_count_as_lost(settings: dict[str, Any]) -> None:
    with poolrt.Pool(max_workers=1, threads=1, max_tasks_per_child=3, **settings) as pool:
        pids = [pool.submit(os.getpid).result(BOUND_S) for _ in range(7)]
        assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3, 3, 6]
        assert pool.stats()["workers_lost"] == 0
        wait_until(lambda: not is_alive(pids[0]), "the first one has exited")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_workers": 0}, "max_workers must be greater than 0, got 0"),
        ({"workers": 1, "max_workers": 1}, "workers and max_workers are the same"),
        ({"initializer": 3}, "initializer must be a callable, got 3"),
        ({"max_tasks_per_child": 0}, "max_tasks_per_child must be >= 1, got 0"),
        ({"max_tasks_per_child": "a"}, "max_tasks_per_child must be an integer, got 'a'"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_before_a_process_starts(arguments: dict[str, Any], error: str) -> None:
    before = set(family())
    with pytest.raises((ValueError, TypeError), match=error):
        poolrt.Pool(**arguments)
    assert set(family()) == before


def test_a_pool_is_an_executor_though_its_module_imports_none(settings: dict[str, Any]) -> None:
    program = f"""
import json, sys
import poolrt

class Mine(poolrt.Pool):
    pass

with poolrt.Pool(**json.loads(sys.argv[1])) as pool:
    assert "concurrent.futures" not in sys.modules
    from concurrent.futures import Executor
    print(isinstance(pool, Executor), issubclass(Mine, Executor), pool.submit(abs, -5).result({BOUND_S}))
"""
    run = [sys.executable, "-c", program, json.dumps(settings | {"workers": 1})]
    done = subprocess.run(run, capture_output=True, text=True, timeout=BOUND_S, check=True)
    assert done.stdout == "True True 5\n", done.stderr


def test_an_event_loop_calls_functions_in_a_pool(pool: poolrt.Pool) -> None:
    async def total() -> int:
        loop = asyncio.get_running_loop()
        return sum(await asyncio.gather(*(loop.run_in_executor(pool, abs, -number) for number in range(100))))

    assert asyncio.run(total()) == sum(range(100))


@pytest.mark.slow
@pytest.mark.parametrize("first", ["poolrt", "joblib"])
def test_joblib_sums_1000_through_a_pool(settings: dict[str, Any], first: str) -> None:
    second = {"poolrt": "joblib", "joblib": "poolrt"}[first]
    program = (
        f"import {first}\nimport sys\nassert {first == 'joblib'} or 'joblib' not in sys.modules\nimport {second}\n"
    )
    program += """
import os
def square(x): return x * x, os.getpid()
def main():
    with joblib.parallel_backend("poolrt", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(square)(n) for n in range(1000))
        again = joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(10))
        try:
            joblib.Parallel()(joblib.delayed(divmod)(n, 3 - n) for n in range(10))
        except ZeroDivisionError as error:
            print("failed", type(error.__cause__).__name__)
        again += joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(10))
    print(sum(value for value, _ in found), os.getpid() in {pid for _, pid in found}, sum(again))
main()
"""
    environ = os.environ | {f"POOLRT_{name.upper()}": str(value) for name, value in settings.items()}
    words = [sys.executable, "-c", program]
    found = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (found.stderr, found.returncode) == ("", 0)
    assert found.stdout == f"failed RemoteTraceback\n{sum(n * n for n in range(1000))} False 90\n"


@pytest.mark.slow
def test_dask_sums_1000_through_a_pool(pool: poolrt.Pool) -> None:
    dask = pytest.importorskip("dask", reason="dask is not installed")
    values = [dask.delayed(abs)(-number) for number in range(1000)]
    (found,) = dask.compute(dask.delayed(sum)(values), scheduler="processes", pool=pool)
    assert found == sum(range(1000))
