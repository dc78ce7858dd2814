"""Functions of a program in worker processes: pickled here, sent to each worker once, and their futures."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, copy_context
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final, TypeVar

from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from poolrt.workers.ipc.call_ring import INLINE_BYTES
from poolrt.workers.ipc.channel import Message
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.processes.pickled import call_each, pickle_for_worker

from .call_pickles import HOT, CallPickles, KeptFunction, Pack, Packed, PackedOnce, bounded
from .called_function import name_of
from .client import Request
from .errors import CoordinatorLoss, InitializerFailure, PoolRefused, error_from_wire
from .futures import PoolFuture
from .outcomes import load_exception, load_value, name_loss, not_called_twice
from .ring_call import RingCall

if TYPE_CHECKING:
    from .abandoned_calls import AbandonedCalls
    from .link import Link

T = TypeVar("T")
#: Functions that are sent and have not ended; further ones wait here.
IN_FLIGHT: Final = 256
#: Bytes of functions and arguments in flight, unless there is one only: the coordinator keeps them until a worker has room.
BYTES_IN_FLIGHT: Final = 256 * 1024 * 1024
#: Functions that the coordinator keeps for calls to come, and their bytes, unless there is one only.
_KEPT: Final = 64
_KEPT_BYTES: Final = 192 * 1024 * 1024
#: Calls that `map` submits between looks at results.
_LOOKS: Final = 16


class _Call:
    """A call until it has ended. ``function`` is None if the payload has the function."""

    __slots__ = ("context", "function", "future", "name", "nbytes", "payload", "plain", "request", "sent", "unsent")

    def __init__(self, packed: Packed, future: PoolFuture[Any]) -> None:
        self.function, payload, self.plain, sent, self.name = packed
        #: The buffers of its arguments, until it has ended.
        self.sent = sent
        self.payload = payload
        self.nbytes = len(payload)
        self.future = future
        self.context = copy_context()
        #: None until the call is sent.
        self.request: Request | None = None
        #: Why it could not be sent.
        self.unsent: Exception | None = None

    def free(self) -> None:
        """Let the memory of its arguments be used again: no worker reads it any more."""
        sent, self.sent = self.sent, None
        if sent is not None:
            sent.end()


class Functions:
    """Sends functions and arguments by cloudpickle on one connection, and resolves futures with the results.

    ``initializer(*initargs)`` is called in each worker before its first function. Several threads may use this object.
    """

    def __init__(
        self, link: Link, initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
    ) -> None:
        client = self.client = link.client
        self._initializer = None if initializer is None else (initializer, initargs)
        self._waiting: deque[_Call] = deque()
        self._under_way = 0
        self._bytes = 0
        self._counting = threading.Lock()
        # Held while calls are sent, so that a function is sent before its calls. Reentrant, as callbacks of futures submit.
        self._sending = threading.RLock()
        #: The functions that the coordinator has, by digest, the least recently used one first.
        self._known: OrderedDict[bytes, KeptFunction] = OrderedDict()
        self._numbers = 0
        self._look = 0
        self._pickles = CallPickles(link, self._known)
        client.calls.rooms.memory = self._pickles.memory
        client.calls.resend = self._resend
        #: Why no function can be called any more: the initializer has failed.
        self.broken: InitializerFailure | None = None

    def submit(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PoolFuture[T]:
        """Call a function in a worker; see `Pool.submit`."""
        return self._submit(partial(self._pickles.pack, fn), args, kwargs)

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
            pack = PackedOnce(self._pickles, fn, name_of(fn))
            single: deque[Any] = deque(self._begin(pack, item, {}) for item in items)
            return _Results(single, deadline, self.client.abandoned)
        pack = PackedOnce(self._pickles, partial(call_each, fn), name_of(fn))
        chunks = iter(lambda: list(islice(items, chunksize)), [])
        futures: deque[Any] = deque(self._begin(pack, (chunk,), {}) for chunk in chunks)
        return _each_of(_Results(futures, deadline, self.client.abandoned))

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken.copy()
        self.client.check_open()

    def _begin(self, pack: PackedOnce, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PoolFuture[Any] | RingCall:
        """Submit a call of `map`, which needs no future if a ring takes it."""
        function = pack.function
        calls = self.client.calls
        if function is None or not calls.exist or self._waiting or not self._may_use_rings(function):
            return self._submit(pack, args, kwargs)
        packed = pack(args, kwargs)
        call = self._ring_call(packed, None, None)
        if call is None or not calls.submit(call):
            return self._submit(lambda args, kwargs: packed, args, kwargs)
        self.client.open_futures.count(call)
        calls.unpark()
        self._look += 1
        if not self._look % _LOOKS:
            calls.collect()
        return call

    def _submit(self, pack: Pack, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PoolFuture[Any]:
        self._check()
        future: PoolFuture[Any] = PoolFuture()
        try:
            packed = pack(args, kwargs)
        except PoolRefused:
            raise
        except Exception as error:  # noqa: BLE001 - pickling runs the user's code; the future gets its error
            future.set_running_or_notify_cancel()
            future.set_exception(error)
            return future
        function = packed.function
        if function is not None and function.on_rings and not self._waiting and self._may_use_rings(function):
            ring_call = self._ring_call(packed, copy_context(), future)
            if ring_call is not None and self.client.calls.submit(ring_call):
                # An interrupt before this line leaves a call that no end waits for: its caller has no future either.
                self.client.open_futures.count(future)
                self.client.calls.unpark()
                return future
        call = _Call(packed, future)
        future.withdraw = partial(self._withdraw, call)
        # An interrupt between these steps would leave a future that never ends.
        with deferred_interrupts():
            self.client.open_futures.add(future)
            self._waiting.append(call)
            self._send_waiting()
        if isinstance(call.unsent, CoordinatorLoss):
            raise call.unsent  # no worker has begun it: it may be sent to another server
        return future

    def _may_use_rings(self, function: KeptFunction) -> bool:
        """Return whether a call may overtake those that are sent as messages: not if one worker calls all, in order."""
        return bool(function.number) and (not self._under_way or self.client.workers > 1)

    def _ring_call(self, packed: Packed, context: Context | None, future: PoolFuture[Any] | None) -> RingCall | None:
        """Return a call for a ring, None if it is too long for one."""
        function, payload, plain, sent, name = packed
        if function is None or len(payload) > INLINE_BYTES or not function.number:
            return None
        return RingCall(function.number, payload, plain, context, future, self._ring_call_ended, sent, name)

    def _ring_call_ended(self) -> None:
        if self._waiting:
            self._send_waiting()

    def _resend(self, calls: list[RingCall]) -> None:
        """Send calls by messages that no ring takes any more."""
        with self._counting:
            functions = {known.number: known for known in self._known.values()}
        for each in calls:
            future = each.future
            self.client.open_futures.forget(each.known_as)
            if future is None:
                each.future = future = PoolFuture()
            call = _Call(Packed(functions[each.number], each.payload, each.plain, each.sent, each.name), future)
            each.sent = None
            call.context = each.context or call.context
            future.withdraw = partial(self._withdraw, call)
            future.driver = None
            self.client.open_futures.follow(future)
            each.handed = True
            self._waiting.append(call)
        self._send_waiting()
        self.client.wake_thread()

    def _send_waiting(self) -> None:
        """Send the calls that wait, as far as there is room."""
        with self._sending:
            while (call := self._next()) is not None:
                function = call.function
                try:
                    self._prepare(function)
                    if function is not None:
                        self._ask_for_rings(function)
                    number = 0 if function is None else function.number
                    self.client.begin(Kind.CALL, number, call.payload, request=self._request(call))
                except Exception as error:  # noqa: BLE001 - most often PoolClosed; each ends this call
                    self._end(call)
                    call.unsent = error
                    call.future.note_begun()
                    call.future.set_exception(error)
                    call.free()
                call.payload = b""
        self.client.calls.unpark()

    def _ask_for_rings(self, function: KeptFunction) -> None:
        """Let a function be called on rings after some calls by messages: it is sent to each worker then."""
        function.calls += 1
        if function.calls >= HOT and function.on_rings != function.number:
            function.on_rings = function.number
            self.client.tell(Kind.CALLS, function.number)

    def _move_to_ring(self, call: _Call) -> bool:
        """Give a call that waits to a ring, with the lock held that counts; return whether one takes it."""
        function = call.function
        if function is None or not function.on_rings or not self._may_use_rings(function):
            return False
        packed = Packed(function, call.payload, call.plain, call.sent, call.name)
        moved = self._ring_call(packed, call.context, call.future)
        if moved is None or not self.client.calls.submit(moved):
            return False
        call.sent = None
        self._waiting.popleft()
        return True

    def _next(self) -> _Call | None:
        """Return the next call to send and count it as sent; None if there is none, or no room."""
        with self._counting:
            while self._waiting and self._move_to_ring(self._waiting[0]):
                pass
            if not self._waiting or (self.client.calls.outstanding and self.client.workers == 1):
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

    def _has_room(self, function: KeptFunction) -> bool:
        """Return whether the coordinator can get a further function, once idle ones are discarded."""
        busy = [known for known in self._known.values() if known.in_flight]
        nbytes = sum(len(known.data) for known in busy) + len(function.data)
        return not busy or (len(busy) < _KEPT and nbytes <= _KEPT_BYTES)

    def _prepare(self, function: KeptFunction | None) -> None:
        """Let the coordinator have the initializer and a function, and discard those used least recently."""
        client = self.client
        if self._initializer is not None:
            call, args = self._initializer
            first = self._pickles.keep(pickle_for_worker(call), name_of(call))
            arguments = bounded(pickle_for_worker((args, {})), "the arguments of the initializer")
            self._number(first)
            client.tell(Kind.INITIALIZER, first.number, arguments)
            self._initializer = None
        if function is None:
            return
        if not function.number:
            with self._counting:
                kept = sum(len(known.data) for known in self._known.values()) + len(function.data)
                used = self.client.calls.functions_used()
                idle = [each for each in self._known.values() if not each.in_flight and each.number not in used]
                discarded = []
                for known in idle:
                    if len(self._known) < _KEPT and kept <= _KEPT_BYTES:
                        break
                    del self._known[known.digest]
                    kept -= len(known.data)
                    discarded.append(known)
                self._known[function.digest] = function
            for known in discarded:
                number, known.number, known.on_rings, known.calls = known.number, 0, 0, 0
                client.calls.discard(number)
                client.tell(Kind.DISCARD, number)
            self._number(function)
        self._known.move_to_end(function.digest)

    def _number(self, function: KeptFunction) -> None:
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
                call.free()
                return True
        return self.client.withdraw(call.request)

    def _resolve(self, call: _Call, answer: Message) -> None:
        """Resolve a future with a function's outcome, after sending the next one. The client's own thread calls this."""
        try:
            self._note_outcome(call, answer)
        finally:
            call.free()
            if call.request is not None:
                call.request.settle = call.request.begin = None  # no cycle keeps the result, which may be large

    def _note_outcome(self, call: _Call, answer: Message) -> None:
        error: Exception | None = None
        number = call.request.number if call.request is not None else 0
        if answer[0] == Kind.FAILED:
            self.client.calls.rooms.drop(number)
            error = error_from_wire(answer[2])
            if isinstance(error, InitializerFailure):
                self.broken = error
            elif isinstance(error, CoordinatorLoss):
                error = not_called_twice(error)
        self._send_waiting()
        future = call.future
        if answer[0] == Kind.WITHDRAWN:
            future.note_cancelled()
            return
        future.note_begun()
        if error is not None:
            future.set_exception(name_loss(error, call.name))
        elif answer[0] == Kind.RAISED:
            future.set_exception(load_exception(*answer[2:4]))
        else:
            rooms = self.client.calls.rooms
            value, failure = load_value(lambda: rooms.open(answer[-1], number, call.sent).load())
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(value)


class _Results:
    """Yields results in order, and keeps no reference to one that is yielded; cancels the rest if the caller stops."""

    def __init__(self, futures: deque[Any], deadline: float | None, abandoned: AbandonedCalls) -> None:
        self._futures = futures
        self._deadline = deadline
        self._abandoned = abandoned

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        futures = self._futures
        if not futures:
            raise StopIteration
        try:
            left = None if self._deadline is None else self._deadline - time.monotonic()
            return _take(futures, left)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancel the calls whose results were not yielded."""
        while self._futures:
            self._futures.pop().cancel()

    def __del__(self) -> None:
        # Garbage may be collected anywhere, also in a thread that holds a lock which `cancel` takes.
        if self._futures:
            self._abandoned.add(self._futures)


def _each_of(lists: Iterable[list[T]]) -> Iterator[T]:
    """Yield what lists hold, and keep no reference to it."""
    for results in lists:
        results.reverse()
        yield from map(list.pop, repeat(results, len(results)))


def _take(futures: deque[Any], left: float | None) -> Any:
    future = futures[0]
    try:
        return future.result(left)
    finally:
        if future.done():
            futures.popleft()
        del future
