"""The client's end of one ring of calls, and its calls. The caller locks."""

from __future__ import annotations

import _socket
import os
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from poolrt.priorities import OVERTAKEN_LIMIT, divide, find_place
from poolrt.workers.ipc.call_ring import CAPACITY, DONE, DOZES, PACE, SLEEPS, SUBMITTED, TAKEN_BACK, SubmittingCallRing
from poolrt.workers.ipc.channel import Channel, MalformedMessage
from poolrt.workers.ipc.ring import BELL
from poolrt.workers.memory.arena_view import ArenaView

from .ordered_queue import OrderedQueue
from .ring_call import RingCall

#: Calls that wait, in the order in which they came, or by their priorities.
Waiting: TypeAlias = "deque[RingCall] | OrderedQueue[RingCall]"
#: Seconds to wait for a worker that takes an entry while it is taken back: it needs some microseconds.
_TAKE_S: Final = 0.002
#: Entries between questions whether a dozing worker has many.
_ASKS: Final = 4
#: Nanoseconds of calls that a worker has before others get calls too, and so many calls.
_ENOUGH_NS: Final = 250_000
_NEARLY_FULL: Final = CAPACITY * 3 // 4
#: Bells that one call receives; they are equal.
_BELLS: Final = 256
#: Short calls beyond the one that is waited for that may end before the bell, and the nanoseconds that they may take.
_AHEAD: Final = 16
_AHEAD_NS: Final = 500_000


