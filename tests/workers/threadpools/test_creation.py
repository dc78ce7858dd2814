"""Primitives are created in the pool that executes them, beside executions, without a deadlock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from poolrt.cachestore import CacheStore, CreationFailed
from poolrt.workers import Eltwise
from poolrt.workers.desc import Arg, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.implementations.program import Program
from poolrt.workers.primitives.compiler_pool import compiler_pool
from poolrt.workers.primitives.creation import PrimitiveCreator
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.nesting import can_wait
from tests.workers.primitives.crowd import BROKEN, Counting, Described

from .bounded import ends
from .kinds import KINDS, Loop, made

BOUND_S: Final = 60.0
CASES: Final = [(kind, n) for kind in (*KINDS, "helping") for n in ((1,) if kind in ("sequential", "own") else (1, 2))]
SYNCHRONOUS: Final = ("threads", "native", "executor", "helping")
ASYNCHRONOUS: Final = ("threads asynchronous", "native asynchronous", "checking")
DEPTH: Final = 4
_SIZES = count(1000)


@pytest.fixture(scope="module")
def creator() -> PrimitiveCreator:
    """Return one that keeps the kernels that it has compiled."""
    return PrimitiveCreator()


@pytest.fixture
def empty(store: CacheStore, tmp_path: Path) -> Iterator[CacheStore]:
    """Return a store without entries, from whose kernels nothing is derived."""
    with CacheStore.connect(home=store.options.home, namespace=tmp_path.name) as opened:
        yield opened


class Bench:
    """An engine, a stream on a pool, and new primitives."""

    def __init__(self, pool: ThreadpoolInterface) -> None:
        self.engine = Engine("cpu")
        self.pool = pool
        self.stream = self.new_stream()

    def new_stream(self) -> Stream:
        attr = StreamAttr("cpu")
        attr.set_threadpool(self.pool)
        return Stream(self.engine, attr)

    def describe(self, kernel: bool = False) -> PrimitiveDescIface:
        """Describe a doubling of at most 8 numbers; ``kernel`` asks for a kernel that is not compiled yet."""
        number = next(_SIZES)
        md = MemoryDesc((number,), "f32")
        attr = PrimitiveAttr((PostOp("eltwise", "clip", -16.0, 16.0 + number),)) if kernel else None
        return Eltwise.PrimitiveDesc(self.engine, md, md, "linear", 2.0, attr=attr)

    def described(self, program: Callable[[int, Program], Program]) -> Callable[[PrimitiveProvider], Primitive]:
        """Return a creator of doublings; ``program`` gets the number of the call, from 1, and a program, and returns one."""
        pd = self.describe().pd
        right = pd.program()
        implementation = Described(f"test:{next(_SIZES)}", lambda time: program(time, right))
        return lambda cache: Primitive(replace(pd, implementation=implementation), self.engine, cache)

    def double(self, primitive: Primitive, value: float, stream: Stream | None = None) -> Memory:
        """Execute; return the destination."""
        memories = {arg: Memory(md, self.engine) for arg, md in primitive.pd.memories().items()}
        memories[Arg.SRC].numpy()[:] = value
        primitive.execute(stream or self.stream, memories)
        return memories[Arg.DST]


def after(wait: Callable[[], object]) -> Callable[[PrimitiveDesc], bytes]:
    """Return a creator that waits before it compiles."""

    def create(pd: PrimitiveDesc) -> bytes:
        wait()
        return compiler_pool().create(pd)

    return create


def values(memory: Memory) -> set[float]:
    return set(np.unique(memory.numpy()).tolist())


class Results:
    """Values of destinations: read at once, or outside of the pool if tasks cannot wait for their executions."""

    def __init__(self) -> None:
        self._found: list[Memory | set[float]] = []

    def add(self, bench: Bench, dst: Memory) -> None:
        self._found.append(values(dst) if can_wait(bench.pool) else dst)

    @property
    def values(self) -> list[set[float]]:
        """All values, in the order of the executions."""
        return [one if isinstance(one, set) else values(one) for one in self._found]


def whole(pool: ThreadpoolInterface, n: int, task: Callable[[int, int], None]) -> Callable[[], None]:
    """Return an action that runs a region and waits for it."""

    def run() -> None:
        pool.parallel_for(n, task)
        pool.wait()

    return run


@pytest.mark.parametrize(("kind", "threads"), CASES)
def test_tasks_create_and_execute_in_the_pool_that_runs_them_to_any_depth(
    kind: str, threads: int, loop: Loop, store: CacheStore
) -> None:
    cache, sources, results = PrimitiveProvider(64, store), list[str](), Results()

    def descend(bench: Bench, depth: int) -> None:
        # This primitive is new, and in the outermost task of one thread its kernel too, so that it is not derived from those of
        # others; the second time both exist
        pd = bench.describe(kernel=depth == DEPTH and threads == 1)
        for _ in range(2):
            primitive = pd.create(cache)
            sources.append(primitive.source)
            for stream in (bench.stream, bench.new_stream()):
                dst = bench.double(primitive, depth, stream)
                if can_wait(bench.pool):
                    stream.wait()
                results.add(bench, dst)
        if depth > 1:
            bench.pool.parallel_for(2 if depth == DEPTH else 1, lambda _i, _n: descend(bench, depth - 1))
            if can_wait(bench.pool):
                bench.pool.wait()

    with made(kind, threads, loop) as pool:
        bench = Bench(pool)

        ends(whole(pool, 1, lambda _i, _n: descend(bench, DEPTH)))
    tasks = 1 + 2 * (DEPTH - 1)
    made_now = [source for source in sources if source != "memory"]
    assert sources.count("memory") == len(made_now) == tasks
    assert set(made_now) <= {"created", "derived"}
    assert "created" in made_now or threads > 1
    assert sorted(results.values, key=min) == [
        {2.0 * depth} for depth in range(1, DEPTH + 1) for _ in range(4 if depth == DEPTH else 8)
    ]


@pytest.mark.parametrize(("kind", "threads"), [case for case in CASES if case[1] == 2])
def test_two_tasks_that_want_the_same_new_primitive_have_one_creation(
    kind: str, threads: int, loop: Loop, empty: CacheStore, creator: PrimitiveCreator
) -> None:
    cache, sources, results = Counting(empty, creator), list[str](), Results()
    with made(kind, threads, loop) as pool:
        bench = Bench(pool)
        # Given a creation that ends only after both have asked
        create = bench.described(lambda _, right: cache.after(2, right))

        def task(_i: int, _n: int) -> None:
            primitive = create(cache)
            sources.append(primitive.source)
            results.add(bench, bench.double(primitive, 3))

        ends(whole(pool, 2, task))
    assert sorted(sources) == ["created", "waited"]
    assert results.values == [{6.0}, {6.0}]


@pytest.mark.parametrize("kind", [*SYNCHRONOUS, *ASYNCHRONOUS])
@pytest.mark.parametrize("inside", [False, True])
def test_a_task_on_a_pool_of_one_thread_waits_for_a_creation_outside_and_the_other_way_round(
    kind: str, inside: bool, loop: Loop, empty: CacheStore, creator: PrimitiveCreator
) -> None:
    cache, other, sources = Counting(empty, creator), threading.Event(), list[str]()
    with made(kind, 1, loop) as pool:

        def program(_: int, right: Program) -> Program:
            other.set()
            return cache.after(2, right)

        create = Bench(pool).described(program)

        def ask(leads: bool) -> None:
            assert leads or other.wait(BOUND_S)  # the creation of the other one has begun
            sources.append(create(cache).source)

        ends(whole(pool, 1, lambda _i, _n: ask(inside)), lambda: ask(not inside))
    assert sorted(sources) == ["created", "waited"]


@pytest.mark.parametrize(("kind", "threads"), [case for case in CASES if case[1] == 2])
def test_tasks_execute_while_another_task_of_the_pool_creates(
    kind: str, threads: int, loop: Loop, store: CacheStore
) -> None:
    cache, events, executed, creating = PrimitiveProvider(64, store), list[str](), threading.Event(), threading.Event()
    # Given a creation that ends only after others have executed

    def wait() -> None:
        creating.set()
        executed.wait(BOUND_S)

    gated = PrimitiveProvider(64, store, after(wait))
    with made(kind, threads, loop) as pool:
        bench = Bench(pool)
        known, results = bench.describe().create(cache), Results()

        def create() -> None:
            primitive = bench.describe(kernel=True).create(gated)
            events.append(primitive.source)
            results.add(bench, bench.double(primitive, 20))

        def execute() -> None:
            assert creating.wait(BOUND_S)
            for number in range(20):
                results.add(bench, bench.double(known, number))
                events.append("executed")
            executed.set()

        ends(whole(pool, 2, lambda i, _: (create, execute)[i]()))
    assert events == ["executed"] * 20 + ["created"]
    assert results.values == [{2.0 * number} for number in range(21)]


# Not on a pool whose waiting threads run any task: that may be a creation too.
@pytest.mark.parametrize("kind", ["threads", "native", "executor"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_thread_executes_on_a_synchronous_pool_whose_threads_all_create(
    kind: str, threads: int, loop: Loop, store: CacheStore
) -> None:
    cache, events, executed = PrimitiveProvider(64, store), list[str](), threading.Event()
    begun = threading.Barrier(threads + 1, timeout=BOUND_S)
    gated = PrimitiveProvider(64, store, after(lambda: (begun.wait(), executed.wait(BOUND_S))))
    with made(kind, threads, loop) as pool:
        bench = Bench(pool)
        known = bench.describe().create(cache)

        def execute() -> None:
            begun.wait()
            assert values(bench.double(known, 4)) == {8.0}
            bench.stream.wait()
            events.append("executed")
            executed.set()

        ends(
            lambda: pool.parallel_for(
                threads, lambda _i, _n: events.append(bench.describe(kernel=True).create(gated).source)
            ),
            execute,
        )
    assert events == ["executed"] + ["created"] * threads


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
@pytest.mark.parametrize("threads", [1, 2])
def test_creations_end_while_executions_wait_for_their_turn(
    kind: str, threads: int, loop: Loop, store: CacheStore
) -> None:
    cache, gate = PrimitiveProvider(64, store), threading.Event()
    with made(kind, threads, loop) as pool:
        bench = Bench(pool)
        known = bench.describe().create(cache)

        def hold(_i: int, _n: int) -> None:
            gate.wait(BOUND_S)

        # Given executions that cannot begin yet
        pool.parallel_for(threads, hold)
        results = [bench.double(known, 2) for _ in range(5)]
        # When primitives are created, and executed behind those
        for number in range(3):
            new = bench.describe(kernel=number == 0).create(cache)
            assert new.source == ("derived" if number else "created")
            results.append(bench.double(new, 2))
        # Then each has run in its turn
        assert all(values(dst) == {0.0} for dst in results)
        gate.set()
        bench.stream.wait()
        assert all(values(dst) == {4.0} for dst in results)


@pytest.mark.parametrize(("kind", "threads"), CASES)
def test_the_error_of_a_creation_in_a_task_reaches_the_waiting_thread_and_the_pool_continues(
    kind: str, threads: int, loop: Loop, empty: CacheStore, creator: PrimitiveCreator
) -> None:
    cache, results = Counting(empty, creator), Results()
    with made(kind, threads, loop) as pool:
        bench = Bench(pool)
        create = bench.described(lambda time, right: BROKEN if time == 1 else right)

        def task(_i: int, _n: int) -> None:
            results.add(bench, bench.double(create(cache), 5))

        def run() -> None:
            with pytest.raises(CreationFailed, match="no_such_kernel"):
                whole(pool, 1, lambda _i, _n: pool.parallel_for(1, task))()
            assert not pool.get_in_parallel()
            # When it is tried again, by as many tasks as there are threads
            whole(pool, threads, task)()

        ends(run)
    assert results.values == [{10.0}] * threads
