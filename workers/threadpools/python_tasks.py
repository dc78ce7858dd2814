"""A Python callable as the tasks of a native region; each call of one takes the interpreter's lock."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from .interface import KERNEL_TYPE, Region


def python_region(n: int, fn: Callable[[int, int], None], inside: threading.local, slot: int = 0) -> Region:
    """Return a region that runs ``fn(i, n)`` for each i below n, with ``inside.depth`` above 0 meanwhile.

    If it runs in a slot of a native queue, ``inside.slot`` is its address meanwhile.

    The region's ``keep`` holds ``fn``; its `error` is the first exception of a task.
    """
    tasks = _PythonTasks(n, fn, inside, slot)
    # The callback must not be reachable from the tasks, or only the garbage collector would free ``fn``.
    callback = KERNEL_TYPE(tasks)
    numbers = (ctypes.c_int64 * n)(*range(n))
    start = ctypes.addressof(numbers)
    # `ctypes.cast` would let the callback refer to itself.
    function = ctypes.c_void_p.from_address(ctypes.addressof(callback)).value or 0
    return Region(function, range(start, start + 8 * n, 8), keep=_Kept(tasks, callback, numbers))


class _PythonTasks:
    """Callable like a native kernel, with the address of a task's number as the argument."""

    def __init__(self, n: int, fn: Callable[[int, int], None], inside: threading.local, slot: int) -> None:
        self._n = n
        self._fn = fn
        self._inside = inside
        self._slot = slot
        self.error: BaseException | None = None

    def __call__(self, _: int, __: int, blob: int) -> int:
        inside = self._inside
        before = getattr(inside, "slot", 0)
        inside.depth = getattr(inside, "depth", 0) + 1
        inside.slot = self._slot or before
        try:
            self._fn(ctypes.c_int64.from_address(blob).value, self._n)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the region
            self.error = self.error or error
            return 1
        finally:
            inside.depth -= 1
            inside.slot = before
        return 0


class _Kept:
    """Holds what must live as long as the region."""

    def __init__(self, tasks: _PythonTasks, *others: object) -> None:
        self._tasks = tasks
        self._others = others

    @property
    def error(self) -> BaseException | None:
        """The first exception of a task."""
        return self._tasks.error
