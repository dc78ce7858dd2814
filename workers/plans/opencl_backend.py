"""An OpenCL device's part in a plan for several engines: launches on its queue, on shared or on transferred memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from ..desc.args import Arg
from ..execution.opencl_binding import BoundLaunch, RealizedOpenClPrimitive, bind_launches
from ..execution.opencl_stamps import Stamp, StepStamps
from ..memory.buffer import Buffer
from ..memory.opencl import HostBuffers, buffer_over, device_buffer, host_view
from ..threadpools.interface import KernelFailed
from .execution_plan import ExecutionPlan, PlaceKind
from .locations import Location
from .realization import realize_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyopencl

    from ..engines.opencl import OpenClEngine

Launches: TypeAlias = "Sequence[tuple[str, BoundLaunch | Stamp]]"


class OpenClLane:
    """Primitives of one OpenCL engine, number ``number`` of the plan's.

    Where the device works on host memory, ``workspaces`` are those of all engines that do, and nothing is copied. Else
    they are empty: the device has a workspace of its own; constants are uploaded once, inputs that its steps read before
    each run, and its outputs fetched after it.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        number: int,
        entries: Mapping[int, bytes],
        engine: OpenClEngine,
        constants: Sequence[int],
        workspaces: Mapping[int, Buffer],
    ) -> None:
        self._plan = plan
        self._number = number
        self._engine = engine
        self._constants = constants
        self._shared = bool(workspaces)
        self._host = HostBuffers(engine)
        self._primitives = realize_all(
            plan, entries, lambda entry, nested: RealizedOpenClPrimitive(entry, engine, nested)
        )
        self._scratchpad = device_buffer(
            engine, max((p.entry.scratchpad for p in self._primitives.values()), default=0)
        )
        if workspaces:
            self._work = {n: buffer_over(engine, b.address, max(b.nbytes, 1)) for n, b in workspaces.items()}
        else:
            self._work = {number: device_buffer(engine, plan.workspaces[number])}
        self._uploaded: dict[int, pyopencl.Buffer] = {}
        self._ports: dict[tuple[PlaceKind, int], pyopencl.Buffer] = {}
        self._moving: dict[tuple[PlaceKind, int], list[tuple[BoundLaunch, int]]] = {}
        self._addresses: dict[tuple[PlaceKind, int], int] = {}
        self._stamps = StepStamps()

    def bind(
        self, name: str, primitive: int, locations: Mapping[int, Location]
    ) -> list[tuple[str, BoundLaunch | Stamp]]:
        """Return the launches of a step."""
        places = {arg: self._place(location) for arg, location in locations.items()}
        launches = bind_launches(self._primitives[primitive], places, self._scratchpad)
        for launch in launches:
            for index, arg in launch.moving:
                self._moving.setdefault((locations[arg].kind, locations[arg].value), []).append((launch, index))
        return [(name, part) for part in self._stamps.around(launches, self._plan.text_of(primitive))]

    def place(self, kind: PlaceKind, number: int, address: int) -> None:
        """Let an input or output lie at an address from now on; inputs are uploaded where memory is not shared."""
        port = (kind, number)
        if port not in self._moving:
            return  # no step of this device reads or writes it
        import pyopencl as cl

        self._addresses[port] = address
        nbytes = (self._plan.inputs if kind is PlaceKind.INPUT else self._plan.outputs)[number].nbytes
        known = self._ports.get(port)
        if self._shared:
            buffer = self._host.at(address, nbytes)
        else:
            buffer = known or device_buffer(self._engine, nbytes)
        if buffer is not known:
            self._ports[port] = buffer
            for launch, index in self._moving[port]:
                launch.move(index, buffer)
        if kind is PlaceKind.INPUT and not self._shared and nbytes:
            cl.enqueue_copy(self._engine.queue, buffer, host_view(address, nbytes), is_blocking=False)

    def run(self, launches: Launches) -> None:
        """Enqueue launches. Raises KernelFailed naming the step."""
        import pyopencl as cl

        name = ""
        try:
            for name, launch in launches:  # noqa: B007 - told when a launch fails
                launch.enqueue(self._engine.queue)
        except cl.Error as error:
            raise KernelFailed(f"step {name!r} failed: {error}") from error

    def take(self, name: str, location: Location, source: int, nbytes: int) -> None:
        """Enqueue a copy of host memory into memory of the device."""
        import pyopencl as cl

        buffer, offset = self._located(location)
        with _named(f"step {name!r}"):
            view = host_view(source, nbytes)
            cl.enqueue_copy(self._engine.queue, buffer, view, dst_offset=offset, is_blocking=False)

    def give(self, name: str, location: Location, destination: int, nbytes: int) -> None:
        """Enqueue a copy of memory of the device into host memory."""
        import pyopencl as cl

        buffer, offset = self._located(location)
        with _named(f"step {name!r}"):
            view = host_view(destination, nbytes)
            cl.enqueue_copy(self._engine.queue, view, buffer, src_offset=offset, is_blocking=False)

    def fetch(self) -> None:
        """Enqueue copies of the outputs that this device has written to where they belong, where memory is not shared."""
        for (kind, number), address in self._addresses.items():
            nbytes = self._plan.outputs[number].nbytes if kind is PlaceKind.OUTPUT else 0
            if nbytes and not self._shared:
                self.give("outputs", Location(-1, kind, number, 0), address, nbytes)

    def finish(self) -> None:
        """Wait for all that was enqueued. Raises KernelFailed."""
        with _named(f"a step on {self._plan.engines[self._number]}"):
            self._engine.queue.finish()
            self._stamps.tell()

    def reorder(self, name: str, primitive: int, source: int, destination: int, nbytes: tuple[int, int]) -> None:
        """Execute a reorder from host memory to host memory. Raises KernelFailed."""
        import pyopencl as cl

        queue = self._engine.queue
        src, dst = (
            self._host.at(address, size) if self._shared else device_buffer(self._engine, size)
            for address, size in zip((source, destination), nbytes, strict=True)
        )
        with _named(name):
            if not self._shared:
                cl.enqueue_copy(queue, src, host_view(source, nbytes[0]))
            places: dict[int, tuple[Any, int]] = {int(Arg.SRC): (src, 0), int(Arg.DST): (dst, 0)}
            stamps = StepStamps()
            launches = bind_launches(self._primitives[primitive], places, self._scratchpad)
            for part in stamps.around(launches, self._plan.text_of(primitive)):
                part.enqueue(queue)
            if not self._shared:
                cl.enqueue_copy(queue, host_view(destination, nbytes[1]), dst)
            queue.finish()
            stamps.tell()

    def close(self) -> None:
        """Wait for the queue and let go of what the launches hold."""
        self._engine.queue.finish()
        self._moving.clear()
        self._ports.clear()

    def _place(self, location: Location) -> tuple[pyopencl.Buffer | None, int]:
        """Return buffer and offset of an argument; no buffer for one that moves."""
        if location.kind in (PlaceKind.INPUT, PlaceKind.OUTPUT):
            self._moving.setdefault((location.kind, location.value), [])
            return None, location.start
        if location.kind is PlaceKind.WORK:
            return self._work[location.owner], location.value + location.start
        return self._constant(location.value), location.start

    def _located(self, location: Location) -> tuple[pyopencl.Buffer, int]:
        buffer, offset = self._place(location)
        return buffer or self._ports[location.kind, location.value], offset

    def _constant(self, number: int) -> pyopencl.Buffer:
        address, nbytes = self._constants[number], self._plan.constants[number].nbytes
        if self._shared:
            return self._host.at(address, nbytes)
        return self._uploaded.setdefault(number, device_buffer(self._engine, nbytes))

    def upload_constants(self) -> None:
        """Copy the constants that steps read to a device that does not work on host memory."""
        import pyopencl as cl

        for number, buffer in self._uploaded.items():
            nbytes = self._plan.constants[number].nbytes
            if nbytes:
                cl.enqueue_copy(self._engine.queue, buffer, host_view(self._constants[number], nbytes))


@contextmanager
def _named(what: str) -> Iterator[None]:
    import pyopencl as cl

    try:
        yield
    except cl.Error as error:
        raise KernelFailed(f"{what} failed: {error}") from error
