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

        Raises ValueError where the kind is not cpu, TypeError for what is no threadpool, and either for one that does not
        tell its threads and flags as `ThreadpoolInterface` says, or is asynchronous and cannot be waited for.
        """
        self._require_cpu()
        if threadpool is not None:
            _check(threadpool)
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


def _check(threadpool: ThreadpoolInterface) -> None:
    name = type(threadpool).__name__
    if not isinstance(threadpool, ThreadpoolInterface):
        raise TypeError(f"threadpool: expect a ThreadpoolInterface, got {name}")
    threads, flags = threadpool.get_num_threads(), threadpool.get_flags()
    for method, number in (("get_num_threads", threads), ("get_flags", flags)):
        if not isinstance(number, int):
            raise TypeError(f"threadpool: {name}.{method}() must return an int, got {number!r}")
    if threads < 1:
        raise ValueError(f"threadpool: {name}.get_num_threads() must be at least 1, got {threads}")
    if flags & ~(ThreadpoolInterface.ASYNCHRONOUS | ThreadpoolInterface.AUTO_BALANCING):
        raise ValueError(f"threadpool: {name}.get_flags() has unknown flags: {flags:#x}")
    if flags & ThreadpoolInterface.ASYNCHRONOUS and type(threadpool).wait is ThreadpoolInterface.wait:
        raise TypeError(f"threadpool: {name} is asynchronous and must have a method wait()")
