"""Executes a plan on the CPU engine of this process: realizes its primitives once, then runs it on given inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..desc.args import Arg
from ..engines.cpu import CpuEngine
from ..execution.native_binding import ArgumentBlock, BoundPrimitive, RealizedPrimitive
from ..execution.stamps import stamped
from ..memory.buffer import Buffer
from ..threadpools.interface import Region, ThreadpoolInterface
from ..threadpools.jobs import Jobs
from ..threadpools.regions import PackedRegions
from ..threadpools.sequential import SequentialPool
from .execution_plan import CrossEngineReorder, ExecutionPlan, PlaceKind, Step
from .realization import realize_all


class PlanRunner:
    """Owns workspace and scratchpad of one plan in one worker. Not safe for concurrent runs: a worker runs one at a time.

    ``entries`` are the plan's primitives in order, ``constants`` the addresses of its constants in their final layout.
    Steps run on ``pool``, which stays the caller's; on the calling thread where there is none.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        entries: Sequence[bytes],
        engine: CpuEngine,
        constants: Sequence[int],
        pool: ThreadpoolInterface | None = None,
    ) -> None:
        if len(entries) != len(plan.primitives) or len(constants) != len(plan.constants):
            raise ValueError("a plan needs one entry for each primitive and one address for each constant")
        self.plan = plan
        self._pool = pool or SequentialPool()
        self._constants = list(constants)
        self._primitives = realize_all(
            plan, dict(enumerate(entries)), lambda entry, nested: RealizedPrimitive(entry, engine, nested)
        )
        self._workspace = Buffer(plan.workspaces[0])
        self._scratchpad = Buffer(max((p.entry.scratchpad for p in self._primitives.values()), default=0))
        self._moving: dict[tuple[PlaceKind, int], list[tuple[ArgumentBlock, int, int]]] = {}
        regions: list[Region] = []
        for step in plan.steps:
            if isinstance(step, CrossEngineReorder):
                raise ValueError(f"step {step.name!r} leaves the engine, which is alone here")
            regions.extend(self._bind(step))
        self._regions = PackedRegions(regions)

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Execute all steps on row-major inputs and outputs given by address. Raises KernelFailed."""
        for kind, addresses in ((PlaceKind.INPUT, inputs), (PlaceKind.OUTPUT, outputs)):
            for number, address in enumerate(addresses):
                for block, index, offset in self._moving.get((kind, number), ()):
                    block.put(index, address + offset)
        self._execute(self._regions)

    def reorder_constant(self, number: int, source: int, destination: int) -> None:
        """Write constant ``number`` from its row-major form at ``source`` into its final layout at ``destination``."""
        reorder = self.plan.constants[number].reorder
        if reorder is None:
            raise ValueError(f"constant {number} needs no reorder")
        places = {int(Arg.SRC): source, int(Arg.DST): destination}
        bound = self._bound(reorder, places)
        regions = bound.regions(f"step 'constant {number}'")
        self._execute(PackedRegions(stamped(regions, self.plan.text_of(reorder), self._pool)))

    def close(self) -> None:
        """Nothing to release: what the runner owns goes with it."""

    def _bind(self, step: Step) -> Sequence[Region]:
        addresses: dict[int, int | None] = {}
        for arg, place in step.args:
            if place.kind is PlaceKind.WORK:
                addresses[arg] = self._workspace.address + place.value + place.start
            elif place.kind is PlaceKind.CONSTANT:
                addresses[arg] = self._constants[place.value] + place.start
            else:
                addresses[arg] = None
        bound = self._bound(step.primitive, addresses)
        for arg, place in step.args:
            moving = [(block, index, offset + place.start) for block, index, offset in bound.moving.get(arg, ())]
            if moving:
                self._moving.setdefault((place.kind, place.value), []).extend(moving)
        return stamped(bound.regions(f"step {step.name!r}"), self.plan.text_of(step.primitive), self._pool)

    def _bound(self, primitive: int, addresses: Mapping[int, int | None]) -> BoundPrimitive:
        jobs = Jobs.on(self._pool)
        return BoundPrimitive(self._primitives[primitive], addresses, self._scratchpad.address, jobs)

    def _execute(self, regions: PackedRegions) -> None:
        self._pool.run_regions(regions)
        self._pool.wait()
