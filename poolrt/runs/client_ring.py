"""The client's end of one ring: entries in flight, the threads that wait for them, and their worker's exit.

One of the waiting threads, the leader, waits for the worker, and ends all entries that are done. Another thread follows it when
it has what it waits for.

Guarantees: an entry is executed once, or its caller learns that it was not and never will be, or may have been begun by a
worker that has exited. Its slots are not used again before.
"""

from __future__ import annotations

import _socket
import select
import struct
import threading
import time
import weakref
from _thread import LockType, allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from poolrt.workers.ipc.processors import Spin
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.ipc.ring import (
    BELL,
    CAPACITY,
    CHANGING,
    DONE,
    OPEN,
    PAUSED,
    RETURNED,
    SUBMITTED,
    SubmittingRing,
    fence,
)
from poolrt.workers.kernels.native import ring_words

from .early_bell import EarlyBell
from .held_up import Progress, relieve, withdraw_waiting
from .ring_entry import RingEntry
from .ring_watcher import RingWatcher

if TYPE_CHECKING:
    from poolrt.connection.client import Client

    from .loaded_model import LoadedModel
    from .placed_runs import PlacedRun, PlacedRuns
    from .ring_ends import CompiledEnd, RingEnds

#: Seconds between looks at the coordinator's messages: a worker's end of a bell may outlive it in a process that it forked.
_LOOK_S: Final = 0.1
#: Seconds between looks at a state that changes: the worker needs some microseconds.
_CHANGE_S: Final = 0.00005
#: Seconds between looks whether another thread still leads: an interrupt may have ended it.
_FOLLOW_S: Final = 0.25
_BELLS: Final = 256
#: Nanoseconds between messages to the coordinator that only wake it.
_TELL_NS: Final = 1_000_000_000


