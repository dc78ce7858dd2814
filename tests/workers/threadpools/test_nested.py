"""Tasks execute primitives on the pool that runs them: regions are submitted, or run with idle threads; none hangs."""

from __future__ import annotations

import ctypes
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.cachestore import CacheStore
from poolrt.workers import Matmul
from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools import native_queue
from poolrt.workers.threadpools.interface import KERNEL_TYPE, KernelFailed, Region, ThreadpoolInterface
from tests.workers import compiled

from .bounded import ends
from .kinds import Loop, OwnPool, made
from .own_asynchronous import OwnAsynchronousPool
from .recording import recorded

BOUND_S = 20.0
ASYNCHRONOUS = ("native asynchronous", "threads asynchronous", "checking", "own asynchronous")
#: A thread that waits for a region of these runs only what is nested in it.
STRICT = ("threads", "native")
SYNCHRONOUS = (*STRICT, "executor", "helping")
SIZE = 96
PRODUCTS = 4


@pytest.fixture
def product(store: CacheStore) -> Primitive:
    """Return a product of two square matrices."""
    md = MemoryDesc((SIZE, SIZE), "f32")
    return Matmul.PrimitiveDesc(Engine("cpu"), md, md, None, md).create(compiled.cache(8, store))


def stream_on(engine: Engine, pool: ThreadpoolInterface) -> Stream:
    attr = StreamAttr("cpu")
    attr.set_threadpool(pool)
    pool.least_job_ns = 0  # however short the work is, it is cut
    return Stream(engine, attr)


class Chain:
    """Products, each of the one before and a permutation of the identity: right only in order."""

    def __init__(self, product: Primitive) -> None:
        self._product = product
        rng = np.random.default_rng(0)
        first = rng.integers(-8, 9, (SIZE, SIZE)).astype(np.float32)
        turns = [np.eye(SIZE, dtype=np.float32)[rng.permutation(SIZE)] for _ in range(PRODUCTS)]
        self.want: NDArray[np.float32] = np.linalg.multi_dot([first, *turns])
        self._turns = [self._memory(turn) for turn in turns]
        self._values = [self._memory(first), *(self._memory() for _ in turns)]

    def execute(self, stream: Stream) -> None:
        for number, turn in enumerate(self._turns):
            src, dst = self._values[number : number + 2]
            self._product.execute(stream, {Arg.SRC: src, Arg.WEIGHTS: turn, Arg.DST: dst})

    @property
    def result(self) -> NDArray[Any]:
        return self._values[-1].numpy()

    def _memory(self, values: NDArray[np.float32] | None = None) -> Memory:
        memory = Memory(MemoryDesc((SIZE, SIZE), "f32"), self._product.engine)
        memory.numpy()[:] = 0 if values is None else values
        return memory


def held_until(gate: threading.Event) -> Callable[[int, int], None]:
    """Return a task that waits for an event."""

    def hold(_i: int, _n: int) -> None:
        assert gate.wait(BOUND_S)

    return hold


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_executions_of_a_task_return_before_they_run_on_all_threads_of_an_asynchronous_pool(
    kind: str, loop: Loop, product: Primitive
) -> None:
    chain, begun = Chain(product), list[int]()
    with made(kind, 2, loop) as pool, recorded(pool, BOUND_S) as found:
        stream = stream_on(product.engine, pool)

        def task(_i: int, _n: int) -> None:
            chain.execute(stream)
            begun.append(sum(map(len, found.parts)))

        pool.parallel_for(1, task)
        pool.wait()
    # Then nothing had begun when the last execution returned
    assert begun == [0]
    np.testing.assert_array_equal(chain.result, chain.want)
    # And both threads have run parts of each region
    divided = [threads for threads in found.parts if len(threads) > 1]
    assert len(divided) >= PRODUCTS
    assert all(len(set(threads)) == 2 for threads in divided)


