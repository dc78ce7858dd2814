"""A result that several threads wait for: there already, under way, or failed. Lighter to import than the standard one."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedFuture(Generic[T]):
    """Is given a result or an error once, by whoever promised it."""

    __slots__ = ("_error", "_landed", "_result")

    def __init__(self) -> None:
        self._landed = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def set_result(self, result: T) -> None:
        """Hand the result to all who wait."""
        self._result = result
        self._landed.set()

    def set_exception(self, error: BaseException) -> None:
        """Hand an error to all who wait."""
        self._error = error
        self._landed.set()

    def done(self) -> bool:
        """Return whether there is a result or an error."""
        return self._landed.is_set()

    def failed(self) -> bool:
        """Return whether there is an error."""
        return self._error is not None

    def landed(self) -> T | None:
        """Return the result if it is there, or None."""
        return self._result

    def result(self, timeout: float) -> T:
        """Return the result. Raises the error, or TimeoutError when ``timeout`` seconds went by without either."""
        result = self._result
        if result is not None:
            return result
        if not self._landed.wait(timeout):
            raise TimeoutError(f"no result within {timeout:.1f} s")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value] # None is a result too
