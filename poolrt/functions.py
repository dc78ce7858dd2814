"""Functions of a program in worker processes: pickled here, sent to each worker once, and their futures."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import msgpack

from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from poolrt.workers.ipc.channel import ESCAPES, FRAME, Message
from poolrt.workers.ipc.protocol import CALL_BYTES, Kind
from poolrt.workers.processes.pickled import call_each, load_result, pickle_for_worker

from . import errors
from .client import Client, Request
from .errors import (
    CoordinatorLoss,
    FunctionFailed,
    InitializerFailure,
    PoolError,
    PoolRefused,
    RemoteTraceback,
    error_from_wire,
)
from .futures import PoolFuture

T = TypeVar("T")
#: Functions that are sent and have not ended; further ones wait here.
IN_FLIGHT: Final = 256
#: Bytes of functions and arguments in flight, unless there is one only: the coordinator keeps them until a worker has room.
BYTES_IN_FLIGHT: Final = 256 * 1024 * 1024
#: Longest pickle of a function, in bytes, that is sent with each call: one that a module has is little more than its name.
_INLINE: Final = 256
#: Functions that the coordinator keeps for calls to come, and their bytes, unless there is one only.
_KEPT: Final = 64
_KEPT_BYTES: Final = 192 * 1024 * 1024


class _Function:
    """A pickled function. ``number`` is that under which the coordinator has it, 0 if it does not."""

    __slots__ = ("data", "digest", "in_flight", "number")

    def __init__(self, data: bytes, digest: bytes) -> None:
        self.data = data
        self.digest = digest
        self.number = 0
        self.in_flight = 0


class _Call:
    """A call until it has ended. ``function`` is None if the payload has the function."""

    __slots__ = ("context", "function", "future", "nbytes", "payload", "request", "unsent")

    def __init__(self, function: _Function | None, payload: bytes, future: PoolFuture[Any]) -> None:
        self.function = function
        self.payload = payload
        self.nbytes = len(payload)
        self.future = future
        self.context = copy_context()
        #: None until the call is sent.
        self.request: Request | None = None
        #: Why it could not be sent.
        self.unsent: Exception | None = None


class Functions:
    """Sends functions and arguments by cloudpickle on one connection, and resolves futures with the results.

    ``initializer(*initargs)`` is called in each worker before its first function. Several threads may use this object.
    """

    def __init__(
        self, client: Client, initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
    ) -> None:
        self.client = client
        self._initializer = None if initializer is None else (initializer, initargs)
        self._waiting: deque[_Call] = deque()
        self._under_way = 0
        self._bytes = 0
        self._counting = threading.Lock()
        # Held while calls are sent, so that a function is sent before its calls. Reentrant, as callbacks of futures submit.
        self._sending = threading.RLock()
        #: The functions that the coordinator has, by digest, the least recently used one first.
        self._known: OrderedDict[bytes, _Function] = OrderedDict()
        self._numbers = 0
        #: Why no function can be called any more: the initializer has failed.
        self.broken: InitializerFailure | None = None

    def submit(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PoolFuture[T]:
        """Call a function in a worker; see `Pool.submit`."""
        return self._submit(partial(self._pack, fn), args, kwargs)

    def map(
        self, fn: Callable[..., T], iterables: tuple[Iterable[Any], ...], timeout: float | None, chunksize: int
    ) -> Iterator[T]:
        """Call a function for many items; see `Pool.map`."""
        if chunksize < 1:
            raise ValueError(f"chunksize must be at least 1, got {chunksize}")
        deadline = None if timeout is None else time.monotonic() + timeout
        self._check()
        items = zip(*iterables, strict=False)
        if chunksize == 1:
            pack = _Packed(self, fn)
            single: deque[PoolFuture[T]] = deque(self._submit(pack, item, {}) for item in items)
            return _results(single, deadline)
        pack = _Packed(self, partial(call_each, fn))
        chunks = iter(lambda: list(islice(items, chunksize)), [])
        futures: deque[PoolFuture[list[T]]] = deque(self._submit(pack, (chunk,), {}) for chunk in chunks)
        return (result for results in _results(futures, deadline) for result in _one_by_one(results))

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken.copy()
        self.client.check_open()

    def _submit(
        self,
        pack: Callable[[tuple[Any, ...], dict[str, Any]], tuple[_Function | None, bytes]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> PoolFuture[Any]:
        self._check()
        future: PoolFuture[Any] = PoolFuture()
        try:
            function, payload = pack(args, kwargs)
        except PoolRefused:
            raise
        except Exception as error:  # noqa: BLE001 - pickling runs the user's code; the future gets its error
            future.set_running_or_notify_cancel()
            future.set_exception(error)
            return future
        call = _Call(function, payload, future)
        future.withdraw = partial(self._withdraw, call)
        # An interrupt between these steps would leave a future that never ends.
        with deferred_interrupts():
            self.client.open_futures.add(future)
            self._waiting.append(call)
            self._send_waiting()
        if isinstance(call.unsent, CoordinatorLoss):
            raise call.unsent  # no worker has begun it: it may be sent to another server
        return future

    def _pack(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[_Function | None, bytes]:
        """Return a pickled function, None if it is sent with the call, and the payload of the call."""
        data = pickle_for_worker(fn)
        if len(data) <= _INLINE:
            return None, _bounded(_with_folders(pickle_for_worker((fn, args, kwargs))))
        return self._keep(data), _bounded(pickle_for_worker((args, kwargs)))

    def _keep(self, data: bytes) -> _Function:
        found = _bounded(_with_folders(data), "a function with the globals that it uses")
        digest = hashlib.blake2b(found, digest_size=32).digest()
        with self._counting:
            return self._known.get(digest) or _Function(found, digest)

    def _send_waiting(self) -> None:
        """Send the calls that wait, as far as there is room."""
        with self._sending:
            while (call := self._next()) is not None:
                function = call.function
                try:
                    self._prepare(function)
                    number = 0 if function is None else function.number
                    self.client.begin(Kind.CALL, number, call.payload, request=self._request(call))
                except Exception as error:  # noqa: BLE001 - most often PoolClosed; each ends this call
                    self._end(call)
                    call.unsent = error
                    call.future.note_begun()
                    call.future.set_exception(error)
                call.payload = b""

    def _next(self) -> _Call | None:
        """Return the next call to send and count it as sent; None if there is none, or no room."""
        with self._counting:
            if not self._waiting:
                return None
            call = self._waiting[0]
            nbytes = call.nbytes
            if self._under_way and (self._under_way >= IN_FLIGHT or self._bytes + nbytes > BYTES_IN_FLIGHT):
                return None
            if call.function is not None:
                # The same function may have been sent for another call that waited.
                call.function = self._known.get(call.function.digest, call.function)
                if not call.function.number and not self._has_room(call.function):
                    return None
                call.function.in_flight += 1
            self._waiting.popleft()
            self._under_way += 1
            self._bytes += nbytes
            call.request = Request()
            return call

    def _has_room(self, function: _Function) -> bool:
        """Return whether the coordinator can get a further function, once idle ones are discarded."""
        busy = [known for known in self._known.values() if known.in_flight]
        nbytes = sum(len(known.data) for known in busy) + len(function.data)
        return not busy or (len(busy) < _KEPT and nbytes <= _KEPT_BYTES)

    def _prepare(self, function: _Function | None) -> None:
        """Let the coordinator have the initializer and a function, and discard those used least recently."""
        client = self.client
        if self._initializer is not None:
            call, args = self._initializer
            first = self._keep(pickle_for_worker(call))
            arguments = _bounded(pickle_for_worker((args, {})), "the arguments of the initializer")
            self._number(first)
            client.tell(Kind.INITIALIZER, first.number, arguments)
            self._initializer = None
        if function is None:
            return
        if not function.number:
            with self._counting:
                kept = sum(len(known.data) for known in self._known.values()) + len(function.data)
                idle = [known for known in self._known.values() if not known.in_flight]
                discarded = []
                for known in idle:
                    if len(self._known) < _KEPT and kept <= _KEPT_BYTES:
                        break
                    del self._known[known.digest]
                    kept -= len(known.data)
                    discarded.append(known)
                self._known[function.digest] = function
            for known in discarded:
                number, known.number = known.number, 0
                client.tell(Kind.DISCARD, number)
            self._number(function)
        self._known.move_to_end(function.digest)

    def _number(self, function: _Function) -> None:
        self._numbers += 1
        self.client.tell(Kind.FUNCTION, self._numbers, function.data)
        function.number = self._numbers

    def _request(self, call: _Call) -> Request:
        request = call.request or Request()
        request.settle = lambda _: self._end(call)
        request.resolve = lambda answer: self._resolve(call, answer)
        request.begin = call.future.note_begun
        request.context = call.context
        return request

    def _end(self, call: _Call) -> None:
        """Note that a call has ended. The thread that reads the answer calls this."""
        with self._counting:
            self._under_way -= 1
            self._bytes -= call.nbytes
            if call.function is not None:
                call.function.in_flight -= 1

    def _withdraw(self, call: _Call) -> bool:
        """Withdraw a call; return whether no worker has begun it or will."""
        with self._counting:
            if call.request is None:
                try:
                    self._waiting.remove(call)
                except ValueError:
                    pass  # another thread has withdrawn it
                call.payload = b""
                return True
        return self.client.withdraw(call.request)

    def _resolve(self, call: _Call, answer: Message) -> None:
        """Resolve a future with a function's outcome, after sending the next one. The client's own thread calls this."""
        error: Exception | None = None
        if answer[0] == Kind.FAILED:
            error = error_from_wire(answer[2])
            if isinstance(error, InitializerFailure):
                self.broken = error
            elif isinstance(error, CoordinatorLoss):
                text = f"{error}; a function is not called twice: submit it again if that does no harm"
                error = errors.coordinator_lost(text)
        self._send_waiting()
        future = call.future
        if answer[0] == Kind.WITHDRAWN:
            future.note_cancelled()
            return
        future.note_begun()
        if error is not None:
            future.set_exception(error)
        else:
            _set_outcome(future, answer)


class _Packed:
    """A function that is pickled once for many calls."""

    def __init__(self, functions: Functions, fn: Callable[..., Any]) -> None:
        self._functions = functions
        self._fn = fn
        self._function: _Function | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Function | None, bytes]:
        if self._function is None:
            self._function, payload = self._functions._pack(self._fn, args, kwargs)
            return self._function, payload
        return self._function, _bounded(pickle_for_worker((args, kwargs)))


def _bounded(payload: bytes, what: str = "a function and its arguments") -> bytes:
    if len(payload) > CALL_BYTES - FRAME:
        have = "have" if "and its" in what or "the arguments" in what else "has"
        text = f"{what} {have} {len(payload)} bytes, more than {CALL_BYTES - FRAME}"
        raise PoolRefused(f"{text}: split the arguments, or use a graph")
    return payload


def _with_folders(data: bytes) -> bytes:
    """Return a pickle after the folders that this process imports from: '' stands for the current one."""
    packed: bytes = msgpack.packb([[place or os.getcwd() for place in sys.path], data], unicode_errors=ESCAPES)
    return packed


def _results(futures: deque[PoolFuture[T]], deadline: float | None) -> Iterator[T]:
    """Yield results in order, and keep no reference to one that is yielded; cancel the rest if the caller stops."""
    try:
        while futures:
            left = None if deadline is None else deadline - time.monotonic()
            yield _take(futures, left)
    finally:
        for future in futures:
            future.cancel()


def _take(futures: deque[PoolFuture[T]], left: float | None) -> T:
    future = futures[0]
    try:
        return future.result(left)
    finally:
        if future.done():
            futures.popleft()
        del future


def _one_by_one(results: list[T]) -> Iterator[T]:
    results.reverse()
    while results:
        yield results.pop()


def _set_outcome(future: PoolFuture[Any], answer: Message) -> None:
    try:
        value = load_result(answer[-1]) if answer[-1] else None
    except BaseException as error:  # noqa: BLE001 - loading runs the user's code; the future gets its error
        if answer[0] == Kind.RAISED:
            future.set_exception(_failed(answer[2]))
            return
        text = f"the result of a function cannot be loaded: {type(error).__name__}: {error}"
        failed: PoolError = errors.call_not_loaded(text, traceback.format_exc())
        future.set_exception(failed)
        return
    if answer[0] != Kind.RAISED:
        future.set_result(value)
    elif isinstance(value, BaseException):
        value.__cause__ = RemoteTraceback(f'\n"""\n{answer[2]}"""')
        future.set_exception(value)
    else:
        future.set_exception(_failed(answer[2]))


def _failed(log: str) -> FunctionFailed:
    return FunctionFailed(f"a function failed in a worker process:\n{log}", log)
