"""The processor that this thread runs on, and spins of a bounded time beside a peer on another one.

Spinning on the processor that the peer needs costs two whole spins, because it keeps the peer from running. So each side
publishes where it ran, and a side spins only while the peer was last seen elsewhere.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

#: A spin looks at the clock, and at the peer's processor, once in so many looks at the condition.
_LOOKS: Final = 16


class Spin:
    """Spins of at most ``spin_us`` microseconds; 0: none, and this side does not say where it runs."""

    __slots__ = ("_nanoseconds", "_processor")

    def __init__(self, spin_us: int) -> None:
        self._nanoseconds = 1000 * spin_us
        self._processor = _processor_of() if spin_us else None

    @property
    def microseconds(self) -> int:
        """The longest spin."""
        return self._nanoseconds // 1000

    def __bool__(self) -> bool:
        return self._nanoseconds > 0

    def here(self) -> int:
        """Return one more than the number of this thread's processor; 0 if there are no spins, or it is unknown."""
        return self._processor() + 1 if self._processor is not None else 0

    def until(self, holds: Callable[[], bool], peer: Callable[[], int]) -> bool:
        """Spin until ``holds()``, while ``peer()`` is another processor than this thread's; return whether it held."""
        clock = time.perf_counter_ns
        end = clock() + self._nanoseconds
        while True:
            there = peer()
            if not there or there == self.here():
                return holds()
            for _ in range(_LOOKS):
                if holds():
                    return True
            if clock() >= end:
                return False


def find_processor() -> int:
    """Return one more than the number of this thread's processor."""
    return _processor_of()() + 1


@lru_cache(maxsize=1)
def _processor_of() -> Callable[[], int]:
    # The call is shorter than giving up the interpreter's lock for it.
    found: Callable[[], int] = ctypes.PyDLL(None).sched_getcpu
    return found
