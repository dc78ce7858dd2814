"""One creator among the threads of a process: a shared result per key while someone is getting it.

The first thread to ask leads; the others wait for its result or its error. Nothing is kept after landing, so a failed
creation leaves no broken result behind: the next caller simply leads again.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from .errors import CreationFailed, StoreError

T = TypeVar("T")


class Flight(Generic[T]):
    """One result under way."""

    __slots__ = ("_failure", "_landed", "_result", "leader")

    def __init__(self) -> None:
        self.leader = threading.get_ident()
        self._landed = threading.Event()
        self._result: T | None = None
        self._failure: CreationFailed | None = None

    def wait(self, timeout: float) -> T | None:
        """Return the leader's result, or None when it gave up or `timeout` seconds went by without one.

        Raises a copy of the leader's CreationFailed.
        """
        self._landed.wait(max(0.0, timeout))
        if self._failure is not None:
            raise self._failure.copy()
        return self._result

    def land(self, result: T | None, failure: CreationFailed | None) -> None:
        """Wake everyone with a result, with a failure, or with neither: then one of them leads anew."""
        self._result, self._failure = result, failure
        self._landed.set()


class Flights(Generic[T]):
    """The flights of one process, by canonical key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[bytes, Flight[T]] = {}

    def join(self, key: bytes) -> tuple[Flight[T], bool]:
        """Return the flight for `key` and whether the caller leads it.

        A leader must call `end`. Raises StoreError when the caller leads this very flight already, since it would wait
        for itself.
        """
        with self._lock:
            flight = self._by_key.get(key)
            if flight is None:
                flight = self._by_key[key] = Flight()
                return flight, True
        if flight.leader == threading.get_ident():
            raise StoreError("the creation of an entry asked for that same entry")
        return flight, False

    def end(self, key: bytes, flight: Flight[T], result: T | None, failure: CreationFailed | None) -> None:
        """Land a flight that the caller leads."""
        with self._lock:
            if self._by_key.get(key) is flight:
                del self._by_key[key]
        flight.land(result, failure)
