"""Single-flight: one thread of a process gets a result, the others that want it meanwhile wait for that one.

After Go's ``golang.org/x/sync/singleflight``. A failed creation leaves nothing behind: the next caller leads again. A
leader that is interrupted, or fails with an error that is its own (a timeout, say), hands over to one of those that
wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from .errors import StoreError

K = TypeVar("K")
T = TypeVar("T")


class Abandoned(Exception):
    """The leader ended without a result or an error to share: one of the waiting threads leads in its place."""


class SharedFuture(Generic[T]):
    """A result that several threads wait for; the thread that makes the future leads and completes it, once.

    Lighter to import than `concurrent.futures.Future`.
    """

    __slots__ = ("_completed", "_error", "_result", "leader")

    def __init__(self) -> None:
        self.leader = threading.get_ident()
        self._completed = threading.Event()
        self._result: T | None = None
        self._error: Exception | None = None

    def set_result(self, result: T) -> None:
        """Give the result to all waiting threads."""
        self._result = result
        self._completed.set()

    def set_exception(self, error: Exception) -> None:
        """Raise an error in all waiting threads: `Abandoned` has one of them lead."""
        self._error = error
        self._completed.set()

    def abandon(self) -> None:
        """Have a waiting thread lead, if there is neither a result nor an error: an interrupt came before or in `lead`."""
        if not self.done():
            self.set_exception(Abandoned())

    def abandon_in_child(self) -> None:
        """Have a waiting thread of a forked child lead. The parent's leader may have held the lock of the event."""
        self._completed = threading.Event()
        self.set_exception(Abandoned())

    def done(self) -> bool:
        """Return whether there is a result or an error."""
        return self._completed.is_set()

    def failed(self) -> bool:
        """Return whether there is an error."""
        return self._error is not None

    @property
    def is_abandoned(self) -> bool:
        """Whether another thread has to lead."""
        return isinstance(self._error, Abandoned)

    def result_if_done(self) -> T | None:
        """Return the result if it is there, or None."""
        return self._result

    def result(self, timeout: float) -> T:
        """Return the result. Raises a copy of the leader's error, `Abandoned`, and TimeoutError after so many seconds.

        Raises StoreError in the leader itself, which would wait for its own result.
        """
        result = self._result
        if result is not None:
            return result
        if self.leader == threading.get_ident() and not self.done():
            raise StoreError("the creation of an entry asked for that same entry")
        if not self._completed.wait(max(0.0, timeout)):
            raise TimeoutError(f"no result within {timeout:.1f} s")
        if isinstance(self._error, StoreError):
            raise self._error.copy() from self._error.__cause__
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value] # None is a result too

    def lead(self, create: Callable[[], T], shared: type[StoreError] = StoreError) -> T:
        """Return what ``create`` returns, for the caller and all waiting threads; these get its ``shared`` errors."""
        error: Exception = Abandoned()
        try:
            result = create()
            self.set_result(result)
            return result
        except shared as raised:
            error = raised.copy()
            raise
        finally:
            if not self.done():
                self.set_exception(error)


class SingleFlight(Generic[K, T]):
    """The futures under way in one process, by key. A forked child needs one of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._futures: dict[K, SharedFuture[T]] = {}

    def join(self, key: K, own: SharedFuture[T]) -> SharedFuture[T]:
        """Return the future for ``key``: ``own`` if there was none; then the caller must call `lead`, or abandon it."""
        with self._lock:
            future = self._futures.get(key)
            if future is None or future.is_abandoned:
                future = self._futures[key] = own
            return future

    def lead(self, key: K, own: SharedFuture[T], create: Callable[[], T], shared: type[StoreError] = StoreError) -> T:
        """Return what ``create`` returns, as `SharedFuture.lead`; the next caller leads again."""
        try:
            return own.lead(create, shared)
        finally:
            with self._lock:
                if self._futures.get(key) is own:
                    self._futures.pop(key, None)
