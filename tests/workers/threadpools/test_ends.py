"""How pools end: the last task of a region frees its objects; use of closed, forked, interrupted and refusing pools raises."""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise
from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.execution.memory import Memory
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.executor import ExecutorPool
from poolrt.workers.threadpools.interface import Region, ThreadpoolInterface
from poolrt.workers.threadpools.native_queue import NativeQueue
from poolrt.workers.threadpools.threads import ThreadsPool, _Queue
from tests.workers import compiled

from .kinds import KINDS, Loop, made

BOUND_S = 20.0
#: Kinds with threads of the library's.
OWN_THREADS = ("threads", "threads asynchronous", "native", "native asynchronous")
LATER = [kind for kind in KINDS if kind.endswith("asynchronous") or kind == "checking"]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Turn the garbage collector off: only the last reference frees an object."""
    gc.disable()
    yield
    gc.enable()


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def main_thread_waits() -> bool:
    """Return whether the main thread seems to wait for others."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    waits = (threading.Condition.wait, NativeQueue._call, _Queue._run_whole)
    return frame.f_code in {function.__code__ for function in waits}


def nothing(_i: int, _n: int) -> None:
    """Be a task."""


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(("kind", "waits"), [*((kind, True) for kind in KINDS), *((kind, False) for kind in LATER[:2])])
def test_the_last_task_frees_the_objects_of_tasks_and_primitives(
    kind: str, waits: bool, loop: Loop, store: CacheStore
) -> None:
    md, engine, attr = MemoryDesc((64,), "f32"), Engine("cpu"), StreamAttr("cpu")
    doubled = Eltwise.PrimitiveDesc(engine, md, md, "linear", 2.0).create(compiled.cache(4, store))
    with made(kind, 1 if kind in ("sequential", "own") else 2, loop) as pool:
        attr.set_threadpool(pool)
        stream = Stream(engine, attr)
        for _ in range(3):
            # Given the only references to a callable and to memories, on bytes that the memories own
            src, dst, given = np.ones(64, np.float32), np.zeros(64, np.float32), np.zeros(1)
            alive = [weakref.ref(array) for array in (src, dst, given)]
            gate = threading.Event()
            if pool.get_flags() & pool.ASYNCHRONOUS:
                pool.parallel_for(1, lambda _i, _n, gate=gate: (gate.wait(BOUND_S), None)[1])  # type: ignore[misc]
            # When they are dropped before the tasks have run
            pool.parallel_for(2, lambda _i, _n, given=given: None)  # type: ignore[misc]
            doubled.execute(stream, {Arg.SRC: Memory(md, engine, src), Arg.DST: Memory(md, engine, dst)})
            del src, dst, given
            if pool.get_flags() & pool.ASYNCHRONOUS:
                assert all(array() is not None for array in alive)
            gate.set()
            # Then they are freed once all tasks have run
            if waits:
                pool.wait()
            until(lambda alive=alive: not any(array() is not None for array in alive), "something is kept")  # type: ignore[misc]


@pytest.mark.parametrize("kind", OWN_THREADS)
def test_an_object_that_a_region_frees_may_use_the_pool(kind: str, loop: Loop) -> None:
    ran: list[int] = []

    class Last:
        """Submits when it is freed."""

        def __init__(self, pool: ThreadpoolInterface) -> None:
            self._pool = pool

        def __del__(self) -> None:
            self._pool.parallel_for(1, lambda i, _: ran.append(i))

    def use() -> None:
        with made(kind, 2, loop) as pool:
            for _ in range(3):
                last = Last(pool)
                pool.parallel_for(2, lambda _i, _n, last=last: None)  # type: ignore[misc]
                del last
                pool.wait()
            until(lambda: len(ran) == 3, "a region was lost")

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(BOUND_S)
    assert not thread.is_alive(), "a lock is held while objects are freed"


@pytest.mark.parametrize("kind", OWN_THREADS)
def test_a_closed_pool_says_so(kind: str, loop: Loop) -> None:
    with made(kind, 2, loop) as pool:
        pool.parallel_for(2, nothing)
    with pytest.raises(RuntimeError, match="the threadpool is closed"):
        pool.parallel_for(2, nothing)
    pool.wait()
    pool.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", OWN_THREADS)
