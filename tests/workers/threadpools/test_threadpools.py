"""Every implementation keeps the contract of a threadpool."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from poolrt.workers.engines.object_loader import load_object
from poolrt.workers.engines.target import host_isa
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import compile_function
from poolrt.workers.kernels.native.integers import load_s32, store_s32
from poolrt.workers.threadpools.interface import KERNEL_TYPE, KernelFailed, Region, ThreadpoolInterface
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.nesting import can_wait
from poolrt.workers.threadpools.sequential import SequentialPool
from poolrt.workers.threadpools.threads import ThreadsPool

from .kinds import CASES, Loop, OwnPool, made

I = types.int64  # noqa: E741
SECONDS = 20.0
SYNCHRONOUS = ("threads", "native", "executor")


@pytest.fixture(params=CASES, ids=str)
def pool(request: pytest.FixtureRequest, loop: Loop) -> Iterator[ThreadpoolInterface]:
    """Return a pool of every kind with one, two and seven threads."""
    kind, threads = request.param
    with made(kind, threads, loop) as pool:
        yield pool


def test_every_task_runs_once_with_its_number(pool: ThreadpoolInterface) -> None:
    seen: list[tuple[int, int]] = []
    for n in (-1, 0, 1, 2, 5, 100):
        pool.parallel_for(n, lambda i, n: seen.append((i, n)))
    pool.wait()
    assert sorted(seen) == [(i, n) for i, n in sorted((i, n) for n in (1, 2, 5, 100) for i in range(n))]


@pytest.mark.one_in(2)
def test_regions_run_in_the_order_of_their_submission(pool: ThreadpoolInterface) -> None:
    order: list[int] = []
    for region in range(300):
        pool.parallel_for(3, lambda i, n, region=region: order.append(region))  # type: ignore[misc]
    pool.wait()
    assert order == sorted(order)
    assert len(order) == 900


def test_a_task_may_submit_and_wait_to_any_depth(pool: ThreadpoolInterface) -> None:
    seen: list[int] = []

    def task(depth: int) -> Callable[[int, int], None]:
        def run(i: int, n: int) -> None:
            assert pool.get_in_parallel() or isinstance(pool, SequentialPool)
            seen.append(depth)
            if depth < 4:
                pool.parallel_for(2, task(depth + 1))
                if can_wait(pool):
                    pool.wait()
                else:
                    with pytest.raises(RuntimeError, match="cannot wait"):
                        pool.wait()

        return run

    pool.parallel_for(3, task(0))
    pool.wait()
    assert [seen.count(depth) for depth in range(5)] == [3, 6, 12, 24, 48]
    assert not pool.get_in_parallel()


def test_tasks_run_side_by_side(pool: ThreadpoolInterface) -> None:
    if pool.get_num_threads() < 2 or isinstance(pool, OwnPool):
        return
    meeting = threading.Barrier(2, timeout=SECONDS)

    def meet(i: int, n: int) -> None:
        meeting.wait()  # breaks where one task waits for the other to end

    pool.parallel_for(2, meet)
    pool.wait()


def test_an_error_reaches_the_waiting_thread_and_siblings_run(pool: ThreadpoolInterface) -> None:
    seen: list[int] = []

    def task(i: int, n: int) -> None:
        if i == 1:
            raise KeyError("one")
        seen.append(i)

    with pytest.raises(KeyError, match="one"):
        pool.parallel_for(4, task)
        pool.wait()
    if not isinstance(pool, (SequentialPool, OwnPool)):
        assert sorted(seen) == [0, 2, 3]
    # And the next region runs
    pool.parallel_for(2, lambda i, n: seen.append(10))
    pool.wait()
    assert seen.count(10) == 2


def test_an_asynchronous_pool_returns_before_its_tasks_have_run(pool: ThreadpoolInterface) -> None:
    if not pool.get_flags() & pool.ASYNCHRONOUS:
        return
    gate, done = threading.Event(), threading.Event()
    pool.parallel_for(1, lambda i, n: (gate.wait(SECONDS), done.set())[1])  # type: ignore[func-returns-value]
    assert not done.is_set()
    gate.set()
    pool.wait()
    assert done.is_set()


def test_native_tasks_run_in_order_and_each_once(pool: ThreadpoolInterface) -> None:
    # Given regions that double numbers in memory and then add 1: the order shows in the result
    def double(begin: int, end: int, at: int) -> None:
        store_s32(at, load_s32(at) * 2)

    def add(begin: int, end: int, at: int) -> None:
        store_s32(at, load_s32(at) + 1)

    kernels = [load_object(compile_function("step", f, types.void(I, I, I), host_isa())) for f in (double, add)]
    numbers = np.arange(8, dtype=np.int32)
    blobs = [(ctypes.c_int64 * 3)(0, 1, numbers.ctypes.data + 4 * i) for i in range(8)]
    places = [ctypes.addressof(blob) for blob in blobs]
    regions = [Region(kernel.address, places, "step", keep=blobs) for _ in range(10) for kernel in kernels]
    # When they are run twice
    for _ in range(2):
        pool.run_regions(regions)
        pool.wait()
    # Then every number has gone through 20 rounds of both, in order
    want = np.arange(8, dtype=np.int64)
    for _ in range(20):
        want = want * 2 + 1
    np.testing.assert_array_equal(numbers, want.astype(np.int32))


def test_a_native_failure_names_its_region(pool: ThreadpoolInterface) -> None:
    def fails(ret: Any, exc: Any, blob: Any) -> int:
        return 1

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(fails)
    address = ctypes.cast(callback, ctypes.c_void_p).value or 0
    with pytest.raises(KernelFailed, match="step 'seven'"):
        pool.run_regions([Region(address, [0, 0], "step 'seven'", keep=callback)])
        pool.wait()


def test_many_threads_may_submit_to_one_pool(pool: ThreadpoolInterface) -> None:
    counts = [0] * 6
    lock = threading.Lock()

    def submit(number: int) -> None:
        def task(i: int, n: int) -> None:
            with lock:
                counts[number] += 1

        for _ in range(50):
            pool.parallel_for(3, task)
        pool.wait()

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    pool.wait()
    assert counts == [150] * 6


@pytest.mark.parametrize("kind", SYNCHRONOUS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_thread_never_waits_for_tasks_of_another_on_a_synchronous_pool(kind: str, threads: int, loop: Loop) -> None:
    gate, begun, seen = threading.Event(), threading.Event(), list[int]()

    def native(_ret: Any, _exc: Any, _blob: Any) -> int:
        seen.append(-1)
        return 0

    def hold(_i: int, _n: int) -> None:
        begun.set()
        gate.wait(SECONDS)

    callback = KERNEL_TYPE(native)
    regions = [Region(ctypes.cast(callback, ctypes.c_void_p).value or 0, [0], keep=callback)] * 3
    with made(kind, threads, loop) as pool:
        # Given tasks of another thread on all threads
        other = threading.Thread(target=pool.parallel_for, args=(threads, hold), daemon=True)
        other.start()
        assert begun.wait(SECONDS)
        # When this one submits its own
        pool.parallel_for(3, lambda i, n: seen.append(i))
        pool.run_regions(regions)
        pool.wait()
        # Then they have run, while those have not ended
        assert sorted(seen) == [-1, -1, -1, 0, 1, 2]
        assert other.is_alive()
        assert not pool.get_in_parallel()
        # And one that fails does not stop its siblings
        with pytest.raises(ZeroDivisionError):
            pool.parallel_for(3, lambda i, n: seen.append(6 // (i - 1)))
        assert sorted(seen) == [-6, -1, -1, -1, 0, 1, 2, 6]
        gate.set()
        other.join(SECONDS)
        assert not other.is_alive()


@pytest.mark.parametrize("kind", SYNCHRONOUS)
def test_tasks_of_two_pools_may_submit_to_each_other(kind: str, loop: Loop) -> None:
    meeting, seen = threading.Barrier(2, timeout=SECONDS), list[str]()
    with made(kind, 1, loop) as one, made(kind, 1, loop) as other:

        def cross(here: ThreadpoolInterface, there: ThreadpoolInterface, name: str) -> None:
            def task(_i: int, _n: int) -> None:
                meeting.wait()
                there.parallel_for(1, lambda _i, _n: seen.append(name))

            here.parallel_for(1, task)

        threads = [
            threading.Thread(target=cross, args=args, daemon=True) for args in ((one, other, "a"), (other, one, "b"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), "each waits for the other"
    assert sorted(seen) == ["a", "b"]


@pytest.mark.parametrize("threads", [0, -1])
def test_a_pool_of_no_threads_is_refused(threads: int, loop: Loop) -> None:
    for make in (lambda: ThreadsPool(threads), lambda: NativePool(threads, kernels=loop)):
        with pytest.raises(ValueError, match="at least one thread"):
            make()


def test_the_threads_of_a_closed_pool_are_gone(loop: Loop) -> None:
    before = set(threading.enumerate())
    for kind in ("threads", "native", "native asynchronous", "checking"):
        with made(kind, 3, loop) as pool:
            pool.parallel_for(3, lambda i, n: None)
    # Others, of earlier tests, may have ended meanwhile
    assert set(threading.enumerate()) <= before


def test_a_synchronous_pool_runs_more_regions_than_its_queue_holds(loop: Loop) -> None:
    def add(begin: int, end: int, at: int) -> None:
        store_s32(at, load_s32(at) + 1)

    kernel = load_object(compile_function("add", add, types.void(I, I, I), host_isa()))
    number = np.zeros(1, np.int32)
    blob = (ctypes.c_int64 * 3)(0, 1, number.ctypes.data)
    regions = [Region(kernel.address, [ctypes.addressof(blob)], "add", keep=blob)] * 5000
    for threads in (1, 2):
        with NativePool(threads, kernels=loop) as pool:
            pool.run_regions(regions)
    assert number[0] == 10_000
