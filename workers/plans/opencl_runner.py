"""Executes a plan on an OpenCL engine of this process: all steps into one in-order queue, one wait at the end of a run.

Arguments that stay are set once; inputs and outputs are set again only when they moved. Where the device works on host
memory nothing is copied; elsewhere constants are uploaded before the first run, inputs before and outputs after each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..desc.args import Arg
from ..execution.opencl_binding import BoundLaunch, RealizedOpenClPrimitive, bind_launches
from ..execution.opencl_stamps import Stamp, StepStamps
from ..memory.opencl import HostBuffers, device_buffer, host_view, shares_host_memory
from ..threadpools.interface import KernelFailed
from .execution_plan import CrossEngineReorder, ExecutionPlan, PlaceKind, Port, Step
from .realization import realize_all

if TYPE_CHECKING:
    import pyopencl

    from ..engines.opencl import OpenClEngine


class OpenClPlanRunner:
    """Owns workspace and scratchpad of one plan on one device. Not safe for concurrent runs.

    ``entries`` are the plan's primitives in order, ``constants`` the addresses of its constants in their final layout.
    ``shared`` says whether the device works on host memory; unless given, that is tried. The number of threads is the
    engine's: OpenCL's drivers take theirs when they are started.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        entries: Sequence[bytes],
        engine: OpenClEngine,
        constants: Sequence[int],
        shared: bool | None = None,
    ) -> None:
        if len(entries) != len(plan.primitives) or len(constants) != len(plan.constants):
            raise ValueError("a plan needs one entry for each primitive and one address for each constant")
        self.plan = plan
        self._engine = engine
        self._shared = shares_host_memory(engine) if shared is None else shared
        self._host = HostBuffers(engine)
        self._primitives = realize_all(
            plan, dict(enumerate(entries)), lambda entry, nested: RealizedOpenClPrimitive(entry, engine, nested)
        )
        self._workspace = device_buffer(engine, plan.workspaces[0])
        self._scratchpad = device_buffer(
            engine, max((p.entry.scratchpad for p in self._primitives.values()), default=0)
        )
        self._addresses = list(constants)
        self._constants = [self._buffer(a, c.nbytes) for a, c in zip(constants, plan.constants, strict=True)]
        self._uploaded = self._shared
        self._ports: dict[tuple[PlaceKind, int], pyopencl.Buffer] = {}
        self._moving: dict[tuple[PlaceKind, int], list[tuple[BoundLaunch, int]]] = {}
        self._launches: list[tuple[str, BoundLaunch | Stamp]] = []
        self._stamps = StepStamps()
        for step in plan.steps:
            if isinstance(step, CrossEngineReorder):
                raise ValueError(f"step {step.name!r} leaves the engine, which is alone here")
            self._bind(step)

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Execute all steps on row-major inputs and outputs given by address. Raises KernelFailed naming the step."""
        import pyopencl as cl

        self._upload_constants()
        name = "inputs"
        try:
            self._given(PlaceKind.INPUT, self.plan.inputs, inputs)
            self._given(PlaceKind.OUTPUT, self.plan.outputs, outputs)
            for name, launch in self._launches:  # noqa: B007 - told when a launch fails
                launch.enqueue(self._engine.queue)
            name = "outputs"
            if not self._shared:
                self._fetch(outputs)
            self._engine.queue.finish()
            self._stamps.tell()
        except cl.Error as error:
            raise KernelFailed(f"step {name!r} failed: {error}") from error

    def reorder_constant(self, number: int, source: int, destination: int) -> None:
        """Write constant ``number`` from its row-major form at ``source`` into its final layout at ``destination``."""
        import pyopencl as cl

        constant = self.plan.constants[number]
        if constant.reorder is None:
            raise ValueError(f"constant {number} needs no reorder")
        src, dst = self._buffer(source, constant.raw_nbytes), self._buffer(destination, constant.nbytes)
        places = {int(Arg.SRC): (src, 0), int(Arg.DST): (dst, 0)}
        try:
            if not self._shared:
                cl.enqueue_copy(self._engine.queue, src, host_view(source, constant.raw_nbytes))
            stamps = StepStamps()
            launches = bind_launches(self._primitives[constant.reorder], places, self._scratchpad)
            for part in stamps.around(launches, self.plan.text_of(constant.reorder)):
                part.enqueue(self._engine.queue)
            if not self._shared:
                cl.enqueue_copy(self._engine.queue, host_view(destination, constant.nbytes), dst)
            self._engine.queue.finish()
            stamps.tell()
        except cl.Error as error:
            raise KernelFailed(f"step 'constant {number}' failed: {error}") from error

    def close(self) -> None:
        """Release the buffers and kernels."""
        self._engine.queue.finish()
        self._launches.clear()
        self._moving.clear()
        self._ports.clear()

    def _buffer(self, address: int, nbytes: int) -> pyopencl.Buffer:
        return self._host.at(address, nbytes) if self._shared else device_buffer(self._engine, nbytes)

    def _bind(self, step: Step) -> None:
        places: dict[int, tuple[pyopencl.Buffer | None, int]] = {}
        for arg, place in step.args:
            if place.kind is PlaceKind.WORK:
                places[arg] = (self._workspace, place.value + place.start)
            elif place.kind is PlaceKind.CONSTANT:
                places[arg] = (self._constants[place.value], place.start)
            else:
                places[arg] = (None, place.start)
        located = dict(step.args)
        launches = bind_launches(self._primitives[step.primitive], places, self._scratchpad)
        parts = self._stamps.around(launches, self.plan.text_of(step.primitive))
        self._launches.extend((step.name, part) for part in parts)
        for launch in launches:
            for index, arg in launch.moving:
                place = located[arg]
                self._moving.setdefault((place.kind, place.value), []).append((launch, index))

    def _given(self, kind: PlaceKind, ports: Sequence[Port], addresses: Sequence[int]) -> None:
        """Point every launch at this run's inputs or outputs; upload inputs where memory is not shared."""
        import pyopencl as cl

        for number, (port, address) in enumerate(zip(ports, addresses, strict=True)):
            place = (kind, number)
            known = self._ports.get(place)
            buffer = (
                self._host.at(address, port.nbytes) if self._shared else known or self._buffer(address, port.nbytes)
            )
            if buffer is not known:
                self._ports[place] = buffer
                for launch, index in self._moving.get(place, ()):
                    launch.move(index, buffer)
            if kind is PlaceKind.INPUT and not self._shared and port.nbytes:
                cl.enqueue_copy(self._engine.queue, buffer, host_view(address, port.nbytes), is_blocking=False)

    def _fetch(self, outputs: Sequence[int]) -> None:
        import pyopencl as cl

        for number, (port, address) in enumerate(zip(self.plan.outputs, outputs, strict=True)):
            if port.nbytes:
                source = self._ports[PlaceKind.OUTPUT, number]
                cl.enqueue_copy(self._engine.queue, host_view(address, port.nbytes), source, is_blocking=False)

    def _upload_constants(self) -> None:
        import pyopencl as cl

        if self._uploaded:
            return
        for buffer, address, constant in zip(self._constants, self._addresses, self.plan.constants, strict=True):
            if constant.nbytes:
                cl.enqueue_copy(self._engine.queue, buffer, host_view(address, constant.nbytes))
        self._uploaded = True
