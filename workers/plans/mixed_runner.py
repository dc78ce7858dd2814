"""Executes a plan whose steps run on several engines of this process.

Each engine has a lane. The lanes take turns: before one begins, those that have work in their queues are waited for. A
crossing is nothing where both engines work on the host's memory, which is tried for each device, and a copy elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ..engines.cpu import CpuEngine
from ..engines.opencl import OpenClEngine
from ..memory.buffer import Buffer
from ..memory.opencl import shares_host_memory
from ..threadpools.interface import ThreadpoolInterface
from ..threadpools.regions import PackedRegions
from .cpu_backend import CpuLane
from .execution_plan import CrossEngineReorder, ExecutionPlan, PlaceKind
from .locations import Aliases, HostMemory, Location
from .opencl_backend import OpenClLane


class _Lane(Protocol):
    """One engine's part."""

    def bind(self, name: str, primitive: int, locations: Mapping[int, Location]) -> list[Any]:
        """Return the parts of a step."""
        ...

    def run(self, parts: Any, /) -> None:
        """Execute parts."""
        ...


class MixedPlanRunner:
    """Owns the workspaces of one plan on several engines. Not safe for concurrent runs.

    ``entries`` are the plan's primitives in order, ``engines`` its engines, ``constants`` the addresses of its constants
    in their final layout. CPU steps run on ``pool``, which stays the caller's. ``shared`` says whether devices work on
    host memory; unless given, that is tried for each.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        entries: Sequence[bytes],
        engines: Sequence[CpuEngine | OpenClEngine],
        constants: Sequence[int],
        pool: ThreadpoolInterface,
        shared: bool | None = None,
    ) -> None:
        if len(entries) != len(plan.primitives) or len(constants) != len(plan.constants):
            raise ValueError("a plan needs one entry for each primitive and one address for each constant")
        if len(engines) != len(plan.engines):
            raise ValueError(
                f"a plan for {', '.join(plan.engines)} needs {len(plan.engines)} engines, got {len(engines)}"
            )
        self.plan = plan
        self._moving: dict[tuple[PlaceKind, int], int] = {}
        on_host = [
            isinstance(engine, CpuEngine) or (shares_host_memory(engine) if shared is None else shared)
            for engine in engines
        ]
        spaces = {n: Buffer(plan.workspaces[n]) for n, is_host in enumerate(on_host) if is_host}
        self._memory = HostMemory(constants, spaces)
        self._on_host = on_host
        self._cpu: dict[int, CpuLane] = {}
        self._devices: dict[int, OpenClLane] = {}
        for number, engine in enumerate(engines):
            mine = {n: entry for n, entry in enumerate(entries) if plan.primitives[n] == number}
            if isinstance(engine, CpuEngine):
                self._cpu[number] = CpuLane(plan, mine, engine, pool, self._memory)
            else:
                reachable: Mapping[int, Buffer] = spaces if on_host[number] else {}
                self._devices[number] = OpenClLane(plan, number, mine, engine, constants, reachable)
        self._turns: list[_Turn] = []
        self._copies = 0
        self._bind()
        for turn in self._turns:
            if turn.engine in self._cpu and turn.parts is not None:
                turn.act = partial(self._cpu[turn.engine].run, PackedRegions(turn.parts))
        self._uploaded = False

    @property
    def copies(self) -> int:
        """How many crossings copy."""
        return self._copies

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Execute all steps on row-major inputs and outputs given by address. Raises KernelFailed naming the step."""
        if not self._uploaded:
            for lane in self._devices.values():
                lane.upload_constants()
            self._uploaded = True
        for kind, addresses in ((PlaceKind.INPUT, inputs), (PlaceKind.OUTPUT, outputs)):
            for number, address in enumerate(addresses):
                self._moving[kind, number] = address
                for cpu in self._cpu.values():
                    cpu.place(kind, number, address)
                for device in self._devices.values():
                    device.place(kind, number, address)
        busy = -1
        for turn in self._turns:
            if turn.engine != busy:
                self._wait(busy)
                busy = turn.engine
            turn.act()
        for device in self._devices.values():
            device.fetch()
            device.finish()

    def reorder_constant(self, number: int, source: int, destination: int) -> None:
        """Write constant ``number`` from its row-major form at ``source`` into its final layout at ``destination``."""
        constant = self.plan.constants[number]
        if constant.reorder is None:
            raise ValueError(f"constant {number} needs no reorder")
        name, engine = f"constant {number}", self.plan.primitives[constant.reorder]
        if engine in self._cpu:
            self._cpu[engine].reorder(name, constant.reorder, source, destination)
        else:
            sizes = (constant.raw_nbytes, constant.nbytes)
            self._devices[engine].reorder(name, constant.reorder, source, destination, sizes)

    def close(self) -> None:
        """Release what the devices hold."""
        self._turns.clear()
        for lane in self._devices.values():
            lane.close()

    def _bind(self) -> None:
        aliases = Aliases()
        for number, step in enumerate(self.plan.steps):
            if isinstance(step, CrossEngineReorder):
                self._cross(step, number, aliases)
                continue
            engine = self.plan.primitives[step.primitive]
            locations = {arg: aliases.locate(place, engine, number) for arg, place in step.args}
            lane: _Lane = self._cpu[engine] if engine in self._cpu else self._devices[engine]
            parts = lane.bind(step.name, step.primitive, locations)
            last = self._turns[-1] if self._turns else None
            if last is not None and last.engine == engine and last.parts is not None:
                last.parts.extend(parts)
            else:
                self._turns.append(_Turn(engine, partial(lane.run, parts), parts))

    def _cross(self, step: CrossEngineReorder, number: int, aliases: Aliases) -> None:
        source = aliases.locate(step.source, step.source_engine, number)
        if self._on_host[step.source_engine] and self._on_host[step.destination_engine]:
            aliases.add(step, source)
            return
        self._copies += 1
        place = step.destination
        target = Location(step.destination_engine, place.kind, place.value, place.start)
        # One of the two lies on the host; the other enqueues the copy.
        if self._on_host[step.source_engine]:
            take = self._devices[step.destination_engine].take
            act = partial(self._copy, take, step, target, source)
            self._turns.append(_Turn(step.destination_engine, act))
        else:
            give = self._devices[step.source_engine].give
            self._turns.append(_Turn(step.source_engine, partial(self._copy, give, step, source, target)))

    def _copy(
        self,
        copy: Callable[[str, Location, int, int], None],
        step: CrossEngineReorder,
        device: Location,
        host: Location,
    ) -> None:
        address = self._memory.address(host)
        if address is None:
            address = self._moving[host.kind, host.value] + host.start
        copy(step.name, device, address, step.nbytes)

    def _wait(self, engine: int) -> None:
        if engine in self._devices:
            self._devices[engine].finish()


@dataclass(slots=True)
class _Turn:
    """What one engine does before another comes: steps, whose parts may still become more, or a copy."""

    engine: int
    act: Callable[[], None]
    parts: list[Any] | None = None
