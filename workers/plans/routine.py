"""A plan that a compiled loop executes: where the addresses of inputs and outputs are written, and the regions after that."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..threadpools.regions import PackedRegions


class Routine(NamedTuple):
    """The regions of a plan on one thread.

    Each of ``moves`` has the number of a tensor, outputs behind inputs, the packed arguments of a job, the place of an argument
    there, and what is added to the tensor's address.
    """

    moves: Sequence[tuple[int, ctypes.Array[ctypes.c_int64], int, int]]
    regions: PackedRegions

    def words(self) -> list[int]:
        """Return the moves as a compiled loop takes them: number, address of the argument, what is added."""
        found = []
        for number, job, place, offset in self.moves:
            found += [number, ctypes.addressof(job) + 8 * place, offset]
        return found
