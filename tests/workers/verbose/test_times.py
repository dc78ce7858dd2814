"""Times in verbose lines, against the pool's own: ten seconds of executions, asynchronous and nested, add up.

A watched pool takes, by the same clock, the time of each region of the primitive, the least that a line may tell, and of
all that an execution submits, the most. However busy the machine is, that holds to the digit: a thread that loses its
processor between two stamps loses it between all stamps around these, too.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Matmul
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.object_loader import NativeKernel
from poolrt.workers.threadpools.interface import Region
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.verbose.output import set_verbose

from .lines import ASYNCHRONOUS, Problem, ReadLines, made, relu

SIZE = 1024
TEXT = (
    "cpu,matmul,native:tiles,undef,src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,"
    f"{SIZE}x{SIZE}:{SIZE}x{SIZE}"
)
#: Rounds that wait in the pool at a time.
HELD = 12
#: Part of a time that lines may contain beyond the computation, or lack.
TOLERANCE = 0.05
#: Lines tell six digits.
ROUNDED = 1 + 1e-5
ANSWER_S = 60.0


class Span:
    """Two stamps that a pool takes, each in a region of one task."""

    def __init__(self, clock: NativeKernel) -> None:
        self._times = (ctypes.c_int64 * 4)()
        start = ctypes.addressof(self._times)
        blobs = [(ctypes.c_int64 * 3)(0, 1, start + 16 * end) for end in (0, 1)]
        self.begin, self.end = (
            Region(clock.address, [ctypes.addressof(blob)], "a span", (self, blob)) for blob in blobs
        )

    @property
    def milliseconds(self) -> float:
        s0, ns0, s1, ns1 = self._times
        return (s1 - s0) * 1e3 + (ns1 - ns0) / 1e6


@dataclass(frozen=True)
class Execution:
    """What a watched pool knows of an execution: all that it submitted, and the regions that compute."""

    whole: Span
    computing: Sequence[Span]

    @property
    def least(self) -> float:
        return sum(span.milliseconds for span in self.computing)

    @property
    def most(self) -> float:
        return self.whole.milliseconds


class WatchedPool(NativePool):
    """A native pool that takes the times of executions of an implementation; ``within`` those in tasks."""

    def __init__(self, threads: int, loop: list[NativeKernel], implementation: str, asynchronous: bool = True) -> None:
        self._implementation = implementation
        self.submitted: list[Execution] = []
        self.within: list[Execution] = []
        super().__init__(threads, asynchronous, loop)

    def span(self) -> Span:
        """Return a span on this pool's clock."""
        assert self.clock is not None
        return Span(self.clock)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def stamp(self, region: Region) -> None:
        """Submit the begin or end of a span."""
        super().run_regions([region])

    def run_regions(self, regions: Sequence[Region]) -> None:
        super().run_regions(self._watched(regions, self.within if self.get_in_parallel() else self.submitted))

    def _watched(self, regions: Sequence[Region], executions: list[Execution]) -> list[Region]:
        whole, computing, watched = self.span(), [], []
        for region in regions:
            if region.name == self._implementation:
                computing.append(self.span())
                watched += [computing[-1].begin, region, computing[-1].end]
            else:
                watched.append(region)
        executions.append(Execution(whole, computing))
        return [whole.begin, *watched, whole.end]


@pytest.fixture
def problem(store: CacheStore) -> Problem:
    """Return a problem of some milliseconds."""
    desc = MemoryDesc((SIZE, SIZE), "f32")
    return Problem(store, Matmul.PrimitiveDesc(Engine("cpu"), desc, desc, None, desc), TEXT)


@dataclass(frozen=True)
class Round:
    """Three executions: one asynchronous, then two in tasks of one region. ``reported`` are the milliseconds in lines."""

    reported: list[float]
    submitted: Execution
    within: Sequence[Execution]
    whole: Span


@pytest.mark.parametrize(("seconds", "threads"), [(0, 1), (0, 2), pytest.param(10, 2, marks=pytest.mark.slow)])
def test_times_of_an_asynchronous_nested_run_add_up_to_the_time_that_was_computed(
    seconds: float, threads: int, problem: Problem, clocked_loop: list[NativeKernel], read_lines: ReadLines
) -> None:
    rounds = _rounds(problem, seconds, threads, clocked_loop, read_lines)
    # A task waits for the interpreter's lock, which a task on another thread may have.
    alone = [(each.reported[0], each.submitted) for each in rounds]
    if threads == 1:
        alone += [pair for each in rounds for pair in zip(each.reported[1:], each.within, strict=True)]
    computed = sum(execution.least for _, execution in alone)
    assert sum(milliseconds for milliseconds, _ in alone) <= computed * (1 + TOLERANCE)


