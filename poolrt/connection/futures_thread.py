"""The thread that resolves futures, and the turns of the threads that read a connection: a part of `Client`.

It is started by the first future. It reads while no other thread does, as long as a request has a future, or a call on a ring
needs it (`CallRings.needs_thread`). It alone calls code of the user: callbacks, and streams that functions print to.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from poolrt.errors import PoolClosed
from poolrt.functions.abandoned_calls import AbandonedCalls
from poolrt.functions.printed_text import PrintedText
from poolrt.workers.ipc.channel import Message
from poolrt.workers.ipc.protocol import Kind

from .open_futures import OpenFutures
from .request import Request

if TYPE_CHECKING:
    from poolrt.functions.call_rings import CallRings
    from poolrt.functions.ring_call import RingCall

#: Seconds between checks whether the leader still reads: an interruption may end it before it notifies the others.
FOLLOW_POLL_S: Final = 0.25


class FuturesThread:
    """The threads of a connection: one leads and reads, the others follow."""

    def __init__(self) -> None:
        super().__init__()
        # Use `with` on the lock, never on the condition: the condition's __enter__ is Python code. An interruption can end
        # it after the lock is acquired and before the block begins, and no thread would ever release the lock.
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self._leading = False
        self._followers = 0
        self._futures = 0
        self._resolvable: deque[tuple[Request, Message]] = deque()
        self._printed = PrintedText()
        self.open_futures = OpenFutures(self._lock, self._answered, self._printed.stop)
        #: Why the connection has ended; None if it has not.
        self.lost: PoolClosed | None = None
        #: The rings of calls, once a function was called.
        self._calls: CallRings | None = None
        self.abandoned = AbandonedCalls()
        #: Whether this is a forked process's copy of its parent's connection.
        self.inherited = False

    def _read(self, timeout: float | None) -> None:
        """Wait for a message or a result, ``timeout`` seconds at most, and handle it. Only the leader calls this."""
        raise NotImplementedError

    def _until(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        """Wait until ``ready()`` or the connection's end; read while no other thread does. False after the deadline."""
        raise NotImplementedError

    @property
    def calls(self) -> CallRings:
        """The rings of calls. The first function of a program imports their modules: most programs run graphs only."""
        return self._calls or self._make_calls()

    @property
    def in_own_thread(self) -> bool:
        """Whether the caller is a thread that resolves futures, which must not wait for futures."""
        return self.open_futures.is_own_thread()

    @property
    def has_followers(self) -> bool:
        """Whether threads wait for what another one reads."""
        return self._followers > 0

    def collect_calls(self) -> None:
        """Read the results of calls on rings that are there."""
        if self._calls is not None:
            self._calls.collect()

    def _make_calls(self) -> CallRings:
        from poolrt.functions.call_rings import CallRings

        with self._lock:
            self._calls = made = self._calls or CallRings(self)
        return made

    def wait_for(self, call: RingCall, deadline: float | None, *, settled: bool = False) -> bool:
        """Wait until a call has ended, or is handed to another thread unless it is to be ``settled``; False after a deadline."""
        if not settled:
            return self._until(lambda: call.is_over, deadline)
        with self._lock:
            while not call.ended:
                if not self._follow(deadline):
                    return False
        return True

    def wake_thread(self) -> None:
        """Wake the thread of futures, which is started first, and all threads that follow."""
        with self._lock:
            if self.open_futures.thread is None and self.lost is None:
                self.open_futures.start(self._resolve_futures)
            self._answered.notify_all()

    def resolve_later(self, call: RingCall) -> None:
        """Let the thread of futures settle a call, whose callbacks are the user's code."""
        self._resolvable.append((Request(None, lambda _: self.calls.settle(call)), [Kind.DONE, 0]))
        self.wake_thread()

    def _follow(self, deadline: float | None) -> bool:
        """Wait, with the lock held, until the leader has read a message or stops; False after the deadline."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        self._followers += 1
        try:
            self._answered.wait(FOLLOW_POLL_S if left is None else min(left, FOLLOW_POLL_S))
        finally:
            self._followers -= 1
        return True

    def _call_followers(self) -> None:
        with self._lock:
            if self._followers or self._futures or self._resolvable:
                self._answered.notify_all()

    def _resolve_futures(self) -> None:
        """Read while no other thread waits, and resolve futures, which runs the user's code. Runs in a thread."""
        while True:
            with self._lock:
                while self._has_nothing_to_do and (self._leading or not self._is_needed):
                    calls = self._calls
                    if self.lost is not None and not (calls is not None and calls.outstanding):
                        self.open_futures.close()
                        return
                    look_s = None if calls is None else calls.next_look()
                    self._answered.wait(FOLLOW_POLL_S if look_s is None and self._futures else look_s)
                    if calls is not None:
                        calls.look()
                leads = self._has_nothing_to_do
                self._leading = self._leading or leads
            if leads:
                try:
                    self._read(None)
                finally:
                    self._leading = False
                    self._call_followers()
            self.abandoned.cancel()
            while self._resolvable:
                self.open_futures.resolving = True
                self._resolve_next()
            self.open_futures.end_if_done()

    @property
    def _has_nothing_to_do(self) -> bool:
        return not (self._resolvable or self.abandoned or self.open_futures.is_over)

    @property
    def _is_needed(self) -> bool:
        calls = self._calls
        needs_thread = calls is not None and calls.needs_thread(self._followers)
        return self.lost is None and (self._futures > 0 or needs_thread)

    def _resolve_next(self) -> None:
        """Resolve a future, and keep no reference to it: its result is memory of the arena."""
        request, message = self._resolvable.popleft()
        try:
            if message[0] == Kind.TEXT:
                self._printed.write(message, request.context)
            else:
                with self._lock:
                    resolve, request.resolve = request.resolve, None
                if resolve is not None:
                    resolve(message)
        except BaseException:
            import logging

            logging.getLogger("concurrent.futures").exception("exception calling callback of a future")
