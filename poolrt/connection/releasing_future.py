"""A future that refers to nothing of a call once that has ended: its result may be memory of the arena."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class ReleasingFuture(Future[T]):
    """Drops its callbacks once they were called.

    The base class keeps them. They often refer to the future itself (``futures.append``), and such a cycle keeps its result until
    Python's collector runs, which knows nothing of the arena.
    """

    _done_callbacks: Collection[Callable[[Future[T]], Any]]

    def _invoke_callbacks(self) -> None:
        try:
            super()._invoke_callbacks()  # type: ignore[misc]
        finally:
            if self._done_callbacks:
                self._done_callbacks = []