@pytest.mark.parametrize("kind", SYNCHRONOUS)
def test_executions_of_a_task_run_on_its_thread_and_idle_ones_of_a_synchronous_pool(
    kind: str, loop: Loop, product: Primitive
) -> None:
    chain, mine = Chain(product), list[int]()
    with made(kind, 2, loop) as pool, recorded(pool, BOUND_S) as found:
        stream = stream_on(product.engine, pool)

        def task(_i: int, _n: int) -> None:
            mine.append(threading.get_ident())
            chain.execute(stream)
            # Then each has ended when it returns
            stream.wait()
            np.testing.assert_array_equal(chain.result, chain.want)

        ends(lambda: pool.parallel_for(1, task))
    divided = [threads for threads in found.parts if len(threads) > 1]
    assert len(divided) >= PRODUCTS
    assert all(len(set(threads)) == 2 and mine[0] in threads for threads in divided)


@pytest.mark.parametrize("kind", STRICT)
@pytest.mark.parametrize("nesting", [0, 1])
def test_threads_that_wait_for_a_region_run_what_is_nested_in_it(kind: str, nesting: int, loop: Loop) -> None:
    meeting = threading.Barrier(2, timeout=BOUND_S)
    with made(kind, 2, loop) as pool:

        def inner(_i: int, _n: int) -> None:
            meeting.wait()

        def middle(i: int, _n: int) -> None:
            meeting.wait()
            if i == nesting:
                # The other thread waits, for the region of this task or for the one around it
                pool.parallel_for(2, inner)

        ends(lambda: pool.parallel_for(1, lambda _i, _n: pool.parallel_for(2, middle)))


@pytest.mark.parametrize("kind", STRICT)
def test_threads_that_wait_for_a_region_run_nothing_that_is_not_nested_in_it(kind: str, loop: Loop) -> None:
    begun, gate, ran = threading.Barrier(3, timeout=BOUND_S), threading.Event(), list[int]()
    mine: list[int] = []
    with made(kind, 2, loop) as pool:

        def hold(i: int, _n: int) -> None:
            begun.wait()
            # The calling thread soon waits for the other one
            if threading.current_thread().name.startswith("poolrt-"):
                assert gate.wait(BOUND_S)

        def other() -> None:
            begun.wait()
            mine.append(threading.get_ident())
            for _ in range(50):
                pool.parallel_for(
                    1, lambda _i, _n: pool.parallel_for(4, lambda _i, _n: ran.append(threading.get_ident()))
                )
            gate.set()

        ends(lambda: pool.parallel_for(2, hold), other)
    assert ran == mine * 200


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
@pytest.mark.parametrize("threads", [1, 2])
def test_what_tasks_submit_runs_as_if_their_region_contained_it(kind: str, threads: int, loop: Loop) -> None:
    order: list[str] = []
    with made(kind, threads, loop) as pool:

        def submit(name: str, depth: int) -> None:
            def task(_i: int, _n: int) -> None:
                order.append(name)
                for number in range(depth):
                    submit(f"{name}{number}", depth - 1)

            pool.parallel_for(1, task)

        gate = threading.Event()
        pool.parallel_for(1, held_until(gate))
        for name in "abc":
            submit(name, 3)
        gate.set()
        pool.wait()
    # Depth first, that is in the order of the names
    assert order == sorted(order)
    assert len(order) == 3 * 16


