"""The choice between runs alone and with other threads follows what takes less time, and costs little. Times are made up."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from poolrt.workers.engines.object_loader import NativeKernel, load_object
from poolrt.workers.engines.target import host_isa
from poolrt.workers.kernels.native.atomics import atomic_store
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import compile_function
from poolrt.workers.kernels.native.region_queue import LINE, RATE, RECORD, WORDS
from poolrt.workers.kernels.native.trial_words import TRIALS
from poolrt.workers.kernels.native.trials import note_run, runs_alone

#: Microseconds of a run alone and of one with other threads, at a time in microseconds.
World = Callable[[int], tuple[int, int]]
SECOND = 1_000_000


@pytest.fixture(scope="module")
def step() -> NativeKernel:
    """A kernel that notes a run and writes whether the next one is alone."""

    def step(begin: int, end: int, queue: int, trials: int, regions: int, taken: int, now: int, alone: int) -> None:
        note_run(queue, trials, regions, 1, taken, now)
        atomic_store(alone, 1 if runs_alone(trials) else 0)

    return load_object(compile_function("step", step, types.void(*[types.int64] * 8), host_isa()))


class Runs:
    """Runs in a world, one after the other, with a clock of their own."""

    def __init__(self, step: NativeKernel, world: World, work: Callable[[int], int]) -> None:
        self._step, self._world, self._work = step, world, work
        self._queue = (ctypes.c_int64 * (WORDS * LINE // 8))()
        self._queue[RATE // 8] = 1
        self._trials = (ctypes.c_int64 * (TRIALS // 8))()
        self._times = (ctypes.c_int64 * 2)()
        self._record = (ctypes.c_int64 * (RECORD // 8))()
        self._record[-1] = ctypes.addressof(self._times)
        self._alone = ctypes.c_int64()
        self.now = 1000

    def until(self, end: int) -> tuple[int, int]:
        """Run until a time; return how many runs were alone, and how many with others."""
        found = [0, 0]
        room = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(room)
        while self.now < end:
            alone = self._alone.value != 0
            taken = self._world(self.now)[0 if alone else 1]
            self._times[0] = 1000 * self._work(self.now)
            self.now += taken
            memory = self._queue, self._trials, self._record
            addresses = [ctypes.addressof(each) for each in memory]
            blob = (ctypes.c_int64 * 8)(0, 1, *addresses, taken, self.now, ctypes.addressof(self._alone))
            assert not self._step.function(start, start + 32, ctypes.addressof(blob))
            found[0 if alone else 1] += 1
        return found[0], found[1]


@pytest.mark.parametrize("unit", [20, 400, 4000, 100_000])
def test_runs_are_nearly_as_fast_as_the_faster_way_and_follow_it(step: NativeKernel, unit: int) -> None:
    good, bad = (10 * unit, 7 * unit), (10 * unit, 15 * unit)
    long = max(SECOND, 2000 * unit)
    runs = Runs(step, lambda now: good if now // long != 1 else bad, lambda _: 10 * unit)
    alone, together = runs.until(long)
    assert (10 * alone + 7 * together) * unit < 1.02 * 7 * unit * (alone + together)
    alone, together = runs.until(2 * long)
    assert (10 * alone + 15 * together) * unit < 1.05 * 10 * unit * (alone + together)
    # It takes a trial to find out that the bad time is over.
    runs.until(2 * long + max(SECOND, 800 * unit))
    alone, together = runs.until(4 * long)
    assert alone < 0.02 * together


def test_other_threads_that_slow_down_every_task_are_left_aside(step: NativeKernel) -> None:
    # What tasks take with others says nothing then: two threads on one core.
    runs = Runs(step, lambda _: (4300, 6200), lambda _: 8600)
    alone, together = runs.until(4 * SECOND)
    assert together < 0.1 * alone


def test_one_run_that_is_held_up_leaves_nothing_aside(step: NativeKernel) -> None:
    runs = Runs(step, lambda now: (4500, 10_000 if now // 100_000 != (now - 3400) // 100_000 else 3400), lambda _: 4500)
    alone, together = runs.until(4 * SECOND)
    assert alone < 0.05 * together


def test_runs_that_other_threads_shorten_well_are_hardly_ever_tried_alone(step: NativeKernel) -> None:
    runs = Runs(step, lambda _: (10_000, 5500), lambda _: 10_000)
    alone, together = runs.until(60 * SECOND)
    assert 0 < alone < 0.002 * together


def test_threads_that_slow_down_each_other_alike_from_the_start_are_left_aside(step: NativeKernel) -> None:
    # Their tasks take twice as long as the run, as those of threads that share well do.
    runs = Runs(step, lambda _: (80, 260), lambda _: 520)
    alone, together = runs.until(SECOND)
    assert together < 0.05 * alone


def test_runs_that_take_much_longer_than_the_other_way_did_are_not_kept_long(step: NativeKernel) -> None:
    # Trials that change nothing have become rare when the threads begin to disturb each other.
    begin = 5 * SECOND
    runs = Runs(step, lambda now: (21, 320) if now > begin else (21, 20), lambda _: 19)
    for _ in range(5):
        runs.until(begin)
        alone, together = runs.until(begin + SECOND // 10)
        assert alone > 10 * together
        begin += 3 * SECOND


def test_a_time_alone_that_was_a_busy_moment_is_measured_again(step: NativeKernel) -> None:
    # Alone is faster, but seemed to be slower when it was tried.
    runs = Runs(step, lambda now: (1500, 1000) if now < SECOND else (600, 1000), lambda _: 2000)
    runs.until(30 * SECOND)
    alone, together = runs.until(60 * SECOND)
    assert together < 0.05 * alone


#: Microseconds that a scheduler gives a program at a time.
SLICE = 3000


def held_up(now: int, taken: int) -> int:
    """Return the microseconds for which a thread has no processor in a run, beside a program that takes turns with it."""
    phase = now % (2 * SLICE)
    return 2 * SLICE - phase if phase < SLICE <= phase + taken else 0


def test_a_program_that_takes_a_processor_for_a_moment_leaves_no_thread_aside(step: NativeKernel) -> None:
    def world(now: int) -> tuple[int, int]:
        if now % 300_000 >= 30_000:
            return 120, 62
        return 120, 122 if now % (2 * SLICE) >= SLICE else 62 + held_up(now, 62)

    runs = Runs(step, world, lambda _: 124)
    alone, together = runs.until(10 * SECOND)
    assert alone < 0.01 * together


@pytest.mark.parametrize("together", [25, 32, 39])
def test_threads_beside_a_program_that_keeps_their_processor_cost_little(step: NativeKernel, together: int) -> None:
    def world(now: int) -> tuple[int, int]:
        return 40, 42 if now % (2 * SLICE) >= SLICE else together + held_up(now, together)

    runs = Runs(step, world, lambda _: 2 * together)
    count = sum(runs.until(5 * SECOND))
    assert 1.1 * 40 * count > 5 * SECOND


def test_bad_times_are_over_soon(step: NativeKernel) -> None:
    good, bad = SECOND, 1_500_000
    runs = Runs(step, lambda now: (400, 280 if now % (good + bad) < good else 600), lambda _: 400)
    for begin in range(0, 5 * (good + bad), good + bad):
        runs.until(begin + good // 5)
        alone, together = runs.until(begin + good)
        assert alone < 0.02 * together
        alone, together = runs.until(begin + good + bad)
        assert together < 0.2 * alone
