"""One call on a ring, until it has ended: of a future, or of `Pool.map`, which needs none."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from poolrt.connection.futures import PoolFuture
from poolrt.errors import PoolError, error_from_wire
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.call_ring import RAISED, RETURNED, RETURNED_PLAIN
from poolrt.workers.ipc.channel import Message
from poolrt.workers.ipc.outlined_payload import is_outlined
from poolrt.workers.ipc.protocol import PLAIN, SCALARS, Kind
from poolrt.workers.processes.plain_pickles import UNPACKING_ERRORS, pickle_scalars, unpack_scalar

from .outcomes import error_of_loading, load_exception, load_pickle, load_value, name_loss

if TYPE_CHECKING:
    from .call_buffers import SentBuffers
    from .call_rings import CallRings
    from .result_rooms import Result


class RingCall:
    """A call. It is the driver of its future; without one, `result` waits, and returns the result once.

    What most calls never have is an attribute of the class until it is set: making this object takes half the time.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_result",
        "context",
        "ended",
        "future",
        "loading",
        "name",
        "number",
        "payload",
        "plain",
        "request",
        "ring",
        "rings",
        "sequence",
        "status",
        "value",
    )

    #: The buffers of its arguments, until it has ended; and of its result, while this is loaded.
    sent: SentBuffers | None = None
    _opened: Result | None = None
    #: The message of its outcome, if that came so.
    message: Message | None = None
    #: Whether another thread is to settle it, or has taken it back.
    handed = False
    #: Whether a KeyboardInterrupt has ended the loading of its outcome.
    _was_interrupted = False
    _error: BaseException | None = None
    #: Its priority, and how often it was overtaken (`poolrt.priorities`).
    priority = 0
    overtaken = 0
    #: Given by the rings that have it.
    request: int
    sequence: int

    def __init__(
        self,
        number: int,
        payload: bytes,
        plain: int,
        context: Context | None,
        future: PoolFuture[Any] | None,
        sent: SentBuffers | None = None,
        name: str = "",
    ) -> None:
        #: The client's number of the function; `PLAIN`, both that and `SCALARS`, or 0.
        self.number = number
        #: The function's name, for errors.
        self.name = name
        self.payload = payload
        self.plain = plain
        self.context = context
        self.future = future
        if sent is not None:
            self.sent = sent
        self.rings: CallRings | None = None
        self.ring: Any = None
        self.status = 0
        self.value = b""
        self._result: Any = None
        #: Whether it has ended, and its result is being loaded.
        self.ended = False
        self.loading = False

    @property
    def ticket(self) -> int:
        """A number that grows with each call."""
        return self.request

    @property
    def known_as(self) -> Any:
        """What `OpenFutures` counts: the future, or this call."""
        return self.future or self

    @property
    def is_settled(self) -> bool:
        """Whether it has ended."""
        return self.ended

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or another thread is to settle it."""
        return self.ended or self.handed

    def end_plain(self, packed: bytes) -> bool:
        """End this call with a packed scalar or list of numbers, in fewer steps than `settle`; False if it needs those.

        It does if the value cannot be unpacked, or its future may have callbacks, or threads that wait. May be repeated.
        """
        try:
            value = unpack_scalar(packed)
        except UNPACKING_ERRORS:
            return False
        future = self.future
        if future is None:
            self.status = RETURNED_PLAIN
            self._result = value
        elif not future.settle_alone(value):
            return False
        self.ended = True
        return True

    def drive(self, future: PoolFuture[Any], deadline: float | None) -> None:
        """Wait for this call, as `Driver` says."""
        if self.rings is not None:
            self.rings.drive(self, deadline)

    def look(self, future: PoolFuture[Any]) -> None:
        """Look whether this call has begun or ended."""
        if self.rings is not None:
            self.rings.collect()
            if not self.ended and self.rings.has_begun(self):
                future.note_begun()

    def want(self, future: PoolFuture[Any]) -> None:
        """Let the thread of futures resolve this call."""
        if self.rings is not None:
            self.rings.want(self)

    def take_back(self) -> bool:
        """Take this call back; return whether no worker has begun it or will."""
        if self.rings is None:
            return False
        with deferred_interrupts():  # a call that was taken back has to be cancelled, or its future never ends
            taken = self.rings.take_back(self)
            if taken and self.future is not None:
                self.future.note_cancelled()
            elif taken:
                self._error, self.ended = CancelledError(), True
        return taken

    def cancel(self) -> bool:
        """Take a call of `Pool.map` back, as `Future.cancel`."""
        moved = self._moved()
        return not self.ended and self.take_back() if moved is None else moved.cancel()

    def done(self) -> bool:
        """Return whether a call of `Pool.map` has ended, also one that goes by messages now."""
        moved = self._moved()
        return self.ended if moved is None else moved.done()

    @property
    def is_plain(self) -> bool:
        """Whether the result is a scalar, or a list of numbers."""
        return self.status == RETURNED_PLAIN

    @property
    def has_result(self) -> bool:
        """Whether this call without a future has returned."""
        return self.ended and self._error is None and self.future is None

    def take_result(self) -> Any:
        """Return the result of a call that `has_result`, once."""
        value, self._result = self._result, None
        return value

    def result(self, timeout: float | None = None) -> Any:
        """Return the result of a call without a future, once. Raises its exception, and TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self.ended and self.future is None and self.rings is not None:
            self.rings.drive(self, deadline)
        moved = self._moved()
        if moved is not None:
            return moved.result(None if deadline is None else deadline - time.monotonic())
        if not self.ended and self.rings is not None:
            self.rings.wait_settled(self, deadline)
        error, value = self._error, self._result
        self._result = None
        if error is not None:
            self._error = None
            try:
                raise error
            finally:
                del error, self
        return value

    def _moved(self) -> PoolFuture[Any] | None:
        """Return the future of a call that goes by messages now."""
        return self.future

    def fail(self, error: BaseException) -> None:
        """Note an error that is its outcome."""
        self._error = name_loss(error.copy() if isinstance(error, PoolError) else error, self.name)

    def settle(self) -> None:
        """Load the outcome, and resolve the future if there is one. After an interrupt, call it again."""
        if self.ended:
            return
        result: Any
        error: BaseException | None
        try:
            self.loading = True
            value = self.value
            status = self.status
            usual = status == RETURNED_PLAIN or (status == RETURNED and not is_outlined(value))
            try:
                if usual and self._error is None and self.message is None:
                    try:
                        result, error = unpack_scalar(value) if status == RETURNED_PLAIN else load_pickle(value), None
                    except BaseException as failure:  # noqa: BLE001 - loading runs the user's code
                        result, error = None, error_of_loading(failure)
                else:
                    result, error = self._load()
            except KeyboardInterrupt as interrupt:
                if not self._was_interrupted:
                    self._was_interrupted = True
                    raise
                # Most probably the result itself raises it: raised at each attempt, it would end every later call.
                result, error = None, error_of_loading(interrupt, may_be_interrupt=False)
            if self.future is not None:
                self.future.settle(result, error)
                self.future.driver = None
            else:
                self._result = result
                if error is not None:
                    self._error = error
        finally:
            self.loading = False
        # An interrupt before it has ended lets all of this be done again.
        if self.rings is not None:
            self.rings.note_ended(self)
        self.ended = True
        if self.rings is not None:
            self.rings.note_ended(self)  # again: a thread that counts it may not have seen that it has ended
        self.value = b""
        if self.message is not None:
            self.message = None
        if self._opened is not None:
            self._opened = None
        if self.sent is not None:
            self.free()

    def pickled(self) -> tuple[bytes, int]:
        """Return its arguments for a message, and `PLAIN` or 0."""
        if not self.plain & SCALARS:
            return self.payload, self.plain
        pickled = pickle_scalars(unpack_scalar(self.payload))
        return pickled or b"", PLAIN

    def free(self) -> None:
        """Let the memory of its arguments be used again: no worker reads it any more."""
        sent, self.sent = self.sent, None
        if sent is not None:
            sent.end()

    def _load(self) -> tuple[Any, BaseException | None]:
        if self._error is not None:
            if self.rings is not None:
                self.rings.rooms.drop(self.request)
            return None, self._error
        message = self.message
        if message is not None:
            if message[0] == Kind.FAILED:
                return None, error_from_wire(message[2])
            if message[0] != Kind.RETURNED:
                return None, load_exception(*message[2:4])
            return load_value(partial(self._load_from, message[2]))
        if self.status != RAISED:
            return load_value(partial(self._load_from, self.value))
        end = 4 + int.from_bytes(self.value[:4], "little")
        return None, load_exception(self.value[4:end].decode("utf-8", "surrogatepass"), self.value[end:])

    def _load_from(self, data: bytes | Payload) -> object:
        if isinstance(data, bytes) and not is_outlined(data):
            return load_pickle(data)
        if self._opened is None and self.rings is not None:
            with deferred_interrupts():  # a second load uses the same buffers
                self._opened = self.rings.rooms.open(data, self.request, self.sent)
        return self._opened.load() if self._opened is not None else None
