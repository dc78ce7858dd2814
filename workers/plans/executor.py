"""Executes a plan on the engines of this process: one backend an engine, and batches of consecutive steps on one engine.

A plan for one engine is one batch. A reorder between engines is nothing where both work on the host's memory, which is
tried for each device, and elsewhere a copy in the batch of the device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from poolrt.cachestore.forked_locks import freed_in_children, held_by_this_thread

from ..execution.resource import Resource
from ..memory.buffer import Buffer
from .cpu_backend import CpuBackend
from .execution_plan import CrossEngineReorder, ExecutionPlan
from .locations import Aliases, HostMemory, Location
from .lone_batch import LoneBatch
from .routine import Routine

if TYPE_CHECKING:
    import pyopencl

    from ..streams.stream import Stream
    from .opencl_backend import OpenClBackend


class Backend(Protocol):
    """The part of one engine."""

    @property
    def nbytes(self) -> int:
        """The bytes of memory that it owns beside the host's workspaces."""
        ...

    def bind(
        self, name: str, primitive: int, locations: Mapping[int, Location], record: Callable[[int], None] | None = None
    ) -> list[Any]:
        """Return the parts of a step; ``record`` gets the time of each execution, in nanoseconds."""
        ...

    def batch(self, parts: list[Any]) -> Any:
        """Return parts ready to run together."""
        ...

    def move(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Work on inputs and outputs at these addresses from now on."""
        ...

    def run(self, batch: Any, /) -> None:
        """Run or enqueue a batch. Raises KernelFailed naming the step."""
        ...

    def wait(self) -> None:
        """Return when everything that runs has ended. Raises KernelFailed."""
        ...

    def reorder(self, name: str, primitive: int, source: int, destination: int, nbytes: tuple[int, int]) -> None:
        """Execute a reorder from one address of the host's memory to another, and wait. Raises KernelFailed."""
        ...


class PlanExecutor:
    """Owns the workspaces of one plan. Not safe for concurrent runs, nor for one that interrupts another: see `is_running`.

    ``primitives`` are realized, by number; ``streams`` has one for each engine of the plan; ``constants`` are addresses
    of constants in their final layout. ``uploads`` are constants in the memory of devices that do not work on the host's,
    by engine and constant; unless given, the first run uploads them. ``within`` a task of a threadpool, CPU steps run
    on the calling thread. The objects of ``keep``, each with its bytes, live as long as the executor. ``record`` gets the
    number of each executed step and its time in nanoseconds; copies between engines have none.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        primitives: Mapping[int, Resource[Any, Any]],
        streams: Sequence[Stream],
        constants: Sequence[int],
        *,
        uploads: Mapping[tuple[int, int], pyopencl.Buffer] | None = None,
        within: bool = False,
        keep: Sequence[tuple[object, int]] = (),
        record: Callable[[int, int], None] | None = None,
        behind: Sequence[int] = (),
    ) -> None:
        if len(constants) != len(plan.constants):
            raise ValueError(f"expect one address for each of {len(plan.constants)} constants, got {len(constants)}")
        if len(streams) != len(plan.engines):
            raise ValueError(f"a plan for {', '.join(plan.engines)} needs as many streams, got {len(streams)}")
        self.plan = plan
        #: Numbers of the inputs behind which kernels may read up to `SLACK` bytes.
        self.behind = behind
        self._record = record
        #: How many reorders between engines copy.
        self.copies = 0
        on_host = [stream.works_on_host for stream in streams]
        spaces = {n: Buffer(plan.workspaces[n]) for n, is_host in enumerate(on_host) if is_host}
        memory = HostMemory(constants, spaces)
        self._keep = [*keep, *((space, space.nbytes) for space in spaces.values())]
        self._keep += (part for primitive in primitives.values() for part in primitive.parts())
        self._backends: list[Backend] = []
        self._devices: dict[int, OpenClBackend] = {}
        for number, stream in enumerate(streams):
            mine: dict[int, Any] = {n: primitive for n, primitive in primitives.items() if plan.primitives[n] == number}
            if stream.engine.kind == "cpu":
                self._backends.append(CpuBackend(plan, mine, stream, memory, within))
                continue
            from .opencl_backend import OpenClBackend

            backend = OpenClBackend(plan, number, mine, stream, memory, uploads)
            self._backends.append(backend)
            if not on_host[number]:
                self._devices[number] = backend
        self._batches = [(self._backends[n], self._backends[n].batch(parts)) for n, parts in self._bind()]
        self._keep += ((backend, backend.nbytes) for backend in self._backends)
        running = freed_in_children(threading.RLock())
        #: The only batch, if the plan has one, of a CPU whose pool is not asynchronous.
        self.alone: LoneBatch | None = None
        #: The plan for a compiled loop; None if it is not for one, or this is closed.
        self.routine: Routine | None = None
        if len(self._backends) == len(self._batches) == 1 and isinstance(self._backends[0], CpuBackend):
            self.alone = self._backends[0].alone(self._batches[0][1])
            if self.alone is not None:
                running = self.alone.order
            if record is None:
                self.routine = self._backends[0].routine(self._batches[0][1])
        self._running = running
        #: Whether the calling thread is in the middle of a run, which a finalizer or a signal's handler interrupts.
        self.is_running = held_by_this_thread(running)

    def parts(self) -> list[tuple[object, int]]:
        """Return what this keeps alive, with its bytes: workspaces, scratchpads, resources, and what it was given."""
        return self._keep

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Execute all steps on row-major inputs and outputs given by address. Raises KernelFailed naming the step."""
        try:
            if self.alone is not None:
                self.alone.run(inputs, outputs)
                return
            with self._running:
                for backend in self._backends:
                    backend.move(inputs, outputs)
                for backend, batch in self._batches:
                    backend.run(batch)
                    backend.wait()
        except BaseException:
            self.settle()
            raise

    def reorder_constant(self, number: int, source: int, destination: int) -> None:
        """Write constant ``number`` from its row-major form at ``source`` into its final layout at ``destination``."""
        constant = self.plan.constants[number]
        if constant.reorder is None:
            raise ValueError(f"constant {number} needs no reorder")
        backend = self._backends[self.plan.primitives[constant.reorder]]
        sizes = constant.raw_nbytes, constant.nbytes
        backend.reorder(f"step 'constant {number}'", constant.reorder, source, destination, sizes)

    def close(self) -> None:
        """Wait for the engines and release what the steps hold."""
        self.settle()
        self._batches.clear()
        self.alone = self.routine = None

    def settle(self) -> None:
        """Return when no engine works on memory of a run: neither an error nor an interrupt must free what is in use."""
        for backend in self._backends:
            while True:
                try:
                    backend.wait()
                except Exception:  # noqa: BLE001 - everything has ended, and the first error is raised already
                    break
                except BaseException:  # noqa: BLE001 - the first interrupt is raised already
                    continue
                break

    def _bind(self) -> list[tuple[int, list[Any]]]:
        """Return the parts of each batch, with the number of its engine."""
        found: list[tuple[int, list[Any]]] = []
        aliases = Aliases()
        for number, step in enumerate(self.plan.steps):
            if isinstance(step, CrossEngineReorder):
                engine, parts = self._bind_reorder(step, number, aliases)
            else:
                engine = self.plan.primitives[step.primitive]
                locations = {arg: aliases.locate(place, engine, number) for arg, place in step.args}
                record = None if self._record is None else partial(self._record, number)
                parts = self._backends[engine].bind(step.name, step.primitive, locations, record)
            if found and found[-1][0] == engine:
                found[-1][1].extend(parts)
            elif parts:
                found.append((engine, parts))
        for number, device in self._devices.items():
            batches = [parts for engine, parts in found if engine == number]
            if batches:
                batches[0][:0] = device.copies_in()
                batches[-1].extend(device.copies_out())
        return found

    def _bind_reorder(self, step: CrossEngineReorder, number: int, aliases: Aliases) -> tuple[int, list[Any]]:
        source = aliases.locate(step.source, step.source_engine, number)
        place = step.destination
        target = Location(step.destination_engine, place.kind, place.value, place.start)
        # One of the two is in the host's memory; the other engine enqueues the copy.
        if step.destination_engine in self._devices:
            self.copies += 1
            copy = self._devices[step.destination_engine].bind_copy(step.name, target, source, step.nbytes, True)
            return step.destination_engine, [copy]
        if step.source_engine in self._devices:
            self.copies += 1
            copy = self._devices[step.source_engine].bind_copy(step.name, source, target, step.nbytes, False)
            return step.source_engine, [copy]
        aliases.add(step, source)
        return step.destination_engine, []
