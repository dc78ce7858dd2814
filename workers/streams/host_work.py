"""Host work in the order of an OpenCL queue, on a thread of its own, so that enqueuing never blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..threadpools.interface import KernelFailed
from ..threadpools.threads import ThreadsPool

if TYPE_CHECKING:
    import pyopencl


class HostWork:
    """Host work among the commands of one queue, run by one thread in the order of submission.

    Work begins when every command enqueued before it has ended. Commands enqueued after it wait for its end, even if it fails.
    """

    def __init__(self) -> None:
        self._pool = ThreadsPool(1, asynchronous=True)

    def submit(self, queue: pyopencl.CommandQueue, work: Callable[[], None], keep: object) -> None:
        """Put work behind the commands of a queue. ``keep`` lives until the commands behind it may begin.

        An event of a copy that is dropped too early waits for the copy's end, and takes the interpreter from the thread that
        the copy waits for: ``keep`` must hold such events. Raises pyopencl.Error, and RuntimeError in a forked process.
        """
        import pyopencl as cl

        before = cl.enqueue_marker(queue)
        # Another thread waits for the marker, and there may be no other flush.
        queue.flush()
        task = _Task(before, work, cl.UserEvent(queue.context), keep)
        try:
            cl.enqueue_barrier(queue, wait_for=[task.done])
            self._pool.parallel_for(1, task.run)
        except BaseException:
            task.end()
            raise

    def wait(self) -> None:
        """Return when all work has ended. Raises the first error since the last call."""
        self._pool.wait()


class _Task:
    """One piece of work. It keeps nothing when it has ended, even if the pool still holds the task."""

    def __init__(
        self, before: pyopencl.Event, work: Callable[[], None], done: pyopencl.UserEvent, keep: object
    ) -> None:
        self.done = done
        self._before = before
        self._work: Callable[[], None] | None = work
        self._keep: object = keep

    def run(self, _i: int, _n: int) -> None:
        """Wait for the commands before, and work. Raises KernelFailed if one of them failed, and the errors of the work."""
        import pyopencl as cl

        work, self._work = self._work, None
        try:
            self._before.wait()
            if work is not None:
                work()
        except cl.Error as error:
            raise KernelFailed(f"the device failed: {error}") from error
        finally:
            del work
            self.end()

    def end(self) -> None:
        """Let the commands behind begin."""
        import pyopencl as cl

        self.done.set_status(cl.command_execution_status.COMPLETE)
        self._keep = None
