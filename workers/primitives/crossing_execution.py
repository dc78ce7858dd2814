"""How a reorder between engines is executed: fetches, launches on the engine that computes, deliveries.

With OpenCL computing, all of it is enqueued on the stream, but for what goes to another context: that is copied through
the host's memory, and has ended at once. With the CPU computing everything has ended at once, after what was enqueued.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..desc import Arg
from ..engines.engine import Engine
from ..memory.storage import Memory
from ..opencl_memory import host_view
from ..streams.stream import Stream
from ..threadpools.interface import KernelFailed
from ..verbose import verbose
from .entry import Entry
from .execution import CpuExecution
from .opencl_execution import OpenClExecution
from .program import Transfer


class CrossingOnDevice:
    """Executes one primitive that an OpenCL engine computes, from any number of threads at once."""

    def __init__(self, inner: OpenClExecution, entry: Entry, computing: Engine) -> None:
        self._inner = inner
        self._entry = entry
        self._computing = computing

    def execute(self, stream: Stream, args: Mapping[int, Memory], text: str | None = None) -> None:
        """Enqueue on a stream of the engine that computes; ``text`` is its verbose line's. Raises KernelFailed."""
        import pyopencl as cl

        buffers: dict[int, Any] = {
            int(arg): memory.device_buffer for arg, memory in args.items() if memory.engine is self._computing
        }
        with stream.order:
            begin = None if text is None else stream.stamp()
            if Arg.SCRATCHPAD not in buffers:
                buffers[Arg.SCRATCHPAD] = stream.device_scratchpad(self._entry.scratchpad)
            try:
                under_way = [self._fetch(stream, args, buffers, transfer) for transfer in self._entry.fetches]
                self._inner.enqueue(stream, buffers)
                under_way += [self._deliver(stream, args, buffers, transfer) for transfer in self._entry.deliveries]
            except cl.Error as error:
                raise KernelFailed(f"{self._entry.implementation} failed: {error}") from error
            if text is not None and begin is not None:
                stream.time(text, begin)
            # An event that is dropped waits for its end.
            stream.hold((dict(args), buffers, under_way))

    def _fetch(self, stream: Stream, args: Mapping[int, Memory], buffers: Mapping[int, Any], transfer: Transfer) -> Any:
        import pyopencl as cl

        source, (buffer, offset) = args[transfer.arg], _place(transfer, buffers)
        if source.is_on_host:
            view = host_view(source.address, transfer.nbytes)
            return cl.enqueue_copy(stream.queue, buffer, view, dst_offset=offset, is_blocking=False)
        between = bytearray(transfer.nbytes)
        cl.enqueue_copy(_queue(source), between, source.device_buffer)
        return cl.enqueue_copy(stream.queue, buffer, between, dst_offset=offset, is_blocking=False)

    def _deliver(
        self, stream: Stream, args: Mapping[int, Memory], buffers: Mapping[int, Any], transfer: Transfer
    ) -> Any:
        import pyopencl as cl

        target, (buffer, offset) = args[transfer.arg], _place(transfer, buffers)
        if target.is_on_host:
            view = host_view(target.address, transfer.nbytes)
            return cl.enqueue_copy(stream.queue, view, buffer, src_offset=offset, is_blocking=False)
        between = bytearray(transfer.nbytes)
        cl.enqueue_copy(stream.queue, between, buffer, src_offset=offset)
        return cl.enqueue_copy(_queue(target), target.device_buffer, between)


class CrossingOnHost:
    """Executes one primitive that the CPU computes, on streams of an OpenCL engine, from any number of threads at once."""

    def __init__(self, inner: CpuExecution, entry: Entry, computing: Engine) -> None:
        self._inner = inner
        self._entry = entry
        self._computing = computing

    def execute(self, stream: Stream, args: Mapping[int, Memory], text: str | None = None) -> None:
        """Compute on the calling thread, after what is on the stream; ``text`` as above. Raises KernelFailed."""
        import pyopencl as cl

        host = Stream(self._computing)
        here = {arg: memory for arg, memory in args.items() if memory.is_on_host}
        addresses = {int(arg): memory.address for arg, memory in here.items()}
        if Arg.SCRATCHPAD not in addresses:
            addresses[Arg.SCRATCHPAD] = host.scratchpad(self._entry.scratchpad).address
        with stream.order:
            try:
                # What was enqueued may read or write the same memory of the host.
                stream.queue.finish()
                begin = time.perf_counter_ns()
                for transfer in self._entry.fetches:
                    source, view = args[transfer.arg], _view(transfer, addresses)
                    cl.enqueue_copy(_queue(source), view, source.device_buffer)
                self._inner.execute(host, here)
                for transfer in self._entry.deliveries:
                    target, view = args[transfer.arg], _view(transfer, addresses)
                    cl.enqueue_copy(_queue(target), target.device_buffer, view)
                if text is not None:
                    verbose().executed(text, time.perf_counter_ns() - begin)
            except cl.Error as error:
                raise KernelFailed(f"{self._entry.implementation} failed: {error}") from error


def _place(transfer: Transfer, buffers: Mapping[int, Any]) -> tuple[Any, int]:
    """Return the buffer and the offset of a transfer's place."""
    _, value = transfer.place
    arg, offset = value if isinstance(value, tuple) else (Arg.SCRATCHPAD, int(value))
    return buffers[arg], offset


def _view(transfer: Transfer, addresses: Mapping[int, int]) -> memoryview:
    """Return the bytes of a transfer's place in the host's memory."""
    address, offset = _place(transfer, addresses)
    return host_view(address + offset, transfer.nbytes)


def _queue(memory: Memory) -> Any:
    """Return the queue of the engine that memory of an OpenCL device lies on."""
    if memory.engine is None:
        raise ValueError(f"{memory} lies in the host's memory, not on an OpenCL device")
    return memory.engine.opencl.queue
