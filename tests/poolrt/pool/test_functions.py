"""Plain functions in workers: values, exceptions, deaths, limits, and what they find around them."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CallNotLoaded, FunctionFailed, PoolRefused, RemoteTraceback, WorkerLost

from .processes import BOUND_S, is_alive, relu_graph, until_there, wait_until, workers_of


class Odd(Exception):
    """An exception that cannot be rebuilt from its arguments."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__("odd")
        self.sum = a + b


class Interrupts:
    """A value whose loading raises what an interrupt raises, if it is to."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return (_interrupt, ()) if self.value else (int, ())


def _interrupt() -> None:
    raise KeyboardInterrupt


def _interrupting(value: bool) -> Any:
    return Interrupts(value)


def test_a_function_runs_in_a_worker_and_gives_its_value(pool: poolrt.Pool) -> None:
    pid = pool.submit(os.getpid).result(BOUND_S)
    assert pid in {worker["pid"] for worker in pool.stats()["workers"]}
    assert pool.submit(divmod, 17, 5).result(BOUND_S) == (3, 2)
    assert pool.submit(sorted, [3, 1, 2], reverse=True).result(BOUND_S) == [3, 2, 1]


def test_closures_and_arrays_travel(pool: poolrt.Pool) -> None:
    offset = np.arange(5.0)
    result = pool.submit(lambda x: x + offset, 10).result(BOUND_S)
    np.testing.assert_array_equal(result, offset + 10)


def test_an_exception_comes_back_as_itself_with_where_it_happened(pool: poolrt.Pool) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        pool.submit(divmod, 1, 0).result(BOUND_S)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "ZeroDivisionError" in caught.value.__cause__.tb
    # Also those that would end a process.
    with pytest.raises(SystemExit):
        pool.submit(sys.exit, 3).result(BOUND_S)


def test_an_exception_that_cannot_travel_comes_back_as_text(pool: poolrt.Pool) -> None:
    def fail() -> None:
        raise Odd(1, 2)

    with pytest.raises(FunctionFailed, match="Odd: odd"):
        pool.submit(fail).result(BOUND_S)


def test_an_exception_with_a_text_that_is_too_long_for_a_message_says_of_which_type_it_is(pool: poolrt.Pool) -> None:
    def fail() -> None:
        raise ValueError("x" * (150 << 20))

    with pytest.raises(FunctionFailed) as caught:
        pool.submit(fail).result(BOUND_S)
    assert "in fail" in str(caught.value)
    assert "ValueError: xxx" in str(caught.value)
    assert "characters are left out" in str(caught.value)
    assert len(str(caught.value)) < 20_000


@pytest.mark.parametrize("way", ["submit", "map"])
@pytest.mark.parametrize("before", [0, 12], ids=["messages", "rings"])
def test_a_result_that_raises_an_interrupt_at_each_loading_harms_no_other_call(
    pool: poolrt.Pool, before: int, way: str
) -> None:
    """Given a result whose loading raises KeyboardInterrupt, then a waiter gets that at most once, and the pool works."""
    for _ in range(before):
        assert pool.submit(_interrupting, False).result(BOUND_S) == 0
    if way == "submit":
        futures = [pool.submit(_interrupting, True), pool.submit(_interrupting, False)]
        with pytest.raises((KeyboardInterrupt, CallNotLoaded)):
            futures[0].result(BOUND_S)
        with pytest.raises(CallNotLoaded, match="cannot be loaded: KeyboardInterrupt"):
            futures[0].result(BOUND_S)
        assert futures[1].result(BOUND_S) == 0
    else:
        with pytest.raises((KeyboardInterrupt, CallNotLoaded)):
            list(pool.map(_interrupting, [False, True, False]))
    assert [pool.submit(len, "abc").result(BOUND_S) for _ in range(20)] == [3] * 20
    assert pool.load(relu_graph()).run(x=np.ones((4, 8), np.float32))["y"].sum() == 32


def test_a_value_that_cannot_travel_is_an_error_of_that_call_only(pool: poolrt.Pool) -> None:
    with pytest.raises(TypeError):
        pool.submit(lambda: (i for i in range(3))).result(BOUND_S)
    assert pool.submit(len, "abc").result(BOUND_S) == 3


def test_a_function_that_kills_its_worker_is_not_repeated_and_the_worker_is_replaced(pool: poolrt.Pool) -> None:
    with pytest.raises(WorkerLost, match="not repeated"):
        pool.submit(os._exit, 3).result(BOUND_S)
    wait_until(lambda: all(w["state"] == "idle" for w in pool.stats()["workers"]), "the worker is replaced")
    assert pool.submit(len, "abc").result(BOUND_S) == 3


def test_map_gives_results_in_order(pool: poolrt.Pool) -> None:
    assert list(pool.map(pow, range(20), [2] * 20)) == [n * n for n in range(20)]
    assert list(pool.map(str, range(1000), chunksize=37)) == [str(n) for n in range(1000)]
    with pytest.raises(ValueError, match="chunksize"):
        pool.map(str, [1], chunksize=0)


def test_map_of_more_calls_than_may_be_under_way(pool: poolrt.Pool) -> None:
    assert sum(pool.map(lambda n: n, range(1500))) == sum(range(1500))


def test_map_ends_at_its_timeout(pool: poolrt.Pool, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        list(pool.map(exec, [until_there(tmp_path / "end")], timeout=0.05))
    (tmp_path / "end").touch()


def test_functions_and_runs_do_not_hold_each_other_up(pool: poolrt.Pool, tmp_path: Path) -> None:
    model = pool.load(relu_graph(name="beside"))
    x = np.ones((4, 8), np.float32)
    waiting = pool.submit(exec, until_there(tmp_path / "end"))
    for _ in range(50):
        model.run(x=x)
    assert not waiting.done()
    (tmp_path / "end").touch()
    # More functions than workers, and runs among them: everybody gets a turn.
    work: list[Future[Any]] = [waiting]
    for number in range(40):
        work.append(pool.submit(pow, number, 2))
        work.append(model.submit(x=x))
    done, late = wait(work, timeout=BOUND_S)
    assert not late
    assert all(future.exception() is None for future in done)


def test_programs_that_a_function_starts_do_not_write_to_standard_output(
    pool: poolrt.Pool, capfd: pytest.CaptureFixture[str]
) -> None:
    def shout() -> str:
        os.system("echo to standard error")
        os.write(1, b"there too\n")
        return sys.stdin.read()

    assert pool.submit(shout).result(BOUND_S) == ""
    assert capfd.readouterr().out == ""


def test_libraries_in_workers_are_kept_to_the_quota(settings: dict[str, Any]) -> None:
    names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"]
    with poolrt.Pool(workers=1, threads=3, **settings) as pool:
        assert pool.threads == 3
        seen = pool.submit(lambda: [os.environ.get(name) for name in names]).result(BOUND_S)
    assert seen == ["3"] * 4


def test_libraries_are_loaded_after_they_were_named(settings: dict[str, Any]) -> None:
    def threads() -> tuple[int, int]:
        import numba

        np.matmul(np.ones((300, 300)), np.ones((300, 300)))
        return len(os.listdir("/proc/self/task")), numba.get_num_threads()

    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        assert pool.submit(threads).result(BOUND_S) == (1, 1)


def test_functions_can_be_turned_off(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, functions=False, **settings) as pool:
        with pytest.raises(PoolRefused, match="turned off"):
            pool.submit(len, "abc").result(BOUND_S)
        model = pool.load(relu_graph())
        assert model.run(x=np.zeros((4, 8), np.float32))["y"].sum() == 0


def test_a_worker_that_is_killed_while_it_is_idle_is_replaced(pool: poolrt.Pool) -> None:
    pid = pool.submit(os.getpid).result(BOUND_S)
    os.kill(pid, 9)
    wait_until(lambda: all(w["pid"] not in (0, pid) for w in pool.stats()["workers"]), "another takes its place")
    assert not is_alive(pid)
    assert list(pool.map(abs, [-1, -2, -3])) == [1, 2, 3]


def test_a_function_that_comes_back_twice_from_a_fork_is_answered_once(pool: poolrt.Pool) -> None:
    workers, lost = set(workers_of(pool)), pool.stats()["workers_lost"]
    for _ in range(4):
        assert pool.submit(_fork).result(BOUND_S) in workers
    assert list(pool.map(abs, range(-20, 0))) == list(range(20, 0, -1))
    assert set(workers_of(pool)) == workers
    assert pool.stats()["workers_lost"] == lost


def _fork() -> int:
    worker = os.getpid()
    if os.fork() == 0:
        return -1
    os.wait()
    return worker


#: Threads whose first calls of different functions come at the same time.
_AT_ONCE = """
import sys, threading
import poolrt

pool = poolrt.Pool(workers=2, threads=1)
barrier = threading.Barrier(8)
right = []

def call(own):
    barrier.wait()
    right.append([pool.submit(own, n).result(60) for n in range(5)] == [own(n) for n in range(5)])

threads = [threading.Thread(target=call, args=(lambda n, k=k: n * k + sum(range(k)),)) for k in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
pool.close()
print(right)
"""


def test_the_first_calls_of_a_pool_may_come_from_many_threads(settings: dict[str, Any]) -> None:
    environ = os.environ | {f"POOLRT_{name.upper()}": str(value) for name, value in settings.items()}
    done = subprocess.run(
        [sys.executable, "-c", _AT_ONCE], env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.stderr) == (f"{[True] * 8}\n", "")
