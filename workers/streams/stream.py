"""Streams execute primitives in order on one engine."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from poolrt.cachestore.forked_locks import freed_in_children, held_by_this_thread

from ..engines.engine import Engine
from ..engines.target import Target
from ..memory.buffer import Buffer
from ..threadpools.interface import KernelFailed, ThreadpoolInterface
from ..threadpools.nesting import WAIT_WITHIN, can_wait
from ..threadpools.sequential import SequentialPool
from ..verbose.output import verbose
from .attributes import StreamAttr

if TYPE_CHECKING:
    import pyopencl

    from .host_work import HostWork

#: Executions on OpenCL that may run at once: more of them would hold too much memory.
_HELD: Final = 256
#: Scratch memories of executions in tasks that a stream keeps for later ones.
_SPARE: Final = 16


class TakenScratchpad:
    """Scratch memory of one execution; it goes back to its stream when the execution has ended."""

    __slots__ = ("_buffer", "_spare", "address", "nbytes")

    def __init__(self, buffer: Buffer, spare: list[Buffer]) -> None:
        self._buffer = buffer
        self._spare = spare
        self.address = buffer.address
        self.nbytes = buffer.nbytes

    def __del__(self) -> None:
        if len(self._spare) < _SPARE:
            self._spare.append(self._buffer)


class Stream:
    """In-order execution on one engine.

    Threads may share a stream: it executes whole primitives one after the other, in the order in which their threads
    acquire it. Streams of one engine run side by side. On a CPU a primitive has ended when ``execute`` returns, unless
    the stream computes on an asynchronous threadpool; on OpenCL it is enqueued in a queue owned by the stream.
    Tasks of the threadpool may execute on the stream too: see `ThreadpoolInterface.NESTED`. They never wait for threads that
    wait for tasks.
    `wait` returns when everything executed has ended, and on OpenCL writes its verbose lines. Streams do not synchronise
    with one another: before a stream uses memory of another one, that other one must have been waited for.
    """

    __slots__ = (
        "_attr",
        "_held",
        "_host",
        "_pool",
        "_queue",
        "_scratch",
        "_scratchpad",
        "_spare",
        "_target",
        "_timed",
        "engine",
        "is_held",
        "is_sequential",
        "order",
    )

    def __init__(self, engine: Engine, attr: StreamAttr | None = None) -> None:
        """Make a stream with a copy of the attributes. Raises ValueError if they are for another kind of engine."""
        if not isinstance(engine, Engine):
            raise TypeError(f"engine: expect an Engine, got {type(engine).__name__}")
        if attr is not None and not isinstance(attr, StreamAttr):
            raise TypeError(f"attr: expect a StreamAttr, got {type(attr).__name__}")
        if attr is not None and attr.kind != engine.kind:
            raise ValueError(f"attr: made for engines of kind {attr.kind}, the engine's is {engine.kind}")
        self.engine = engine
        self._attr = attr.copy() if attr is not None else StreamAttr(engine.kind)
        #: Held during the execution or submission of a primitive, unless a task of the threadpool executes it: the holder
        #: may be waiting for that task. A finalizer or a signal's handler may interrupt the holder, and execute too.
        self.order = freed_in_children(threading.RLock())
        #: Whether the calling thread holds `order`: what it executes now interrupts another execution.
        self.is_held: Final = held_by_this_thread(self.order)
        self._held: list[object] = []
        self._host: HostWork | None = None
        #: What gets the time of an execution in nanoseconds, with the markers before and after it.
        self._timed: list[tuple[Callable[[int], None], pyopencl.Event, pyopencl.Event]] = []
        self._scratchpad: Buffer | None = None
        #: Scratch memory of executions in tasks that none uses now.
        self._spare: list[Buffer] = []
        self._scratch: pyopencl.Buffer | None = None
        self._queue: pyopencl.CommandQueue | None = None
        self._pool: ThreadpoolInterface | None = None
        self._target = engine.target
        if engine.kind == "opencl":
            self._queue = engine.opencl.new_queue()
        else:
            self._pool = self._attr.get_threadpool() or SequentialPool()
        #: Whether it has no threadpool: a primitive runs on the thread that executes it, and has ended then.
        self.is_sequential = self._pool is not None and self._attr.get_threadpool() is None

    @property
    def attr(self) -> StreamAttr:
        """A copy of the attributes: a stream computes on the same threadpool as long as it lives."""
        return self._attr.copy()

    @property
    def pool(self) -> ThreadpoolInterface:
        """The threadpool of a stream on a CPU. Raises ValueError for another kind of engine."""
        if self._pool is None:
            raise ValueError(f"stream: expect one on an engine of kind cpu, got {self.engine}")
        return self._pool

    @property
    def target(self) -> Target:
        """The target of primitives that are created for this stream: its engine's, with the threads of its pool."""
        if self._pool is not None:
            self._target = self._target.on_threads(self._pool.get_num_threads())
        return self._target

    @property
    def queue(self) -> pyopencl.CommandQueue:
        """The queue of a stream on OpenCL. Raises ValueError for another kind of engine."""
        if self._queue is None:
            raise ValueError(f"stream: expect one on an engine of kind opencl, got {self.engine}")
        return self._queue

    @property
    def works_on_host(self) -> bool:
        """Whether the engine works on the host's memory, which is tried once for a device."""
        if self._queue is None:
            return True
        from ..memory.opencl import shares_host_memory

        return shares_host_memory(self.engine.opencl)

    def scratchpad(self, nbytes: int) -> Buffer:
        """Return scratch memory on the host; its user holds `order`."""
        scratchpad = self._scratchpad
        if scratchpad is None or scratchpad.nbytes < nbytes:
            scratchpad = self._scratchpad = Buffer(nbytes)
        return scratchpad

    def take_scratchpad(self, nbytes: int) -> TakenScratchpad:
        """Return scratch memory that one execution in a task has to itself, as long as it keeps the object."""
        try:
            buffer = self._spare.pop()
        except IndexError:
            buffer = Buffer(nbytes)
        return TakenScratchpad(buffer if buffer.nbytes >= nbytes else Buffer(nbytes), self._spare)

    def device_scratchpad(self, nbytes: int) -> pyopencl.Buffer:
        """Return scratch memory of a stream on OpenCL; the thread that enqueues launches on it holds `order`.

        Launches keep the buffer that they were enqueued with, also when a larger one replaces it.
        """
        if self._scratch is None or self._scratch.size < nbytes:
            from ..memory.opencl import device_buffer

            self._scratch = device_buffer(self.engine.opencl, nbytes)
        return self._scratch

    def hold(self, used: object) -> None:
        """Keep the memory of enqueued launches until they have ended; the caller holds `order`."""
        self._held.append(used)
        if len(self._held) > _HELD:
            self._finish()

    def on_host(self, work: Callable[[], None]) -> None:
        """Run work on a thread owned by this stream, in the order of its queue; the caller holds `order`.

        `wait` raises the errors of ``work``. Raises pyopencl.Error.
        """
        if self._host is None:
            from .host_work import HostWork

            self._host = HostWork()
        self._host.submit(self.queue, work, self)

    def stamp(self) -> pyopencl.Event:
        """Enqueue a time stamp on OpenCL; the caller holds `order`."""
        import pyopencl as cl

        queue = self.queue
        if not queue.properties & cl.command_queue_properties.PROFILING_ENABLE:
            self._queue = self.engine.opencl.new_queue(profiling=True)
            cl.enqueue_barrier(self._queue, wait_for=[cl.enqueue_marker(queue)])
            queue.flush()
        return cl.enqueue_marker(self.queue)

    def time(self, text: str, begin: pyopencl.Event, record: Callable[[int], None] | None = None) -> None:
        """Enqueue a second stamp; `wait` writes a verbose line with the time between the two, or gives ``record`` the time.

        The caller holds `order`.
        """
        self._timed.append((record or partial(verbose().executed, text), begin, self.stamp()))

    def wait(self) -> None:
        """Return when everything executed so far has ended. Raises KernelFailed if a primitive failed.

        Raises RuntimeError in a task of the stream's threadpool if the task's executions run after it, as on an asynchronous
        pool that takes regions of tasks.
        """
        if self.is_sequential:
            return
        if self._queue is not None:
            with self.order:
                self._finish()
        elif self._pool is not None:
            if not can_wait(self._pool):
                raise RuntimeError(WAIT_WITHIN)
            self._pool.wait()

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if not held or sys.is_finalizing():
            return
        # The device may still use it, and dropping a stream must not block. No other thread holds the order.
        self.on_host(held.clear)

    def _finish(self) -> None:
        import pyopencl as cl

        timed, self._timed = self._timed, []
        try:
            try:
                self.queue.finish()
            except cl.Error as error:
                raise KernelFailed(f"the device failed: {error}") from error
            for record, begin, end in timed:
                record(end.profile.end - begin.profile.end)
        finally:
            # Only then may held objects be released: see `HostWork.submit`.
            try:
                if self._host is not None:
                    self._host.wait()
            finally:
                self._held.clear()
