"""Bytes of tensors on the host and on devices, and copies between them."""

from __future__ import annotations

from poolrt.workers.desc import MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory


def byte_memory(nbytes: int, engine: Engine | None = None) -> Memory:
    """Return memory of ``nbytes`` bytes, in the host's memory unless an engine is given."""
    return Memory(MemoryDesc((nbytes,), "u8"), engine)


def copy_bytes(source: Memory, start: int, destination: Memory, nbytes: int) -> None:
    """Copy ``nbytes`` of a memory, from ``start`` on, to the beginning of another; nothing may be at work on them."""
    given, taken = source.map(), destination.map()
    try:
        taken[:nbytes] = given[start : start + nbytes]
    finally:
        source.unmap()
        destination.unmap()


def part(tensor: Memory, start: int, desc: MemoryDesc, engine: Engine) -> Memory:
    """Return the memory of an argument on an engine: the bytes of a tensor from ``start`` on.

    A tensor on a device is taken from its beginning.
    """
    if tensor.is_on_host:
        return Memory(desc, engine, tensor.map()[start : start + desc.nbytes])
    return Memory(desc, engine, tensor.device_buffer)
