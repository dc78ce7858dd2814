"""A client's connection to a coordinator: requests and answers, from any number of threads.

One of the threads that wait for answers, the leader, reads the socket for all of them: a reader thread would cost two
more thread switches a round trip. Only futures need a thread, because they are resolved while no thread waits; the
first future starts it. Every wait ends with the answer, its deadline, an interruption, or the loss of the coordinator,
which a client that waits asks for a sign of life if it is silent: it may be stopped.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import PoolClosed, PoolRefused, coordinator_lost, error_from_wire
from poolrt.memory.released_slots import ReleasedSlots
from poolrt.runs.ring_runs import KINDS, RingRuns
from poolrt.workers.ipc.channel import Channel, ChannelClosed, ChannelFull, MalformedMessage, Message
from poolrt.workers.ipc.protocol import VERSION, Kind, check_message

from .futures_thread import FuturesThread
from .open_futures import OpenFutures
from .own_process import own
from .request import Request as Request
from .sign_of_life import SignOfLife

if TYPE_CHECKING:
    from poolrt.functions.call_rings import CallRings

#: Kinds of answers that others follow.
_INTERIM: Final = frozenset({Kind.STAGE, Kind.PROGRESS, Kind.TEXT})
#: The kinds of messages that `CallRings.accept` takes.
_CALL_KINDS: Final = frozenset({Kind.CALL_RING, Kind.CALLABLE, Kind.CALL_RING_FIRST, Kind.CALLS_LOST, Kind.RESULT_ROOM})
#: Seconds between checks whether another thread reads, while a message cannot be sent.
_SEND_POLL_S: Final = 0.02
#: Seconds to read an answer to the greeting that is asked for after its deadline: it may have arrived long ago.
_ARRIVED_S: Final = 1.0
#: Seconds that `Client.look` waits for messages.
_LOOK_S: Final = 0.001


class Client(FuturesThread, ReleasedSlots):
    """The connection. It sends ``greeting`` first, and does not wait until the first answer is needed.

    ``ending`` returns what is known of the coordinator's end once the connection has ended, as text.
    A coordinator that has started counts as lost if a wait sees no sign of life from it for ``silence_s`` seconds.
    Waits for workers spin for ``spin_us`` microseconds at most.
    """

    def __init__(
        self,
        channel: Channel,
        greeting: list[Message],
        start_timeout_s: float,
        silence_s: float,
        ending: Callable[[], str] = str,
        spin_us: int = 0,
    ) -> None:
        super().__init__()
        self._channel = channel
        self._ending = ending
        self._life = SignOfLife(silence_s)
        channel.limit_waits(self._life.look_s)
        self._process = own.process
        self._deadline = time.monotonic() + start_timeout_s
        self._welcome: Message | None = None
        #: The descriptor of the arena, -1 before it comes and after `welcome` has returned it.
        self._arena = -1
        self._numbers = 0
        self._requests: dict[int, Request] = {}
        self._unsent: deque[Message] = deque()
        # An RLock knows its owner: releasing it is safe if an interruption leaves open whether it was acquired.
        self._sending = threading.RLock()
        self._sender = 0
        self.rings = RingRuns(spin_us)
        for message in (*greeting, [Kind.HELLO, VERSION]):
            self._send(message)

    def welcome(self) -> tuple[int, int, dict[str, Any]]:
        """Wait for the coordinator's start; return the arena's descriptor (the caller closes it), bytes, and facts."""
        deadline = max(self._deadline, time.monotonic() + _ARRIVED_S)
        if not self._until(lambda: self._welcome is not None, deadline):
            self.close(
                coordinator_lost(
                    "the coordinator did not start in time: raise the setting start_timeout_s, or see standard error"
                )
            )
        self._check()
        if self._welcome is None or self._welcome[1] != VERSION:
            raise coordinator_lost("the coordinator is of another version of poolrt: start it again with this one")
        arena, self._arena = self._arena, -1
        return arena, self._welcome[2], self._welcome[3]

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self.lost is not None

    def begin(self, kind: Kind, *fields: Any, request: Request) -> Request:
        """Send a request, its number before ``fields``. Raises PoolClosed, and PoolRefused for one too large.

        After an error, its ``resolve`` has not been called and never will be.
        """
        is_future = request.resolve is not None
        try:
            with self._lock:
                self._numbers += 1
                request.number = self._numbers
                self._requests[request.number] = request
                if request.resolve is not None:
                    self._futures += 1
                    if self.open_futures.thread is None:
                        self.open_futures.start(self._resolve_futures)
                    elif not self._leading:
                        self._answered.notify_all()
            self._check()
            self._send([kind, request.number, *fields])
        except BaseException as error:
            with self._lock:
                resolve, request.resolve = request.resolve, None
                if self._requests.pop(request.number, None) is not None and is_future:
                    self._futures -= 1
            if resolve is not None or not is_future or not isinstance(error, PoolClosed):
                raise  # else the end of the connection has resolved it already
        return request

    def tell(self, kind: Kind, *fields: Any) -> None:
        """Send a message that has no answer."""
        self._check()
        self._send([kind, *fields])

    def next_answer(self, request: Request, deadline: float | None = None) -> Message:
        """Wait for the next answer to a request. Raises PoolClosed, TimeoutError, and an answer that is an error."""
        if not request.answers and not self._until(lambda: bool(request.answers), deadline):
            raise TimeoutError("the coordinator did not answer within the timeout")
        if not request.answers:
            self._check()
        answer = request.answers.popleft()
        if answer[0] == Kind.FAILED:
            raise error_from_wire(answer[2])
        return answer

    def ask(self, kind: Kind, *fields: Any, deadline: float | None = None) -> Message:
        """Send a request that has one answer and wait for it. Raises what `next_answer` raises."""
        return self.next_answer(self.begin(kind, *fields, request=Request()), deadline)

    def withdraw(self, request: Request) -> bool:
        """Withdraw a run or call that has not begun; return whether it never will. Its ``settle`` is called then."""
        if request.done:
            return False

        def settle(answer: Message) -> None:
            # With the lock held, by the thread that reads the answer: an interrupt of the caller changes nothing.
            if answer[0] == Kind.WITHDRAWN and answer[2] and self._requests.pop(request.number, None) is not None:
                self._end_request(request, answer)

        number = request.number
        return bool(self.next_answer(self.begin(Kind.WITHDRAW, number, request=Request(settle)))[2])

    def check_open(self) -> None:
        """Raise PoolClosed if the connection has ended, and what `OpenFutures.check` raises."""
        if self.lost is not None or self._process != own.process:
            self._check()
        if self.open_futures.refuses:
            self.open_futures.check()

    def wait_while(self, holds: Callable[[], bool], deadline: float | None = None) -> None:
        """Wait until answers have made ``holds()`` false. Raises PoolClosed, and TimeoutError after the deadline."""
        if not self._until(lambda: not holds(), deadline):
            raise TimeoutError
        self._check()

    @property
    def workers(self) -> int:
        """The number of workers; 0 until the coordinator has started."""
        return int(self._welcome[3].get("workers", 0)) if self._welcome is not None else 0

    def look(self) -> None:
        """Read messages that have arrived, unless another thread does."""
        self._until(lambda: False, time.monotonic() + _LOOK_S)

    def glance(self) -> None:
        """Read messages that have arrived, without waiting, unless another thread does; cancel what was abandoned."""
        if self.abandoned:
            self.abandoned.cancel()
        leads = False
        try:
            with self._lock:
                if self._leading or self.lost is not None:
                    return
                self._leading = leads = True
            while not self.closed and self._channel.wait(0.0):
                self._read(0.0)
        finally:
            if leads:
                # Not in a function: an interruption before its first line would leave no thread that ever reads again.
                self._leading = False
                self._call_followers()

    def flush(self) -> None:
        """Send the released leases now, unless another thread is sending."""
        if self._released:
            self.send_nowait(None)

    def send_nowait(self, message: Message | None) -> None:
        """Send the released leases, then a message that has no answer, without waiting: for finalizers.

        While another thread is sending, the message is queued for the next call.
        """
        if message is not None:
            self._unsent.append(message)
        thread = threading.get_ident()
        if self.lost is not None or self._process != own.process or self._sender == thread:
            return
        try:
            if self._sending.acquire(blocking=False):
                self._sender = thread
                while self._released:
                    self._channel.send([Kind.RELEASE, self.released()])
                while self._unsent:
                    self._channel.send(self._unsent.popleft())
        except (ChannelClosed, ChannelFull):
            pass  # threads that wait get the error
        finally:
            if self._sender == thread:
                self._sender = 0
            try:
                self._sending.release()
            except RuntimeError:
                pass  # another thread holds it

    def close(self, reason: PoolClosed | None = None) -> None:
        """End the connection; every wait raises ``reason``, or PoolClosed. May be repeated."""
        if self._process != own.process:
            return  # this process is a fork of the owner, which keeps the connection
        self._lose(reason or PoolClosed("the pool is closed: make a new one"))
        thread = self.open_futures.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        if thread is None:
            self.open_futures.close()  # else the thread does, once it writes no more
        with self._lock:
            until = time.monotonic() + 1.0
            while self._leading and self._follow(until):
                pass
        self._close_channel()
        self._close_rings()

    def dispose(self) -> bool:
        """Close the socket of a connection that has ended, unless a thread still uses it; return whether it is closed."""
        if self._sending.acquire(blocking=False):
            try:
                with self._lock:
                    if self.lost is not None and not self._leading:
                        self._close_channel()
                        self._close_rings()
                        return True
            finally:
                self._sending.release()
        return False

    def _close_rings(self) -> None:
        self.rings.close()
        if self._calls is not None:
            self._calls.close()

    def _close_channel(self) -> None:
        self._channel.close()
        if self._arena >= 0:
            os.close(self._arena)
            self._arena = -1

    def leave_to_parent(self) -> None:
        """Give up a forked process's copy of the connection, without a message: the parent goes on with it.

        Call it in the forked process, before any other thread is started: the parent's threads may have held the locks.
        """
        self.inherited = True
        self.lost = PoolClosed("this connection belongs to the parent of this forked process")
        self._sending = threading.RLock()
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self.open_futures = OpenFutures(self._lock, self._answered, self._printed.stop)
        self._close_rings()
        self._calls = None
        # Not shut down: that would end the parent's connection too. Open, it would keep the parent's pool alive.
        self._close_channel()

    def _check(self) -> None:
        if self._process != own.process and not self.inherited:
            raise PoolClosed("this pool belongs to the parent of this forked process: make another pool here")
        if self.lost is not None:
            raise self.lost.copy()

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
                self._lose(coordinator_lost(self._loss(f"({error})")))
                self._check()
            except (ValueError, TypeError, OverflowError, ChannelFull) as error:
                raise PoolRefused(f"a request cannot be sent: {error}") from error
            finally:
                self._sender = 0

    def _make_room(self) -> None:
        """Wait until more can be sent, and read if no thread does: too many unread answers stop the coordinator's reads."""
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
                # Not in a function: an interruption before its first line would leave no thread that ever reads again.
                self._leading = False
                self._call_followers()

    def _until(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        """Wait until ``ready()`` or the connection's end; read while no other thread does. False after the deadline."""
        leads = False
        try:
            with self._lock:
                while self._leading:
                    if ready() or self.lost is not None:
                        return True
                    if not self._follow(deadline):
                        return False
                if ready() or self.lost is not None:
                    return True
                self._leading = leads = True
            while not ready() and self.lost is None:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._read(left)
            return True
        finally:
            if leads:
                # Not in a function: an interruption before its first line would leave no thread that ever reads again.
                self._leading = False
                self._call_followers()

    def _read(self, timeout: float | None) -> None:
        """Wait for a message, ``timeout`` seconds at most, and handle it. Only the leader calls this."""
        channel = self._channel
        calls = self._calls
        if calls is not None and calls.outstanding:
            if not self._wait_with_calls(calls, timeout):
                return
            timeout = 0.0
        elif timeout is not None:
            try:
                if not channel.wait(min(timeout, self._life.look_s)):
                    self._note_silence()
                    return
            except (OSError, ValueError):
                pass  # another thread has closed it: receive raises ChannelClosed
        channel.mark()
        try:
            message = channel.receive(block=timeout is None)
            if message is None:
                self._note_silence()
            else:
                self._life.note()
                self._take(message)
        except (ChannelClosed, MalformedMessage) as error:
            self._lose(coordinator_lost(self._loss(f"({error}); its lines on standard error say why")))
        except BaseException:
            if not channel.untouched:
                # The interruption may have lost a message, and the thread that waits for it would wait for ever.
                self._lose(PoolClosed("the pool was interrupted while it read an answer: make another pool"))
            raise
        if self._followers or self._resolvable:
            with self._lock:
                self._answered.notify_all()

    def _loss(self, otherwise: str) -> str:
        """Return the text of an error; ``otherwise`` says how the coordinator has ended, unless a signal is known."""
        how = self._ending()
        return (
            f"the coordinator has exited: it was {how}; make a new pool"
            if how
            else f"the coordinator has exited {otherwise}"
        )

    def _wait_with_calls(self, calls: CallRings, timeout: float | None) -> bool:
        """Wait for a message, or the end of a call on a ring; return whether there is a message."""
        look_s = self._life.look_s
        try:
            readable = calls.wait(self._channel.fileno(), look_s if timeout is None else min(timeout, look_s))
        except (OSError, ValueError):
            return True  # another thread has closed it: receive raises ChannelClosed
        if readable is None:
            self._note_silence()
        if not readable and (self._followers or self._resolvable):
            with self._lock:
                self._answered.notify_all()
        return bool(readable)

    def _note_silence(self) -> None:
        """Ask a coordinator that has been silent for a while for a sign of life; lose one that gives none."""
        if self._welcome is None:
            return  # its start has a bound of its own
        try:
            ask = self._life.must_ask()
        except TimeoutError as error:
            self._lose(coordinator_lost(str(error)))
            return
        if ask is not False:
            self.send_nowait([Kind.PING] if ask else None)  # None: the PING, if another thread was sending

    def _take(self, message: Message) -> None:
        kind = check_message(message)
        if kind is Kind.WELCOME:
            self._arena = self._channel.take_fd()
            self._welcome = message
            return
        if kind is Kind.PONG:
            return
        if kind in KINDS:
            self.rings.accept(message, self._channel)
            return
        if kind in _CALL_KINDS:
            self.calls.accept(message, self._channel)
            return
        if kind is Kind.BEGUN:
            begun = self._requests.get(message[1])
            if begun is not None and begun.begin is not None:
                begun.begin()
            return
        request = self._requests.get(message[1])
        calls = self._calls
        if request is None and calls is not None and (call := calls.find(message[1])) is not None:
            request = Request(None, partial(calls.answer, call))
            request.context = call.context
            if kind is not Kind.TEXT:
                call.handed = True
                self._resolvable.append((request, message))
                return
        if kind is Kind.TEXT:
            if self._printed.accept(message):
                self._resolvable.append((request or Request(), message))
            return
        if request is None:
            if kind is Kind.FAILED and self._welcome is None:
                # The coordinator could not start; it has numbered no request so.
                reason = error_from_wire(message[2])
                self._lose(reason if isinstance(reason, PoolClosed) else coordinator_lost(str(reason)))
            return
        if kind not in _INTERIM:
            with self._lock:
                del self._requests[message[1]]
                self._end_request(request, message)
        request.answers.append(message)

    def _end_request(self, request: Request, answer: Message) -> None:
        """Note the last answer to a request, with the lock held."""
        request.done = True
        if request.settle is not None:
            request.settle(answer)
        if request.resolve is not None:
            self._futures -= 1
            self._resolvable.append((request, answer))

    def _lose(self, reason: PoolClosed) -> None:
        with self._lock:
            if self.lost is not None:
                return
            self.lost = reason
            failed: Message = [Kind.FAILED, 0, reason.to_wire()]
            for request in self._requests.values():
                if request.resolve is not None:
                    self._resolvable.append((request, failed))
            self._requests.clear()
            self._futures = 0
            self._answered.notify_all()
        self._channel.shut_down()
        if self._calls is not None:
            self._calls.end(reason)
