"""Interrupts of the main thread at a chosen moment of a call."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType


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
