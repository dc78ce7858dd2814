"""An OpenCL device's part in a plan: launches in the queue of a stream, on the host's memory or on the device's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..desc.args import Arg
from ..execution.cross_engine.copies import copy_to_device, copy_to_host
from ..execution.opencl_binding import BoundLaunch, RealizedOpenClPrimitive, bind_launches
from ..memory.opencl import HostBuffers, buffer_over, device_buffer
from ..threadpools.interface import KernelFailed
from .execution_plan import ExecutionPlan, PlaceKind
from .locations import HostMemory, Location

if TYPE_CHECKING:
    import pyopencl

    from ..streams.stream import Stream


class _Part(NamedTuple):
    """Commands that belong together, with what errors and verbose lines say of them."""

    name: str
    text: str | None
    commands: Sequence[Callable[[pyopencl.CommandQueue], object]]
    #: Gets the time of each execution instead of a verbose line, in nanoseconds.
    record: Callable[[int], None] | None = None


class OpenClBackend:
    """Primitives of one OpenCL engine, number ``number`` of the plan's.

    Where the device works on the host's memory, nothing is copied. Elsewhere it has a workspace and constants of its own;
    inputs that its steps read are copied in before its first batch, and outputs that they write are copied out after its last.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        number: int,
        primitives: Mapping[int, RealizedOpenClPrimitive],
        stream: Stream,
        memory: HostMemory,
        uploads: Mapping[tuple[int, int], pyopencl.Buffer] | None = None,
    ) -> None:
        self._plan = plan
        self._number = number
        self._primitives = primitives
        self._stream = stream
        self._engine = engine = stream.engine.opencl
        self._memory = memory
        self._on_host = stream.works_on_host
        self._host = HostBuffers(engine)
        self._scratchpad = device_buffer(engine, max((p.entry.scratchpad for p in primitives.values()), default=0))
        if self._on_host:
            spaces = memory.workspaces.items()
            self._work = {n: buffer_over(engine, b.address, max(b.nbytes, 1)) for n, b in spaces}
        else:
            self._work = {number: device_buffer(engine, plan.workspaces[number])}
        self._constants = {} if uploads is None else {c: buffer for (n, c), buffer in uploads.items() if n == number}
        #: Constants that the first run copies in, when they have their final layout.
        self._to_upload: list[Location] = []
        self._addresses: dict[PlaceKind, Sequence[int]] = {}
        self._ports: dict[tuple[PlaceKind, int], pyopencl.Buffer] = {}
        self._moving: dict[tuple[PlaceKind, int], list[tuple[BoundLaunch, int]]] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of scratchpad, workspace and ports on the device."""
        own = 0 if self._on_host else self._plan.workspaces[self._number]
        ports = 0 if self._on_host else sum(map(self._nbytes, self._moving))
        return own + ports + max((p.entry.scratchpad for p in self._primitives.values()), default=0)

    def bind(
        self, name: str, primitive: int, locations: Mapping[int, Location], record: Callable[[int], None] | None = None
    ) -> list[_Part]:
        """Return the launches of a step; ``record`` gets the time of each execution, in nanoseconds."""
        launches = self._launches(primitive, {arg: self._place(at) for arg, at in locations.items()})
        for launch in launches:
            for index, arg in launch.moving:
                self._moving[locations[arg].kind, locations[arg].value].append((launch, index))
        return [self._part(f"step {name!r}", primitive, launches)._replace(record=record)]

    def bind_copy(self, name: str, device: Location, host: Location, nbytes: int, into_device: bool) -> _Part:
        """Return a copy between memory of the device and the host's."""
        return _Part(f"step {name!r}", None, [partial(self._copy, device, host, nbytes, into_device)])

    def copies_in(self) -> list[_Part]:
        """Return copies of the inputs that steps read, for a device that does not work on the host's memory."""
        return self._port_copies(PlaceKind.INPUT)

    def copies_out(self) -> list[_Part]:
        """Return copies of the outputs that steps write, for a device that does not work on the host's memory."""
        return self._port_copies(PlaceKind.OUTPUT)

    def batch(self, parts: list[_Part]) -> list[_Part]:
        """Return the parts: they are enqueued one by one."""
        return parts

    def move(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Let the launches work on inputs and outputs at these addresses from now on."""
        self._addresses = {PlaceKind.INPUT: inputs, PlaceKind.OUTPUT: outputs}
        if self._to_upload:
            copies = [
                partial(self._copy, at, at, self._plan.constants[at.value].nbytes, True) for at in self._to_upload
            ]
            self.run([_Part("constants", None, copies)])
            self._to_upload.clear()
        for port, moving in self._moving.items():
            known, nbytes = self._ports.get(port), self._nbytes(port)
            if self._on_host:
                buffer = self._host.get(self._addresses[port[0]][port[1]], nbytes)
            else:
                buffer = known or device_buffer(self._engine, nbytes)
            if buffer is not known:
                self._ports[port] = buffer
                for launch, index in moving:
                    launch.move(index, buffer)

    def run(self, batch: Sequence[_Part]) -> None:
        """Enqueue parts. Raises KernelFailed naming the one that the driver refuses."""
        import pyopencl as cl

        stream, name = self._stream, ""
        try:
            with stream.order:
                for name, text, commands, record in batch:  # noqa: B007 - said when a command is refused
                    begin = None if text is None and record is None else stream.stamp()
                    queue = stream.queue
                    for command in commands:
                        command(queue)
                    if begin is not None:
                        stream.time(text or "", begin, record)
        except cl.Error as error:
            raise KernelFailed(f"{name} failed: {error}") from error

    def wait(self) -> None:
        """Return when the queue is empty, and write its verbose lines. Raises KernelFailed."""
        self._stream.wait()

    def reorder(self, name: str, primitive: int, source: int, destination: int, nbytes: tuple[int, int]) -> None:
        """Execute a reorder from one address of the host's memory to another, and wait. Raises KernelFailed."""
        ends = list(zip((source, destination), nbytes, strict=True))
        src, dst = (self._host.get(*end) if self._on_host else device_buffer(self._engine, end[1]) for end in ends)
        launches = self._launches(primitive, {int(Arg.SRC): (src, 0), int(Arg.DST): (dst, 0)})
        parts = [self._part(name, primitive, launches)]
        if not self._on_host:
            into = _Part(name, None, [lambda queue: copy_to_device(queue, src, 0, *ends[0])])
            parts = [into, *parts, _Part(name, None, [lambda queue: copy_to_host(queue, dst, 0, *ends[1])])]
        self.run(parts)
        self.wait()

    def _part(self, name: str, primitive: int, launches: Sequence[BoundLaunch]) -> _Part:
        return _Part(name, self._plan.text_of(primitive), [launch.enqueue for launch in launches])

    def _launches(self, primitive: int, places: Mapping[int, tuple[Any, int]]) -> Sequence[BoundLaunch]:
        return bind_launches(self._primitives[primitive], places, self._scratchpad)

    def _port_copies(self, kind: PlaceKind) -> list[_Part]:
        places = [Location(self._number, *port, 0) for port in self._moving if port[0] is kind]
        copies = [partial(self._copy, at, at, self._nbytes((kind, at.value)), kind is PlaceKind.INPUT) for at in places]
        return [_Part("inputs" if kind is PlaceKind.INPUT else "outputs", None, copies)]

    def _copy(self, device: Location, host: Location, nbytes: int, into_device: bool, queue: Any) -> None:
        """Enqueue a copy. Its event is held: one that is dropped waits for its end."""
        buffer, offset = self._place(device)
        address = self._memory.address(host)
        if address is None:
            address = self._addresses[host.kind][host.value] + host.start
        copy = copy_to_device if into_device else copy_to_host
        if nbytes:
            buffer = buffer or self._ports[device.kind, device.value]
            self._stream.hold(copy(queue, buffer, offset, address, nbytes))

    def _place(self, at: Location) -> tuple[pyopencl.Buffer | None, int]:
        """Return buffer and offset of an argument; no buffer for one that moves."""
        if at.kind in (PlaceKind.INPUT, PlaceKind.OUTPUT):
            self._moving.setdefault((at.kind, at.value), [])
            return None, at.start
        if at.kind is PlaceKind.WORK:
            return self._work[at.owner], at.value + at.start
        return self._constant(at), at.start

    def _constant(self, at: Location) -> pyopencl.Buffer:
        number, nbytes = at.value, self._plan.constants[at.value].nbytes
        if number not in self._constants:
            if self._on_host:
                self._constants[number] = self._host.get(self._memory.constants[number], nbytes)
            else:
                self._to_upload.append(at._replace(start=0))
                self._constants[number] = device_buffer(self._engine, nbytes)
        return self._constants[number]

    def _nbytes(self, port: tuple[PlaceKind, int]) -> int:
        kind, number = port
        return (self._plan.inputs if kind is PlaceKind.INPUT else self._plan.outputs)[number].nbytes
