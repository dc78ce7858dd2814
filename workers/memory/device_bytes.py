"""Bytes of a tensor in a buffer of an OpenCL device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .host_bytes import HostBytes
from .opencl import buffer_over, device_buffer, shares_host_memory

if TYPE_CHECKING:
    import pyopencl

    from ..engines.opencl import OpenClEngine


class DeviceBytes:
    """A device buffer. If the device works on host memory, the host always has access; elsewhere `map` gives it access."""

    __slots__ = ("_engine", "_host", "_mapped", "_nbytes", "buffer")

    def __init__(self, engine: OpenClEngine, nbytes: int, given: Any = None) -> None:
        """Take new bytes, a pyopencl.Buffer, or a writable C-contiguous buffer in host memory, which is kept.

        Raises ValueError if the given one is smaller or of another engine.
        """
        import pyopencl as cl

        self._engine = engine
        self._nbytes = nbytes
        self._host: HostBytes | None = None
        self._mapped: Any = None
        self.buffer: pyopencl.Buffer
        if isinstance(given, cl.Buffer):
            self.set_handle(given)
        elif given is None and nbytes and not shares_host_memory(engine):
            self.buffer = device_buffer(engine, nbytes)
        else:
            self._host = HostBytes(nbytes, given)
            self.buffer = buffer_over(engine, self._host.address, nbytes) if nbytes else device_buffer(engine, 0)

    def set_handle(self, buffer: Any) -> None:
        """Use another pyopencl.Buffer.

        Raises TypeError for anything else, and ValueError if it is smaller or of another context than the engine's.
        """
        import pyopencl as cl

        if not isinstance(buffer, cl.Buffer):
            raise TypeError(f"handle: expect a pyopencl.Buffer, got {type(buffer).__name__}")
        if buffer.size < self._nbytes:
            raise ValueError(f"buffer: expect {self._nbytes} bytes, got {buffer.size}")
        if buffer.context != self._engine.context:
            raise ValueError("buffer: expect one of the engine's context, got one of another")
        self._host, self._mapped = None, None
        self.buffer = buffer

    @property
    def owner(self) -> object:
        """The object that keeps the bytes alive: a buffer over host memory does not keep that memory."""
        return self.buffer if self._host is None else (self.buffer, self._host.owner)

    @property
    def is_mapped(self) -> bool:
        """Whether the host has mapped the buffer, so that the device must not use it."""
        return self._mapped is not None

    @property
    def view(self) -> memoryview | None:
        """The bytes, writable, if the host has access now."""
        if self._mapped is not None:
            return memoryview(self._mapped).cast("B")
        if self._host is not None and (self._nbytes == 0 or shares_host_memory(self._engine)):
            return self._host.view
        return None

    def map(self) -> None:
        """Give the host access, and keep the device from the buffer until `unmap`."""
        import numpy
        import pyopencl as cl

        if self.view is None and self._nbytes:
            flags: Any = cl.map_flags.READ | cl.map_flags.WRITE
            kind = numpy.dtype(numpy.uint8)
            self._mapped, _ = cl.enqueue_map_buffer(self._engine.queue, self.buffer, flags, 0, (self._nbytes,), kind)

    def unmap(self) -> None:
        """End the host's access."""
        if self._mapped is not None:
            self._mapped.base.release(self._engine.queue)
            self._engine.queue.finish()
            self._mapped = None