@pytest.mark.slow
def test_times_of_ten_seconds_on_one_thread_add_up_to_the_time_that_passed(
    problem: Problem, clocked_loop: list[NativeKernel], read_lines: ReadLines
) -> None:
    rounds = _rounds(problem, 10, 1, clocked_loop, read_lines)
    shares = [sum(each.reported) / each.whole.milliseconds for each in rounds]
    assert max(shares) <= ROUNDED
    # The machine may put the thread aside between two executions for any time, but hardly so in most rounds.
    assert statistics.median(shares) >= 1 - TOLERANCE


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_waiting_for_other_executions_is_not_part_of_the_time(
    kind: str, store: CacheStore, clocked_loop: list[NativeKernel], read_lines: ReadLines
) -> None:
    # Given executions that wait in a pool
    problem, gate = relu(store), threading.Event()
    set_verbose("profile_exec")

    def wait(i: int, n: int) -> None:
        assert gate.wait(ANSWER_S)

    with made(kind, 2, clocked_loop) as pool:
        stream = problem.stream(pool)
        pool.parallel_for(1, wait)
        for _ in range(40):
            problem.run(stream)
        # When they may begin
        begin = time.perf_counter()
        gate.set()
        pool.wait()
        passed = time.perf_counter() - begin
    # Then all of their times lie between then and their end
    lines = read_lines()
    assert len(lines) == 40
    assert sum(line.milliseconds for line in lines) / 1e3 <= passed * ROUNDED


def test_executions_side_by_side_keep_times_of_their_own(
    problem: Problem, store: CacheStore, clocked_loop: list[NativeKernel], read_lines: ReadLines
) -> None:
    # Given a long execution on one thread of a pool, and many short ones on the other
    short = relu(store, engine=problem.primitive.engine)
    set_verbose("profile_exec")
    name = problem.primitive.pd.impl_name()
    with WatchedPool(2, clocked_loop, name, asynchronous=False) as pool:

        def nested(i: int, n: int) -> None:
            for _ in range(40 if i else 1):
                (short if i else problem).run(problem.stream(pool))

        pool.parallel_for(2, nested)
        pool.wait()
    # Then those that have begun and ended meanwhile have not changed its time
    lines = read_lines()
    assert len(lines) == 41
    (long,) = [line for line in lines if line.text == TEXT]
    (known,) = [execution for execution in pool.within if execution.computing]
    assert known.least <= long.milliseconds * ROUNDED
    assert long.milliseconds <= known.most * ROUNDED


def _rounds(
    problem: Problem, seconds: float, threads: int, loop: list[NativeKernel], read_lines: ReadLines
) -> list[Round]:
    """Return rounds of executions on an asynchronous pool, some and then more for so many seconds.

    Each execution has one line; lines tell no less than what computes has taken, and no more than all of the execution.
    """
    set_verbose("profile")
    with WatchedPool(threads, loop, problem.primitive.pd.impl_name()) as pool:
        spans = _submit(problem, pool, seconds, read_lines)
        pool.wait()
    lines = read_lines()
    assert len(lines) == 3 * len(spans)
    assert {line.text for line in lines} == {TEXT}
    times = [line.milliseconds for line in lines]
    rounds = [
        Round(times[3 * i : 3 * i + 3], pool.submitted[i], pool.within[2 * i : 2 * i + 2], spans[i])
        for i in range(len(spans))
    ]
    for each in rounds:
        # Tasks of one region may end in any order.
        for mine, ran in ((each.reported[:1], [each.submitted]), (each.reported[1:], each.within)):
            assert sum(execution.least for execution in ran) <= sum(mine) * ROUNDED
            assert sum(mine) <= sum(execution.most for execution in ran) * ROUNDED
    return rounds


def _submit(problem: Problem, pool: WatchedPool, seconds: float, read_lines: ReadLines) -> list[Span]:
    """Submit rounds of executions, some and then more for so long, and return the span of each when all have ended.

    The first begins when some wait, and from then on the caller mostly sleeps: it neither holds the interpreter's lock,
    which tasks need, nor looks after the end of each region.
    """
    stream, spans = problem.stream(pool), []
    gate, ended = threading.Event(), threading.Semaphore(0)

    def wait(i: int, n: int) -> None:
        assert gate.wait(ANSWER_S)

    def nested(i: int, n: int) -> None:
        problem.run(stream)

    def submit() -> None:
        spans.append(pool.span())
        pool.stamp(spans[-1].begin)
        problem.run(stream)
        pool.parallel_for(2, nested)
        pool.stamp(spans[-1].end)
        pool.parallel_for(1, lambda i, n: ended.release())

    pool.parallel_for(1, wait)
    for _ in range(HELD):
        submit()
    assert not read_lines()
    gate.set()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert ended.acquire(timeout=ANSWER_S)
        submit()
    for _ in range(HELD):
        assert ended.acquire(timeout=ANSWER_S)
    return spans
