"""Calls and runs of `map` whose iterator was collected: they are cancelled later, by a thread that holds no lock."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Final

from poolrt.errors import PoolError

_PACKAGE: Final = __name__.partition(".")[0]


class AbandonedCalls:
    """Calls to be cancelled. Garbage may be collected anywhere, also in a thread that holds a lock which `cancel` takes."""

    def __init__(self) -> None:
        self._calls: deque[deque[Any]] = deque()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, calls: deque[Any]) -> None:
        """Have calls cancelled. A finalizer calls this: it takes no lock."""
        self._calls.append(calls)

    def leave(self, calls: deque[Any]) -> None:
        """Have calls cancelled, now if the caller can hold no lock. A generator calls this that ends before its last item."""
        if calls:
            self.add(calls)
            if not _is_within_package():
                self.cancel()

    def cancel(self) -> None:
        """Cancel the calls that no worker has begun. May wait for the coordinator."""
        while self._calls:
            calls = self._calls.popleft()
            while calls:
                try:
                    calls.pop().cancel()
                except PoolError:
                    pass  # the pool is closed or lost, which ends them


def _is_within_package() -> bool:
    """Return whether the calling thread is in a function of this package that was there before the generator ended."""
    frame = sys._getframe(2).f_back  # behind `leave`, and the generator
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
            return True
        frame = frame.f_back
    return False
