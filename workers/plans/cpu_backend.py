"""The CPU's part in a plan for several engines: regions of native tasks on memory of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..desc.args import Arg
from ..engines.cpu import CpuEngine
from ..execution.native_binding import ArgumentBlock, BoundPrimitive, RealizedPrimitive
from ..execution.stamps import stamped
from ..memory.buffer import Buffer
from ..threadpools.interface import Region, ThreadpoolInterface
from ..threadpools.jobs import Jobs
from .execution_plan import ExecutionPlan, PlaceKind
from .locations import HostMemory, Location
from .realization import realize_all


class CpuLane:
    """Primitives of one CPU engine, bound to the host's memory. ``entries`` are those of its primitives by number."""

    def __init__(
        self,
        plan: ExecutionPlan,
        entries: Mapping[int, bytes],
        engine: CpuEngine,
        pool: ThreadpoolInterface,
        memory: HostMemory,
    ) -> None:
        self._plan = plan
        self._pool = pool
        self._memory = memory
        self._primitives = realize_all(plan, entries, lambda entry, nested: RealizedPrimitive(entry, engine, nested))
        self._scratchpad = Buffer(max((p.entry.scratchpad for p in self._primitives.values()), default=0))
        self._moving: dict[tuple[PlaceKind, int], list[tuple[ArgumentBlock, int, int]]] = {}

    def bind(self, name: str, primitive: int, locations: Mapping[int, Location]) -> list[Region]:
        """Return the regions of a step."""
        addresses = {arg: self._memory.address(location) for arg, location in locations.items()}
        bound = self._bound(primitive, addresses)
        for arg, location in locations.items():
            blocks = [(block, index, offset + location.start) for block, index, offset in bound.moving.get(arg, ())]
            if blocks:
                self._moving.setdefault((location.kind, location.value), []).extend(blocks)
        return [*stamped(bound.regions(f"step {name!r}"), self._plan.text_of(primitive), self._pool)]

    def place(self, kind: PlaceKind, number: int, address: int) -> None:
        """Let an input or output lie at an address from now on."""
        for block, index, offset in self._moving.get((kind, number), ()):
            block.put(index, address + offset)

    def run(self, regions: Sequence[Region]) -> None:
        """Execute regions and wait for them. Raises KernelFailed."""
        self._pool.run_regions(regions)
        self._pool.wait()

    def reorder(self, name: str, primitive: int, source: int, destination: int) -> None:
        """Execute a reorder from one address to another. Raises KernelFailed."""
        bound = self._bound(primitive, {int(Arg.SRC): source, int(Arg.DST): destination})
        self.run(stamped(bound.regions(name), self._plan.text_of(primitive), self._pool))

    def _bound(self, primitive: int, addresses: Mapping[int, int | None]) -> BoundPrimitive:
        jobs = Jobs.on(self._pool)
        return BoundPrimitive(self._primitives[primitive], addresses, self._scratchpad.address, jobs)
