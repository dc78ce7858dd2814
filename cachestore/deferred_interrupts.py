"""Defer interrupts while code runs that does not survive one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Handle SIGINT at the end of the block.

    A C library that calls Python may crash if it gets KeyboardInterrupt, some modules drop it while they are imported, and
    it leaves open whether a thread has started. Only the main thread of a process handles signals, so in any other thread
    this does nothing.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    arrived: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if arrived:
            signal.raise_signal(signal.SIGINT)
