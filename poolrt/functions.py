"""Plain functions in worker processes, with the interface of `concurrent.futures.Executor`."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from itertools import islice
from typing import Any, Final, TypeVar

import dill
import msgpack

from poolrt.workers.ipc.channel import ESCAPES, FRAME, Message
from poolrt.workers.ipc.protocol import CALL_BYTES, Kind

from .client import Client, Request
from .errors import CoordinatorLost, FunctionFailed, PoolError, PoolRefused, error_from_wire

T = TypeVar("T")
#: Functions in flight; one more waits until one of them ends.
IN_FLIGHT: Final = 256
#: Bytes of functions and arguments in flight, unless there is one only: the coordinator keeps them until a worker has room.
BYTES_IN_FLIGHT: Final = 256 * 1024 * 1024


class Functions:
    """Sends functions and arguments by dill on one connection, and resolves futures with the results."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._under_way = 0
        self._bytes = 0
        self._counting = threading.Lock()

    def submit(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Future[T]:
        """Call a function in a worker; see `Pool.submit`."""
        client = self.client
        payload = msgpack.packb(
            [[place for place in sys.path if place], dill.dumps((fn, args, dict(kwargs)))], unicode_errors=ESCAPES
        )
        nbytes = len(payload)
        if nbytes > CALL_BYTES - FRAME:
            text = f"a function and its arguments have {nbytes} bytes, more than {CALL_BYTES - FRAME}"
            raise PoolRefused(f"{text}: split the arguments, or use a graph")
        if not client.in_own_thread:
            client.wait_while(lambda: self._under_way >= IN_FLIGHT or self._is_full(nbytes))
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        request = Request(lambda _: self._count(-1, -nbytes), lambda answer: _resolve(future, answer))
        request.context = copy_context()
        self._count(1, nbytes)
        try:
            client.begin(Kind.CALL, payload, request=request)
        except BaseException:
            if not request.done:
                self._count(-1, -nbytes)
            raise
        return future

    def map(
        self, fn: Callable[..., T], iterables: tuple[Iterable[Any], ...], timeout: float | None, chunksize: int
    ) -> Iterator[T]:
        """Call a function for many items; see `Pool.map`."""
        if chunksize < 1:
            raise ValueError(f"chunksize must be at least 1, got {chunksize}")
        deadline = None if timeout is None else time.monotonic() + timeout
        items = zip(*iterables, strict=False)
        return self._results(fn, iter(lambda: list(islice(items, chunksize)), []), deadline)

    def wait_for_all(self) -> None:
        """Wait until no function is in flight, or the pool is closed."""
        try:
            self.client.wait_while(lambda: self._under_way > 0)
        except PoolError:
            pass  # then no function is in flight either

    def _results(
        self, fn: Callable[..., T], chunks: Iterator[list[tuple[Any, ...]]], deadline: float | None
    ) -> Iterator[T]:
        under_way: deque[Future[list[T]]] = deque()
        for chunk in chunks:
            if len(under_way) >= IN_FLIGHT:
                yield from under_way.popleft().result(_left(deadline))
            under_way.append(self.submit(_call_each, (fn, chunk), {}))
        while under_way:
            yield from under_way.popleft().result(_left(deadline))

    def _is_full(self, nbytes: int) -> bool:
        return self._under_way > 0 and self._bytes + nbytes > BYTES_IN_FLIGHT

    def _count(self, difference: int, nbytes: int) -> None:
        with self._counting:
            self._under_way += difference
            self._bytes += nbytes


def _call_each(fn: Callable[..., T], chunk: list[tuple[Any, ...]]) -> list[T]:
    return [fn(*items) for items in chunk]


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _resolve(future: Future[Any], answer: Message) -> None:
    """Resolve a future with a function's outcome."""
    if answer[0] == Kind.FAILED:
        error = error_from_wire(answer[2])
        if isinstance(error, CoordinatorLost):
            error = CoordinatorLost(f"{error}; a function is not called twice: submit it again if that does no harm")
        future.set_exception(error)
        return
    try:
        value = dill.loads(answer[-1]) if answer[-1] else None
    except Exception as error:  # noqa: BLE001 - loading runs the user's code; the future gets its error
        future.set_exception(error)
        return
    if answer[0] != Kind.RAISED:
        future.set_result(value)
    elif isinstance(value, BaseException):
        value.add_note(f"in a worker process:\n{answer[2]}")
        future.set_exception(value)
    else:
        future.set_exception(FunctionFailed(f"a function failed in a worker process:\n{answer[2]}", answer[2]))
