"""Functions of a program in worker processes: pickled here, sent to each worker once, and their futures."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, copy_context
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from poolrt.connection.client import Request
from poolrt.connection.dropped_interrupts import resend_dropped_interrupts
from poolrt.connection.futures import PoolFuture
from poolrt.errors import CoordinatorLoss, InitializerFailure, PoolRefused, error_from_wire
from poolrt.workers.ipc.call_ring import INLINE_BYTES
from poolrt.workers.ipc.channel import Message
from poolrt.workers.ipc.protocol import PLACED, PLAIN, SCALARS, Kind
from poolrt.workers.processes.pickled import pickle_for_worker
from poolrt.workers.processes.plain_pickles import pack_scalars

from .call_buffers import SentBuffers
from .call_pickles import HOT, CallPickles, KeptFunction, Pack, Packed, PackedOnce, bounded
from .call_results import CallResults, ChunkResults, chunks_of
from .called_function import name_of
from .message_call import MessageCall
from .ordered_queue import OrderedQueue
from .outcomes import load_exception, load_value, name_loss, not_called_twice
from .ring_call import RingCall

if TYPE_CHECKING:
    from poolrt.connection.link import Link

T = TypeVar("T")
#: Calls that are sent and have not ended, of a priority and higher ones, and in all; further ones wait here.
IN_FLIGHT: Final = 256
_ALL_IN_FLIGHT: Final = 1024
#: Bytes of functions and arguments in flight, unless there is one only: the coordinator keeps them until a worker has room.
BYTES_IN_FLIGHT: Final = 256 * 1024 * 1024
#: Functions that the coordinator keeps for calls to come, and their bytes, unless there is one only.
_KEPT: Final = 64
_KEPT_BYTES: Final = 192 * 1024 * 1024
#: Calls on rings that are submitted between looks at results, or together.
_LOOKS: Final = 16
#: Types of iterables whose iterators run no code of the user.
_READY: Final = (range, list, tuple)


class Functions:
    """Sends functions and arguments by cloudpickle on one connection, and resolves futures with the results.

    ``initializer(*initargs)`` is called in each worker before its first function. Several threads may use this object.
    """

    def __init__(
        self, link: Link, initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
    ) -> None:
        client = self.client = link.client
        resend_dropped_interrupts()  # results of maps that are dropped have finalizers
        self._initializer = None if initializer is None else (initializer, initargs)
        self._waiting: deque[MessageCall] | OrderedQueue[MessageCall] = deque()
        self._tickets = itertools.count(1)
        #: Calls that are sent and have not ended, and how many of them have each priority.
        self._under_way = 0
        self._of_priority: dict[int, int] = {}
        self._bytes = 0
        self._counting = threading.Lock()
        # Held while calls are sent, so that a function is sent before its calls. Reentrant, as callbacks of futures submit.
        self._sending = threading.RLock()
        #: The functions that the coordinator has, by digest, the least recently used one first.
        self._known: OrderedDict[bytes, KeptFunction] = OrderedDict()
        self._numbers = 0
        self._pickles = CallPickles(link, self._known)
        calls = self._calls = client.calls
        calls.rooms.memory = self._pickles.memory
        calls.resend, calls.leave = self._resend, self._ring_calls_ended
        self._count, self._forget = client.open_futures.count_call, client.open_futures.forget_call
        #: Why no function can be called any more: the initializer has failed.
        self.broken: InitializerFailure | None = None

    def submit(
        self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], priority: int = 0
    ) -> PoolFuture[T]:
        """Call a function in a worker; see `Pool.submit`."""
        if priority:
            self.keep_order()
        if kwargs or self._waiting or (future := self._submit_short(fn, args, priority)) is None:
            return self._submit(partial(self._pickles.pack, fn), args, kwargs, priority)
        return future

    def keep_order(self) -> None:
        """Call functions in order of priority from now on."""
        if isinstance(self._waiting, deque):
            with self._counting:
                self._waiting = OrderedQueue(self._waiting)
            self.client.calls.keep_order()

    def _submit_short(self, fn: Callable[..., T], args: tuple[Any, ...], priority: int) -> PoolFuture[T] | None:
        """Give a call of a known function with short, plain arguments to a ring, as most are; return None for any other one."""
        function = self._pickles.find(fn)
        if function is None or not function.on_rings or (self._under_way and not self._may_use_rings(function)):
            return None
        payload, plain, sent = pack_scalars(args), SCALARS, None
        if payload is None:
            placed = self._pickles.pack_placed(args)
            if placed is None:
                return None
            (payload, sent), plain = placed, PLACED
        if len(payload) > INLINE_BYTES:
            return None
        if self.broken is not None:
            self._check()
        self.client.check_open()
        future: PoolFuture[T] = PoolFuture()
        call = RingCall(function.number, payload, PLAIN | plain, copy_context(), future, sent, function.name)
        if priority:
            call.priority = priority
        return future if self._submit_to_ring(call, future) else None

    def _pack_short(self, function: KeptFunction, args: tuple[Any, ...]) -> bytes | None:
        """Return the payload of short, plain arguments for a ring; None for any other ones, or if no ring may take them."""
        payload = pack_scalars(args) if self._may_use_rings(function) else None
        return payload if payload is not None and len(payload) <= INLINE_BYTES else None

    def _begin_short(self, function: KeptFunction, payload: bytes, priority: int) -> RingCall | None:
        """Give what `_pack_short` has packed to a ring; return the call, None if no ring takes it."""
        call = RingCall(function.number, payload, PLAIN | SCALARS, None, None, None, function.name)
        if priority:
            call.priority = priority
        return call if self._submit_to_ring(call, call) else None

    def _submit_to_ring(self, call: RingCall, known_as: PoolFuture[Any] | RingCall) -> bool:
        """Give a call to a ring and count it; return False if no ring takes it."""
        calls = self._calls
        if not calls.submit(call):
            return False
        # An interrupt before this line leaves a call that no end waits for: its caller has no future either.
        self._count(known_as)
        if call.ended:
            self._forget(known_as)
        if calls.watch.parked:
            calls.unpark()
        if not call.request % _LOOKS:
            calls.collect()  # results, now and then
        return True

    def map(
        self,
        fn: Callable[..., T],
        iterables: tuple[Iterable[Any], ...],
        timeout: float | None,
        chunksize: int,
        priority: int = 0,
    ) -> Iterator[T]:
        """Call a function for many items; see `Pool.map`."""
        if chunksize < 1:
            raise ValueError(f"chunksize must be at least 1, got {chunksize}")
        if priority:
            self.keep_order()
        deadline = None if timeout is None else time.monotonic() + timeout
        self._check()
        # Other iterables may block, and a call before that has to begin.
        begin_all = self._begin_ready if all(type(each) in _READY for each in iterables) else self._begin_all
        if chunksize == 1:
            pack = PackedOnce(self._pickles, fn)
            items = zip(*iterables, strict=False)
            begun = begin_all(pack, items, priority)
            return CallResults(begun, deadline, self.client.abandoned)
        call_chunk, chunks = chunks_of(iterables, chunksize)
        begun = begin_all(PackedOnce(self._pickles, fn, call_chunk), chunks, priority)
        return ChunkResults.of(CallResults(begun, deadline, self.client.abandoned, of_chunks=True))

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken.copy()
        self.client.check_open()

    def _begin_all(self, pack: PackedOnce, calls: Iterator[tuple[Any, ...]], priority: int) -> deque[Any]:
        begun: deque[Any] = deque()
        for args in calls:
            function, call = pack.function, None
            if function is not None and not self._waiting and (payload := self._pack_short(function, args)) is not None:
                call = self._begin_short(function, payload, priority)
            begun.append(call or self._begin(pack, args, priority))
        return begun

    def _begin_ready(self, pack: PackedOnce, calls: Iterator[tuple[Any, ...]], priority: int) -> deque[Any]:
        """Begin calls as `_begin_all`, some at a time: no code of the user runs between their arguments."""
        begun: deque[Any] = deque()
        rings, open_futures = self.client.calls, self.client.open_futures
        # The first call has the function pickled.
        while some := [*islice(calls, 1 if pack.function is None else _LOOKS)]:
            function = pack.function
            made: list[RingCall] = []
            if function is not None and not self._waiting and self._may_use_rings(function):
                for args in some:
                    payload = pack_scalars(args)
                    if payload is None or len(payload) > INLINE_BYTES:
                        break
                    made.append(RingCall(function.number, payload, PLAIN | SCALARS, None, None, None, function.name))
                    if priority:
                        made[-1].priority = priority
            if made and rings.submit_all(made):
                begun.extend(made)
                open_futures.count_all(made)
                rings.unpark()
                rings.collect()
                del some[: len(made)]
            begun.extend(self._begin(pack, args, priority) for args in some)
        rings.wake_workers()
        return begun

    def _begin(self, pack: PackedOnce, args: tuple[Any, ...], priority: int) -> PoolFuture[Any] | RingCall:
        """Submit a call of `map`, which needs no future if a ring takes it."""
        function = pack.function
        calls = self.client.calls
        if function is None or not calls.exist or self._waiting or not self._may_use_rings(function):
            return self._submit(pack, args, {}, priority)
        packed = pack(args, {})
        call = self._ring_call(packed, None, None, priority)
        if call is None or not self._submit_to_ring(call, call):
            return self._submit(lambda args, kwargs: packed, args, {}, priority)
        return call

    def _submit(self, pack: Pack, args: tuple[Any, ...], kwargs: dict[str, Any], priority: int) -> PoolFuture[Any]:
        self._check()
        try:
            packed = pack(args, kwargs)
        except PoolRefused:
            raise
        except Exception as error:  # noqa: BLE001 - pickling runs the user's code; the future gets its error
            return _failed(error)
        future: PoolFuture[Any] = PoolFuture()
        function = packed.function
        if function is not None and function.on_rings and not self._waiting and self._may_use_rings(function):
            ring_call = self._ring_call(packed, copy_context(), future, priority)
            if ring_call is not None and self._submit_to_ring(ring_call, future):
                return future
        call = MessageCall(packed, future, priority)
        future.withdraw = partial(self._withdraw, call)
        # An interrupt between these steps would leave a future that never ends.
        with deferred_interrupts():
            self.client.open_futures.add(future)
            self._await_turn(call)
            self._send_waiting()
        if isinstance(call.unsent, CoordinatorLoss):
            raise call.unsent  # no worker has begun it: it may be sent to another server
        return future

    def _may_use_rings(self, function: KeptFunction) -> bool:
        """Return whether a call may overtake those that are sent as messages: not if one worker calls all, in order."""
        return bool(function.number) and (not self._under_way or self.client.workers > 1)

    def _await_turn(self, call: MessageCall) -> None:
        with self._counting:
            call.ticket = next(self._tickets)
            self._waiting.append(call)

    def _ring_call(
        self, packed: Packed, context: Context | None, future: PoolFuture[Any] | None, priority: int
    ) -> RingCall | None:
        """Return a call for a ring, None if it is too long for one."""
        function, payload, plain, sent, name = packed
        if function is None or len(payload) > INLINE_BYTES or not function.number:
            return None
        call = RingCall(function.number, payload, plain, context, future, sent, name)
        call.priority = priority
        return call

    def _ring_calls_ended(self) -> None:
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
            future.driver = None
            each.handed = True
            try:
                call = MessageCall(
                    Packed(functions[each.number], *self._repack(each), each.name), future, each.priority
                )
            except PoolRefused as error:
                each.free()
                future.settle(None, error)
                continue
            each.sent = None
            call.context = each.context or call.context
            future.withdraw = partial(self._withdraw, call)
            self.client.open_futures.follow(future)
            self._await_turn(call)
        self._send_waiting()
        self.client.wake_thread()

    def _repack(self, call: RingCall) -> tuple[bytes, int, SentBuffers | None]:
        """Return the arguments of a call on a ring as a message has them. Raises PoolRefused if they are too long for one."""
        if call.sent is not None and call.sent.args:
            return self._pickles.pack_arguments(call.sent.args, {})
        return *call.pickled(), call.sent

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
                    self.client.begin(Kind.CALL, number, call.priority, call.payload, request=self._request(call))
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

    def _move_to_ring(self, call: MessageCall) -> bool:
        """Give a call that waits to a ring, with the lock held that counts; return whether one takes it."""
        function = call.function
        if function is None or not function.on_rings or not self._may_use_rings(function):
            return False
        packed = Packed(function, call.payload, call.plain, call.sent, call.name)
        moved = self._ring_call(packed, call.context, call.future, call.priority)
        if moved is None or not self.client.calls.submit(moved):
            return False
        call.sent = None
        self._waiting.popleft()
        return True

    def _next(self) -> MessageCall | None:
        """Return the next call to send and count it as sent; None if there is none, or no room."""
        with self._counting:
            while self._waiting and self._move_to_ring(self._waiting[0]):
                pass
            if not self._waiting or (self.client.calls.under_way and self.client.workers == 1):
                return None
            call = self._waiting[0]
            nbytes = call.nbytes
            if self._under_way and (self._is_full(call.priority) or self._bytes + nbytes > BYTES_IN_FLIGHT):
                return None
            if call.function is not None:
                # The same function may have been sent for another call that waited.
                call.function = self._known.get(call.function.digest, call.function)
                if not call.function.number and not self._has_room(call.function):
                    return None
                call.function.in_flight += 1
            self._waiting.popleft()
            self._under_way += 1
            self._of_priority[call.priority] = self._of_priority.get(call.priority, 0) + 1
            self._bytes += nbytes
            call.request = Request()
            return call

    def _is_full(self, priority: int) -> bool:
        """Return whether enough calls are sent: a call goes before those of lower priorities in the coordinator, too."""
        before = sum(count for each, count in self._of_priority.items() if each >= priority)
        return before >= IN_FLIGHT or self._under_way >= _ALL_IN_FLIGHT

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

    def _request(self, call: MessageCall) -> Request:
        request = call.request or Request()
        request.settle = lambda _: self._end(call)
        request.resolve = lambda answer: self._resolve(call, answer)
        request.begin = call.future.note_begun
        request.context = call.context
        return request

    def _end(self, call: MessageCall) -> None:
        """Note that a call has ended. The thread that reads the answer calls this."""
        with self._counting:
            self._under_way -= 1
            self._of_priority[call.priority] -= 1
            self._bytes -= call.nbytes
            if call.function is not None:
                call.function.in_flight -= 1

    def _withdraw(self, call: MessageCall) -> bool:
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

    def _resolve(self, call: MessageCall, answer: Message) -> None:
        """Resolve a future with a function's outcome, after sending the next one. The client's own thread calls this."""
        try:
            self._note_outcome(call, answer)
        finally:
            call.free()
            if call.request is not None:
                call.request.settle = call.request.begin = None  # no cycle keeps the result, which may be large

    def _note_outcome(self, call: MessageCall, answer: Message) -> None:
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


def _failed(error: Exception) -> PoolFuture[Any]:
    """Return a future with an error. The error's traceback leads to frames that do not refer to it."""
    future: PoolFuture[Any] = PoolFuture()
    future.set_running_or_notify_cancel()
    future.set_exception(error)
    return future
