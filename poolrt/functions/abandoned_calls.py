"""Calls of `map` whose iterator was collected: they are cancelled later, by a thread that holds no lock."""

from __future__ import annotations

from collections import deque
from typing import Any

from poolrt.errors import PoolError


class AbandonedCalls:
    """Calls to be cancelled. Garbage may be collected anywhere, also in a thread that holds a lock which `cancel` takes."""

    def __init__(self) -> None:
        self._calls: deque[deque[Any]] = deque()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, calls: deque[Any]) -> None:
        """Have calls cancelled. A finalizer calls this: it takes no lock."""
        self._calls.append(calls)

    def cancel(self) -> None:
        """Cancel the calls that no worker has begun. May wait for the coordinator."""
        while self._calls:
            calls = self._calls.popleft()
            while calls:
                try:
                    calls.pop().cancel()
                except PoolError:
                    pass  # the pool is closed or lost, which ends them
