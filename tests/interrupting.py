"""Interrupts of the main thread: at a chosen moment of a call, or after a time."""

from __future__ import annotations

import _weakrefset
import gc
import signal
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

#: The functions that weak references call: file and name.
_WEAK: Final = {
    (weakref.__file__, "__call__"),
    (weakref.__file__, "remove"),
    (_weakrefset.__file__, "_remove"),
}
#: Seconds, doubled each time that an interrupt is tried again after them, as it may come before its handler returns.
_AGAIN_S: Final = 1e-5


def is_interrupted(work: Callable[[], object], moment: int, file: str) -> bool:
    """Call ``work`` and send SIGINT at one moment; return whether it has raised KeyboardInterrupt.

    Moments are the beginnings of Python functions and the ends of calls of functions in C, in files whose path contains
    ``file``, counted from 1. There the interpreter looks for signals.
    """
    left = moment

    def look(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        left -= event in ("call", "c_return") and file in frame.f_code.co_filename
        if left == 0:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(look)
    try:
        work()
        sys.setprofile(None)
        if left <= 0:
            time.sleep(5)  # a finalizer has dropped it, so it comes again
            raise AssertionError("an interrupt was swallowed")
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


@contextmanager
def interrupted_by_timer(error: type[BaseException]) -> Iterator[None]:
    """Raise an error in the block when the timer `signal.ITIMER_REAL` ends, which the block sets.

    Python drops what a callback of the garbage collector (Hypothesis has one) or a finalizer raises, so it is raised after these.
    """

    again_s = _AGAIN_S

    def interrupt(_number: int, frame: FrameType | None) -> None:
        nonlocal again_s
        if _is_dropped(frame):
            again_s *= 2
            signal.setitimer(signal.ITIMER_REAL, again_s)
        else:
            raise error

    bound = signal.setitimer(signal.ITIMER_REAL, 0)  # of the whole test, by pytest
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *bound)


def _is_dropped(frame: FrameType | None) -> bool:
    """Return whether Python drops what is raised in a frame."""
    callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    while frame is not None:
        code = frame.f_code
        if code in callbacks or code.co_name == "__del__" or (code.co_filename, code.co_name) in _WEAK:
            return True
        frame = frame.f_back
    return False
