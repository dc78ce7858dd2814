"""The futures of runs and functions: `concurrent.futures.Future`, whose `cancel` asks the coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from .errors import PoolError

T = TypeVar("T")


class PoolFuture(Future[T]):
    """A future of a run or function. It is running once a worker executes it.

    Guarantees: if `cancel` returns True, no worker has begun it or ever will.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Withdraws the request; returns whether no worker will execute it.
        self.withdraw: Callable[[], bool] | None = None
        # Reentrant: callbacks of a cancelled future, which run inside, may cancel it again.
        self._noting = threading.RLock()
        self._noted = False

    def cancel(self) -> bool:
        """Cancel the call if no worker has begun it; return whether it is cancelled. Waits for the coordinator's answer."""
        withdraw = self.withdraw
        if self.done() or withdraw is None:
            return super().cancel()
        try:
            if withdraw():
                self.note_cancelled()
        except PoolError:
            pass  # the pool is closed or lost, which resolves the future
        return self.cancelled()

    def set_result(self, result: T) -> None:
        """Resolve this future, and keep nothing of the request: a result may be memory of the arena."""
        self.withdraw = None
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        """Resolve this future, and keep nothing of the request."""
        self.withdraw = None
        super().set_exception(exception)

    def note_cancelled(self) -> None:
        """Cancel this future, whose request is withdrawn. May be repeated."""
        with self._noting:
            self.withdraw = None
            if super().cancel() and not self._noted:
                self._noted = True
                self.set_running_or_notify_cancel()

    def note_begun(self) -> None:
        """Set this future running."""
        with self._noting:
            if not self.done() and not self.running():
                self.set_running_or_notify_cancel()
