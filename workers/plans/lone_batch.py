"""The only batch of a plan on the calling thread: where a run writes addresses, and what it calls.

For a plan of one short step, calls of functions take as long as the step. `run` is one function, and callers may do the same
in one of their own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from ..threadpools.interface import Region
from ..threadpools.regions import PackedRegions


class LoneBatch(NamedTuple):
    """Inputs and outputs that move, as (number, arguments of a job, place there, offset); tasks; and the stream's order.

    Whoever holds ``order`` writes addresses and then calls the tasks. Each returns 0, or `failure` has the error.
    """

    inputs: Sequence[tuple[int, ctypes.Array[ctypes.c_int64], int, int]]
    outputs: Sequence[tuple[int, ctypes.Array[ctypes.c_int64], int, int]]
    order: AbstractContextManager[object]
    tasks: Sequence[tuple[Callable[[int, int, int], int], int, Region]]
    status: int
    failure: Callable[[Region], BaseException]

    @classmethod
    def of(
        cls,
        inputs: Sequence[tuple[int, ctypes.Array[ctypes.c_int64], int, int]],
        outputs: Sequence[tuple[int, ctypes.Array[ctypes.c_int64], int, int]],
        order: AbstractContextManager[object],
        regions: PackedRegions,
    ) -> LoneBatch:
        """Return the batch of these regions."""
        return cls(inputs, outputs, order, regions.tasks, regions.status, regions.failure)

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run all tasks on inputs and outputs at addresses. Raises the error of the first that fails."""
        moving_in, moving_out, order, tasks, status, failure = self
        error = status + 32
        with order:
            for number, job, place, offset in moving_in:
                job[place] = inputs[number] + offset
            for number, job, place, offset in moving_out:
                job[place] = outputs[number] + offset
            for kernel, blob, region in tasks:
                if kernel(status, error, blob):
                    raise failure(region)
