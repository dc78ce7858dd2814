"""Attributes that a stream is made with, for one kind of engine."""

from __future__ import annotations

from ..engines.engine import engine_kind
from ..threadpools.interface import ThreadpoolInterface


class StreamAttr:
    """Attributes for streams on engines of ``kind``. Raises ValueError for an unknown one."""

    __slots__ = ("_threadpool", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = engine_kind(kind)
        self._threadpool: ThreadpoolInterface | None = None

    def set_threadpool(self, threadpool: ThreadpoolInterface | None) -> None:
        """Let streams compute on the threads of a pool; None, as at first, means on the calling thread.

        Raises ValueError where the kind is not cpu, and TypeError for what is no threadpool.
        """
        self._require_cpu()
        if threadpool is not None and not isinstance(threadpool, ThreadpoolInterface):
            raise TypeError(f"threadpool: expect a ThreadpoolInterface, got {type(threadpool).__name__}")
        self._threadpool = threadpool

    def get_threadpool(self) -> ThreadpoolInterface | None:
        """Return the threadpool, or None. Raises ValueError where the kind is not cpu."""
        self._require_cpu()
        return self._threadpool

    def copy(self) -> StreamAttr:
        """Return equal attributes that change on their own."""
        other = StreamAttr(self.kind)
        other._threadpool = self._threadpool
        return other

    def _require_cpu(self) -> None:
        if self.kind != "cpu":
            raise ValueError(f"threadpool: only streams of kind cpu compute on one, not those of kind {self.kind}")
