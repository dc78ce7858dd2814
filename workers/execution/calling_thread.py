"""Executes a realized native primitive on the calling thread at addresses, without streams and memories."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Final

from ..desc.args import Arg
from ..memory.buffer import Buffer
from ..threadpools.interface import KERNEL_TYPE, Region
from ..threadpools.jobs import Jobs
from .native_binding import BoundPrimitive, RealizedPrimitive

#: Bytes of scratch memory that a thread keeps for later executions at most.
_KEPT: Final = 64 << 20
#: Slots of a packed argument block before its arguments.
_RANGE: Final = 2


class ThreadScratchpads(threading.local):
    """Scratch memory of the calling thread, which executions on it share."""

    def __init__(self) -> None:
        self._kept = Buffer(1)

    def grant(self, nbytes: int) -> Buffer:
        """Return at least so many bytes, which the thread may keep for later executions."""
        if self._kept.nbytes >= nbytes:
            return self._kept
        found = Buffer(nbytes)
        if nbytes <= _KEPT:
            self._kept = found
        return found


class CallingThreadExecution:
    """Executes one primitive; any number of threads may at once, each with launches of its own.

    ``args`` are the arguments whose addresses an execution gets, in this order.
    """

    __slots__ = ("_args", "_idle", "_nbytes", "_primitive", "_scratchpads")

    def __init__(self, primitive: RealizedPrimitive, args: Sequence[int], scratchpads: ThreadScratchpads) -> None:
        self._primitive = primitive
        self._args = tuple(args)
        self._nbytes = primitive.entry.scratchpad
        self._scratchpads = scratchpads
        #: Launches that no execution uses now.
        self._idle: list[_Launches] = []

    def execute(self, addresses: tuple[int, ...]) -> None:
        """Execute on memory at addresses and return when it has ended. Raises KernelFailed."""
        idle = self._idle
        try:
            launches = idle.pop()
        except IndexError:
            launches = _Launches(self._primitive, self._args)
        if self._nbytes:
            scratchpad = self._scratchpads.grant(self._nbytes)
            launches.run((*addresses, scratchpad.address))
        else:
            launches.run(addresses)
        idle.append(launches)


class _Launches:
    """Bound launches for one execution at a time."""

    __slots__ = ("_bound", "_calls", "_places", "_room", "_start")

    def __init__(self, primitive: RealizedPrimitive, args: tuple[int, ...]) -> None:
        arguments = (*args, int(Arg.SCRATCHPAD)) if primitive.entry.scratchpad else args
        bound = self._bound = BoundPrimitive(primitive, dict.fromkeys(arguments), None, Jobs(1))
        #: The slots of addresses: block, index, number of the address, bytes that are added to it.
        self._places = [
            (block.blocks[0], _RANGE + index, number, offset)
            for number, arg in enumerate(arguments)
            for block, index, offset in bound.moving.get(arg, ())
        ]
        name = primitive.entry.implementation
        self._calls = [
            (KERNEL_TYPE(block.kernel.address), block.addresses[0], Region(block.kernel.address, block.addresses, name))
            for block in bound.blocks
        ]
        self._room = (ctypes.c_int64 * 8)()
        self._start = ctypes.addressof(self._room)

    def run(self, addresses: tuple[int, ...]) -> None:
        """Move the launches to addresses, the scratchpad's last if there is one, and run them."""
        for block, index, number, offset in self._places:
            block[index] = addresses[number] + offset
        start = self._start
        for kernel, packed, region in self._calls:
            if kernel(start, start + 32, packed):
                raise region.failure(self._room[4])
