"""The client's end of one ring: entries in flight, the threads that wait for them, and their worker's exit.

One of the waiting threads, the leader, waits for the worker, and ends all entries that are done. Another thread follows it when
it has what it waits for.

Guarantees: an entry is executed once, or its caller learns that it was not and never will be, or may have been begun by a
worker that has exited. Its slots are not used again before.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
import weakref
from _thread import LockType, allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from poolrt.workers.ipc.processors import Spin
from poolrt.workers.ipc.ring import (
    CAPACITY,
    CHANGING,
    DONE,
    EXECUTED,
    OPEN,
    PAUSED,
    RETURNED,
    STATE,
    SUBMITTED,
    SubmittingRing,
    fence,
)
from poolrt.workers.kernels.native import ring_words

from .ring_entry import LOST, RingEntry
from .ring_watcher import RingWatcher

if TYPE_CHECKING:
    from .client import Client
    from .loaded_model import LoadedModel
    from .prepared_run import PreparedRun
    from .ring_ends import CompiledEnd, RingEnds

#: Seconds between looks at the coordinator's messages: a worker's end of a bell may outlive it in a process that it forked.
_LOOK_S: Final = 0.1
#: Seconds between looks at a state that changes: the worker needs some microseconds.
_CHANGE_S: Final = 0.00005
#: Seconds between looks whether another thread still leads: an interrupt may have ended it.
_FOLLOW_S: Final = 0.25
_BELLS: Final = 256
#: Entries between looks at the coordinator's messages, which waits that end soon never read.
_GLANCE: Final = 64


class ClientRing:
    """One ring to a worker. Safe for use by several threads."""

    __slots__ = (
        "__weakref__",
        "_address",
        "_bell",
        "_end",
        "_followers",
        "_leading",
        "_lock",
        "_ring",
        "_spin",
        "_words",
        "errors",
        "lost",
        "models",
        "number",
        "under_way",
        "watcher",
    )

    def __init__(self, number: int, ring: SubmittingRing, address: int, bell: socket.socket, spin: Spin) -> None:
        bell.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, int(_LOOK_S * 1e6)))
        self.number = number
        #: Models that may be run on it.
        self.models: set[int] = set()
        #: Errors of entries by sequence.
        self.errors: dict[int, dict[str, Any]] = {}
        #: Whether its worker has exited.
        self.lost = False
        self._ring = ring
        self._words = ring.words
        self._address = address
        self._bell = bell
        self._spin = spin
        #: What submits and waits without the interpreter, once it is there.
        self._end: CompiledEnd | None = None
        # A lost ring is closed once no thread uses it.
        weakref.finalize(self, bell.close).atexit = False
        self._lock = threading.Lock()
        #: Entries that have not ended, in the order of their sequence.
        self.under_way: deque[RingEntry | PreparedRun] = deque()
        #: Resolves futures that no thread waits for, but that have callbacks.
        self.watcher = RingWatcher(self)
        self._leading = False
        self._followers: deque[tuple[RingEntry | PreparedRun, LockType]] = deque()

    def __len__(self) -> int:
        """Return the number of entries in flight."""
        return len(self.under_way)

    def take_ends(self, ends: RingEnds) -> None:
        """Submit and wait without the interpreter from now on."""
        from .ring_ends import CompiledEnd

        self._end = CompiledEnd(ends, self._ring, self._address, self._bell.fileno(), self._spin.microseconds)

    def is_open(self) -> bool:
        """Return whether entries can probably be submitted."""
        ring = self._ring
        return not self.lost and ring.state == OPEN and ring.submitted - ring.done < CAPACITY

    def submit(self, entry: RingEntry) -> bool:
        """Submit an entry and wake the worker; False if there is no room, or the worker takes none at the moment.

        After an interrupt the entry may have been submitted: call `withdraw`.
        """
        ring = self._ring
        with self._lock:
            while self.under_way and self.under_way[-1].sequence > ring.submitted:
                self.under_way.pop().end(RETURNED)  # an interrupt came before it was published
            self._reap()
            if not self.is_open():
                return False
            entry.ring = self
            entry.sequence = ring.submitted + 1
            self.under_way.append(entry)
            if self._end is not None:
                self._end.submit(entry.sequence, entry.model, entry.inputs, entry.outputs)
                return True
            if self._spin:
                ring.note_processor(self._spin.here())
            ring.append(entry.model, entry.inputs, entry.outputs)
            self.wake()
        return True

    def perform(self, run: PreparedRun, loaded: LoadedModel) -> bool:
        """Submit a prepared run and wait for its end; False, and nothing is done, while the ring is used otherwise or not open.

        Stores from Python are in order, and the compiled wait has a barrier before it looks whether the worker sleeps. After an
        interrupt the entry may have been submitted: call `withdraw`.
        """
        end, words = self._end, self._words
        if end is None:
            return False
        leads = False
        try:
            with self._lock:
                if self._leading or self.under_way or self.lost or loaded.closing or words[STATE] != OPEN:
                    return False
                sequence = words[SUBMITTED] + 1
                if sequence - words[DONE] > CAPACITY:
                    return False  # withdrawn entries have filled it
                self._leading = leads = True
                run.keeper, run.ring, run.sequence = loaded, self, sequence
                self.under_way.append(run)
                self._ring.publish(sequence, run.fields)
            while True:
                outcome = end.wait(sequence)
                with self._lock:
                    if words[DONE] < sequence or self._followers:
                        self._reap()
                    elif not run.status:
                        status = self._ring.status(sequence)
                        if status == EXECUTED and not run.counted:
                            run.status, run.keeper = status, None  # as `end`
                        else:
                            run.end(status)
                        self.under_way.popleft()
                    if run.status:
                        if not self._followers:
                            self._leading = leads = False
                        break
                self._handle(outcome, sequence, loaded.client, None)
        finally:
            if leads:
                self._leading = False
                self._call_follower()
        if not sequence % _GLANCE:
            loaded.client.glance()
        return True

    def publish(self, run: PreparedRun, loaded: LoadedModel) -> bool:
        """Submit a prepared run without waking the worker; False if there is no room, or the ring is not open. Call `wake`."""
        words = self._words
        with self._lock:
            sequence = words[SUBMITTED] + 1
            if self.under_way and self.under_way[-1].sequence >= sequence:
                self.under_way.pop().end(RETURNED)  # an interrupt came before it was published
            if self._end is None or self.lost or loaded.closing or words[STATE] != OPEN:
                return False
            if sequence - words[DONE] > CAPACITY:
                return False
            run.keeper, run.ring, run.sequence = loaded, self, sequence
            self.under_way.append(run)
            self._ring.publish(sequence, run.fields)
        return True

    def wake(self) -> None:
        """Wake the worker if it sleeps."""
        fence()
        if sleep := self._ring.must_ring():
            self._send_bell()
            self._ring.note_rung(sleep)

    def count_runs(self, loaded: LoadedModel) -> int:
        """Return how many prepared runs of a model that is being closed are under way: each says so at its end."""
        found = 0
        with self._lock:
            for entry in self.under_way:
                if entry.keeper is not None and entry.keeper is loaded and not entry.counted:
                    entry.counted = True
                    found += 1
        return found

    def wait(
        self, entry: RingEntry | PreparedRun, client: Client, deadline: float | None = None, ahead: int = 0
    ) -> None:
        """Wait until an entry has ended. Raises TimeoutError after the deadline, and PoolClosed if the connection ends.

        The wait may last until so many entries ``ahead`` have ended too, if they are submitted.
        """
        sequence = entry.sequence
        while not entry.status and entry.sequence == sequence:  # a prepared run may be in use again
            leads = False
            gate: LockType | None = None
            try:
                with self._lock:
                    self._reap()
                    if entry.ended or entry.sequence != sequence:
                        return
                    target = (self.under_way[0] if self._followers else entry).sequence
                    if ahead and not self._followers:
                        target = min(target + ahead, self._ring.submitted)
                    if self._leading:
                        gate = allocate_lock()
                        gate.acquire()
                        entry.gates.append(gate)
                        self._followers.append((entry, gate))
                    else:
                        self._leading = leads = True
                if gate is None:
                    self._await(target, client, deadline)
                else:
                    _follow(gate, deadline)
            finally:
                if leads:
                    # Not in a function: an interrupt before its first line would leave no thread that ever leads again.
                    self._leading = False
                    self._call_follower()

    def look(self) -> None:
        """End the entries that are done."""
        with self._lock:
            self._reap()

    def withdraw(self, entry: RingEntry | PreparedRun) -> bool:
        """Withdraw an entry; return whether no worker has executed it or ever will."""
        with self._lock:
            self._reap()
            if not entry.status:
                if entry not in self.under_way:
                    entry.end(RETURNED)  # an interrupt came before it was submitted
                elif entry.sequence > self._ring.submitted or self._ring.withdraw(entry.sequence):
                    entry.end(RETURNED)
                    self.under_way.remove(entry)
            return entry.status == RETURNED

    def oldest(self) -> RingEntry | PreparedRun | None:
        """Return the entry that has been in flight for longest, None if there is none."""
        with self._lock:
            return self.under_way[0] if self.under_way else None

    def has_begun(self, entry: RingEntry | PreparedRun) -> bool:
        """Return whether the worker has begun an entry."""
        return entry.status not in (0, RETURNED) or self._ring.taken >= entry.sequence

    def abandon(self, entry: RingEntry | PreparedRun) -> None:
        """Wait no longer for an entry: its slots are used again when no worker can write to them."""
        with self._lock:
            entry.abandon()

    def end(self) -> None:
        """Note that the worker has exited."""
        with self._lock:
            self.lost = True
            self._reap()
            taken = self._ring.taken
            while self.under_way:
                entry = self.under_way[0]
                entry.end(LOST if entry.sequence <= taken else RETURNED)
                self.under_way.popleft()

    def close(self) -> None:
        """Close the bell."""
        if self._end is not None:
            self._end.close()
        self._bell.close()

    def _reap(self) -> None:
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

    def _call_follower(self) -> None:
        """Let a thread lead whose entry has not ended."""
        with self._lock:
            self._reap()
            while self._followers:
                entry, gate = self._followers.popleft()
                if not entry.status:
                    if gate.locked():
                        gate.release()
                    return

    def _send_bell(self) -> None:
        try:
            self._bell.send(b"\0", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass  # the worker has bells to receive, or has exited, which the wait finds

    def _await(self, target: int, client: Client, deadline: float | None) -> None:
        """Wait until an entry is done or something else has changed; some milliseconds may pass in vain."""
        ring = self._ring
        if self._end is not None and (deadline is None or deadline - time.monotonic() > _LOOK_S):
            self._handle(self._end.wait(target), target, client, deadline)
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

    def _handle(self, outcome: int, target: int, client: Client, deadline: float | None) -> None:
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
        if not self.lost:
            self._send_bell()

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
