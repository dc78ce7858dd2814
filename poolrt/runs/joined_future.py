"""A future of several futures together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class JoinedFuture(Future[R], Generic[T, R]):
    """Is done when all parts are: its result is that of ``join`` on theirs, its error the first error of one."""

    def __init__(self, parts: Sequence[Future[T]], join: Callable[[Sequence[T]], R]) -> None:
        super().__init__()
        self._parts = parts
        self._join = join
        self._left = len(parts)
        self._counting = threading.Lock()
        for part in parts:
            part.add_done_callback(self._count)

    def cancel(self) -> bool:
        """Cancel it and the parts that no worker has begun; the results of the others are dropped."""
        cancelled = super().cancel()
        if cancelled:
            for part in self._parts:
                part.cancel()
        return cancelled

    def _count(self, part: Future[T]) -> None:
        with self._counting:
            self._left -= 1
            if self._left:
                return
        if not self.set_running_or_notify_cancel():
            return
        try:
            result = self._join([each.result() for each in self._parts])
        except Exception as error:  # noqa: BLE001 - the future's
            self.set_exception(error)
        else:
            self.set_result(result)
