"""Copies between engines: from the host's memory to a device's, back, and from one OpenCL context to another.

The first two only enqueue, and return an event that the caller holds until it is over: dropping one waits for its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...memory.opencl import host_view

if TYPE_CHECKING:
    import pyopencl


def copy_to_device(
    queue: pyopencl.CommandQueue, buffer: pyopencl.Buffer, offset: int, address: int, nbytes: int
) -> pyopencl.Event:
    """Enqueue a copy of host memory at an address into a buffer. Raises pyopencl.Error."""
    import pyopencl as cl

    return cl.enqueue_copy(queue, buffer, host_view(address, nbytes), dst_offset=offset, is_blocking=False)


def copy_to_host(
    queue: pyopencl.CommandQueue, buffer: pyopencl.Buffer, offset: int, address: int, nbytes: int
) -> pyopencl.Event:
    """Enqueue a copy of a buffer into host memory at an address. Raises pyopencl.Error."""
    import pyopencl as cl

    return cl.enqueue_copy(queue, host_view(address, nbytes), buffer, src_offset=offset, is_blocking=False)


def copy_across(
    source: tuple[pyopencl.CommandQueue, pyopencl.Buffer, int],
    target: tuple[pyopencl.CommandQueue, pyopencl.Buffer, int],
    nbytes: int,
) -> None:
    """Copy from one context to another through the host's memory, each given as queue, buffer, offset, and wait.

    Raises pyopencl.Error.
    """
    import pyopencl as cl

    between = bytearray(nbytes)
    cl.enqueue_copy(source[0], between, source[1], src_offset=source[2])
    cl.enqueue_copy(target[0], target[1], between, dst_offset=target[2])
