"""Executes a realized native primitive at addresses on the calling thread, or a pool that it joins, without streams."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..desc.args import Arg
from ..memory.buffer import Buffer
from ..threadpools.interface import Region, ThreadpoolInterface
from ..threadpools.jobs import Jobs, default_jobs
from ..threadpools.kernel_call import ERROR, bind_call
from ..threadpools.regions import PackedRegions
from .native_binding import BoundPrimitive, RealizedPrimitive

#: Bytes of scratch memory that a thread keeps for later executions at most.
_KEPT: Final = 64 << 20
#: Slots of a packed argument block before its arguments.
_RANGE: Final = 2
#: Place of the address of what a kernel raised in the room of a call.
_ERROR: Final = ERROR // 8


class ThreadScratchpads(threading.local):
    """Scratch memory of the calling thread: one execution after the other has it.

    One that begins within another, in a finalizer or the handler of a signal, gets other memory.
    """

    def __init__(self) -> None:
        self._kept: Buffer | None = None

    def take(self, nbytes: int) -> Buffer:
        """Return at least so many bytes, for an execution that gives them back at its end."""
        kept = self._kept
        if kept is None or kept.nbytes < nbytes:
            return Buffer(nbytes)
        self._kept = None
        return kept

    def give(self, scratchpad: Buffer) -> None:
        """Keep memory for later executions, unless it is large, or less than is kept."""
        kept = self._kept
        if scratchpad.nbytes <= _KEPT and (kept is None or kept.nbytes < scratchpad.nbytes):
            self._kept = scratchpad


class CallingThreadExecution:
    """Executes one primitive; any number of threads may at once, each with launches of its own.

    ``args`` are the arguments whose addresses an execution gets, in this order.
    """

    __slots__ = ("_args", "_default", "_idle", "_latest", "_nbytes", "_on_pools", "_primitive", "_scratchpads")

    def __init__(self, primitive: RealizedPrimitive, args: Sequence[int], scratchpads: ThreadScratchpads) -> None:
        self._primitive = primitive
        self._args = tuple(args)
        self._nbytes = primitive.entry.scratchpad
        self._scratchpads = scratchpads
        #: Launches that no execution uses now.
        self._idle: list[BoundLaunches] = []
        #: The same for pools, by how work is cut into jobs for them.
        self._on_pools: dict[Jobs, list[_PoolLaunches]] = {}
        self._latest = _OnPool(lambda: None, 0, 0, [], False)
        self._default = default_jobs()

    @property
    def nanoseconds(self) -> int:
        """The estimated time of all launches on one thread."""
        return sum(launch.nanoseconds for launch in self._primitive.launches)

    def is_serial_on(self, pool: ThreadpoolInterface) -> bool:
        """Return whether the latest execution was on a pool on which the calling thread computes alone, as it would now."""
        found, least_ns, known, _, is_serial = self._latest
        number = self._default.number
        return (
            is_serial and pool.runs_in_place and found() is pool and least_ns == pool.least_job_ns and known == number
        )

    def execute(self, addresses: tuple[int, ...]) -> None:
        """Execute on memory at addresses and return when it has ended. Raises KernelFailed."""
        # In one piece: for a small product, calls of functions take as long as what they do here.
        idle = self._idle
        try:
            launches = idle.pop()
        except IndexError:
            launches = BoundLaunches(self._primitive, self._args)
        scratchpad = None
        if self._nbytes:
            scratchpad = self._scratchpads.take(self._nbytes)
            addresses = (*addresses, scratchpad.address)
        # An interrupt here drops the launches.
        if addresses != launches.addresses:
            launches.addresses = addresses
            for block, index, number, offset in launches.places:
                block[index] = addresses[number] + offset
        for call, region in launches.calls:
            if call():
                raise region.failure(launches.room[_ERROR])
        if scratchpad is not None:
            self._scratchpads.give(scratchpad)
        idle.append(launches)

    def execute_on(self, pool: ThreadpoolInterface, addresses: tuple[int, ...]) -> None:
        """Execute on a constant, synchronous pool, of which the caller runs no task, and return when it has ended.

        Raises KernelFailed.
        """
        number = self._default.number
        found, least_ns, known, idle, is_serial = self._latest
        if found() is not pool or least_ns != pool.least_job_ns or known != number:
            self._latest = found, least_ns, known, idle, is_serial = self._on(pool, number)
        if is_serial and pool.runs_in_place:
            self.execute(addresses)
            return
        scratchpad = None
        if self._nbytes:
            scratchpad = self._scratchpads.take(self._nbytes)
            addresses = (*addresses, scratchpad.address)
        try:
            launches = idle.pop()
        except IndexError:
            launches = _PoolLaunches(self._primitive, self._args, Jobs.on(pool))
        pool.run_regions(launches.move(addresses))
        if scratchpad is not None:
            self._scratchpads.give(scratchpad)
        idle.append(launches)

    def _on(self, pool: ThreadpoolInterface, number: int) -> _OnPool:
        jobs = Jobs.on(pool)
        idle = self._on_pools.setdefault(jobs, [])
        try:
            launches = idle.pop()
        except IndexError:
            launches = _PoolLaunches(self._primitive, self._args, jobs)
        idle.append(launches)
        return _OnPool(weakref.ref(pool), jobs.least_ns, number, idle, launches.regions.is_serial)


class _OnPool(NamedTuple):
    """A pool, its shortest job, the process's number of jobs, and launches so cut that no execution uses now.

    The launches of short work are serial: a few, of one job each.
    """

    pool: Callable[[], ThreadpoolInterface | None]
    least_ns: int
    number: int
    idle: list[_PoolLaunches]
    is_serial: bool


class _PoolLaunches:
    """Bound launches as parallel regions, for one execution at a time."""

    __slots__ = ("_addresses", "_args", "_move", "regions")

    def __init__(self, primitive: RealizedPrimitive, args: tuple[int, ...], jobs: Jobs) -> None:
        self._args = (*args, int(Arg.SCRATCHPAD)) if primitive.entry.scratchpad else args
        bound = BoundPrimitive(primitive, dict.fromkeys(self._args), None, jobs)
        self._move = bound.move
        self.regions = PackedRegions(bound.regions(primitive.entry.implementation))
        self._addresses: tuple[int, ...] = ()

    def move(self, addresses: tuple[int, ...]) -> PackedRegions:
        """Return the regions, on memory at addresses."""
        if addresses != self._addresses:
            self._addresses = addresses
            for arg, address in zip(self._args, addresses, strict=True):
                self._move(arg, address)
        return self.regions


class BoundLaunches:
    """Bound launches for one execution at a time on the calling thread.

    ``args`` are the arguments whose addresses an execution gets, in this order, before that of the scratchpad.
    """

    __slots__ = ("_bound", "addresses", "calls", "places", "room")

    def __init__(self, primitive: RealizedPrimitive, args: tuple[int, ...]) -> None:
        own = int(Arg.SCRATCHPAD)
        arguments = (*args, own) if primitive.entry.scratchpad and own not in args else args
        bound = self._bound = BoundPrimitive(primitive, dict.fromkeys(arguments), None, Jobs(1))
        #: The slots of addresses: block, index, number of the address, bytes that are added to it.
        self.places = [
            (block.blocks[0], _RANGE + index, number, offset)
            for number, arg in enumerate(arguments)
            for block, index, offset in bound.moving.get(arg, ())
        ]
        name = primitive.entry.implementation
        #: What kernels return, and from `_ERROR` on what they raise.
        self.room = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(self.room)
        #: What calls each kernel, and the region that an error of it comes from.
        self.calls = [
            (
                bind_call(block.kernel.address, start, block.addresses[0]),
                Region(block.kernel.address, block.addresses, name),
            )
            for block in bound.blocks
        ]
        #: Those of the last run.
        self.addresses: Sequence[int] | None = None

    def run(self, addresses: Sequence[int]) -> None:
        """Run on memory at addresses, which mostly are those of the last time. Raises KernelFailed."""
        if addresses != self.addresses:
            self.addresses = addresses
            for block, index, number, offset in self.places:
                block[index] = addresses[number] + offset
        for call, region in self.calls:
            if call():
                raise region.failure(self.room[_ERROR])
