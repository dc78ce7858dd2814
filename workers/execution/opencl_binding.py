"""An OpenCL primitive bound to buffers: programs are realized once, launches are enqueued repeatedly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..desc.args import Arg
from ..engines.opencl_program import realize_kernel, set_memory, set_number
from ..memory.opencl import device_buffer
from ..primitives.entry import Entry
from .resource import LinkedLaunch, Resource

if TYPE_CHECKING:
    import pyopencl

    from ..engines.opencl import OpenClEngine

#: A buffer, or None for one that moves, and an offset in it in bytes.
Place: TypeAlias = "tuple[pyopencl.Buffer | None, int]"


class RealizedKernel(NamedTuple):
    """A program of an engine's context, and the name of the kernel in it."""

    program: pyopencl.Program
    name: str


class RealizedOpenClPrimitive(Resource[RealizedKernel, "pyopencl.Buffer"]):
    """An entry with its programs in one engine's context, its constant tables on the device, and the nested resources."""

    def __init__(self, entry: Entry, engine: OpenClEngine, nested: Sequence[RealizedOpenClPrimitive] = ()) -> None:
        programs = (engine.realize(binary) for binary in entry.binaries)
        kernels = [RealizedKernel(*pair) for pair in zip(programs, entry.kernel_names, strict=True)]
        super().__init__(entry, kernels, device_buffer(engine, len(entry.tables), entry.tables), nested)


class BoundLaunch:
    """One launch with its arguments set, except the buffers of `moving`: (kernel argument, execution argument) each."""

    def __init__(
        self,
        launch: LinkedLaunch[RealizedKernel],
        places: Mapping[int, Place],
        scratchpad: pyopencl.Buffer | None,
        implementation: str,
    ) -> None:
        self.kernel = realize_kernel(*launch.kernel)
        self.global_size = launch.global_size
        self.local_size = launch.local_size
        self.moving: list[tuple[int, int]] = []
        # Setting an argument does not keep its buffer alive.
        self._keep: dict[int, object] = {-1: launch}
        index = 0
        for where, value in launch.args:
            if where in ("i", "f"):
                set_number(self.kernel, index, value, real=where == "f")
                index += 1
                continue
            if where == "m":
                arg, offset = value
                if arg not in places:
                    raise ValueError(f"{implementation} needs argument {arg}, which is not given")
                self._place(index, arg, places[arg], offset)
            elif where == "s":
                self._place(index, Arg.SCRATCHPAD, (scratchpad, 0), value)
            else:
                tables, offset = value
                self._set(index, tables, offset)
            index += 2

    def move(self, index: int, buffer: pyopencl.Buffer) -> None:
        """Set the buffer of kernel argument ``index``; its offset stays."""
        self._keep[index] = buffer
        self.kernel.set_arg(index, buffer)

    def enqueue(self, queue: pyopencl.CommandQueue) -> None:
        """Enqueue the launch. Raises pyopencl.Error."""
        import pyopencl as cl

        cl.enqueue_nd_range_kernel(queue, self.kernel, self.global_size, self.local_size)

    def _place(self, index: int, arg: int, place: Place, offset: int) -> None:
        buffer, start = place
        if buffer is None:
            self.moving.append((index, arg))
            set_number(self.kernel, index + 1, start + offset, real=False)
        else:
            self._set(index, buffer, start + offset)

    def _set(self, index: int, buffer: pyopencl.Buffer, offset: int) -> None:
        self._keep[index] = buffer
        set_memory(self.kernel, index, buffer, offset)


def bind_launches(
    primitive: RealizedOpenClPrimitive, places: Mapping[int, Place], scratchpad: pyopencl.Buffer | None
) -> Sequence[BoundLaunch]:
    """Return the launches of a primitive on placed arguments; places without a buffer, and a scratchpad of None, move.

    Raises ValueError if an argument is missing.
    """
    return [BoundLaunch(run, places, scratchpad, primitive.entry.implementation) for run in primitive.launches]
