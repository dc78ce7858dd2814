"""A ring: memory that one client and one worker share, through which runs reach the worker without the coordinator.

The client appends entries and counts them in `SUBMITTED`. The worker counts an entry in `TAKEN` before it executes it, and in
`DONE` after it has written its status. Each count is written by one side only, so after the death of either side the other
reads what happened: entries up to `DONE` are answered, one more may be half executed, the others were never begun.

Guarantees: no content of the memory makes a worker raise anything but `MalformedRing`; an entry is copied before it is
checked. Limitation: a count is published by an aligned store of 8 bytes, which other cores see in order on x86-64 only.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

#: Entries that a client may have submitted and not seen done.
CAPACITY: Final = 64
#: Inputs and outputs of a run together.
SLOTS_LIMIT: Final = 26

# Places in the memory, in words of 8 bytes. Words of different writers are a cache line of 64 bytes apart.
_SUBMITTED: Final = 8  # client
_TAKEN: Final = 16  # worker
_DONE: Final = 24  # worker
_STATE: Final = 32  # worker
_ENTRIES: Final = 64  # client; sequence, ring, model, numbers of inputs and outputs, their slots
_ENTRY_WORDS: Final = 4 + 2 + SLOTS_LIMIT
_STATUSES: Final = _ENTRIES + CAPACITY * _ENTRY_WORDS  # worker
NBYTES: Final = 8 * (_STATUSES + CAPACITY)
_ENTRY: Final = Struct(f"@{_ENTRY_WORDS}Q")
_HEAD: Final = 6

#: States of a ring: a worker takes no entries while it is `PAUSED`, and returns those that it finds when that begins and ends.
OPEN: Final = 0
CHANGING: Final = 1
PAUSED: Final = 2

#: Statuses of an entry: it was executed; it was not, and never will be; it has failed, and the coordinator sends the error.
EXECUTED: Final = 1
RETURNED: Final = 2
FAILED: Final = 3

_FENCE: Final = threading.Lock()


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
    def submitted(self) -> int:
        """Entries that the client has submitted."""
        return self._words[_SUBMITTED]

    @property
    def taken(self) -> int:
        """Entries that the worker has begun."""
        return self._words[_TAKEN]

    @property
    def done(self) -> int:
        """Entries that have a status."""
        return self._words[_DONE]

    @property
    def state(self) -> int:
        """`OPEN`, `CHANGING` or `PAUSED`."""
        return self._words[_STATE]

    def model_of(self, sequence: int) -> int:
        """Return the model that an entry names; any number if its place is used again."""
        return self._words[_ENTRIES + (sequence - 1) % CAPACITY * _ENTRY_WORDS + 2]


class SubmittingRing(Ring):
    """The client's side. One thread at a time."""

    def append(self, model: int, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        """Publish an entry and return its sequence. The caller leaves room (`CAPACITY`), and wakes the worker."""
        words = self._words
        sequence = words[_SUBMITTED] + 1
        start = _ENTRIES + (sequence - 1) % CAPACITY * _ENTRY_WORDS
        fields = array("Q", (sequence, self.number, model, len(inputs), len(outputs), 0, *inputs, *outputs))
        words[start : start + len(fields)] = memoryview(fields)
        words[_SUBMITTED] = sequence
        return sequence

    def status(self, sequence: int) -> int:
        """Return how an entry ended that is `done`."""
        return self._words[_STATUSES + (sequence - 1) % CAPACITY]


class ServingRing(Ring):
    """The worker's side. Its own count is kept in this process, so that the client cannot change it."""

    def __init__(self, number: int, buffer: Any) -> None:
        super().__init__(number, buffer)
        self._count = 0

    @property
    def has_entries(self) -> bool:
        """Whether there is an entry to take."""
        return self._words[_SUBMITTED] != self._count

    def take(self) -> Entry | None:
        """Return the next entry, None if there is none; its execution begins. Raises MalformedRing."""
        entry = self._next()
        if entry is not None:
            self._words[_TAKEN] = entry.sequence
        return entry

    def complete(self, status: int) -> None:
        """Publish how the entry that was taken last has ended. The caller wakes the client."""
        words = self._words
        self._count += 1
        words[_STATUSES + (self._count - 1) % CAPACITY] = status
        words[_TAKEN] = words[_DONE] = self._count

    def pause(self) -> bool:
        """Take no further entries until `resume`; return those that are waiting. Return whether there were any."""
        found = self._return_all()
        self._words[_STATE] = PAUSED
        return found

    def resume(self) -> bool:
        """Return the entries that have come since `pause`, and take further ones. Return whether there were any."""
        found = self._return_all()
        self._words[_STATE] = OPEN
        return found

    def _return_all(self) -> bool:
        # A client that publishes an entry after this scan sees the state and waits for the next one.
        self._words[_STATE] = CHANGING
        fence()
        found = False
        while self.has_entries:
            self._check_count()
            self.complete(RETURNED)
            found = True
        return found

    def _check_count(self) -> None:
        waiting = self._words[_SUBMITTED] - self._count
        if not 0 <= waiting <= CAPACITY:
            raise MalformedRing(f"a ring with {waiting} entries")

    def _next(self) -> Entry | None:
        if not self.has_entries:
            return None
        self._check_count()
        start = 8 * (_ENTRIES + self._count % CAPACITY * _ENTRY_WORDS)
        fields = _ENTRY.unpack(bytes(self._bytes[start : start + _ENTRY.size]))
        sequence, ring, model, inputs, outputs = fields[:5]
        if sequence != self._count + 1 or ring != self.number:
            raise MalformedRing(f"entry {sequence} of ring {ring} at the place of entry {self._count + 1}")
        if inputs + outputs > SLOTS_LIMIT:
            raise MalformedRing(f"an entry with {inputs} inputs and {outputs} outputs")
        end = _HEAD + inputs
        return Entry(sequence, model, fields[_HEAD:end], fields[end : end + outputs])


def fence() -> None:
    """Order the stores before this call before the loads after it: taking a free lock is a locked instruction."""
    if _FENCE.acquire(blocking=False):
        _FENCE.release()
