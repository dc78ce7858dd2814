"""A ring: memory that one client and one worker share, through which runs reach the worker without the coordinator.

The client appends entries and counts them in `SUBMITTED`. The worker counts an entry in `TAKEN` before it executes it, and in
`DONE` after it has written its status. Each count is written by one side only, so after the death of either side the other
reads what happened: entries up to `DONE` are answered, one more may be half executed, the others were never begun.

A side that sleeps says so in its own words, so the other one rings its bell only then. The client may withdraw an entry
that the worker has not begun: each side writes its word first, then reads the other's, so one of them sees the other.

A client that publishes many entries may *defer* the bell: it counts that in `CLIENT_DEFERS`. A worker that sees another count
looks again by itself after some milliseconds, several times. The number of such a sleep is odd, of any other sleep even. The bell
may be deferred in an odd one only.

Guarantees: no content of the memory makes a worker raise anything but `MalformedRing`; an entry is copied before it is
checked. Limitation: a count is published by an aligned store of 8 bytes, which other cores see in order on x86-64 only.
"""

from __future__ import annotations

import _socket
import threading
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

#: Entries that a client may have submitted and not seen done.
CAPACITY: Final = 64
#: Inputs and outputs of a run together.
SLOTS_LIMIT: Final = 26

# Places in the memory, in words of 8 bytes. Words of different writers are a cache line of 64 bytes apart.
# Behind it: where the client ran, the entry whose end it sleeps for, and how often it deferred bells.
SUBMITTED: Final = 8  # client
_CLIENT_RAN: Final = 9
_CLIENT_SLEEPS: Final = 10
CLIENT_DEFERS: Final = 11
_TAKEN: Final = 16  # worker
DONE: Final = 24  # worker; behind it: where it ran, whether it sleeps, and how many entries it returned
_WORKER_RAN: Final = 25
WORKER_SLEEPS: Final = 26
_RETURNS: Final = 27
STATE: Final = 32  # worker
_ENTRIES: Final = 64  # client; sequence, ring, model, numbers of inputs and outputs, their slots
_ENTRY_WORDS: Final = 4 + 2 + SLOTS_LIMIT
STATUSES: Final = _ENTRIES + CAPACITY * _ENTRY_WORDS  # worker
_WITHDRAWN: Final = STATUSES + CAPACITY  # client; at the place of an entry its sequence, if it is withdrawn
NBYTES: Final = 8 * (_WITHDRAWN + CAPACITY)
#: The first word of the entry at each place, in words.
HEADS: Final = tuple(range(_ENTRIES, STATUSES, _ENTRY_WORDS))
_WORD: Final = 2**64 - 1
_ENTRY: Final = Struct(f"@{_ENTRY_WORDS}Q")
_SEQUENCE: Final = Struct("@Q")
_HEAD: Final = 6

#: States of a ring: a worker takes no entries while it is `PAUSED`, and returns those that it finds when that begins and ends.
OPEN: Final = 0
CHANGING: Final = 1
PAUSED: Final = 2

#: Statuses of an entry: it was executed; it was not, and never will be; it has failed, and the coordinator sends the error.
EXECUTED: Final = 1
RETURNED: Final = 2
FAILED: Final = 3

#: Flags of send(2) for a bell: neither a wait nor a signal. Members of an enumeration take 0.5 us to combine each time.
BELL: Final = int(_socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)

FENCE: Final = threading.Lock()


class MalformedRing(Exception):
    """A client wrote to a ring what no client of this protocol writes."""


class Entry(NamedTuple):
    """A run: its number in the ring, its model, and the offsets of its tensors."""

    sequence: int
    model: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Ring:
    """Ring ``number`` in ``buffer``, which has `NBYTES` bytes. This class only reads; its subclasses are the two sides."""

    def __init__(self, number: int, buffer: Any) -> None:
        self.number = number
        self._bytes = memoryview(buffer).cast("B")
        self._words = self._bytes[:NBYTES].cast("Q")

    @property
    def words(self) -> memoryview:
        """The words of the memory, for whoever counts nanoseconds."""
        return self._words

    @property
    def submitted(self) -> int:
        """Entries that the client has submitted."""
        return self._words[SUBMITTED]

    @property
    def taken(self) -> int:
        """Entries that the worker has begun."""
        return self._words[_TAKEN]

    @property
    def done(self) -> int:
        """Entries that have a status."""
        return self._words[DONE]

    @property
    def returned(self) -> int:
        """Entries that have a status and were not executed: withdrawn ones, and those that a pause returned."""
        return self._words[_RETURNS]

    @property
    def state(self) -> int:
        """`OPEN`, `CHANGING` or `PAUSED`."""
        return self._words[STATE]

    def model_of(self, sequence: int) -> int:
        """Return the model that an entry names; any number if its place is used again."""
        return self._words[_ENTRIES + (sequence - 1) % CAPACITY * _ENTRY_WORDS + 2]