def test_a_forked_process_gets_an_error_because_it_lacks_the_threads(kind: str, loop: Loop) -> None:
    gate, (reader, writer) = threading.Event(), os.pipe()
    with made(kind, 2, loop) as pool:
        # Given a region under way if the pool can have one
        if pool.get_flags() & pool.ASYNCHRONOUS:
            pool.parallel_for(1, lambda _i, _n: (gate.wait(BOUND_S), None)[1])
        child = os.fork()
        if child == 0:
            uses: tuple[Callable[[], None], ...] = (
                lambda: pool.parallel_for(2, nothing),
                lambda: pool.run_regions([Region(0, [0], "a lone task")]),  # which a pool's caller runs itself
                pool.wait,
            )
            for use in uses:
                try:
                    use()
                    os.write(writer, b"nothing.")
                except BaseException as error:  # noqa: BLE001 - sent to the parent
                    os.write(writer, str(error).encode() + b".")
            pool.close()  # type: ignore[attr-defined]
            os._exit(0)
        os.close(writer)
        said = b""
        while select.select([reader], [], [], BOUND_S)[0] and (part := os.read(reader, 4096)):
            said += part
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        # Then the parent's pool still works
        gate.set()
        pool.parallel_for(2, nothing)
        pool.wait()
    first, lone, second, _ = said.decode().split(".")
    assert first == "a threadpool cannot be used in a forked process: its threads are in the parent"
    assert lone == first
    # A synchronous pool of Python threads never waits.
    assert second == ("nothing" if kind == "threads" else first)


# Python 3.12 warns of threads at a fork, which this test is about.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_drops_a_pool_whose_queue_a_thread_was_using() -> None:
    pool: ThreadsPool | None = ThreadsPool(2)
    assert pool is not None
    queue = pool._queue
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with queue._lock:
            held.set()
            over.wait(BOUND_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(BOUND_S)
    child = os.fork()
    if child == 0:
        signal.alarm(int(BOUND_S))
        pool = None
        gc.collect()
        os._exit(0 if queue._stopped else 1)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.close()


@pytest.mark.parametrize("kind", ["threads", "native", "executor"])
def test_an_interrupt_of_a_synchronous_region_is_raised_when_its_tasks_have_ended(kind: str, loop: Loop) -> None:
    class Interrupted(Exception):
        """Raised by the handler of a signal."""

    came, left, ended = threading.Event(), threading.Event(), []

    def interrupt(_number: int, _frame: object) -> None:
        came.set()
        raise Interrupted

    both, done = threading.Barrier(2, timeout=BOUND_S), threading.Event()

    def task(i: int, _n: int) -> None:
        both.wait()
        if threading.current_thread() is threading.main_thread():
            done.set()
        else:
            # The calling thread soon leaves its task and waits: an exception inside the task is that task's error.
            assert done.wait(BOUND_S)
            until(main_thread_waits, "the calling thread does not wait")
            left.wait(0.02)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            assert came.wait(BOUND_S)
            # The calling thread continues only after this task.
            left.wait(0.1)
            ended.append(i)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with made(kind, 2, loop) as pool:
            with pytest.raises(Interrupted):
                pool.parallel_for(2, task)
            seen = len(ended)
            left.set()
            pool.parallel_for(2, nothing)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == 1


@pytest.mark.slow
def test_an_interrupt_at_any_moment_ends_a_region_of_python_threads_with_all_its_tasks() -> None:
    class Interrupted(Exception):
        """Raised by the handler of a signal."""

    armed, enough, left, interrupts = False, threading.Event(), 0, 0

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Interrupted

    def disturb() -> None:
        draw = random.Random()
        while not enough.wait(draw.random() * 2e-4):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    disturbing = threading.Thread(target=disturb, daemon=True)
    disturbing.start()
    end = time.monotonic() + BOUND_S
    try:
        with ThreadsPool(2) as pool:
            # When many regions are interrupted, one at a time
            while interrupts < 1000 and time.monotonic() < end:
                ran: list[int] = []
                try:
                    armed = True
                    pool.parallel_for(6, lambda i, _, ran=ran: ran.append(i))  # type: ignore[misc]
                    armed = False
                except Interrupted:
                    interrupts += 1
                # Then none of their tasks runs later, and the next region has the threads
                seen = len(ran)
                pool.parallel_for(2, nothing)
                left += len(ran) - seen
                assert not pool.get_in_parallel()
    finally:
        enough.set()
        disturbing.join(BOUND_S)
        signal.signal(signal.SIGUSR1, before)
    assert interrupts > 0
    assert left == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("sequential", "own")])