@pytest.mark.parametrize("threads", [1, 2])
def test_a_task_submits_more_regions_than_the_native_queue_has_room_for(threads: int, loop: Loop) -> None:
    many = 2 * native_queue.CAPACITY + 7
    order: list[int] = []

    def later(region: int) -> Callable[[int, int], None]:
        return lambda _i, _n: order.append(region)

    with made("native asynchronous", threads, loop) as pool:
        gate = threading.Event()
        pool.parallel_for(1, held_until(gate))

        def task(_i: int, _n: int) -> None:
            for number in range(many):
                pool.parallel_for(1, later(number))

        def outside() -> None:
            pool.parallel_for(1, task)
            # Behind it, more than there is room for too
            for number in range(many, many + native_queue.CAPACITY // 2):
                pool.parallel_for(1, later(number))
            gate.set()
            pool.wait()

        ends(outside)
    assert order == list(range(many + native_queue.CAPACITY // 2))


def test_tasks_of_two_full_native_pools_submit_to_each_other(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_queue, "PATIENCE_S", 0.05)
    meeting, ran = threading.Barrier(2, timeout=BOUND_S), list[str]()
    with made("native asynchronous", 1, loop) as one, made("native asynchronous", 1, loop) as other:
        full = threading.Barrier(3, timeout=BOUND_S)

        def cross(there: ThreadpoolInterface, name: str) -> Callable[[int, int], None]:
            def task(_i: int, _n: int) -> None:
                full.wait()
                meeting.wait()
                there.parallel_for(1, lambda _i, _n: ran.append(name))

            return task

        def outside() -> None:
            one.parallel_for(1, cross(other, "a"))
            other.parallel_for(1, cross(one, "b"))
            for pool in (one, other):
                for _ in range(native_queue.CAPACITY - 2):
                    pool.parallel_for(1, lambda _i, _n: None)
            full.wait()
            one.wait()
            other.wait()
            one.wait()

        ends(outside)
    assert sorted(ran) == ["a", "b"]


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_a_task_that_waits_for_its_own_asynchronous_pool_gets_an_error(
    kind: str, loop: Loop, product: Primitive
) -> None:
    chain, errors = Chain(product), list[str]()
    with made(kind, 1, loop) as pool:
        stream = stream_on(product.engine, pool)

        def task(_i: int, _n: int) -> None:
            chain.execute(stream)
            with pytest.raises(RuntimeError) as error:
                stream.wait()
            errors.append(str(error.value))

        def run() -> None:
            pool.parallel_for(1, task)
            pool.wait()

        ends(run)
    assert "Wait outside of the pool's tasks, or submit the next step as a region" in errors[0]
    np.testing.assert_array_equal(chain.result, chain.want)


class NotNesting(OwnAsynchronousPool):
    """Takes no regions of its tasks."""

    def get_flags(self) -> int:
        return self.ASYNCHRONOUS

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        assert not self.get_in_parallel()
        super().parallel_for(n, fn)

    def wait(self) -> None:
        if not self.get_in_parallel():
            super().wait()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_pool_that_does_not_nest_gets_no_regions_of_its_tasks(asynchronous: bool, product: Primitive) -> None:
    chain, mine = Chain(product), list[int]()

    class Alone(OwnPool):
        def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
            assert not self.get_in_parallel()
            super().parallel_for(n, fn)

    pool = NotNesting(2) if asynchronous else Alone()
    stream = stream_on(product.engine, pool)

    def task(_i: int, _n: int) -> None:
        mine.append(threading.get_ident())
        chain.execute(stream)
        # Then it has run in place
        stream.wait()
        np.testing.assert_array_equal(chain.result, chain.want)

    pool.parallel_for(1, task)
    pool.wait()
    assert len(mine) == 1


def failing() -> tuple[Region, object]:
    """Return a region of native tasks that fail, and what it needs."""
    callback = KERNEL_TYPE(lambda _ret, _exc, _blob: 1)
    return Region(ctypes.cast(callback, ctypes.c_void_p).value or 0, [0, 0], "step 'five'", callback), callback


@pytest.mark.parametrize("kind", [*ASYNCHRONOUS, *SYNCHRONOUS])
def test_the_error_of_a_nested_region_is_raised_once(kind: str, loop: Loop) -> None:
    region, _callback = failing()
    raised: list[BaseException] = []
    with made(kind, 2, loop) as pool:

        def task(_i: int, _n: int) -> None:
            try:
                pool.run_regions([region])
            except KernelFailed as error:
                raised.append(error)

        def run() -> None:
            pool.parallel_for(1, task)
            pool.wait()

        if kind in ASYNCHRONOUS:
            with pytest.raises(KernelFailed, match="step 'five'"):
                run()
            assert not raised
        else:
            run()
            assert [str(error) for error in raised] == ["step 'five' failed"]
        # And the pool continues
        pool.parallel_for(2, lambda _i, _n: None)
        pool.wait()
        assert not pool.get_in_parallel()


@pytest.mark.parametrize("kind", ASYNCHRONOUS[:2])
def test_a_pool_that_is_closed_runs_what_its_tasks_still_submit(kind: str, loop: Loop) -> None:
    ran: list[int] = []
    gate = threading.Event()
    with made(kind, 1, loop) as pool:

        def task(depth: int) -> Callable[[int, int], None]:
            def run(_i: int, _n: int) -> None:
                assert gate.wait(BOUND_S)
                ran.append(depth)
                if depth < 3:
                    pool.parallel_for(1, task(depth + 1))

            return run

        pool.parallel_for(1, task(0))
        closing = threading.Thread(target=pool.close, daemon=True)  # type: ignore[attr-defined]
        closing.start()
        while not pool._closed:  # type: ignore[attr-defined]
            closing.join(0.001)
        gate.set()
        closing.join(BOUND_S)
        assert not closing.is_alive()
    assert ran == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", SYNCHRONOUS)
@pytest.mark.parametrize("threads", [1, 2])
def test_nested_regions_of_any_depth_end(kind: str, threads: int, loop: Loop) -> None:
    # More than the slots of the native queue
    depth, ran = native_queue.SLOT_COUNT + 6, list[int]()
    with made(kind, threads, loop) as pool:

        def task(left: int) -> Callable[[int, int], None]:
            def run(i: int, _n: int) -> None:
                ran.append(left)
                if left and i == 0:
                    pool.parallel_for(2, task(left - 1))

            return run

        ends(lambda: pool.parallel_for(1, task(depth)))
    assert sorted(ran) == sorted([*range(depth), *range(depth), depth])


@pytest.mark.parametrize("kind", ["native asynchronous", "threads asynchronous", "own asynchronous"])
def test_memory_of_executions_in_tasks_is_freed_when_they_have_ended(kind: str, loop: Loop, product: Primitive) -> None:
    alive: list[weakref.ref[Any]] = []
    md = MemoryDesc((SIZE, SIZE), "f32")
    with made(kind, 2, loop) as pool:
        stream = stream_on(product.engine, pool)

        def task(_i: int, _n: int) -> None:
            arrays = [np.ones((SIZE, SIZE), np.float32) for _ in range(3)]
            memories = [Memory(md, product.engine, array) for array in arrays]
            alive.extend(map(weakref.ref, arrays))
            src, weights, dst = memories
            product.execute(stream, {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.DST: dst})

        pool.parallel_for(2, task)
        pool.wait()
        del task
        assert [array() for array in alive] == [None] * 6


@pytest.mark.parametrize("kind", [*STRICT, "executor"])
def test_an_interrupt_of_a_nested_region_is_raised_when_its_tasks_have_ended(kind: str, loop: Loop) -> None:
    class Interrupted(Exception):
        """Raised by the handler of a signal."""

    def interrupt(_number: int, _frame: object) -> None:
        came.set()
        raise Interrupted

    main = threading.main_thread()
    came, done, ended, seen = threading.Event(), threading.Event(), list[int](), list[int]()
    both, inner = (threading.Barrier(2, timeout=BOUND_S) for _ in range(2))

    def task(i: int, _n: int) -> None:
        inner.wait()
        if threading.current_thread() is main:
            done.set()
            return
        assert done.wait(BOUND_S)
        came.wait(0.05)  # the calling thread leaves its task meanwhile
        signal.pthread_kill(main.ident or 0, signal.SIGUSR1)
        assert came.wait(BOUND_S)
        came.wait(0)
        threading.Event().wait(0.1)
        ended.append(i)

    def outer(_i: int, _n: int) -> None:
        both.wait()
        if threading.current_thread() is main:
            try:
                pool.parallel_for(2, task)
            finally:
                seen.append(len(ended))

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with made(kind, 2, loop) as pool:
            with pytest.raises(Interrupted):
                pool.parallel_for(2, outer)
            assert not pool.get_in_parallel()
            pool.parallel_for(2, lambda _i, _n: None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]