class SubmittingRing(Ring):
    """The client's side. One thread at a time."""

    def __init__(self, number: int, buffer: Any) -> None:
        super().__init__(number, buffer)
        #: The worker's sleep that was rung for last. A compiled end writes it too.
        self._rung = array("q", (0,))
        #: By the sequence modulo `CAPACITY`: the number of the places whose entry is there, all but its sequence, or 0.
        self.writers = [0] * CAPACITY

    @property
    def rung_address(self) -> int:
        """The address of the number of the worker's sleep that was rung for last."""
        return self._rung.buffer_info()[0]

    def append(self, model: int, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        """Publish an entry and return its sequence. The caller leaves room (`CAPACITY`), and rings if `must_ring`."""
        words = self._words
        sequence = words[SUBMITTED] + 1
        start = _ENTRIES + (sequence - 1) % CAPACITY * _ENTRY_WORDS
        fields = array("Q", (sequence, self.number, model, len(inputs), len(outputs), 0, *inputs, *outputs))
        self.forget(sequence)
        words[start : start + len(fields)] = memoryview(fields)
        words[SUBMITTED] = sequence
        return sequence

    def forget(self, sequence: int) -> None:
        """Note that another entry is written at a place."""
        self.writers[sequence % CAPACITY] = 0

    def must_ring(self) -> int:
        """Return the number of the worker's sleep that must be ended, 0 for none. Call it after the append, and a `fence`."""
        sleep: int = self._words[WORKER_SLEEPS]
        return sleep if sleep != self._rung[0] else 0

    def note_rung(self, sleep: int) -> None:
        """Note that the bell was rung: after it, because an interrupt between the two must not leave the worker asleep."""
        self._rung[0] = sleep

    def status(self, sequence: int) -> int:
        """Return how an entry ended that is `done`."""
        return self._words[STATUSES + (sequence - 1) % CAPACITY]

    def withdraw(self, sequence: int) -> bool:
        """Withdraw an entry that is not `done`; return whether the worker will certainly not execute it.

        It may still return it, if False. It counts as done as ever in its turn.
        """
        self._words[_WITHDRAWN + (sequence - 1) % CAPACITY] = sequence
        fence()
        return self._words[_TAKEN] < sequence

    def sleep_until(self, sequence: int) -> bool:
        """Ask for a bell once an entry is done; False if the caller must not sleep. Call `awake` afterwards."""
        self._words[_CLIENT_SLEEPS] = sequence
        fence()
        return self._words[DONE] < sequence and self._words[STATE] == OPEN

    def awake(self) -> None:
        """Ask for no bell."""
        self._words[_CLIENT_SLEEPS] = 0

    def note_processor(self, processor: int) -> None:
        """Publish where this side runs, as `worker_ran`."""
        self._words[_CLIENT_RAN] = processor

    @property
    def worker_ran(self) -> int:
        """One more than the processor that the worker was last seen on; 0 if it does not say."""
        return self._words[_WORKER_RAN]


class ServingRing(Ring):
    """The worker's side. Its own count is kept in this process, so that the client cannot change it."""

    def __init__(self, number: int, buffer: Any) -> None:
        super().__init__(number, buffer)
        #: Entries that are done, twice the sleeps, the client's sleep that was rung for last, and the count of deferred bells
        #: that was seen last. A compiled loop counts here too.
        self._counts = array("q", (0, 0, 0, 0))

    @property
    def counts_address(self) -> int:
        """The address of this side's own counts, in the order of `ring_words`."""
        return self._counts.buffer_info()[0]

    @property
    def next_sequence(self) -> int:
        """The sequence of the entry that is taken next, or has been begun."""
        return self._counts[0] + 1

    @property
    def _count(self) -> int:
        return self._counts[0]

    @property
    def has_entries(self) -> bool:
        """Whether there is an entry to take."""
        return self._words[SUBMITTED] != self._count

    def take(self) -> Entry | None:
        """Return the next entry that is not withdrawn, None if there is none; its execution begins. Raises MalformedRing."""
        while (fields := self.copy_next()) is not None:
            entry = self.parse(fields)
            if self.begin():
                return entry
            self.complete(RETURNED)
        return None

    def copy_next(self) -> bytes | None:
        """Return a copy of the next entry, None if there is none. Raises MalformedRing for a wrong count or sequence."""
        waiting = self._words[SUBMITTED] - self._count
        if not waiting:
            return None
        if not 0 < waiting <= CAPACITY:
            raise MalformedRing(f"a ring with {waiting} entries")
        start = 8 * (_ENTRIES + self._count % CAPACITY * _ENTRY_WORDS)
        fields = bytes(self._bytes[start : start + _ENTRY.size])
        if _SEQUENCE.unpack_from(fields)[0] != self._count + 1:
            raise MalformedRing(f"another entry at the place of entry {self._count + 1} of ring {self.number}")
        return fields

    def parse(self, fields: bytes) -> Entry:
        """Return what `copy_next` has returned as an entry. Raises MalformedRing."""
        words = _ENTRY.unpack(fields)
        sequence, ring, model, inputs, outputs = words[:5]
        if ring != self.number:
            raise MalformedRing(f"an entry of ring {ring} on ring {self.number}")
        if inputs + outputs > SLOTS_LIMIT:
            raise MalformedRing(f"an entry with {inputs} inputs and {outputs} outputs")
        end = _HEAD + inputs
        return Entry(sequence, model, words[_HEAD:end], words[end : end + outputs])

    def begin(self) -> bool:
        """Count the next entry as begun; return False if it is withdrawn, and must not be executed."""
        words = self._words
        words[_TAKEN] = self._count + 1
        fence()
        return words[_WITHDRAWN + self._count % CAPACITY] != self._count + 1

    def complete(self, status: int) -> None:
        """Publish how the entry that was taken last has ended. The caller rings if `must_ring`."""
        words = self._words
        count = self._counts[0] = self._counts[0] + 1
        words[STATUSES + (count - 1) % CAPACITY] = status
        if status == RETURNED:
            words[_RETURNS] = words[_RETURNS] + 1 & _WORD
        words[_TAKEN] = words[DONE] = count

    def must_ring(self) -> bool:
        """Return whether the client sleeps for an entry that is done, and has not been rung for since."""
        fence()
        sleeps = self._words[_CLIENT_SLEEPS]
        if not sleeps or sleeps > self._count or sleeps == self._counts[2]:
            return False
        self._counts[2] = sleeps
        return True

    def sleep(self) -> bool:
        """Ask for a bell at the next entry; False if there is one already. Call `awake` afterwards."""
        self._counts[1] += 2
        self._words[WORKER_SLEEPS] = self._counts[1]
        fence()
        return self._words[SUBMITTED] == self._count

    def awake(self) -> None:
        """Ask for no bell."""
        self._words[WORKER_SLEEPS] = 0

    def note_processor(self, processor: int) -> None:
        """Publish where this side runs, as `client_ran`."""
        self._words[_WORKER_RAN] = processor

    @property
    def client_ran(self) -> int:
        """One more than the processor that the client was last seen on; 0 if it does not say."""
        return self._words[_CLIENT_RAN]

    def pause(self) -> bool:
        """Take no further entries until `resume`; return those that are waiting. Return whether there were any."""
        found = self._return_all()
        self._words[STATE] = PAUSED
        return found

    def resume(self) -> bool:
        """Return the entries that have come since `pause`, and take further ones. Return whether there were any."""
        found = self._return_all()
        self._words[STATE] = OPEN
        return found

    def _return_all(self) -> bool:
        # A client that publishes an entry after this scan sees the state and waits for the next one. So the scan looks at the
        # count once: a client that published one entry after the other would keep it going for ever.
        self._words[STATE] = CHANGING
        fence()
        waiting = self._words[SUBMITTED] - self._count
        if not 0 <= waiting <= CAPACITY:
            raise MalformedRing(f"a ring with {waiting} entries")
        for _ in range(waiting):
            self.complete(RETURNED)
        return waiting > 0


def fence() -> None:
    """Order the stores before this call before the loads after it: taking a free lock is a locked instruction."""
    if FENCE.acquire(False):
        FENCE.release()
    else:
        threading.Lock().acquire()
