"""Executes a plan on the CPU engine of this process: realizes its primitives once, then runs it on given inputs and outputs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from .bound_primitive import ArgumentBlock, BoundPrimitive, RealizedPrimitive
from .desc.args import Arg
from .engines.cpu import CpuEngine
from .memory.buffer import Buffer
from .plan import Crossing, ExecutionPlan, PlaceKind, Step
from .plan_primitives import realize_all
from .threadpools.threads import ThreadsPool


class KernelFailed(RuntimeError):
    """A native kernel returned an error status. Raised by `PlanRunner.run`; names the step."""


class PlanRunner:
    """Owns workspace and scratchpad of one plan in one worker. Not safe for concurrent runs: a worker runs one at a time.

    ``entries`` are the plan's primitives in order, ``constants`` the addresses of its constants in their final layout.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        entries: Sequence[bytes],
        engine: CpuEngine,
        constants: Sequence[int],
        threads: int = 1,
    ) -> None:
        if len(entries) != len(plan.primitives) or len(constants) != len(plan.constants):
            raise ValueError("a plan needs one entry for each primitive and one address for each constant")
        self.plan = plan
        self._threads = threads
        self._constants = list(constants)
        self._primitives = realize_all(
            plan, dict(enumerate(entries)), lambda entry, nested: RealizedPrimitive(entry, engine, nested)
        )
        self._workspace = Buffer(plan.workspaces[0])
        self._scratchpad = Buffer(max((p.entry.scratchpad for p in self._primitives.values()), default=0))
        self._pool = ThreadsPool(threads) if threads > 1 else None
        self._result = (ctypes.c_int64 * 8)()
        self._result_address = ctypes.addressof(self._result)
        self._moving: dict[tuple[PlaceKind, int], list[tuple[ArgumentBlock, int, int]]] = {}
        self._calls: list[tuple[str, Callable[[int, int, int], int], list[int]]] = []
        # The calls know their argument blocks by address only.
        self._bound: list[BoundPrimitive] = []
        for step in plan.steps:
            if isinstance(step, Crossing):
                raise ValueError(f"step {step.name!r} leaves the engine, which is alone here")
            self._bind(step)

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Execute all steps on row-major inputs and outputs given by address. Raises KernelFailed."""
        for kind, addresses in ((PlaceKind.INPUT, inputs), (PlaceKind.OUTPUT, outputs)):
            for number, address in enumerate(addresses):
                for block, index, offset in self._moving.get((kind, number), ()):
                    block.put(index, address + offset)
        self._execute(self._calls)

    def reorder_constant(self, number: int, source: int, destination: int) -> None:
        """Write constant ``number`` from its row-major form at ``source`` into its final layout at ``destination``."""
        reorder = self.plan.constants[number].reorder
        if reorder is None:
            raise ValueError(f"constant {number} needs no reorder")
        places = {int(Arg.SRC): source, int(Arg.DST): destination}
        bound = BoundPrimitive(self._primitives[reorder], places, self._scratchpad.address, self._threads)
        self._execute([(f"constant {number}", b.function, b.addresses) for b in bound.blocks])

    def close(self) -> None:
        """Stop the threads, where there are any."""
        if self._pool is not None:
            self._pool.close()

    def _bind(self, step: Step) -> None:
        addresses: dict[int, int | None] = {}
        for arg, place in step.args:
            if place.kind is PlaceKind.WORK:
                addresses[arg] = self._workspace.address + place.value + place.start
            elif place.kind is PlaceKind.CONSTANT:
                addresses[arg] = self._constants[place.value] + place.start
            else:
                addresses[arg] = None
        bound = BoundPrimitive(self._primitives[step.primitive], addresses, self._scratchpad.address, self._threads)
        self._bound.append(bound)
        for arg, place in step.args:
            moving = [(block, index, offset + place.start) for block, index, offset in bound.moving.get(arg, ())]
            if moving:
                self._moving.setdefault((place.kind, place.value), []).extend(moving)
        self._calls.extend((step.name, b.function, b.addresses) for b in bound.blocks)

    def _execute(self, calls: list[tuple[str, Callable[[int, int, int], int], list[int]]]) -> None:
        result = self._result_address
        failure = result + 32
        for name, function, addresses in calls:
            if self._pool is None or len(addresses) == 1:
                for address in addresses:
                    if function(result, failure, address):
                        raise KernelFailed(f"step {name!r} failed")
            else:
                self._parallel(name, function, addresses)

    def _parallel(self, name: str, function: Callable[[int, int, int], int], addresses: list[int]) -> None:
        def task(i: int, _: int) -> None:
            result = (ctypes.c_int64 * 8)()
            start = ctypes.addressof(result)
            if function(start, start + 32, addresses[i]):
                raise KernelFailed(f"step {name!r} failed")

        if self._pool is not None:
            self._pool.parallel_for(len(addresses), task)
