"""Memory that is overwritten when its last owner drops it, so that a later use shows in results.

Its pages stay mapped for as long as an area is used: what reads freed memory gets poison and does not crash, and what
writes to it is found by `FreedMemory.assert_untouched`.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.engines.object_loader import NativeKernel
from poolrt.workers.execution import native_binding as bound_primitive
from poolrt.workers.execution.resource import LinkedLaunch
from poolrt.workers.memory import buffer, host_bytes
from poolrt.workers.streams import stream
from poolrt.workers.threadpools.jobs import Jobs

#: All bits: no number in any floating-point type, -1 in any signed one.
POISON: Final = 0xFF
_LINE: Final = 64
_BYTES: Final = 1 << 30


class FreedMemory:
    """An address range that hands out each block once; untouched pages take no memory."""

    def __init__(self) -> None:
        self._area = mmap.mmap(-1, _BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._lock = threading.Lock()
        self._next = 0
        self._freed: list[tuple[int, int, int]] = []

    def take(self, nbytes: int, poison: int = POISON) -> NDArray[np.uint8]:
        """Return zeroed bytes on a cache line, filled with a poison when nothing refers to them, or views of them, any more."""
        with self._lock:
            start = self._next
            self._next += (nbytes // _LINE + 2) * _LINE
        assert self._next <= _BYTES, "the area is used up"
        block = np.frombuffer(self._area, np.uint8, nbytes, start)
        freed = weakref.finalize(block, self._free, block.ctypes.data, nbytes, poison)
        freed.atexit = False
        return block

    def assert_untouched(self) -> None:
        """Raise AssertionError where freed bytes are no longer what they were overwritten with."""
        for address, nbytes, poison in self._freed:
            found = np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(address))
            assert (found == poison).all(), "something wrote to memory that had been freed"

    def _free(self, address: int, nbytes: int, poison: int) -> None:
        ctypes.memset(address, poison, nbytes)
        self._freed.append((address, nbytes, poison))


@contextmanager
def poisoned() -> Iterator[FreedMemory]:
    """Within the block, memories, scratchpads and argument blocks of launches are such memory."""
    freed = FreedMemory()

    class PoisonedBuffer(buffer.Buffer):
        """A `Buffer` in memory that is poisoned when it is freed."""

        __slots__ = ("_block",)

        def __init__(self, nbytes: int, content: bytes = b"") -> None:
            self.nbytes = nbytes
            self._block = freed.take(max(nbytes, len(content)) + buffer.SLACK)
            self._block[: len(content)] = np.frombuffer(content, np.uint8)
            self.address = self._block.ctypes.data

        @property
        def view(self) -> memoryview:
            return self._block[: self.nbytes].data

    class PoisonedBlocks(bound_primitive.ArgumentBlock):
        """Argument blocks that describe no work once they are freed: any other range would crash."""

        def __init__(self, launch: LinkedLaunch[NativeKernel], jobs: Jobs) -> None:
            super().__init__(launch, jobs)
            self.blocks = [_copied(block, freed) for block in self.blocks]
            self.addresses = [ctypes.addressof(block) for block in self.blocks]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_bytes, "Buffer", PoisonedBuffer)
        patch.setattr(stream, "Buffer", PoisonedBuffer)
        patch.setattr(bound_primitive, "ArgumentBlock", PoisonedBlocks)
        yield freed


def _copied(block: Any, freed: FreedMemory) -> Any:
    """Return a ctypes array of the same content, which is 0 as soon as nothing refers to it."""
    memory = freed.take(ctypes.sizeof(block), 0)
    copied = type(block).from_buffer(memory)
    copied[:] = block[:]
    return copied
