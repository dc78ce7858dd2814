"""A client's connection to a coordinator: requests and answers, from any number of threads.

Whoever waits for an answer reads the socket itself, also for the others that wait: a reader thread would cost two more
thread switches a round trip. Only futures need a thread, because they are resolved while nobody waits; it is started with
the first of them. Every wait ends with the answer, its deadline, an interruption, or the loss of the coordinator.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from poolrt.errors import CoordinatorLost, PoolClosed, PoolRefused, error_from_wire
from poolrt.workers.ipc.channel import Channel, ChannelClosed, ChannelFull, MalformedMessage, Message
from poolrt.workers.ipc.protocol import VERSION, Kind, check_message

#: Answers that are not the last to their request.
_INTERIM: Final = frozenset({Kind.STAGE, Kind.PROGRESS})
#: Seconds between looks at whether somebody else reads, while a message cannot be sent.
_SEND_POLL_S: Final = 0.02
#: Seconds between looks at whether somebody still reads, in case that an interruption has come before the word of it.
_FOLLOW_POLL_S: Final = 0.25


class Request:
    """A request and its answers so far. ``settle(answer)`` is called once with the last, by whichever thread reads it.

    `settle` must be short and wait for nothing. With ``resolve`` the connection's own thread then calls that, for a future.
    """

    __slots__ = ("answers", "done", "number", "resolve", "settle")

    def __init__(
        self, settle: Callable[[Message], None] | None = None, resolve: Callable[[Message], None] | None = None
    ) -> None:
        self.number = 0
        self.answers: deque[Message] = deque()
        self.done = False
        self.settle = settle
        self.resolve = resolve


class Client:
    """The connection. ``greeting`` is sent first; nothing is waited for until the first answer is needed."""

    def __init__(self, channel: Channel, greeting: list[Message], start_timeout_s: float) -> None:
        self._channel = channel
        self._process = os.getpid()
        self._deadline = time.monotonic() + start_timeout_s
        self._welcome: Message | None = None
        self._numbers = 0
        self._requests: dict[int, Request] = {}
        self._released: deque[int] = deque()
        self._unsent: deque[Message] = deque()
        # It knows its owner, so that giving it back is safe where an interruption leaves open whether it was taken.
        self._sending = threading.RLock()
        self._sender = 0
        # Held by `with` on the lock, never on the condition: that one's __enter__ is Python code, which an interruption can
        # end after the lock is taken and before the block begins, so that nobody would ever release it.
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._leading = False
        self._followers = 0
        self._futures = 0
        self._resolvable: deque[tuple[Request, Message]] = deque()
        self._thread: threading.Thread | None = None
        self._lost: PoolClosed | None = None
        for message in (*greeting, [Kind.HELLO, VERSION]):
            self._send(message)

    def welcome(self) -> tuple[int, int, dict[str, Any]]:
        """Wait until the coordinator is up; return the arena's descriptor (the caller's to close), bytes, and facts."""
        if not self._until(lambda: self._welcome is not None, self._deadline):
            self.close(CoordinatorLost("the coordinator did not come up in time (the setting start_timeout_s)"))
        self._check()
        if self._welcome is None or self._welcome[1] != VERSION:
            raise CoordinatorLost("the coordinator is of another version of poolrt")
        self._channel.accepts_fds = False
        return self._channel.take_fd(), self._welcome[2], self._welcome[3]

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._lost is not None

    @property
    def in_own_thread(self) -> bool:
        """Whether the caller is the thread that resolves futures, which must not wait for them."""
        return threading.current_thread() is self._thread

    def begin(self, kind: Kind, *fields: Any, request: Request) -> Request:
        """Send a request; its number is put before ``fields``. Raises PoolClosed, PoolRefused for one too large to send."""
        with self._lock:
            self._numbers += 1
            request.number = self._numbers
            self._requests[request.number] = request
            if request.resolve is not None:
                self._futures += 1
                if self._thread is None:
                    self._thread = threading.Thread(target=self._resolve_futures, name="poolrt-futures", daemon=True)
                    self._thread.start()
                elif not self._leading:
                    self._turn.notify_all()
        try:
            self._check()
            self._send([kind, request.number, *fields])
        except BaseException:
            with self._lock:
                if self._requests.pop(request.number, None) is not None and request.resolve is not None:
                    self._futures -= 1
            raise
        return request

    def tell(self, kind: Kind, *fields: Any) -> None:
        """Send a message that is not answered."""
        self._check()
        self._send([kind, *fields])

    def next_answer(self, request: Request, deadline: float | None = None) -> Message:
        """Wait for the next answer to a request. Raises PoolClosed, the error that is the answer, and TimeoutError."""
        if not request.answers and not self._until(lambda: bool(request.answers), deadline):
            raise TimeoutError("there was no answer in time")
        if not request.answers:
            self._check()
        answer = request.answers.popleft()
        if answer[0] == Kind.FAILED:
            raise error_from_wire(answer[2])
        return answer

    def ask(self, kind: Kind, *fields: Any, deadline: float | None = None) -> Message:
        """Send a request that has one answer and wait for it. Raises what `next_answer` raises."""
        return self.next_answer(self.begin(kind, *fields, request=Request()), deadline)

    def wait_while(self, holds: Callable[[], bool]) -> None:
        """Wait until answers have made ``holds()`` false. Raises PoolClosed."""
        self._until(lambda: not holds(), None)
        self._check()

    def release(self, offset: int) -> None:
        """Give a lease on a slot back, with the next message. May be called from a finalizer: it takes no lock."""
        self._released.append(offset)

    @property
    def unreleased(self) -> int:
        """Leases that are released here and not yet given back."""
        return len(self._released)

    def released(self) -> list[int]:
        """Return the leases to give back now, and forget them."""
        found: list[int] = []
        while self._released:
            found.append(self._released.popleft())
        return found

    def flush(self) -> None:
        """Give the released leases back now, unless another thread is sending."""
        if self._released:
            self.send_nowait(None)

    def send_nowait(self, message: Message | None) -> None:
        """Send the released leases, then a message that is not answered, without waiting for anything: for finalizers.

        What cannot be sent now, because a thread is sending, goes with the next send_nowait.
        """
        if message is not None:
            self._unsent.append(message)
        thread = threading.get_ident()
        if self._lost is not None or self._process != os.getpid() or self._sender == thread:
            return
        try:
            if self._sending.acquire(blocking=False):
                self._sender = thread
                if self._released:
                    self._channel.send([Kind.RELEASE, self.released()])
                while self._unsent:
                    self._channel.send(self._unsent.popleft())
        except (ChannelClosed, ChannelFull):
            pass  # whoever waits for something learns of it
        finally:
            if self._sender == thread:
                self._sender = 0
            try:
                self._sending.release()
            except RuntimeError:
                pass  # another thread has it

    def close(self, reason: PoolClosed | None = None) -> None:
        """End the connection; everything that waits gets ``reason``, or PoolClosed. May be repeated."""
        if self._process != os.getpid():
            return  # a fork of the owner: the connection is the parent's
        self._lose(reason or PoolClosed("the pool is closed"))
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        with self._lock:
            until = time.monotonic() + 1.0
            while self._leading and self._follow(until):
                pass
        self._channel.close()

    def _check(self) -> None:
        if self._process != os.getpid():
            raise PoolClosed("this pool belongs to the process that this one was forked from: make another here")
        if self._lost is not None:
            raise self._lost.copy()

    def _send(self, message: Message) -> None:
        thread = threading.get_ident()
        with self._sending:
            self._sender = thread
            try:
                self._channel.send(message)
                while self._channel.queued:
                    self._make_room()
                    self._channel.flush()
            except ChannelClosed as error:
                self._lose(CoordinatorLost(f"the coordinator has gone ({error})"))
                self._check()
            except (ValueError, TypeError, OverflowError, ChannelFull) as error:
                raise PoolRefused(f"a request cannot be sent: {error}") from error
            finally:
                self._sender = 0

    def _make_room(self) -> None:
        """Wait until more can be sent. Read meanwhile, if nobody does: a coordinator whose answers pile up stops listening."""
        leads = False
        try:
            with self._lock:
                if not self._leading:
                    self._leading = leads = True
            self._channel.wait(_SEND_POLL_S, to_receive=leads, to_send=True)
            if leads:
                self._read(0.0)
        finally:
            if leads:
                # Not in a function: an interruption can come before its first line, and then nobody would ever read again.
                self._leading = False
                self._call_followers()

    def _until(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        """Wait until ``ready()`` or the connection has ended; read while nobody else does. False after the deadline."""
        leads = False
        try:
            with self._lock:
                while self._leading:
                    if ready() or self._lost is not None:
                        return True
                    if not self._follow(deadline):
                        return False
                if ready() or self._lost is not None:
                    return True
                self._leading = leads = True
            while not ready() and self._lost is None:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._read(left)
            return True
        finally:
            if leads:
                # Not in a function: an interruption can come before its first line, and then nobody would ever read again.
                self._leading = False
                self._call_followers()

    def _follow(self, deadline: float | None) -> bool:
        """Wait, with the turn in hand, until the leader has read something or stops; False after the deadline."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        self._followers += 1
        try:
            self._turn.wait(_FOLLOW_POLL_S if left is None else min(left, _FOLLOW_POLL_S))
        finally:
            self._followers -= 1
        return True

    def _call_followers(self) -> None:
        with self._lock:
            if self._followers or self._futures or self._resolvable:
                self._turn.notify_all()

    def _read(self, timeout: float | None) -> None:
        """Wait for a message, ``timeout`` seconds at most, and take it. Only for the thread that leads."""
        channel = self._channel
        if timeout is not None:
            try:
                if not channel.wait(timeout):
                    return
            except (OSError, ValueError):
                pass  # closed by another thread: receiving says so
        channel.mark()
        try:
            message = channel.receive(block=timeout is None)
            if message is not None:
                self._take(message)
        except (ChannelClosed, MalformedMessage) as error:
            self._lose(CoordinatorLost(f"the coordinator has gone ({error}); what it wrote to standard error says why"))
        except BaseException:
            if not channel.untouched:
                # The interruption may have cost a message, and whoever waits for it would wait for ever.
                self._lose(PoolClosed("the pool was interrupted while it took an answer"))
            raise
        if self._followers:
            with self._lock:
                self._turn.notify_all()

    def _take(self, message: Message) -> None:
        kind = check_message(message)
        if kind is Kind.WELCOME:
            self._welcome = message
            return
        request = self._requests.get(message[1])
        if request is None:
            return
        if kind not in _INTERIM:
            with self._lock:
                del self._requests[message[1]]
                request.done = True
                if request.settle is not None:
                    request.settle(message)
                if request.resolve is not None:
                    self._futures -= 1
                    self._resolvable.append((request, message))
        request.answers.append(message)

    def _lose(self, reason: PoolClosed) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = reason
            failed: Message = [Kind.FAILED, 0, reason.to_wire()]
            for request in self._requests.values():
                if request.resolve is not None:
                    self._resolvable.append((request, failed))
            self._requests.clear()
            self._futures = 0
            self._turn.notify_all()
        self._channel.shut_down()

    def _resolve_futures(self) -> None:
        """Be the thread that reads while nobody else waits, and resolves futures, which runs code of the user."""
        while True:
            with self._lock:
                while not self._resolvable and (self._leading or not self._futures):
                    if self._lost is not None:
                        return
                    self._turn.wait(_FOLLOW_POLL_S if self._futures else None)
                leads = not self._resolvable
                self._leading = self._leading or leads
            if leads:
                try:
                    self._read(None)
                finally:
                    self._leading = False
                    self._call_followers()
            while self._resolvable:
                self._resolve_next()

    def _resolve_next(self) -> None:
        """Resolve a future. Nothing of this thread refers to it afterwards: its result is memory of the arena."""
        request, message = self._resolvable.popleft()
        if request.resolve is not None:
            request.resolve(message)
