"""The only batch of a plan for a CPU: where a run writes addresses, and what it calls.

For a plan of one short step, calls of functions take as long as the step. `run` is one function, and callers may do the same
in one of their own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..threadpools.interface import Region
from ..threadpools.regions import PackedRegions


class LoneBatch(NamedTuple):
    """Inputs and outputs that move, as (number, arguments of a job, place there, offset); tasks; and the stream's order.

    A thread that has ``order`` writes addresses and then gives ``regions`` to ``submit``, which returns when they have ended.
    Without a ``submit`` it calls the tasks itself: each returns 0, or `failure` has the error of its region.
    """

    inputs: Sequence[tuple[int, ctypes.Array[ctypes.c_int64], int, int]]
    outputs: Sequence[tuple[int, ctypes.Array[ctypes.c_int64], int, int]]
    order: threading.RLock
    tasks: Sequence[tuple[Callable[[], int], Region]]
    failure: Callable[[Region], BaseException]
    regions: PackedRegions
    submit: Callable[[PackedRegions], None] | None
    #: The addresses of inputs where the last run wrote them, for callers that write only others; empty if it may be otherwise.
    written: list[int]

    @classmethod
    def of(
        cls,
        inputs: Sequence[tuple[int, ctypes.Array[ctypes.c_int64], int, int]],
        outputs: Sequence[tuple[int, ctypes.Array[ctypes.c_int64], int, int]],
        order: threading.RLock,
        regions: PackedRegions,
        submit: Callable[[PackedRegions], None] | None,
    ) -> LoneBatch:
        """Return the batch of these regions."""
        tasks = () if submit else regions.tasks
        return cls(inputs, outputs, order, tasks, regions.failure, regions, submit, [])

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run all tasks on inputs and outputs at addresses. Raises the error of the first that fails."""
        moving_in, moving_out, order, tasks, failure, regions, submit, written = self
        with order:
            written.clear()
            for number, job, place, offset in moving_in:
                job[place] = inputs[number] + offset
            for number, job, place, offset in moving_out:
                job[place] = outputs[number] + offset
            if submit is not None:
                submit(regions)
            for call, region in tasks:
                if call():
                    raise failure(region)
