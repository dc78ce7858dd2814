"""A thread that ends futures whose time is over: no other thread may wait for them."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import PoolRefused

if TYPE_CHECKING:
    from .futures import PoolFuture

    #: Ends a future after so many seconds.
    Expire = Callable[[PoolFuture[Any], float], None]
    #: When its time is over; a number that orders equal times; the future, and after how many seconds.
    _Watched = tuple[float, int, weakref.ref[PoolFuture[Any]], float]

#: Seconds that the thread waits for a further future before it ends.
_IDLE_S: Final = 1.0
#: So many futures are looked at before those that are done are dropped.
_MANY: Final = 256


class Deadlines:
    """Futures with a deadline. Each is dropped at its deadline, or earlier when it is done and there are many.

    This keeps none of them: the result of one may be memory of the arena, long before its deadline.
    """

    def __init__(self) -> None:
        self._start_anew()

    def _start_anew(self) -> None:
        self._process = os.getpid()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._watched: list[_Watched] = []
        self._look_at = _MANY
        self._thread: threading.Thread | None = None

    def watch(self, future: PoolFuture[Any], limit_s: float, expire: Expire) -> None:
        """Call ``expire(future, limit_s)`` after so many seconds, unless it is done. Raises PoolRefused for want of a thread."""
        if self._process != os.getpid():
            self._start_anew()  # the thread is the parent's
        future.expire = expire
        if future.is_settled:
            future.expire = None
            return
        known = weakref.ref(future)
        with self._lock:
            heapq.heappush(self._watched, (time.monotonic() + limit_s, next(self._numbers), known, limit_s))
            if len(self._watched) >= self._look_at:
                self._watched = [each for each in self._watched if _is_open(each[2]())]
                heapq.heapify(self._watched)
                self._look_at = max(_MANY, 2 * len(self._watched))
            if self._thread is None:
                self._thread = threading.Thread(target=self._expire_all, name="poolrt-deadlines", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:
                    self._thread = None
                    text = f"no thread for timeouts can be started: {error}"
                    raise PoolRefused(f"{text}; raise the limits of processes and memory (ulimit -u, -v)") from error
            elif self._watched and self._watched[0][2] is known:
                self._changed.notify()

    def _expire_all(self) -> None:
        while True:
            with self._lock:
                if not self._watched:
                    self._changed.wait(_IDLE_S)
                if not self._watched:
                    self._thread = None
                    return
                left = self._watched[0][0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                _, _, known, limit_s = heapq.heappop(self._watched)
            try:
                _expire(known(), limit_s)
            except BaseException:
                import logging

                logging.getLogger("concurrent.futures").exception("exception calling callback of a future")


def _expire(future: PoolFuture[Any] | None, limit_s: float) -> None:
    """End a future that is not done."""
    if future is not None and not future.is_settled and future.expire is not None:
        future.expire(future, limit_s)


def _is_open(future: PoolFuture[Any] | None) -> bool:
    return future is not None and not future.is_settled
