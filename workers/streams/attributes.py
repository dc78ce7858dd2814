"""Attributes of streams, for one kind of engine."""

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
        """Let streams compute on the threads of a pool; None, the default, means on the calling thread.

        Raises ValueError if the kind is not cpu, TypeError if the argument is no threadpool, and either if the pool does not
        return its threads and flags as `ThreadpoolInterface` says, or is asynchronous without a method `wait`.
        """
        self._require_cpu()
        if threadpool is not None:
            _check(threadpool)
        self._threadpool = threadpool

    def get_threadpool(self) -> ThreadpoolInterface | None:
        """Return the threadpool, or None. Raises ValueError if the kind is not cpu."""
        self._require_cpu()
        return self._threadpool

    def copy(self) -> StreamAttr:
        """Return a copy, which changes independently."""
        other = StreamAttr(self.kind)
        other._threadpool = self._threadpool
        return other

    def _require_cpu(self) -> None:
        if self.kind != "cpu":
            raise ValueError(f"threadpool: only streams of kind cpu compute on one, got kind {self.kind}")


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
    known = ThreadpoolInterface.ASYNCHRONOUS | ThreadpoolInterface.AUTO_BALANCING | ThreadpoolInterface.NESTED
    if flags & ~known:
        raise ValueError(f"threadpool: {name}.get_flags() has unknown flags: {flags:#x}")
    if flags & ThreadpoolInterface.ASYNCHRONOUS and type(threadpool).wait is ThreadpoolInterface.wait:
        raise TypeError(f"threadpool: {name} is asynchronous and must have a method wait()")
