"""Executes a realized primitive on streams of a CPU: launches are bound once, and moved to the memory of each execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, TypeAlias

from ..desc import Arg
from ..memory.buffer import Buffer
from ..streams.stream import Stream, TakenScratchpad
from ..threadpools.interface import Region
from ..threadpools.jobs import Jobs
from ..threadpools.nesting import Computing
from ..threadpools.regions import PackedRegions
from .calling_thread import BoundLaunches
from .native_binding import BoundPrimitive, RealizedPrimitive
from .stamps import stamp

if TYPE_CHECKING:
    from .memory import Memory

#: As a plain number: members of an enumeration are slow to look up.
_SCRATCHPAD: Final = int(Arg.SCRATCHPAD)


#: Memory of an argument, with an address.
Addressed: TypeAlias = "Memory | Buffer | TakenScratchpad"
_UNLOCKED: Final[AbstractContextManager[object]] = nullcontext()


class CpuExecution:
    """Executes one primitive from any number of threads at once: each execution has its own launches.

    ``jobs`` is its attribute.
    """

    def __init__(self, primitive: RealizedPrimitive, jobs: int = 0) -> None:
        self._primitive = primitive
        #: The number of jobs that its attribute asks for, 0 for none.
        self.jobs = jobs
        #: Launches that no execution uses now, by how they are cut into jobs.
        self._idle: dict[Jobs, list[_Launches]] = {}
        #: The same for the calling thread alone.
        self._alone: list[BoundLaunches] = []
        self._scratchpad = primitive.entry.scratchpad

    def execute(self, stream: Stream, args: Mapping[int, Memory], text: str | None = None) -> None:
        """Run on a stream, or submit to its asynchronous threadpool; ``text`` is for its verbose line. Raises KernelFailed.

        Within a task of the threadpool it does the same if the pool takes regions of tasks, and otherwise runs in place.
        """
        if stream.is_sequential and text is None:
            is_inside = self._scratchpad > 0 and stream.is_held()
            with stream.order:
                try:
                    alone = self._alone.pop()
                except IndexError:
                    alone = BoundLaunches(self._primitive, tuple(args))
                addresses = [memory.address for memory in args.values()]
                if self._scratchpad and _SCRATCHPAD not in args:
                    scratchpad = scratchpad_of(stream, self._scratchpad, is_inside)
                    addresses.append(scratchpad.address)
                alone.run(addresses)
                self._alone.append(alone)
            return
        pool, within, asynchronous = Computing.on(stream.pool)
        jobs, is_inside = Jobs.on(pool, self.jobs), within or stream.is_held()
        # Within a task without the lock: the pool may let this thread run another task of the stream meanwhile.
        with _UNLOCKED if within else stream.order:
            used: dict[int, Addressed] = {**args}
            if _SCRATCHPAD not in used:
                used[_SCRATCHPAD] = scratchpad_of(stream, self._scratchpad, is_inside)
            if asynchronous:
                # The bytes too: the memory may get others before the tasks have run.
                keep = (used, [memory.owner for memory in args.values()])
                regions = self.regions(used, jobs, keep)
                pool.run_regions(regions if text is None else stamp(regions, text, stream.pool))
                return
            idle = self._idle.setdefault(jobs, [])
            try:
                launches = idle.pop()
            except IndexError:
                launches = _Launches(self._primitive, used, jobs)
            regions = launches.move(used)
            pool.run_regions(regions if text is None else stamp(regions, text, stream.pool))
            idle.append(launches)

    def regions(self, used: Mapping[int, Addressed], jobs: Jobs, keep: object) -> PackedRegions:
        """Return new launches on memory by argument, the scratchpad included; they keep ``keep``."""
        return _Launches(self._primitive, used, jobs, keep).move(used)


def scratchpad_of(stream: Stream, nbytes: int, is_inside: bool) -> Buffer | TakenScratchpad:
    """Return the scratch memory of a stream whose order the caller holds; memory of its own inside of another execution."""
    return stream.take_scratchpad(nbytes) if is_inside else stream.scratchpad(nbytes)


class _Launches:
    """A bound primitive and its parallel regions, for one execution at a time. ``keep`` lives until they have ended."""

    def __init__(self, primitive: RealizedPrimitive, args: Iterable[int], jobs: Jobs, keep: object = None) -> None:
        bound = BoundPrimitive(primitive, dict.fromkeys(args), None, jobs)
        name = primitive.entry.implementation
        # The regions must not keep this object: only the garbage collector would free such a cycle, and its memory.
        self._regions = PackedRegions(
            [
                Region(b.kernel.address, b.addresses, name, (b.blocks, primitive, keep), b.nanoseconds)
                for b in bound.blocks
            ]
        )
        self._move = bound.move

    def move(self, used: Mapping[int, Addressed]) -> PackedRegions:
        """Return the regions, on other memory."""
        for arg, memory in used.items():
            self._move(arg, memory.address)
        return self._regions
