"""A primitive on an OpenCL engine: programs realized once, launches bound to buffers and enqueued again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .kernels.opencl.realize import realize_kernel, set_memory, set_number
from .opencl_memory import device_buffer
from .primitives.entry import Entry
from .primitives.program import Launch

if TYPE_CHECKING:
    import pyopencl

    from .engines.opencl import OpenClEngine


class RealizedOpenClPrimitive:
    """An entry whose programs belong to one engine's context; its constant tables live on the device."""

    def __init__(self, entry: Entry, engine: OpenClEngine) -> None:
        self.entry = entry
        self.programs = [engine.realize(binary) for binary in entry.binaries]
        self.tables = device_buffer(engine, len(entry.tables), entry.tables)

    def kernel(self, number: int) -> pyopencl.Kernel:
        """Return a new kernel object for kernel ``number`` of the entry."""
        return realize_kernel(self.programs[number], self.entry.kernel_names[number])


class BoundLaunch:
    """One launch with its arguments set, except `moving`: (kernel argument, execution argument) each.

    ``places`` are buffers and offsets in them; no buffer marks an argument that moves.
    """

    def __init__(
        self,
        primitive: RealizedOpenClPrimitive,
        launch: Launch,
        places: Mapping[int, tuple[pyopencl.Buffer | None, int]],
        scratchpad: pyopencl.Buffer,
    ) -> None:
        self.kernel = primitive.kernel(launch.kernel)
        self.global_size = launch.global_size
        self.local_size = launch.local_size
        self.moving: list[tuple[int, int]] = []
        # Setting an argument does not keep its buffer alive.
        self._keep: dict[int, object] = {-1: primitive}
        index = 0
        for where, value in launch.args:
            if isinstance(value, tuple):
                self._place(index, value, places, primitive.entry.implementation)
                index += 2
            elif where in ("i", "f"):
                set_number(self.kernel, index, value, real=where == "f")
                index += 1
            else:
                self._set(index, scratchpad if where == "s" else primitive.tables, int(value))
                index += 2

    def move(self, index: int, buffer: pyopencl.Buffer) -> None:
        """Set the buffer of kernel argument ``index``; its offset stays."""
        self._keep[index] = buffer
        self.kernel.set_arg(index, buffer)

    def enqueue(self, queue: pyopencl.CommandQueue) -> None:
        """Enqueue the launch. Raises pyopencl.Error."""
        import pyopencl as cl

        cl.enqueue_nd_range_kernel(queue, self.kernel, self.global_size, self.local_size)

    def _place(
        self,
        index: int,
        value: tuple[int, int],
        places: Mapping[int, tuple[pyopencl.Buffer | None, int]],
        implementation: str,
    ) -> None:
        arg, offset = value
        if arg not in places:
            raise ValueError(f"{implementation} needs argument {arg}, which is not given")
        buffer, start = places[arg]
        if buffer is None:
            self.moving.append((index, arg))
            set_number(self.kernel, index + 1, start + offset, real=False)
        else:
            self._set(index, buffer, start + offset)

    def _set(self, index: int, buffer: pyopencl.Buffer, offset: int) -> None:
        self._keep[index] = buffer
        set_memory(self.kernel, index, buffer, offset)


def bind_launches(
    primitive: RealizedOpenClPrimitive,
    places: Mapping[int, tuple[pyopencl.Buffer | None, int]],
    scratchpad: pyopencl.Buffer,
) -> Sequence[BoundLaunch]:
    """Return the launches of a primitive on placed arguments. Raises ValueError where one is missing."""
    return [BoundLaunch(primitive, launch, places, scratchpad) for launch in primitive.entry.launches]
