"""Threads, tasks and streams share threadpools without a deadlock and without freeing anything too early."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise
from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.interface import KERNEL_TYPE, Region
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.nesting import can_wait
from tests.workers import compiled

from .kinds import Loop, OwnPool, made
from .programs import Scope, Setting, values_of

BOUND_S = 20.0
#: More executions than a native pool's queue has room for.
MANY = 1500


def is_taken(stream: Stream) -> bool:
    """Return whether a thread holds the order of a stream."""
    if stream.is_held() or not stream.order.acquire(blocking=False):
        return True
    stream.order.release()
    return False


@pytest.mark.parametrize("kind", ["threads", "threads asynchronous", "native", "native asynchronous", "executor"])
@pytest.mark.one_in(2)
def test_a_thread_and_a_task_that_it_waits_for_may_share_a_stream(kind: str, loop: Loop, store: CacheStore) -> None:
    engine, md = Engine("cpu"), MemoryDesc((4,), "f32")
    primitive = Eltwise.PrimitiveDesc(engine, md, md, "linear", 2.0).create(compiled.cache(4, store))
    begun, submitted = threading.Event(), [0]
    with made(kind, 2, loop) as pool:
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        stream = Stream(engine, attr)

        def execute() -> None:
            primitive.execute(stream, {Arg.SRC: Memory(md, engine), Arg.DST: Memory(md, engine)})

        def outside() -> None:
            assert begun.wait(BOUND_S)
            for _ in range(MANY):
                execute()
                submitted[0] += 1

        def task(_i: int, _n: int) -> None:
            # When the stream belongs to a thread that continues only after this task
            begun.set()
            end, before = time.monotonic() + BOUND_S, -1
            while thread.is_alive() and time.monotonic() < end and (before != submitted[0] or not is_taken(stream)):
                before = submitted[0]
                time.sleep(0.02)
            # Then the task continues
            execute()

        thread = threading.Thread(target=outside, daemon=True)
        runner = threading.Thread(target=lambda: pool.parallel_for(1, task), daemon=True)
        thread.start()
        runner.start()
        for one in (runner, thread):
            one.join(BOUND_S)
            assert not one.is_alive(), "a task waits for a thread that waits for the task"
        pool.wait()


@pytest.mark.parametrize("kind", ["threads", "threads asynchronous", "native", "native asynchronous", "executor"])
@pytest.mark.one_in(5)
def test_tasks_that_share_a_stream_take_turns_with_its_scratch_memory(kind: str, loop: Loop, store: CacheStore) -> None:
    # Rows, or columns, of a window of three within the tensor
    inside = np.array([2, 3, 3, 3, 3, 2], np.float32)
    with made(kind, 2, loop) as pool:
        setting = Setting(Engine("cpu"), pool, compiled.cache(4, store))
        stream = setting.stream()

        found: list[tuple[Memory, np.ndarray[Any, Any]]] = []

        def task(number: int, _: int) -> None:
            values = np.full((32, 6, 6), number + 1, np.float32)
            src, want = setting.tensor(values), values * 32 * np.outer(inside, inside)
            scope = Scope(setting, [], [], stream)
            for _ in range(100):
                dst = setting.tensor()
                scope.submit("sums", [src], dst)
                found.append((dst, want))
                if can_wait(pool):
                    np.testing.assert_array_equal(values_of(dst), want)

        pool.parallel_for(4, task)
        pool.wait()
        assert len(found) == 400
        for dst, want in found:
            np.testing.assert_array_equal(values_of(dst), want)


class Between(OwnPool):
    """Runs a task after each region of another thread."""

    def __init__(self, task: Callable[[], None]) -> None:
        super().__init__()
        self._task = task

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        outside = not self.get_in_parallel()
        super().parallel_for(n, fn)
        if outside:
            super().parallel_for(1, lambda _i, _n: self._task())


@pytest.mark.parametrize("where", ["the same stream", "another stream"])
def test_each_of_two_executions_of_one_primitive_has_its_own_scratch_memory_and_launches(
    where: str, store: CacheStore
) -> None:
    ran: list[bool] = []

    def task() -> None:
        ran.append(True)
        if where == "another stream":
            alike = Setting(setting.engine, OwnPool(), setting.cache)
            other = Scope(alike, [], [], alike.stream(), primitives=scope.primitives)
            other.submit("sums", [src[1]], dst[1])
        else:
            scope.submit("sums", [src[1]], dst[1])

    setting = Setting(Engine("cpu"), Between(task), compiled.cache(4, store))
    src = [setting.tensor(np.full((32, 6, 6), number + 1, np.float32)) for number in range(2)]
    dst = [setting.tensor() for _ in range(2)]
    scope = Scope(setting, [], [], setting.stream())
    # When a task executes between two regions of an execution in another thread
    scope.submit("sums", [src[0]], dst[0])
    assert len(ran) > 2
    # Then neither has used the other's memory
    inside = np.array([2, 3, 3, 3, 3, 2], np.float32)
    for number in range(2):
        want = np.broadcast_to((number + 1) * 32 * np.outer(inside, inside), (32, 6, 6))
        np.testing.assert_array_equal(values_of(dst[number]), want)


def test_regions_of_a_native_pool_that_is_dropped_run_and_are_freed(loop: Loop) -> None:
    class Kept:
        """An object that a region keeps."""

    ran: list[int] = []

    def task(_ret: Any, _exc: Any, _blob: Any) -> int:
        ran.append(len(ran))
        return 0

    callback = KERNEL_TYPE(task)
    kept, gate = Kept(), threading.Event()
    alive = weakref.ref(kept)
    before = set(threading.enumerate())
    pool = NativePool(1, True, loop)
    # Given a region that waits for its turn
    pool.parallel_for(1, lambda _i, _n: (gate.wait(BOUND_S), None)[1])
    pool.run_regions([Region(ctypes.cast(callback, ctypes.c_void_p).value or 0, [0], keep=kept)])
    # When the last reference to the pool is dropped
    del pool, kept
    gc.collect()
    assert alive() is not None
    assert not ran
    gate.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    # Then it has run
    assert ran == [0]
    gc.collect()
    assert alive() is None
