"""Executes a realized primitive on streams of an OpenCL device: launches are bound once, and moved for each execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..desc import Arg
from ..streams.stream import Stream
from ..threadpools.interface import KernelFailed
from .opencl_binding import BoundLaunch, RealizedOpenClPrimitive, bind_launches

if TYPE_CHECKING:
    import pyopencl

    from .memory import Memory


class OpenClExecution:
    """Executes one primitive from any number of threads at once: each has its own kernel objects while it enqueues."""

    def __init__(self, primitive: RealizedOpenClPrimitive) -> None:
        self._primitive = primitive
        self._idle: list[Sequence[BoundLaunch]] = []

    def execute(self, stream: Stream, args: Mapping[int, Memory], text: str | None = None) -> None:
        """Enqueue on a stream; ``text`` is for its verbose line. Raises KernelFailed if the driver refuses a launch."""
        with stream.order:
            begin = None if text is None else stream.stamp()
            buffers: dict[int, Any] = {int(arg): memory.device_buffer for arg, memory in args.items()}
            if Arg.SCRATCHPAD not in buffers:
                buffers[Arg.SCRATCHPAD] = stream.device_scratchpad(self._primitive.entry.scratchpad)
            self.enqueue(stream, buffers)
            if text is not None and begin is not None:
                stream.time(text, begin)
            # The device may still work on host memory when its owner has dropped it.
            stream.hold((dict(args), buffers, [memory.owner for memory in args.values()]))

    def enqueue(self, stream: Stream, buffers: Mapping[int, pyopencl.Buffer]) -> None:
        """Enqueue all launches on buffers by argument, the scratchpad's among them; the caller holds the stream's order.

        Raises KernelFailed.
        """
        import pyopencl as cl

        try:
            launches = self._idle.pop()
        except IndexError:
            launches = bind_launches(self._primitive, dict.fromkeys(buffers, (None, 0)), None)
        try:
            for launch in launches:
                for index, arg in launch.moving:
                    launch.move(index, buffers[arg])
                launch.enqueue(stream.queue)
        except cl.Error as error:
            raise KernelFailed(f"{self._primitive.entry.implementation} failed: {error}") from error
        self._idle.append(launches)