class ClientRing:
    """One ring to a worker. Safe for use by several threads."""

    __slots__ = (
        "__weakref__",
        "_address",
        "_bell",
        "_ring",
        "_spin",
        "_told_at",
        "compiled",
        "early_bell",
        "errors",
        "followers",
        "held_at",
        "leading",
        "lock",
        "lost",
        "models",
        "newest",
        "number",
        "progress",
        "under_way",
        "watcher",
        "words",
        "writers",
    )

    def __init__(self, number: int, ring: SubmittingRing, address: int, bell: _socket.socket, spin: Spin) -> None:
        bell.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, struct.pack("@ll", 0, int(_LOOK_S * 1e6)))
        self.number = number
        #: Models that may be run on it.
        self.models: set[int] = set()
        #: Errors of entries by sequence.
        self.errors: dict[int, dict[str, Any]] = {}
        #: Whether its worker has exited.
        self.lost = False
        #: How far its worker was when it was found to be held up, -1 before: others are preferred as long as it is there.
        self.held_at = -1
        self.progress = Progress()
        self.early_bell = EarlyBell()
        self._ring = ring
        #: The words of its memory, and `SubmittingRing.writers`, for runs in prepared places.
        self.words = ring.words
        self.writers = ring.writers
        self._address = address
        self._bell = bell
        self._spin = spin
        self._told_at = -_TELL_NS
        #: What submits and waits without the interpreter, once it is there.
        self.compiled: CompiledEnd | None = None
        # A lost ring is closed once no thread uses it.
        weakref.finalize(self, bell.close).atexit = False
        #: Held while entries are published, and while they end.
        self.lock = threading.Lock()
        #: Entries that have not ended, in the order of their sequence.
        self.under_way: deque[RingEntry | PlacedRuns] = deque()
        #: The entry that was submitted last, if that was not long ago.
        self.newest: RingEntry | PlacedRuns | None = None
        #: Resolves futures that no thread waits for, but that have callbacks.
        self.watcher = RingWatcher(self)
        #: Whether a thread waits for the worker, which others follow.
        self.leading = False
        self.followers: deque[tuple[RingEntry | PlacedRun, LockType]] = deque()

    @property
    def load(self) -> int:
        """The number of entries that the worker has not done; more than fit if it is held up."""
        words = self.words
        done: int = words[DONE]
        found: int = words[SUBMITTED] - done
        return found + CAPACITY if found and done == self.held_at else found

    @property
    def count(self) -> int:
        """A number that grows with each entry that the worker begins or ends."""
        return self._ring.taken + self._ring.done

    @property
    def has_waiting(self) -> bool:
        """Whether there are entries that the worker has not begun, though it does not pause."""
        ring = self._ring
        return ring.submitted > ring.taken and ring.state == OPEN and not self.lost

    @property
    def is_compiled(self) -> bool:
        """Whether it waits without the interpreter."""
        return self.compiled is not None

    def take_ends(self, ends: RingEnds) -> None:
        """Submit and wait without the interpreter from now on."""
        from .ring_ends import CompiledEnd

        self.compiled = CompiledEnd(ends, self._ring, self._address, self._bell.fileno(), self._spin.microseconds)

    def is_open(self) -> bool:
        """Return whether entries can probably be submitted."""
        ring = self._ring
        return not self.lost and ring.state == OPEN and ring.submitted - ring.done < CAPACITY

    def submit(self, entry: RingEntry) -> bool:
        """Submit an entry and wake the worker; False if there is no room, or the worker takes none at the moment.

        After an interrupt the entry may have been submitted: call `withdraw`.
        """
        ring = self._ring
        with self.lock:
            self.trim()
            self.reap()
            if not self.is_open():
                return False
            entry.ring = self
            entry.sequence = ring.submitted + 1
            self.under_way.append(entry)
            self.newest = None
            if self.compiled is not None:
                ring.forget(entry.sequence)
                self.compiled.submit(entry.sequence, entry.model, entry.inputs, entry.outputs)
                return True
            if self._spin:
                ring.note_processor(self._spin.here())
            ring.append(entry.model, entry.inputs, entry.outputs)
            self.wake()
        return True

    def trim(self) -> None:
        """Forget what an interrupt has kept from being published, with the lock held."""
        submitted = self._ring.submitted
        while self.under_way and self.under_way[-1].sequence > submitted:
            if not self.under_way[-1].unpublish(submitted):
                return
            self.under_way.pop()

    def drop(self, runs: PlacedRuns) -> None:
        """Forget runs, all of which have ended or are withdrawn, with the lock held."""
        runs.end(RETURNED)
        self.under_way.remove(runs)

    def wake(self) -> None:
        """Wake the worker if it sleeps."""
        fence()
        self.ring_bell()

    def tell(self, client: Client, now_ns: int) -> None:
        """Wake the coordinator, unless it was a moment ago; ``now_ns`` is a time of `time.perf_counter_ns`.

        One that rests looks at rings every 10 s only, and the limit of a run begins with a look. Call it in long waits, and where
        runs begin that perhaps no thread waits for.
        """
        if now_ns - self._told_at >= _TELL_NS:
            self._told_at = now_ns
            client.send_nowait([Kind.PING])

    def ring_bell(self) -> int:
        """Ring if the worker sleeps and was not rung for since; return the number of this sleep, else 0."""
        if sleep := self._ring.must_ring():
            self._send_bell()
            self._ring.note_rung(sleep)
        return sleep

    def count_runs(self, loaded: LoadedModel) -> int:
        """Return how many of `PlacedRuns` of a model that is being closed are under way: each says so at its end."""
        with self.lock:
            self.trim()
            self.reap()
            return sum(entry.count_for(loaded) for entry in self.under_way)

    def wait(self, entry: RingEntry | PlacedRun, client: Client, deadline: float | None = None, ahead: int = 0) -> None:
        """Wait until an entry has ended. Raises TimeoutError after the deadline, and PoolClosed if the connection ends.

        The wait may last until so many entries ``ahead`` have ended too, if they are submitted.
        """
        while not entry.status:
            leads = False
            gate: LockType | None = None
            try:
                with self.lock:
                    self.reap()
                    if entry.ended:
                        return
                    target = min([entry.sequence, *(each.sequence for each, _ in self.followers if not each.ended)])
                    if ahead and not self.followers:
                        target = min(target + ahead, self._ring.submitted)
                    if self.leading:
                        gate = allocate_lock()
                        gate.acquire()
                        entry.gates.append(gate)
                        self.followers.append((entry, gate))
                    # A leader leaves without the lock, then looks for followers: it has not seen this one if it has left.
                    if not self.leading:
                        if gate is not None:
                            self.followers.pop()
                            gate = None
                        self.leading = leads = True
                if gate is None:
                    self._await(target, client, deadline)
                else:
                    _follow(gate, deadline)
            finally:
                if leads:
                    # Not in a function: an interrupt before its first line would leave no thread that ever leads again.
                    self.leading = False
                    self.call_follower()

    def look(self) -> None:
        """End the entries that are done."""
        with self.lock:
            self.reap()

    def withdraw(self, entry: RingEntry) -> bool:
        """Withdraw an entry; return whether no worker has executed it or ever will."""
        with self.lock:
            self.reap()
            if not entry.status:
                if entry not in self.under_way:
                    entry.end(RETURNED)  # an interrupt came before it was submitted
                elif self.withdraw_at(entry.sequence):
                    entry.end(RETURNED)
                    self.under_way.remove(entry)
            return entry.status == RETURNED

    def withdraw_at(self, sequence: int) -> bool:
        """Withdraw the entry of a number, with the lock held; return whether no worker will execute it."""
        return sequence > self._ring.submitted or self._ring.withdraw(sequence)

    def note_held_up(self) -> None:
        """Prefer other rings from now on, until the worker ends an entry."""
        self.held_at = self._ring.done

    def probe(self) -> None:
        """Have the worker end an entry that it does not execute, because it is withdrawn before it is published."""
        ring = self._ring
        with self.lock:
            self.trim()
            self.reap()
            if not self.is_open():
                return
            self.newest = None
            ring.withdraw(ring.submitted + 1)
            ring.append(0, (), ())
            self.wake()

    def withdraw_waiting(self) -> None:
        """Withdraw entries that the worker, which is held up, has not begun: half of them while it executes one."""
        with self.lock:
            self.trim()
            self.reap()
            taken = self._ring.taken
            withdraw_waiting(self, taken, half=taken > self._ring.done)
            self._call_ended()

    def has_begun(self, entry: RingEntry | PlacedRun) -> bool:
        """Return whether the worker has begun an entry."""
        return entry.status not in (0, RETURNED) or self._ring.taken >= entry.sequence

    def abandon(self, entry: RingEntry) -> None:
        """Wait no longer for an entry: its slots are used again when no worker can write to them."""
        with self.lock:
            entry.abandon()

    def give_up(self, sequence: int, client: Client) -> None:
        """Let the coordinator know that the caller of an entry waits no longer: its worker has little time for the rest."""
        client.send_nowait([Kind.GIVE_UP, 0, self.number, sequence])

    def end(self) -> None:
        """Note that the worker has exited."""
        with self.lock:
            self.lost = True
            self.reap()
            taken = self._ring.taken
            while self.under_way:
                self.under_way[0].lose(taken)
                self.under_way.popleft()
            self._call_ended()

    def close(self) -> None:
        """Close the bell."""
        if self.compiled is not None:
            self.compiled.close()
        self._bell.close()

    def reap(self) -> None:
        """End the entries that are done, with the lock held; while the worker pauses, all: it returns what it finds."""
        ring, waiting = self._ring, self.under_way
        if not waiting:
            return
        paused = ring.state == PAUSED
        done = ring.done
        while waiting and (paused or waiting[0].sequence <= done):
            entry = waiting[0]
            entry.end(ring.status(entry.sequence) if entry.sequence <= done else RETURNED)
            waiting.popleft()
        if waiting:
            waiting[0].note_done()
        self._call_ended()

    def _call_ended(self) -> None:
        """Let the threads go on whose entries have ended, with the lock held."""
        for entry, gate in self.followers:
            if gate.locked() and entry.ended:
                gate.release()

    def call_follower(self) -> None:
        """Let a thread lead whose entry has not ended."""
        with self.lock:
            self.reap()
            while self.followers:
                entry, gate = self.followers.popleft()
                if gate.locked():
                    gate.release()
                if not entry.ended:
                    return

    def _send_bell(self) -> None:
        try:
            self._bell.send(b"\0", BELL)
        except OSError:
            pass  # the worker has bells to receive, or has exited, which the wait finds

    def _await(self, target: int, client: Client, deadline: float | None) -> None:
        """Wait until an entry is done or something else has changed; some milliseconds may pass in vain."""
        ring = self._ring
        if self.compiled is not None and (deadline is None or deadline - time.monotonic() > _LOOK_S):
            self.handle(self.compiled.wait(target), target, client, deadline)
            return
        if self._spin and self._spin.until(lambda: ring.done >= target, lambda: ring.worker_ran):
            return
        if ring.state == CHANGING:
            self._wait_for_state(client, deadline)
            return
        try:
            if ring.sleep_until(target):
                self._wait_for_bell(target, client, deadline)
        finally:
            ring.awake()

    def handle(self, outcome: int, target: int, client: Client, deadline: float | None) -> None:
        """Do what the end of a compiled wait asks for."""
        if outcome == ring_words.PASSED:
            self._look_around(client)
        elif outcome == ring_words.CLOSED:
            self._wait_for_loss(target, client, deadline)
        elif outcome == ring_words.ENDED and self._ring.state == CHANGING:
            self._wait_for_state(client, deadline)

    def _wait_for_bell(self, target: int, client: Client, deadline: float | None) -> None:
        try:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                if left < _LOOK_S and not self._is_readable(left):
                    return
            if self._bell.recv(_BELLS):
                return
        except BlockingIOError:
            self._look_around(client)
            if not self.lost:
                return
        except TimeoutError:
            raise
        except OSError:
            pass
        self._wait_for_loss(target, client, deadline)

    def _look_around(self, client: Client) -> None:
        """Read the coordinator's messages, and ring again: an interrupt may have kept a thread from it."""
        client.look()
        self.tell(client, time.perf_counter_ns())
        if not self.lost:
            self._send_bell()
            relieve(self, client.rings.all, client)

    def _wait_for_loss(self, target: int, client: Client, deadline: float | None) -> None:
        """Wait for the message that the worker has exited, whose end of the bell is closed."""
        if self._ring.done < target:
            client.wait_while(lambda: not self.lost, deadline)

    def _is_readable(self, seconds: float) -> bool:
        """Wait for a bell; return whether there is one."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _wait_for_state(self, client: Client, deadline: float | None) -> None:
        """Wait until the worker has paused or resumed. One that has exited never does."""
        for _ in range(1000):
            if self._ring.state != CHANGING:
                return
            time.sleep(_CHANGE_S)
        client.look()
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError


def _follow(gate: LockType, deadline: float | None) -> None:
    """Wait until the thread's entry has ended or the thread should lead. Raises TimeoutError after the deadline."""
    left = _FOLLOW_S if deadline is None else min(_FOLLOW_S, deadline - time.monotonic())
    if left <= 0:
        raise TimeoutError
    gate.acquire(timeout=left)
