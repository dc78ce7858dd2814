"""The client's ends of rings of calls: functions that a worker calls without a message to the coordinator.

`CallRings` keeps the rings of one connection, and all calls on them until they have ended. The thread that waits for a call
drives them: it reads results, sends calls that wait for room, and moves calls from a worker that is held up to an idle one. The
thread of futures does that if a future has callbacks, or nothing has been driven for a while.

Guarantees: a function is called once, or not at all; after the exit of its worker only the call that was begun raises
WorkerLost. Memory tells the truth: an interrupt at any place leaves a state that the next call of a method repairs.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from poolrt.connection.futures import FOREIGN
from poolrt.errors import CoordinatorLoss, PoolClosed, error_from_wire
from poolrt.workers.ipc.call_ring import BY_MESSAGE, CLIENT_RAN, RETURNED_PLAIN, SLEEPS, TAKEN_BACK
from poolrt.workers.ipc.channel import Channel, Message
from poolrt.workers.ipc.processors import find_processor
from poolrt.workers.ipc.protocol import SCALARS, Kind

from .bells import Bells
from .call_balance import HELD_S, has_calls_to_move, take_from_busy
from .call_placement import choose_ring, place_waiting
from .client_call_ring import ClientCallRing, Waiting, has_results, open_ring
from .drive_watch import DriveWatch
from .ended_calls import EndedCalls
from .ordered_queue import OrderedQueue
from .outcomes import not_called_twice
from .result_rooms import ResultRooms
from .ring_call import RingCall
from .wake_ups import wake_all

if TYPE_CHECKING:
    from poolrt.connection.futures_thread import FuturesThread

#: Milliseconds to wait at most for calls after the one that is waited for.
_AHEAD_MS: Final = 1


class CallRings:
    """The rings of calls of one connection. Several threads may use it."""

    def __init__(self, client: FuturesThread) -> None:
        self._client = client
        #: Sends calls by messages that no ring takes any more. It is called without a lock.
        self.resend: Callable[[list[RingCall]], None] = lambda calls: None
        #: Called once calls have ended, or are taken back, without a lock.
        self.leave: Callable[[], None] = lambda: None
        self._forget = client.open_futures.forget_call
        self.rooms = ResultRooms()
        self._rings: dict[int, ClientCallRing] = {}
        #: How many processors this process had when the last ring came.
        self._processors = 1
        self._bells = Bells()
        # Held while rings and queues change; never while code of a user runs.
        self._lock = threading.Lock()
        #: Calls that wait for room on a ring.
        self._waiting: Waiting = deque()
        self._order: OrderedQueue[RingCall] | None = None
        #: The ring that got the last single call, and the function of that.
        self._last: ClientCallRing | None = None
        self._last_function = 0
        #: Calls whose result was read, or that were lost, until they are settled.
        self._ended = EndedCalls(client, self._lock)
        #: Calls that have ended meanwhile, which `_take_spent` returns.
        self._spent: list[RingCall] = []
        #: Calls whose outcome follows in a message, by request.
        self._by_message: dict[int, RingCall] = {}
        self._requests = itertools.count(2**40)
        #: Calls that the thread of futures has to resolve.
        self._wanted: set[RingCall] = set()
        self.watch = DriveWatch()
        #: Whether a thread sleeps in `wait`.
        self._polling = False
        self._target: RingCall | None = None
        #: Whether calls have ended since `leave` was called.
        self._left = False

    @property
    def exist(self) -> bool:
        """Whether there are rings."""
        return bool(self._rings)

    @property
    def under_way(self) -> int:
        """Calls that have not ended, roughly."""
        queued = len(self._waiting) + len(self._by_message)
        for ring in [*self._rings.values()]:
            queued += len(ring.calls)
        return queued

    @property
    def outstanding(self) -> int:
        """Calls that are not settled."""
        return self.under_way + len(self._ended.calls)

    def keep_order(self) -> None:
        """Give calls to workers in order of priority from now on."""
        with self._lock:
            if self._order is None:
                self._waiting = self._order = OrderedQueue(self._waiting)

    def functions_used(self) -> set[int]:
        """Return the functions of calls that have not ended."""
        with self._lock:
            calls = [call for ring in self._rings.values() for call in ring.calls if call is not None]
            return {call.number for call in (*calls, *self._waiting)}

    def submit(self, call: RingCall) -> bool:
        """Give a call to the worker with the shortest queue, or let it wait; False if no ring takes its function.

        A row of short calls stays with one worker, as long as that keeps up.
        """
        with self._lock:
            waiting = self._waiting
            ring = self._last
            if ring is None or call.number != self._last_function or not ring.goes_on:
                ring = self._last = choose_ring(self._rings.values(), call.number)
                self._last_function = call.number
            if ring is None:
                return False
            call.request = next(self._requests)
            call.rings = self
            future = call.future
            if future is not None:
                future.driver = call
            if waiting or self._order is not None:
                waiting.append(call)
                if self._order is not None or not ring.is_full:
                    place_waiting(self._rings.values(), waiting, self._processors)
            elif not ring.append(call, waiting):
                waiting.append(call)
            if waiting and self._polling:
                self._set_alarms()
        # The lock that was released is a barrier: the entry was stored before this sleep is loaded.
        if ring.ring.words[SLEEPS]:
            ring.wake_after_submission()
        return True

    def submit_all(self, calls: list[RingCall]) -> bool:
        """Give calls of one function, without futures, to workers, evenly; False if no ring takes the function.

        Not all workers are woken: call `wake_workers` after the last calls.
        """
        with self._lock:
            ring = choose_ring(self._rings.values(), calls[0].number)
            if ring is None:
                return False
            for call in calls:
                call.request = next(self._requests)
                call.rings = self
            self._waiting.extend(calls)
            if self._order is not None or not ring.is_full:
                place_waiting(self._rings.values(), self._waiting, self._processors, later=True)
            if self._polling and self._waiting:
                self._set_alarms()
        return True

    def wake_workers(self) -> None:
        """Wake the workers that have calls; call it after the last `submit_all`."""
        with self._lock:
            wake_all(self._rings.values())

    def unpark(self) -> None:
        """Let the thread of futures look after calls; call it after `submit`, without a lock."""
        if self.watch.parked and self.outstanding:
            self._client.wake_thread()

    def collect(self) -> bool:
        """Read the results that are there, settle their calls, and place others; return whether any has ended."""
        self.watch.drives += 1
        here = find_processor()
        with self._lock:
            for ring in self._rings.values():
                ring.ring.words[CLIENT_RAN] = here
                if ring.ring.done != ring.ring.consumed:
                    self._read(ring)
            if self._waiting or (len(self._rings) > 1 and take_from_busy(self._rings.values(), self._waiting)):
                place_waiting(self._rings.values(), self._waiting, self._processors)
            spent = self._take_spent()
        del spent
        found = self._ended.settle()
        return self._leave() or found

    def settle(self, call: RingCall) -> None:
        """Settle a call by itself."""
        call.settle()
        self._leave()

    def _leave(self) -> bool:
        """Let other calls go on if some have ended; return whether any have. Not with the lock held."""
        if not self._left:
            return False
        self._left, called = False, False
        try:
            self.leave()
            called = True
        finally:
            self._left = self._left or not called
        return True

    def drive(self, call: RingCall, deadline: float | None) -> None:
        """Return once a call has ended, or at a deadline."""
        if self._client.inherited:
            raise PoolClosed(FOREIGN)
        self.watch.adopted = False
        self.collect()
        while not call.is_over:
            self._target = call
            if self._polling:
                with self._lock:
                    self._set_alarms()
                    ready = has_results(self._rings.values())
                if ready:
                    self.collect()
                    continue
            if not self._client.wait_for(call, deadline) or call.is_over:
                return  # the thread that has ended it has placed others
            self.collect()

    def wait_settled(self, call: RingCall, deadline: float | None) -> None:
        """Wait for a call that another thread settles. Raises TimeoutError after the deadline."""
        if not self._client.wait_for(call, deadline, settled=True):
            raise TimeoutError

    def wait(self, channel: int, timeout: float | None) -> bool | None:
        """Wait for results, or a message at ``channel``; return whether there is a message, None at the end of ``timeout``.

        The thread that leads the connection calls this.
        """
        if self.collect():
            return False
        try:
            with self._lock:
                self._polling = True
                ahead = self._set_alarms(ahead=True)
                self._bells.watch(channel)
                if has_results(self._rings.values()):
                    return False
                if has_calls_to_move(self._rings.values(), self._waiting):
                    timeout = HELD_S if timeout is None else min(timeout, HELD_S)
            limit = None if timeout is None else max(0.0, timeout) * 1000
            found = self._bells.wait(_AHEAD_MS) if ahead else []
            if ahead and not found:
                with self._lock:
                    self._set_alarms()
                    if has_results(self._rings.values()):
                        return False
            found = found or self._bells.wait(limit)
        finally:
            self._polling = False
        if not found:
            return None
        readable = False
        for fd in found:
            readable |= self._bells.take(fd)
        self.collect()
        return readable

    def want(self, call: RingCall) -> None:
        """Let the thread of futures resolve a call."""
        self._wanted.add(call)
        if call.ended:
            self._wanted.discard(call)
            return
        if self._polling:
            # This thread may hold locks of futures, as `concurrent.futures.wait` does, so it settles none.
            with self._lock:
                self._set_alarms()
                if has_results(self._rings.values()):
                    self._bells.call()
        self._client.wake_thread()

    def note_ended(self, call: RingCall) -> None:
        """Count a call that has ended."""
        self._left = True
        if self._wanted:
            self._wanted.discard(call)
        if self._target is call:
            self._target = None  # its future has the result, which may be memory of the arena
        self._forget(call.future or call)

    def needs_thread(self, followers: int) -> bool:
        """Return whether the thread of futures has to drive: for callbacks, or because no other thread does."""
        if not self.outstanding:
            self.watch.adopted = False
            return False
        return bool(self._wanted) or (self.watch.adopted and not followers)

    def next_look(self) -> float | None:
        """Return the seconds until the thread of futures looks again; None: only when it is called."""
        return self.watch.next_look(lambda: self.outstanding)

    def look(self) -> None:
        """Let the thread of futures drive if no other thread does."""
        self.watch.look(outstanding=self.outstanding > 0, waits=self._polling)

    def take_back(self, call: RingCall) -> bool:
        """Take a call back; return whether no worker has begun it or will. It is not settled then."""
        if self._client.inherited:
            return False  # the memory of its ring is the parent's too
        self.collect()
        with self._lock:
            if call.ended or call.request in self._by_message or call in self._ended.calls:
                return False
            ring = call.ring
            if ring is None:
                if call not in self._waiting:
                    return False
                self._waiting.remove(call)
            elif not ring.take_back(call):
                return False
            call.ring = None
            call.handed = True
        self._bells.call()  # a thread may wait for it
        self._wanted.discard(call)
        call.free()
        self.leave()
        self._client.open_futures.forget(call.known_as)
        return True

    def has_begun(self, call: RingCall) -> bool:
        """Return whether a worker has begun a call that has not ended."""
        with self._lock:  # it may go to another ring
            ring = call.ring
            return ring is not None and not call.ended and bool(ring.has_begun(call))

    def find(self, request: int) -> RingCall | None:
        """Return the call of a request whose text or outcome comes in messages."""
        found = self._by_message.get(request)
        if found is None:
            with self._lock:
                calls = [call for ring in self._rings.values() for call in ring.calls]
            found = next((call for call in calls if call is not None and call.request == request), None)
        return found

    def answer(self, call: RingCall, message: Message) -> None:
        """Settle a call by the message of its outcome. The thread of futures calls this, after what the function has printed."""
        with self._lock:
            self._by_message.pop(call.request, None)
            call.message = message
        self.settle(call)
        self._client.wake_thread()

    def accept(self, message: Message, channel: Channel) -> None:
        """Handle a message about rings. The thread that reads the connection calls this."""
        kind, number = message[:2]
        if kind == Kind.CALL_RING:
            self._add(number, channel)
            return
        if kind == Kind.RESULT_ROOM:
            self.rooms.note(number, message[2])
            return
        ring = self._rings.get(number)
        if ring is None:
            return
        if kind == Kind.CALLABLE:
            ring.functions.add(message[2])
        elif kind == Kind.CALL_RING_FIRST:
            with self._lock:
                self._rings = {number: ring, **self._rings}
                self._last = None
        else:
            self._lose(ring, message[2])

    def discard(self, function: int) -> None:
        """Call a function no more, which has no calls under way."""
        for ring in [*self._rings.values()]:
            ring.functions.discard(function)
        self._last = None

    def end(self, error: PoolClosed) -> None:
        """Fail all calls, except those whose results are there. The connection has ended."""
        failure = not_called_twice(error) if isinstance(error, CoordinatorLoss) else error
        with self._lock:
            lost: list[RingCall] = []
            for ring in self._rings.values():
                self._read(ring)
                lost += [call for call in ring.calls if call is not None]
            for call in [*lost, *self._waiting, *self._by_message.values()]:
                call.fail(failure)
                self._ended.calls.append(call)
            for ring in self._rings.values():
                ring.calls.clear()
                ring.functions.clear()
            self._last = None
            self._waiting.clear()
            self._by_message.clear()
            spent = self._take_spent()
        del spent
        self._ended.settle()
        self._leave()

    def close(self) -> None:
        """Close all bells, without a lock: in a forked process another thread may have held it."""
        for ring in [*self._rings.values()]:
            ring.bell.close()
        self._rings = {}
        self._bells.close()

    def _add(self, number: int, channel: Channel) -> None:
        if (ring := open_ring(number, channel)) is None:
            return
        with self._lock:
            if self._bells.add(ring):
                self._processors = len(os.sched_getaffinity(0))
                self._rings = {**self._rings, number: ring}

    def _read(self, ring: ClientCallRing) -> None:
        """Read all results of a ring, with the lock held."""
        words, calls, forget = ring.ring, ring.calls, self._forget
        if len(calls) != words.submitted - words.consumed:
            ring.repair(self._waiting)
        done, outcome, consume = words.done, words.outcome, words.consume
        while (consumed := words.consumed) < done and calls:
            sequence = consumed + 1
            call = calls[0]
            # An interrupt may have ended this after any line: a call whose ring is another one was handled already.
            if call is not None and call.ended:
                forget(call.known_as)
            elif call is not None and call.ring is ring:
                status, value = outcome(sequence)
                if status == RETURNED_PLAIN and call.plain & SCALARS and call.end_plain(value):
                    # No code of a user ran, and no other thread waits: all that `settle` would do is this.
                    if self._target is call:
                        self._target = None
                    self._left = True
                    self._spent.append(call)
                    forget(call.future or call)
                elif status == TAKEN_BACK:
                    if call not in self._waiting:
                        self._waiting.appendleft(call)
                elif status == BY_MESSAGE:
                    if call.message is None:
                        self._by_message[call.request] = call
                else:
                    call.status, call.value = status, value
                    self._ended.calls.append(call)
                call.ring = None
            consume(sequence)
            calls.popleft()

    def _take_spent(self) -> list[RingCall]:
        """Return the calls that `_read` has ended, with the lock held; the caller lets go of them without it.

        Then code of a user may run: they have the values of context variables, and futures that nothing else may refer to.
        """
        spent, self._spent = self._spent, []
        return spent

    def _lose(self, ring: ClientCallRing, error: dict[str, Any]) -> None:
        """Handle the exit of a worker: its results are kept, one call has failed, and the others go to other workers."""
        with self._lock:
            self._rings = {number: each for number, each in self._rings.items() if each is not ring}
            self._last = None
            self._bells.forget(ring)
            self._read(ring)
            begun, back = ring.leave_calls()
            for call in begun:
                call.fail(error_from_wire(error))
                self._ended.calls.append(call)
            self._waiting.extendleft(reversed(back))
            homeless = [call for call in self._waiting if choose_ring(self._rings.values(), call.number) is None]
            for call in homeless:
                self._waiting.remove(call)
            place_waiting(self._rings.values(), self._waiting, self._processors)
            spent = self._take_spent()
        del spent
        ring.bell.close()
        self._leave()
        if homeless:
            self.resend(homeless)

    def _set_alarms(self, *, ahead: bool = False) -> bool:
        """Ask workers for bells, with the lock held: when the call is done that is waited for, or the next one is.

        With ``ahead``, some short calls may end before the bell; return whether they do.
        """
        target = self._target
        soon = target is None or target.ended or bool(self._wanted) or self.watch.adopted or self._client.has_followers
        later = False
        for ring in self._rings.values():
            if ring.calls and ring.set_alarm(None if soon else target, waits=bool(self._waiting), ahead=ahead):
                later = True
        return later
