"""Random programs end with right results on every threadpool, nested ones on pools of one thread too."""

from __future__ import annotations

import faulthandler
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poolrt.cachestore import CacheStore
from poolrt.workers.engines.engine import Engine
from tests.workers import compiled

from .kinds import Loop, made
from .poison import poisoned
from .programs import Program, Scope, Setting, first, outcome, programs, values_of

KINDS = ("threads", "threads asynchronous", "native", "native asynchronous", "executor", "checking", "own asynchronous")
CASES = [(kind, threads) for kind in KINDS for threads in (1, 2)]
#: Programs for each case, by tier: in the thorough one more than 10,000 together.
FEW, MANY = 5, 500
THOROUGH = [pytest.mark.slow, pytest.mark.timeout(900)]
#: Programs are drawn in parts, which takes long on a busy machine.
SLOW = [HealthCheck.too_slow]
#: Seconds after which a program counts as hanging.
BOUND_S = 30.0


def run(program: Program, kind: str, threads: int, loop: Loop, store: CacheStore, seed: int) -> None:
    """Run a program on a pool of its own; raise AssertionError unless it ends, and with the right results."""
    with poisoned() as freed, made(kind, threads, loop, seed) as pool:
        pool.least_job_ns = 0  # however short the work is, it is cut
        # Given a cache that is too small for the primitives of most programs
        setting = Setting(Engine("cpu"), pool, compiled.cache(2, store))
        scope = Scope(setting, [setting.tensor(values) for values in first()], first(), setting.stream())
        scope.run(program)
        slots = scope.slots
        # When only the results are left, and only the pool is awaited
        del scope
        pool.wait()
        for memory, want in zip(slots, outcome(program, first()), strict=True):
            np.testing.assert_array_equal(values_of(memory), want)
        freed.assert_untouched()


def assert_ends(program: Program, kind: str, threads: int, loop: Loop, store: CacheStore, seed: int) -> None:
    """Run a program in a thread and raise its error; if it does not end, print the stacks of all threads."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            run(program, kind, threads, loop, store, seed)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(BOUND_S)
    if thread.is_alive():
        faulthandler.dump_traceback()
        raise AssertionError(f"{BOUND_S} seconds were not enough for {program}")
    for error in errors:
        raise error


@pytest.mark.parametrize(
    ("kind", "threads", "count"),
    [
        *((*case, FEW) for case in CASES),
        *(pytest.param(kind, threads, MANY, marks=THOROUGH) for kind in (*KINDS, "helping") for threads in (1, 2, 7)),
    ],
)
def test_drawn_programs_end_with_right_results(
    kind: str, threads: int, count: int, loop: Loop, store: CacheStore
) -> None:
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=SLOW)
    @given(programs(), st.integers(0, 1 << 32))
    def check(program: Program, seed: int) -> None:
        assert_ends(program, kind, threads, loop, store, seed)

    check()
