"""The CPU's part in a plan: regions of native tasks on memory of this process, run on the threadpool of a stream."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from poolrt.cachestore.forked_locks import freed_in_children

from ..desc.args import Arg
from ..execution.native_binding import BoundPrimitive, RealizedPrimitive
from ..execution.stamps import stamp
from ..memory.buffer import Buffer
from ..threadpools.interface import Region
from ..threadpools.jobs import Jobs
from ..threadpools.regions import FEW, PackedRegions
from ..threadpools.sequential import SequentialPool
from .execution_plan import ExecutionPlan, PlaceKind
from .locations import HostMemory, Location
from .lone_batch import LoneBatch
from .routine import Routine

if TYPE_CHECKING:
    from ..streams.stream import Stream


class CpuBackend:
    """Primitives of one CPU engine, by number, bound to the host's memory."""

    def __init__(
        self,
        plan: ExecutionPlan,
        primitives: Mapping[int, RealizedPrimitive],
        stream: Stream,
        memory: HostMemory,
        within: bool,
    ) -> None:
        self._plan = plan
        self._primitives = primitives
        self._stream = stream
        self._memory = memory
        self._within = within
        self._pool = SequentialPool() if within else stream.pool
        # Within a task the regions run at once on its thread, in memory that no other one uses.
        self._order = freed_in_children(threading.RLock()) if within else stream.order
        self._scratchpad = Buffer(max((p.entry.scratchpad for p in primitives.values()), default=0))
        #: Where addresses of inputs and of outputs are written: the number of one, the arguments of a job, the place there,
        #: an offset.
        self._inputs: list[tuple[int, ctypes.Array[ctypes.c_int64], int, int]] = []
        self._outputs: list[tuple[int, ctypes.Array[ctypes.c_int64], int, int]] = []

    @property
    def nbytes(self) -> int:
        """The bytes of the scratchpad."""
        return self._scratchpad.nbytes

    def bind(
        self, name: str, primitive: int, locations: Mapping[int, Location], record: Callable[[int], None] | None = None
    ) -> list[Region]:
        """Return the regions of a step; ``record`` gets the time of each execution, in nanoseconds."""
        bound = self._bound(primitive, {arg: self._memory.address(at) for arg, at in locations.items()})
        for arg, blocks in bound.moving.items():
            at = locations[arg]
            moving = self._inputs if at.kind is PlaceKind.INPUT else self._outputs
            moving += [
                (at.value, job, block.place(index), offset + at.start)
                for block, index, offset in blocks
                for job in block.blocks
            ]
        return [*self._regions(f"step {name!r}", bound, primitive, record)]

    def batch(self, parts: list[Region]) -> PackedRegions:
        """Return regions packed once for all runs."""
        return PackedRegions(parts)

    def move(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Let the regions work on inputs and outputs at these addresses from now on."""
        for number, job, place, offset in self._inputs:
            job[place] = inputs[number] + offset
        for number, job, place, offset in self._outputs:
            job[place] = outputs[number] + offset

    def run(self, batch: PackedRegions) -> None:
        """Run regions, or submit them to an asynchronous threadpool. Raises KernelFailed."""
        with self._order:
            self._pool.run_regions(batch)

    def alone(self, batch: PackedRegions) -> LoneBatch | None:
        """Return the only batch of a plan with all that a run needs; None if the pool may not have run it when it returns."""
        pool = self._pool
        if not type(pool).IS_CONSTANT or pool.get_flags() & pool.ASYNCHRONOUS:
            return None
        submit = None if type(pool) is SequentialPool else pool.run_regions
        return LoneBatch.of(self._inputs, self._outputs, self._order, batch, submit)

    def routine(self, batch: PackedRegions) -> Routine | None:
        """Return the only batch of a plan for a compiled loop; None if threads run tasks of it, or Python is to print lines."""
        if type(self._pool) is not SequentialPool or self._plan.texts:
            return None
        inputs = len(self._plan.inputs)
        moves = [(number, job, place, offset) for number, job, place, offset in self._inputs]
        moves += [(inputs + number, job, place, offset) for number, job, place, offset in self._outputs]
        return Routine(moves, batch)

    def wait(self) -> None:
        """Return when all regions have ended. Raises KernelFailed."""
        self._pool.wait()

    def reorder(self, name: str, primitive: int, source: int, destination: int, nbytes: tuple[int, int]) -> None:
        """Execute a reorder from one address to another, and wait. Raises KernelFailed."""
        bound = self._bound(primitive, {int(Arg.SRC): source, int(Arg.DST): destination})
        self.run(PackedRegions(self._regions(name, bound, primitive)))
        self.wait()

    def _bound(self, primitive: int, addresses: Mapping[int, int | None]) -> BoundPrimitive:
        jobs = Jobs.on(self._pool)
        # Threads are awake amid other regions. A few are called on this thread, which takes less time than to submit them.
        if self._pool.runs_in_place and len(self._plan.steps) > FEW:
            jobs = jobs._replace(amid_others=True)
        return BoundPrimitive(self._primitives[primitive], addresses, self._scratchpad.address, jobs)

    def _regions(
        self, name: str, bound: BoundPrimitive, primitive: int, record: Callable[[int], None] | None = None
    ) -> Sequence[Region]:
        return stamp(bound.regions(name), self._plan.text_of(primitive), self._stream.pool, record)
