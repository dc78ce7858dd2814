"""Memory that OpenCL kernels address: host memory itself if the device works on it, else a device buffer.

Whether the device works on host memory is tried, not believed: the host writes to a buffer over host memory after it was
made, then the device does, and each must see the other's bytes without any mapping. CPU drivers pass; for a driver that
does not, bytes are copied before and after a run.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from poolrt.cachestore.lru import Lru

from .buffer import SLACK, Buffer

if TYPE_CHECKING:
    import pyopencl

    from ..engines.opencl import OpenClEngine

#: Least bytes of a buffer: drivers refuse empty ones.
_LEAST: Final = 64
#: Buffers over host memory that are kept, so that inputs at the same addresses need no new ones.
_KEPT: Final = 256


def shares_host_memory(engine: OpenClEngine) -> bool:
    """Return whether host and device see each other's writes to a buffer over host memory, without mapping it."""
    if engine.shares_memory is None:
        engine.shares_memory = _try_sharing(engine)
    return engine.shares_memory


def _try_sharing(engine: OpenClEngine) -> bool:
    import pyopencl as cl

    if not (engine.device.host_unified_memory and engine.device.type & cl.device_type.CPU):
        return False
    host, seen = Buffer(_LEAST), bytearray(_LEAST)
    view = host_view(host.address, _LEAST)
    buffer = buffer_over(engine, host.address, _LEAST)
    view[0] = 7
    cl.enqueue_copy(engine.queue, seen, buffer)
    cl.enqueue_fill_buffer(engine.queue, buffer, b"\x09", 0, _LEAST)
    engine.queue.finish()
    return seen[0] == 7 and view[0] == 9


def host_view(address: int, nbytes: int) -> memoryview:
    """Return the writable bytes at an address of this process, which must stay mapped while the view lives."""
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")


def device_buffer(engine: OpenClEngine, nbytes: int, content: bytes = b"") -> pyopencl.Buffer:
    """Return a new buffer of the device with slack at its end, filled with ``content`` if that is given."""
    import pyopencl as cl

    buffer = cl.Buffer(engine.context, cl.mem_flags.READ_WRITE, max(nbytes, len(content)) + SLACK)
    if content:
        cl.enqueue_copy(engine.queue, buffer, content)
    return buffer


class HostBuffers:
    """Buffers over host memory, kept by address and size; the least recently used are dropped."""

    def __init__(self, engine: OpenClEngine) -> None:
        self._engine = engine
        self._buffers: Lru[tuple[int, int], pyopencl.Buffer] = Lru(_KEPT)

    def get(self, address: int, nbytes: int) -> pyopencl.Buffer:
        """Return the buffer over ``nbytes`` at ``address``."""
        buffer = self._buffers.get((address, nbytes))
        if buffer is None:
            buffer = buffer_over(self._engine, address, nbytes) if nbytes else device_buffer(self._engine, 0)
            self._buffers.put((address, nbytes), buffer)
        return buffer


def buffer_over(engine: OpenClEngine, address: int, nbytes: int) -> pyopencl.Buffer:
    """Return a buffer over host memory, which must outlive all that works on it; ``nbytes`` is not 0."""
    import pyopencl as cl

    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(engine.context, flags, hostbuf=host_view(address, nbytes))
