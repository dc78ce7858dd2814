"""The results of `Pool.map`: in order, of one call after the other, and of chunks of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat
from typing import Any, TypeVar, cast

from poolrt.workers.processes.pickled import call_all, call_each, call_range

from .abandoned_calls import AbandonedCalls
from .ring_call import RingCall

T = TypeVar("T")


class CallResults:
    """Yields results in order, and keeps no reference to one that is yielded; cancels the rest if the caller stops."""

    #: An interrupt may end the constructor before its first line.
    _futures: deque[Any] = deque()  # noqa: RUF012 - it stays empty

    def __init__(
        self, futures: deque[Any], deadline: float | None, abandoned: AbandonedCalls, *, of_chunks: bool = False
    ) -> None:
        self._futures = futures
        self._deadline = deadline
        self._abandoned = abandoned
        #: Whether each result is a list, of which an iterator is yielded.
        self._of_chunks = of_chunks

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        futures = self._futures
        if not futures:
            raise StopIteration
        try:
            first = futures[0]
            if type(first) is RingCall and first.has_result:
                del futures[0]
                return first.take_result() if not self._of_chunks else _iterate(first.take_result(), first)
            del first  # a traceback keeps no future
            left = None if self._deadline is None else self._deadline - time.monotonic()
            return _take(futures, left, of_chunks=self._of_chunks)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancel the calls whose results were not yielded."""
        while self._futures:
            self._futures.pop().cancel()

    def __del__(self) -> None:
        # Garbage may be collected anywhere, also in a thread that holds a lock which `cancel` takes.
        if rest := deque(each for each in self._futures if not each.is_settled):
            self._abandoned.add(rest)


class ChunkResults(chain[T]):
    """Yields what the lists hold that are ``results``, and keeps no reference to it. No step within a list is Python code."""

    _results: CallResults

    @classmethod
    def of(cls, results: CallResults) -> ChunkResults[Any]:
        """Return the results of chunks one by one, given those ``of_chunks``."""
        found = cast("ChunkResults[Any]", cls.from_iterable(results))
        found._results = results
        return found

    def close(self) -> None:
        """Cancel the calls whose results were not yielded, and yield nothing more."""
        self._results.close()
        deque(self, 0)


def chunks_of(
    iterables: tuple[Iterable[Any], ...], size: int
) -> tuple[Callable[..., list[Any]], Iterator[tuple[Any, ...]]]:
    """Return what calls a function for each chunk of ``size`` items, and the further arguments of these calls."""
    if len(iterables) != 1:
        calls = zip(*iterables, strict=False)
        return call_each, zip(iter(lambda: [*islice(calls, size)], []))
    if type(iterables[0]) is range:
        return call_range, _bounds(iterables[0], size)
    items = iter(iterables[0])
    return call_all, zip(iter(lambda: [*islice(items, size)], []))


def _bounds(numbers: range, size: int) -> Iterator[tuple[int, int, int]]:
    """Return start, stop and step of the parts of a range."""
    starts = numbers[::size]
    return zip(starts, chain(starts[1:], (numbers.stop,)), repeat(numbers.step))


def _iterate(results: list[T], call: Any) -> Iterator[T]:
    """Return an iterator over the results of a call, which removes each from the list unless it is a number."""
    if type(call) is RingCall and call.is_plain:
        return iter(results)
    results.reverse()
    return map(list.pop, repeat(results, len(results)))


def _take(futures: deque[Any], left: float | None, *, of_chunks: bool) -> Any:
    future = futures[0]
    try:
        return future.result(left) if not of_chunks else _iterate(future.result(left), future)
    finally:
        if future.done():
            futures.popleft()
        del future