class ClientCallRing:
    """One ring to a worker. ``calls`` are the entries whose results were not read; None for one that was taken back."""

    __slots__ = ("bell", "calls", "functions", "lifted", "lifted_at", "number", "ring", "seen", "seen_at")

    def __init__(self, number: int, ring: SubmittingCallRing, bell: _socket.socket) -> None:
        self.number = number
        self.ring = ring
        self.bell = bell
        self.calls: deque[RingCall | None] = deque()
        #: Functions that may be called on it.
        self.functions: set[int] = set()
        #: How many entries its worker had begun when `CallRings` last looked whether it is held up, and since when.
        self.seen = -1
        self.seen_at = 0.0
        #: The same, when `lift_urgent` looked.
        self.lifted = -1
        self.lifted_at = 0.0

    def append(self, call: RingCall, waiting: Waiting) -> bool:
        """Submit a call, without waking the worker; False if there is no room.

        A call that `repair` finds unpublished comes back to ``waiting``.
        """
        ring, calls = self.ring, self.calls
        words = ring.words
        if len(calls) != words[SUBMITTED] - ring.consumed:
            self.repair(waiting)
        sequence = ring.append(call.number | call.plain, call.request, call.payload)
        if not sequence:
            return False
        call.sequence, call.ring = sequence, self
        calls.append(call)
        words[SUBMITTED] = sequence  # as `publish`
        return True

    def fill(self, waiting: Waiting, count: int) -> bool:
        """Submit up to ``count`` of the calls that wait, without waking the worker; False if there is no room for all.

        Those that it takes have a function that may be called here.
        """
        ring, calls, functions = self.ring, self.calls, self.functions
        words, append = ring.words, ring.append
        if len(calls) != words[SUBMITTED] - ring.consumed:
            self.repair(waiting)
        while count and waiting:
            call = waiting[0]
            number = call.number
            if call.ring is not None or number not in functions:
                break
            sequence = append(number | call.plain, call.request, call.payload)
            if not sequence:
                return False
            call.sequence, call.ring = sequence, self
            calls.append(call)
            words[SUBMITTED] = sequence  # as `publish`
            if waiting and waiting[0] is call:
                waiting.popleft()
            count -= 1
        return True

    def insert(self, call: RingCall, waiting: Waiting, priority: int) -> bool:
        """Submit a call before those of lower priorities that were not begun, without waking the worker; False without room.

        ``priority`` is the call's, or a higher one. The last of the others goes to ``waiting`` if the ring is full.
        """
        if len(self.calls) != self.ring.submitted - self.ring.consumed:
            self.repair(waiting)
        lower = self._lower_calls(priority)
        if not lower:
            return self.append(call, waiting)
        words = self.ring
        first, last = lower[0].sequence, words.submitted
        with deferred_interrupts():
            taken = words.hold(first, last)
            try:
                lower = [each for each in lower if each.sequence > taken]
                return self._insert_before(lower, call, waiting) if lower else self.append(call, waiting)
            finally:
                back = {at for at, each in enumerate(self.calls, words.consumed + 1) if each is None}
                words.release(range(first, last + 1), back)
                if words.words[SLEEPS]:
                    self.wake(waits=True)  # it has come to an entry that was held

    def count_before(self, priority: int) -> int:
        """Return how many calls the worker would end before a new one of a priority."""
        open_calls = [call for call in self.calls if call is not None]
        return len(open_calls) - len(self._lower_calls(priority))

    def next_call(self) -> RingCall | None:
        """Return the call that the worker begins next, None if there is none."""
        waiting = self._waiting_calls()
        return waiting[0] if waiting else None

    def _waiting_calls(self) -> list[RingCall]:
        taken = self.ring.taken
        return [call for call in self.calls if call is not None and call.sequence > taken]

    def _lower_calls(self, priority: int) -> list[RingCall]:
        """Return the calls before which a new one of a priority goes."""
        waiting = self._waiting_calls()
        return waiting[find_place(waiting, priority) :]

    def _insert_before(self, lower: list[RingCall], call: RingCall, waiting: Waiting) -> bool:
        """Write a call and those of lower priority in their order, to the places of these, which are held, and one more."""
        words, calls = self.ring, self.calls
        first, last = lower[0].sequence, words.submitted
        place = words.reserve(call.payload)
        if place < 0:
            return False
        # Those that were taken back leave room.
        has_room = last - words.consumed < CAPACITY or len(lower) <= last - first
        if not has_room and all(each.overtaken >= OVERTAKEN_LIMIT for each in lower):
            return False
        before, behind = divide(lower)
        left_out = None if has_room else behind.pop()
        former = [each.sequence for each in (*before, *behind)]
        index = first - words.consumed - 1
        for at in range(index, len(calls)):
            calls[at] = None  # those that were taken back before remain so
        for sequence, each in enumerate((*before, call, *behind), first):
            at = sequence - words.consumed - 1
            if at == len(calls):
                calls.append(each)
            else:
                calls[at] = each
            each.sequence, each.ring = sequence, self
        if left_out is not None:
            left_out.ring = None
            waiting.appendleft(left_out)
        words.rearrange(first, former, len(before), call.number | call.plain, call.request, place, call.payload)
        return True

    @property
    def goes_on(self) -> bool:
        """Whether a further call is done sooner here than by a worker that may sleep: this one calls short functions in a row.

        To wake another worker takes as long as some ten of them, and often takes the processor from this thread.
        """
        words = self.ring.words
        sleeps = words[SLEEPS]
        ahead = words[SUBMITTED] - words[DONE]
        return (
            len(self.calls) < _NEARLY_FULL
            and 0 < words[PACE] * (ahead + 1) < _ENOUGH_NS
            and (not sleeps or sleeps >= DOZES)
        )

    @property
    def is_full(self) -> bool:
        """Whether there is no room for a further entry."""
        return self.ring.submitted - self.ring.consumed >= CAPACITY

    def holds(self, call: RingCall) -> bool:
        """Return whether a call is published here."""
        return call in self.calls and call.sequence <= self.ring.submitted

    def wake(self, *, waits: bool) -> None:
        """Ring if the worker sleeps; if it dozes, only for a client that ``waits``, or many entries."""
        rung = False
        try:
            if self.ring.must_ring(waits=waits):
                self.bell.send(b"\0", BELL)
            rung = True
        except OSError:
            rung = True  # it has bells to receive, or has exited, which the coordinator says
        finally:
            if not rung:
                self.ring.ring_again()  # an interrupt

    def wake_after_submission(self) -> None:
        """Ring if the worker sleeps. One that dozes wakes up by itself: whether it has many entries is asked now and then."""
        words = self.ring.words
        if words[SLEEPS] < DOZES or not words[SUBMITTED] % _ASKS:
            self.wake(waits=False)

    def take_bells(self) -> bool:
        """Receive the bells of the worker; False if it has exited."""
        try:
            return bool(self.bell.recv(_BELLS, _socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def set_alarm(self, target: RingCall | None, *, waits: bool, ahead: bool = False) -> bool:
        """Ask the worker for a bell: after the next call, or for the sake of ``target``; ``waits``: other calls wait for room.

        With ``ahead``, the bell may come some short calls after the target, so that one wake-up brings many results. Return
        whether it does.
        """
        consumed, submitted = self.ring.consumed, self.ring.submitted
        further = 0
        if target is None:
            at = consumed + 1
        elif target.ring is self:
            at = target.sequence
            if ahead and (pace := self.ring.pace):
                further = max(0, min(_AHEAD, (submitted - at) // 2, _AHEAD_NS // pace))
                at += further
        else:
            # Half of its calls, if others wait for room; or all, to get some of another worker's.
            at = (consumed + submitted + 1) // 2 if waits else submitted
        self.ring.sleep_until(max(at, consumed + 1))
        self.wake(waits=True)  # the worker dozes, or an interrupt has come between an entry and its bell
        return further > 0

    def repair(self, waiting: Waiting) -> None:
        """Repair what an interrupt has left: a call that was not published waits again, one that was read is gone."""
        extra = len(self.calls) - (self.ring.submitted - self.ring.consumed)
        if extra <= 0:
            return
        last = self.calls[-1]
        if last is not None and last.ring is self and last.sequence > self.ring.submitted:
            self.calls.pop()
            last.ring = None
            if last not in waiting:
                waiting.appendleft(last)
        else:
            self.calls.popleft()

    def has_begun(self, call: RingCall) -> bool:
        """Return whether the worker has begun a call whose result was not read."""
        words, sequence = self.ring, call.sequence
        return words.begun >= sequence and (words.done < sequence or words.outcome(sequence)[0] != TAKEN_BACK)

    def leave_calls(self) -> tuple[list[RingCall], list[RingCall]]:
        """Return the calls that the worker, which has exited, had begun, and those that it had not; the ring has none then."""
        begun = self.ring.begun
        calls = [call for call in self.calls if call is not None]
        for call in calls:
            call.ring = None
        self.calls.clear()
        return [call for call in calls if call.sequence <= begun], [call for call in calls if call.sequence > begun]

    def take_back(self, call: RingCall) -> bool:
        """Take a call back; return whether it will not be begun."""
        words, sequence = self.ring, call.sequence
        if words.begun >= sequence:
            return False
        if not words.take_back(range(sequence, sequence + 1)):
            # The worker is taking it at this moment, and decides.
            until = time.monotonic() + _TAKE_S
            while words.begun < sequence and time.monotonic() < until:
                time.sleep(0.00002)
            if words.done < sequence or words.outcome(sequence)[0] != TAKEN_BACK:
                return False
        self.calls[sequence - words.consumed - 1] = None
        return True


def has_results(rings: Iterable[ClientCallRing]) -> bool:
    """Return whether there are results to read."""
    found = False
    for ring in rings:
        found |= ring.ring.done != ring.ring.consumed
    return found


def open_ring(number: int, channel: Channel) -> ClientCallRing | None:
    """Return a ring whose descriptors have come on a channel; None if this process cannot have it."""
    try:
        memory, bell = channel.take_fd(), channel.take_fd()
    except MalformedMessage:
        return None  # this process can have no more descriptors
    sock = _socket.socket(fileno=bell)
    try:
        view = ArenaView(memory)
    except OSError:
        sock.close()
        return None
    finally:
        os.close(memory)
    return ClientCallRing(number, SubmittingCallRing(number, view.buffer(0, view.nbytes)), sock)
