"""The slots of arrays that have ended: kept for the next ones, within bounds, and after an interruption at the end too."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.memory.shared_memory import SharedMemory
from tests.interrupting import is_interrupted


@pytest.fixture
def memory(pool: poolrt.Pool) -> SharedMemory:
    pool.empty(1)
    found: Any = pool._session.memory
    return found  # type: ignore[no-any-return]


def test_an_interrupt_at_any_moment_of_an_arrays_end_leaves_no_lock_taken(memory: SharedMemory) -> None:
    moments, interrupted = 0, True
    while interrupted:
        (offset,) = memory.take([5000])
        memory._in_use[offset] = 5000
        moments += 1
        end = partial(memory._on_array_freed, offset, 5000, memory._kept)
        interrupted = is_interrupted(end, moments, "/poolrt/memory/shared_memory.py")
        assert memory._lock.acquire(timeout=5), f"moment {moments}"
        memory._lock.release()
    assert moments > 3


def test_slots_of_arrays_that_ended_are_taken_again_within_the_bound(memory: SharedMemory) -> None:
    (offset,) = memory.take([7000])
    array = memory.array(offset, [7000], "uint8", keep=True)
    part = np.asarray(array)[10:]
    del array
    assert memory.take([7000]) != [offset], "a view of it lives"
    del part
    assert memory.take([7000]) == [offset]
    limit, memory._kept._limit = memory._kept._limit, memory._kept._nbytes + 8000
    try:
        first, second = (memory.array(each, [7000], "uint8", keep=True) for each in memory.take([7000, 7000]))
        del first, second
        assert len(memory._returned) == 1
    finally:
        memory._kept._limit = limit
