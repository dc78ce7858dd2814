"""Executes a realized primitive on streams of a CPU: launches are bound once, and moved to the memory of each execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ..desc import Arg
from ..memory.buffer import Buffer
from ..streams.stream import Stream
from ..threadpools.interface import Region, ThreadpoolInterface
from ..threadpools.jobs import Jobs
from ..threadpools.regions import PackedRegions
from ..threadpools.sequential import SequentialPool
from .native_binding import BoundPrimitive, RealizedPrimitive
from .stamps import stamp

if TYPE_CHECKING:
    from .memory import Memory

#: As a plain number: members of an enumeration are slow to look up.
_SCRATCHPAD: Final = int(Arg.SCRATCHPAD)


class CpuExecution:
    """Executes one primitive from any number of threads at once: each execution has its own launches."""

    def __init__(self, primitive: RealizedPrimitive) -> None:
        self._primitive = primitive
        #: Launches that no execution uses now, by how they are cut into jobs.
        self._idle: dict[Jobs, list[_Launches]] = {}

    def execute(self, stream: Stream, args: Mapping[int, Memory], text: str | None = None) -> None:
        """Run on a stream, or submit to its asynchronous threadpool; ``text`` is for its verbose line. Raises KernelFailed.

        Within a task of the threadpool it runs in place, as oneDNN's primitives do: while a task waits for others, a user's
        pool may let its thread run any other task, which may wait for this stream.
        """
        within = stream.pool.get_in_parallel()
        pool = SequentialPool() if within else stream.pool
        jobs = Jobs.on(pool)
        with stream.order_within if within else stream.order:
            used: dict[int, Memory | Buffer] = {**args}
            if _SCRATCHPAD not in used:
                used[_SCRATCHPAD] = stream.scratchpad(self._primitive.entry.scratchpad, within)
            if pool.get_flags() & ThreadpoolInterface.ASYNCHRONOUS:
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

    def regions(self, used: Mapping[int, Memory | Buffer], jobs: Jobs, keep: object) -> PackedRegions:
        """Return new launches on memory by argument, the scratchpad included; they keep ``keep``."""
        return _Launches(self._primitive, used, jobs, keep).move(used)


class _Launches:
    """A bound primitive and its parallel regions, for one execution at a time. ``keep`` lives until they have ended."""

    def __init__(self, primitive: RealizedPrimitive, args: Iterable[int], jobs: Jobs, keep: object = None) -> None:
        bound = BoundPrimitive(primitive, dict.fromkeys(args), None, jobs)
        name = primitive.entry.implementation
        # The regions must not keep this object: only the garbage collector would free such a cycle, and its memory.
        self._regions = PackedRegions(
            [Region(b.kernel.address, b.addresses, name, (b.blocks, primitive, keep)) for b in bound.blocks]
        )
        self._move = bound.move

    def move(self, used: Mapping[int, Memory | Buffer]) -> PackedRegions:
        """Return the regions, on other memory."""
        for arg, memory in used.items():
            self._move(arg, memory.address)
        return self._regions
