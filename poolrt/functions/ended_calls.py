"""Calls on rings whose outcome has come, until they are settled: that loads results, which may run code of a user."""

from __future__ import annotations

import threading
from _thread import LockType
from collections import deque
from typing import TYPE_CHECKING

from .ring_call import RingCall

if TYPE_CHECKING:
    from poolrt.connection.futures_thread import FuturesThread


class EndedCalls:
    """The ``calls`` that are to be settled, oldest first. ``lock`` is that of the rings, which is not held while they are."""

    __slots__ = ("_client", "_lock", "_settling", "calls")

    def __init__(self, client: FuturesThread, lock: LockType) -> None:
        self._client = client
        self._lock = lock
        # Held while results are loaded, which runs code of the user: it may call functions, and wait for them.
        self._settling = threading.RLock()
        self.calls: deque[RingCall] = deque()

    def settle(self) -> bool:
        """Load results and settle their calls; return whether there were any. Not with the lock held."""
        if not self.calls:
            return False
        ended = self.calls
        with self._settling:
            while ended:
                call = ended[0]  # only this thread removes calls
                if call.loading:
                    other = self._next()
                    if other is None:
                        break
                    call = other
                if not call.ended:
                    future = call.future
                    if future is not None and future._done_callbacks and not self._client.in_own_thread:
                        call.handed = True
                        self._client.resolve_later(call)
                    else:
                        call.settle()
                if ended and ended[0] is call:
                    ended.popleft()
                else:
                    with self._lock:
                        if call in ended:
                            ended.remove(call)
        return True

    def _next(self) -> RingCall | None:
        """Return a call to settle; not one that this thread loads, while it does so."""
        with self._lock:
            for call in self.calls:
                if not call.loading:
                    return call
        return None