def test_of_many_errors_one_is_raised_and_only_once(kind: str, loop: Loop) -> None:
    def task(i: int, _n: int) -> None:
        raise KeyError(i)

    with made(kind, 2, loop) as pool:
        with pytest.raises(KeyError):
            pool.parallel_for(5, task)
            pool.parallel_for(5, task)
            pool.wait()
        pool.wait()
        pool.parallel_for(2, nothing)
        pool.wait()


@pytest.mark.parametrize("kind", LATER)
def test_several_threads_may_wait_for_one_region(kind: str, loop: Loop) -> None:
    gate, ended = threading.Event(), list[int]()
    with made(kind, 2, loop) as pool:
        pool.parallel_for(1, lambda _i, _n: (gate.wait(BOUND_S), None)[1])

        def wait() -> None:
            pool.wait()
            ended.append(1)

        waiting = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
        for thread in waiting:
            thread.start()
        assert not ended
        gate.set()
        for thread in waiting:
            thread.join(BOUND_S)
    assert len(ended) == 3


def test_the_threads_of_a_pool_that_is_dropped_run_its_regions_and_end() -> None:
    gate, ran = threading.Event(), []
    before = set(threading.enumerate())
    pool = ThreadsPool(2, asynchronous=True)
    pool.parallel_for(1, lambda _i, _n: (gate.wait(BOUND_S), None)[1])
    pool.parallel_for(2, lambda i, _n: ran.append(i))
    del pool
    gate.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    assert sorted(ran) == [0, 1]


def test_a_process_may_end_while_its_pools_have_work(tmp_path: Path) -> None:
    parts = ("loop", "submit", "nest", "clock")
    for part in parts:
        binary = compiled.compiled(KernelSpec.of("region_loop", part=part), cpu_target(host_isa()))
        (tmp_path / part).write_bytes(binary)
    code = f"""
import time
from pathlib import Path
from poolrt.workers.engines.object_loader import load_object
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.threads import ThreadsPool
kernels = [load_object(Path({str(tmp_path)!r}, part).read_bytes()) for part in {parts!r}]
for pool in (ThreadsPool(2, True), NativePool(2, True, kernels)):
    for _ in range(50):
        pool.parallel_for(4, lambda i, n: [time.sleep(0.01), sum(range(1000))])
print("leaving")
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert (child.returncode, child.stdout, child.stderr) == (0, "leaving\n", "")


def test_another_object_than_an_executor_of_threads_is_refused() -> None:
    for wrong in (5, None, object()):
        with pytest.raises(TypeError, match=r"executor: expect a concurrent.futures.Executor, got"):
            ExecutorPool(wrong, 2)  # type: ignore[arg-type]
    with ProcessPoolExecutor(1) as processes, pytest.raises(TypeError, match="expect one of threads"):
        ExecutorPool(processes, 2)


def test_an_executor_that_refuses_a_task_is_waited_for_until_its_other_tasks_have_ended() -> None:
    begun, left, ended = threading.Event(), threading.Event(), []

    class Refusing(ThreadPoolExecutor):
        """Takes one task."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if begun.wait(0):
                raise RuntimeError("no more")
            future = super().submit(fn, *args, **kwargs)
            assert begun.wait(BOUND_S)
            return future

    def task(i: int, _n: int) -> None:
        begun.set()
        left.wait(0.1)
        ended.append(i)

    with Refusing(2) as executor:
        with pytest.raises(RuntimeError, match="no more"):
            ExecutorPool(executor, 4).parallel_for(4, task)
        seen = len(ended)
        left.set()
    assert seen == 1


def test_an_executor_whose_threads_all_wait_is_not_waited_for() -> None:
    ran: list[int] = []
    executor = ThreadPoolExecutor(1)
    pool = ExecutorPool(executor, 4)
    # When the only thread calls, for a task of the executor and not of the pool
    calling = executor.submit(lambda: pool.parallel_for(4, lambda i, _: ran.append(i)))
    try:
        calling.result(BOUND_S)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    assert sorted(ran) == [0, 1, 2, 3]


def test_an_executor_that_is_shut_down_raises_its_own_error() -> None:
    with ThreadPoolExecutor(2) as executor:
        pool = ExecutorPool(executor, 2)
        pool.parallel_for(2, nothing)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.parallel_for(2, nothing)
