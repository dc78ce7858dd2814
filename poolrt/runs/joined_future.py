"""A future of several futures together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from poolrt.connection.releasing_future import ReleasingFuture

T = TypeVar("T")
R = TypeVar("R")


class JoinedFuture(ReleasingFuture[R], Generic[T, R]):
    """Is done when all parts are: its result is that of ``join`` on theirs, its error the first error of one.

    It refers to the parts until then.
    """

    def __init__(self, parts: Collection[Future[T]], join: Callable[[Sequence[T]], R]) -> None:
        super().__init__()
        self._parts: Collection[Future[T]] = parts
        self._join = join
        self._left = len(parts)
        self._counting = threading.Lock()
        for part in parts:
            part.add_done_callback(self._count)

    def cancel(self) -> bool:
        """Cancel it and the parts that no worker has begun; the results of the others are dropped."""
        parts = self._parts
        cancelled = super().cancel()
        if cancelled:
            for part in parts:
                part.cancel()
        return cancelled

    def _count(self, part: Future[T]) -> None:
        with self._counting:
            self._left -= 1
            if self._left:
                return
        parts, self._parts = self._parts, ()
        if not self.set_running_or_notify_cancel():
            return
        result, error = _join(parts, self._join)
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(result)  # type: ignore[arg-type]


def _join(parts: Collection[Future[T]], join: Callable[[Sequence[T]], R]) -> tuple[R | None, BaseException | None]:
    """Return the result of parts that are done, or their first error. No traceback of an error leads to the joined future."""
    try:
        for part in parts:
            error = part.exception()
            if error is not None:
                return None, error
        return join([part.result() for part in parts]), None
    except Exception as failure:  # noqa: BLE001 - the future's
        return None, failure
