"""How a realized primitive is executed on streams of a CPU: launches bound once, and moved to each execution's memory."""

from __future__ import annotations

from collections.abc import Mapping

from ..bound_primitive import BoundPrimitive, RealizedPrimitive
from ..desc import Arg
from ..memory.storage import Memory
from ..streams.stream import Stream
from ..threadpools.interface import Region, ThreadpoolInterface
from ..threadpools.regions import PackedRegions


class CpuExecution:
    """Executes one primitive from any number of threads at once: each execution has launches to itself."""

    def __init__(self, primitive: RealizedPrimitive) -> None:
        self._primitive = primitive
        #: Launches that nobody uses now, by the number of threads that they are cut for.
        self._idle: dict[int, list[_Launches]] = {}

    def execute(self, stream: Stream, args: Mapping[int, Memory]) -> None:
        """Run on a stream, or submit to its asynchronous threadpool. Raises KernelFailed."""
        pool = stream.pool
        threads = pool.get_num_threads()
        with stream.order:
            given = args.get(Arg.SCRATCHPAD)
            scratchpad = given if given is not None else stream.scratchpad(self._primitive.entry.scratchpad)
            addresses = {int(arg): memory.address for arg, memory in args.items()}
            addresses[Arg.SCRATCHPAD] = scratchpad.address
            if pool.get_flags() & ThreadpoolInterface.ASYNCHRONOUS:
                launches = _Launches(self._primitive, addresses, threads, keep=(dict(args), scratchpad))
                pool.run_regions(launches.regions)
                return
            idle = self._idle.setdefault(threads, [])
            try:
                launches = idle.pop()
            except IndexError:
                launches = _Launches(self._primitive, addresses, threads)
            for arg, address in addresses.items():
                launches.bound.move(arg, address)
            pool.run_regions(launches.regions)
            idle.append(launches)


class _Launches:
    """A bound primitive and its parallel regions; of one execution at a time. ``keep`` lives until they have ended."""

    def __init__(
        self, primitive: RealizedPrimitive, addresses: Mapping[int, int], threads: int, keep: object = None
    ) -> None:
        self.bound = BoundPrimitive(primitive, dict.fromkeys(addresses), None, threads)
        for arg, address in addresses.items():
            self.bound.move(arg, address)
        name = primitive.entry.implementation
        blocks = self.bound.blocks
        # What is kept must not lead back here, or only the garbage collector would free the memory.
        self.regions = PackedRegions(
            [Region(b.kernel.address, b.addresses, name, (b.blocks, primitive, keep)) for b in blocks]
        )
