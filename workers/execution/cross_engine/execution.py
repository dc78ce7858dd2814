"""Executes a reorder between engines: copies in, launches on the engine that computes, copies out.

`execute` never blocks. If OpenCL computes, everything is enqueued on the stream; copies to another context pass through
host memory, on the thread that the stream owns, in the order of its queue (`Stream.on_host`). If the CPU computes,
copies and launches are regions for the threadpool of the stream; a stream on OpenCL, which has none, runs them on its
thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...desc import Arg
from ...engines.engine import Engine
from ...implementations.program import Transfer
from ...primitives.entry import Entry
from ...streams.stream import Stream
from ...threadpools.interface import KernelFailed, Region
from ...threadpools.jobs import Jobs
from ...threadpools.nesting import Computing
from ...threadpools.python_tasks import python_region
from ...threadpools.sequential import SequentialPool
from ..native_execution import Addressed, CpuExecution, scratchpad_of
from ..opencl_execution import OpenClExecution
from ..stamps import stamp
from .copies import copy_across, copy_to_device, copy_to_host

if TYPE_CHECKING:
    from ..memory import Memory

#: The arguments of `copy_to_device`: queue, buffer, offset in it, address in the host's memory, bytes.
_Copy = tuple[Any, Any, int, int, int]
_SCRATCHPAD: Final = int(Arg.SCRATCHPAD)


class DeviceCrossEngineExecution:
    """Executes one primitive that an OpenCL engine computes, from any number of threads at once."""

    def __init__(self, inner: OpenClExecution, entry: Entry, compute_engine: Engine) -> None:
        self._inner = inner
        self._entry = entry
        self._compute_engine = compute_engine

    def execute(self, stream: Stream, args: Mapping[int, Memory], text: str | None = None) -> None:
        """Enqueue on a stream of the engine that computes; ``text`` is for its verbose line. Raises KernelFailed."""
        buffers: dict[int, Any] = {
            int(arg): memory.device_buffer for arg, memory in args.items() if memory.engine is self._compute_engine
        }
        under_way: list[object] = []
        used = dict(args), [memory.owner for memory in args.values()], buffers, under_way
        with stream.order:
            begin = None if text is None else stream.stamp()
            if _SCRATCHPAD not in buffers:
                buffers[_SCRATCHPAD] = stream.device_scratchpad(self._entry.scratchpad)
            try:
                with _named(self._entry.implementation):
                    for transfer in self._entry.copies_in:
                        self._copy(stream, args[transfer.arg], transfer, _place(transfer, buffers), under_way, True)
                    self._inner.enqueue(stream, buffers)
                    for transfer in self._entry.copies_out:
                        self._copy(stream, args[transfer.arg], transfer, _place(transfer, buffers), under_way, False)
                if text is not None and begin is not None:
                    stream.time(text, begin)
            finally:
                # Events too: dropping one waits for its end.
                stream.hold(used)

    def _copy(
        self,
        stream: Stream,
        other: Memory,
        transfer: Transfer,
        place: tuple[Any, int],
        under_way: list[object],
        into: bool,
    ) -> None:
        """Copy between memory of another engine and a place on this one, ``into`` the place or out of it."""
        if other.is_on_host:
            copy = copy_to_device if into else copy_to_host
            under_way.append(copy(stream.queue, *place, other.address, transfer.nbytes))
            return
        there, here = (_queue(other), other.device_buffer, 0), (self._compute_engine.opencl.queue, *place)
        source, target = (there, here) if into else (here, there)
        stream.on_host(partial(_copy_across, self._entry.implementation, source, target, transfer.nbytes))


class HostCrossEngineExecution:
    """Executes one primitive that the CPU computes, from any number of threads at once."""

    def __init__(self, inner: CpuExecution, entry: Entry) -> None:
        self._inner = inner
        self._entry = entry

    def execute(self, stream: Stream, args: Mapping[int, Memory], text: str | None = None) -> None:
        """Run or submit on a stream on a CPU as `CpuExecution` does, or in the order of one on OpenCL; ``text`` as above.

        Raises KernelFailed.
        """
        if stream.engine.kind != "cpu":
            with stream.order:
                pool = SequentialPool()
                regions = self._regions(
                    args, stream.scratchpad(self._entry.scratchpad), Jobs.on(pool, self._inner.jobs)
                )
                stream.on_host(partial(pool.run_regions, stamp(regions, text, pool)))
            return
        computing, within, _ = Computing.on(stream.pool)
        jobs, is_inside = Jobs.on(computing, self._inner.jobs), within or stream.is_held()
        # As in `CpuExecution`.
        with nullcontext() if within else stream.order:
            scratchpad = scratchpad_of(stream, self._entry.scratchpad, is_inside)
            computing.run_regions(stamp(self._regions(args, scratchpad, jobs), text, stream.pool))

    def _regions(self, args: Mapping[int, Memory], scratchpad: Addressed, jobs: Jobs) -> Sequence[Region]:
        """Return the launches on the host's memory between two regions of one task each: the copies in and the copies out.

        They work in a scratchpad unless it is an argument.
        """
        used: dict[int, Addressed] = {int(arg): memory for arg, memory in args.items() if memory.is_on_host}
        used.setdefault(_SCRATCHPAD, scratchpad)
        addresses = {arg: memory.address for arg, memory in used.items()}
        # The bytes too: the memory may get others before the tasks have run.
        keep = used, [memory.owner for memory in args.values()]
        there = {arg: (_queue(memory), memory.device_buffer) for arg, memory in args.items() if not memory.is_on_host}
        copies_in, copies_out = (
            [(*there[transfer.arg], 0, sum(_place(transfer, addresses)), transfer.nbytes) for transfer in transfers]
            for transfers in (self._entry.copies_in, self._entry.copies_out)
        )
        copies = _Copies(self._entry.implementation, copies_in, copies_out, keep)
        before = [python_region(1, copies.copy_in, threading.local())] if copies_in else []
        after = [python_region(1, copies.copy_out, threading.local())] if copies_out else []
        return [*before, *self._inner.regions(used, jobs, keep), *after]


class _Copies:
    """The copies of one execution from and to devices, each as `copy_to_device` takes it.

    ``keep`` lives as long.
    """

    def __init__(self, name: str, copies_in: Sequence[_Copy], copies_out: Sequence[_Copy], keep: object) -> None:
        self._name = name
        self._copies_in = copies_in
        self._copies_out = copies_out
        self._keep = keep
        self._copied_in = not copies_in

    def copy_in(self, _i: int, _n: int) -> None:
        """Copy from devices. Raises KernelFailed."""
        with _named(self._name):
            for copy in self._copies_in:
                copy_to_host(*copy).wait()
        self._copied_in = True

    def copy_out(self, _i: int, _n: int) -> None:
        """Copy to devices, unless the copies in have failed. Raises KernelFailed."""
        with _named(self._name):
            for copy in self._copies_out if self._copied_in else ():
                copy_to_device(*copy).wait()


def _copy_across(name: str, source: tuple[Any, Any, int], target: tuple[Any, Any, int], nbytes: int) -> None:
    """Copy from one context to another, each given as queue, buffer, offset. Raises KernelFailed."""
    with _named(name):
        copy_across(source, target, nbytes)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Raise an error of the driver as KernelFailed that names an implementation."""
    import pyopencl as cl

    try:
        yield
    except cl.Error as error:
        raise KernelFailed(f"{name} failed: {error}") from error


def _place(transfer: Transfer, buffers: Mapping[int, Any]) -> tuple[Any, int]:
    """Return the buffer and the offset of a transfer's place."""
    _, value = transfer.place
    arg, offset = value if isinstance(value, tuple) else (Arg.SCRATCHPAD, int(value))
    return buffers[arg], offset


def _queue(memory: Memory) -> Any:
    """Return the queue of the engine of memory on an OpenCL device."""
    if memory.engine is None:
        raise ValueError(f"{memory} is in host memory, not on an OpenCL device")
    return memory.engine.opencl.queue
