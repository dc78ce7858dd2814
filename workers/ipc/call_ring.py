"""A call ring: memory that one client and one worker share, through which calls of functions reach the worker.

An entry names a function, and its arguments are bytes in the ring; so is the result. If they are short, they are beside the
entry's numbers, which needs one copy and no table of the bytes in use. The client counts entries in `SUBMITTED`. The worker
counts an entry in `TAKEN`, then in `BEGUN` before it calls the function, and in `DONE` after it has written the result. Each
word has one writer, so after the death of either side the other one reads what happened: entries up to `DONE` are answered,
one more may have been begun, and the others were never begun.

The client takes an entry back by writing its sequence to a word beside it, then reading `TAKEN`. The worker writes `TAKEN`, then
reads that word. Both order the store before the load (`fence`), so at least one of them sees the other: an entry that was not
taken when the client looked is never begun.

To change the order of entries, the client *holds* them in the same way: it writes their sequences with `_HELD` to these words.
A worker that comes to a held entry has none: it corrects `TAKEN`, and goes on to other work or to sleep. So entries behind
`TAKEN` stay where they are while the client writes others to their places, and a later one never begins before an earlier one.

A side sleeps in the same way: it writes that it does, then looks once more, and the other one rings its bell only if it sees
that. A worker that had many entries first *dozes*: it wakes by itself after `DOZE_S` seconds, so the client rings only if it
waits, or has many entries for it.

Guarantees: no content of the memory makes a worker raise anything but `MalformedRing`; the worker reads each word once, and
copies arguments before they are used. Limitation: as for the rings of runs, counts are seen in order on x86-64 only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from struct import Struct
from typing import Any, Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from .ring import FENCE, MalformedRing, fence

#: Entries that a client may have submitted and not seen done.
CAPACITY: Final = 64
#: Bytes for the arguments of all entries, and for their results.
DATA_BYTES: Final = 128 * 1024
#: Longest arguments, and longest result, of an entry, in bytes; others go by messages.
INLINE_BYTES: Final = 16 * 1024

# Places in the memory, in words of 8 bytes. Words of different writers are a cache line of 64 bytes apart.
# Of the client; behind it: the entries whose results it has read, the one whose end it sleeps for, and one more than the
# processor it was on.
SUBMITTED: Final = 8
_CONSUMED: Final = 9
WAKE_AT: Final = 10
CLIENT_RAN: Final = 11
# Of the worker; behind it: the entries that it has begun, has ended, and the number of its sleep, 0 if awake; then the
# nanoseconds of each of the last calls.
_TAKEN: Final = 16
_BEGUN: Final = 17
DONE: Final = 18
SLEEPS: Final = 19
PACE: Final = 20
# Of the client: at the place of an entry its sequence, if it is taken back or held.
_BACK: Final = 64
# Of the client: sequence, function, request, start and size of its arguments, short arguments.
_ENTRIES: Final = _BACK + CAPACITY
_ENTRY_WORDS: Final = 16
_RESULTS: Final = _ENTRIES + CAPACITY * _ENTRY_WORDS  # worker; status, start and size of the result, a short result
_RESULT_WORDS: Final = 16
_ARGUMENTS: Final = 8 * (_RESULTS + CAPACITY * _RESULT_WORDS)  # client, in bytes
_VALUES: Final = _ARGUMENTS + DATA_BYTES  # worker, in bytes
NBYTES: Final = _VALUES + DATA_BYTES
#: Bytes of short arguments, and of a short result.
_SHORT_ARGUMENTS: Final = 8 * (_ENTRY_WORDS - 5)
_SHORT_RESULT: Final = 8 * (_RESULT_WORDS - 3)
_ENTRY: Final = Struct(f"@5Q{_SHORT_ARGUMENTS}s")
_RESULT: Final = Struct(f"@3Q{_SHORT_RESULT}s")
_write_entry, _read_entry, _write_result, _read_result = (
    _ENTRY.pack_into,
    _ENTRY.unpack_from,
    _RESULT.pack_into,
    _RESULT.unpack_from,
)
#: Where an entry and its result begin, in bytes, by the remainder of its sequence: looked up in half the time.
_ENTRY_PLACES: Final = [8 * (_ENTRIES + (at - 1) % CAPACITY * _ENTRY_WORDS) for at in range(CAPACITY)]
_RESULT_PLACES: Final = [8 * (_RESULTS + (at - 1) % CAPACITY * _RESULT_WORDS) for at in range(CAPACITY)]

#: Statuses of an entry: the function has returned a value, or has raised; it was not called, and never will be; its outcome
#: follows in messages; or it has returned a value that is loaded without code of a user, which nothing else refers to.
RETURNED: Final = 1
RAISED: Final = 2
TAKEN_BACK: Final = 3
BY_MESSAGE: Final = 4
RETURNED_PLAIN: Final = 5
#: The longest doze of a worker, in seconds; so many entries end it, or those that take so many nanoseconds.
DOZE_S: Final = 0.001
_MANY: Final = 16
_LONG_NS: Final = 100_000
#: Added to the number of a sleep that is a doze.
DOZES: Final = 2**62
#: Added to the sequence of an entry that the client may be about to move.
_HELD: Final = 2**63


class CallEntry(NamedTuple):
    """A call: its number in the ring, the client's numbers of its function and of the request, and the pickled arguments."""

    sequence: int
    function: int
    request: int
    arguments: bytes


class _Space:
    """The bytes of one direction, used in order. ``begin`` and ``end`` count all bytes that were ever used."""

    __slots__ = ("begin", "end", "used")

    def __init__(self) -> None:
        self.begin = 0
        self.end = 0
        #: For each entry with bytes that are in use: its sequence and its end.
        self.used: deque[tuple[int, int]] = deque()

    def take(self, sequence: int, nbytes: int) -> int:
        """Return where ``nbytes`` for an entry begin, -1 if there is no room."""
        end = self.end
        start = end % DATA_BYTES
        if start + nbytes > DATA_BYTES:
            end += DATA_BYTES - start
            start = 0
        end += nbytes
        if end - self.begin > DATA_BYTES:
            return -1
        self.end = end
        self.used.append((sequence, end))
        return start

    def keep_until(self, first: int, sequence: int) -> None:
        """Keep the bytes of entries from ``first`` on until a later one ends: they may change places."""
        self.used = deque((sequence if each >= first else each, end) for each, end in self.used)

    def free(self, sequence: int) -> None:
        """Use the bytes of entries up to one again."""
        used = self.used
        while used and used[0][0] <= sequence:
            self.begin = used.popleft()[1]


class CallRing:
    """Call ring ``number`` in ``buffer``, which has `NBYTES` bytes. This class only reads; its subclasses are the two sides."""

    def __init__(self, number: int, buffer: Any) -> None:
        self.number = number
        self._bytes = memoryview(buffer).cast("B")[:NBYTES]
        #: The words of the memory, for a few steps that each call takes elsewhere.
        self.words = self._words = self._bytes[:_ARGUMENTS].cast("Q")

    @property
    def submitted(self) -> int:
        """Entries that the client has submitted."""
        return self._words[SUBMITTED]

    @property
    def taken(self) -> int:
        """Entries that the worker has looked at."""
        return self._words[_TAKEN]

    @property
    def begun(self) -> int:
        """Entries whose function the worker has called, or which were taken back."""
        return self._words[_BEGUN]

    @property
    def done(self) -> int:
        """Entries that have ended."""
        return self._words[DONE]

    @property
    def pace(self) -> int:
        """Nanoseconds that each of the worker's last calls has taken, 0 before the first ones."""
        return self._words[PACE]


class SubmittingCallRing(CallRing):
    """The client's side. One thread at a time."""

    def __init__(self, number: int, buffer: Any) -> None:
        super().__init__(number, buffer)
        self._space = _Space()
        self._rung = 0
        #: Entries whose results were read.
        self.consumed = 0

    def append(self, function: int, request: int, arguments: bytes) -> int:
        """Write an entry and return its sequence, 0 if there is no room. `publish` makes it visible."""
        sequence = self._words[SUBMITTED] + 1
        if sequence - self.consumed > CAPACITY:
            return 0
        nbytes = len(arguments)
        place = _ENTRY_PLACES[sequence % CAPACITY]
        if nbytes <= _SHORT_ARGUMENTS:
            _write_entry(self._bytes, place, sequence, function, request, 0, nbytes, arguments)
            return sequence
        start = self._space.take(sequence, nbytes)
        if start < 0:
            return 0
        self._bytes[_ARGUMENTS + start : _ARGUMENTS + start + nbytes] = arguments
        _ENTRY.pack_into(self._bytes, place, sequence, function, request, start, nbytes, b"")
        return sequence

    def publish(self, sequence: int) -> None:
        """Let the worker see entries up to one. The caller rings if `must_ring`."""
        self._words[SUBMITTED] = sequence

    def must_ring(self, *, waits: bool = True) -> bool:
        """Return whether the worker sleeps and has not been rung for since.

        A client that does not wait lets it doze, unless it has many entries for it.
        """
        fence()
        words = self._words
        sleeps = words[SLEEPS]
        if not sleeps or sleeps == self._rung:
            return False
        if not waits and sleeps & DOZES:
            count = words[SUBMITTED] - words[_BEGUN]
            if count < _MANY and count * words[PACE] < _LONG_NS:
                return False
        self._rung = sleeps
        return True

    @property
    def dozes(self) -> bool:
        """Whether the worker wakes by itself within `DOZE_S` seconds, if it sleeps."""
        return self._words[SLEEPS] >= DOZES

    @property
    def is_awake(self) -> bool:
        """Whether the worker is awake, or was rung for."""
        return self._words[SLEEPS] in (0, self._rung)

    def ring_again(self) -> None:
        """Note that the bell may not have been rung."""
        self._rung = 0

    def take_back(self, sequences: range) -> int:
        """Take entries back that have not ended; return how many of the last ones will certainly not be begun.

        Each other one may end in either way.
        """
        words = self._words
        for sequence in sequences:
            words[_BACK + (sequence - 1) % CAPACITY] = sequence
        fence()
        return max(0, min(len(sequences), sequences.stop - 1 - words[_TAKEN]))

    def reserve(self, arguments: bytes) -> int:
        """Return a place for the arguments of a further entry before others, -1 without room; call `rearrange` with it."""
        if len(arguments) <= _SHORT_ARGUMENTS:
            return 0
        start = self._space.take(self._words[SUBMITTED], len(arguments))
        if start >= 0:
            self._bytes[_ARGUMENTS + start : _ARGUMENTS + start + len(arguments)] = arguments
        return start

    def hold(self, first: int, last: int) -> int:
        """Stop the worker at entries from ``first`` to ``last``; return the last one that it may have taken. Call `release` then.

        Entries behind that one are certain not to begin before.
        """
        words = self._words
        for sequence in range(first, last + 1):
            words[_BACK + (sequence - 1) % CAPACITY] = sequence | _HELD
        fence()
        return words[_TAKEN]

    def release(self, sequences: range, taken_back: Container[int]) -> None:
        """Let the worker go on with entries that it was stopped at, except those that are taken back. The caller rings."""
        # The first one last: the worker begins none of them until all are released.
        for sequence in reversed(sequences):
            self._words[_BACK + (sequence - 1) % CAPACITY] = sequence if sequence in taken_back else 0

    def rearrange(
        self, first: int, former: Sequence[int], at: int, function: int, request: int, start: int, arguments: bytes
    ) -> None:
        """Write those entries at ``first`` and behind it that were at ``former``, and a new one behind ``at`` of them.

        All places are held, and the worker has taken none of them. The last one may be further than any was submitted.
        """
        words = self._words
        size = 8 * _ENTRY_WORDS
        bodies = [bytes(self._bytes[place + 8 : place + size]) for place in map(_place_of, former)]
        short = arguments if len(arguments) <= _SHORT_ARGUMENTS else b""
        bodies.insert(at, _ENTRY.pack(0, function, request, start, len(arguments), short)[8:])
        for sequence, body in enumerate(bodies, first):
            place = _place_of(sequence)
            words[place // 8] = sequence
            self._bytes[place + 8 : place + size] = body
        last = first + len(former)
        self._space.keep_until(first, max(last, words[SUBMITTED]))
        if last > words[SUBMITTED]:
            words[SUBMITTED] = last

    def sleep_until(self, sequence: int) -> None:
        """Ask for a bell once an entry has ended; 0: for none. The caller looks at `done` once more before it sleeps."""
        self._words[WAKE_AT] = sequence
        fence()

    def outcome(self, sequence: int) -> tuple[int, bytes]:
        """Return the status of an entry that is `done` and was not consumed, and its result."""
        status, start, nbytes, short = _read_result(self._bytes, _RESULT_PLACES[sequence % CAPACITY])
        if nbytes <= _SHORT_RESULT:
            return status, short[:nbytes]
        start += _VALUES
        return status, self._bytes[start : start + nbytes].tobytes()

    def consume(self, sequence: int) -> None:
        """Let the places of entries up to one be used again."""
        self.consumed = self._words[_CONSUMED] = sequence
        if self._space.used:
            self._space.free(sequence)


def _place_of(sequence: int) -> int:
    """Return where an entry begins, in bytes."""
    return 8 * (_ENTRIES + (sequence - 1) % CAPACITY * _ENTRY_WORDS)


class ServingCallRing(CallRing):
    """The worker's side. Its own counts are kept in this process, so that the client cannot change them."""

    def __init__(self, number: int, buffer: Any) -> None:
        super().__init__(number, buffer)
        self._count = 0
        self._consumed = 0
        self._space = _Space()
        self._sleeps = 0
        self._rung = 0

    @property
    def has_entries(self) -> bool:
        """Whether there is an entry to take, or anything that no client writes."""
        words, count = self._words, self._count
        if words[SUBMITTED] == count:
            return False
        back = words[_BACK + count % CAPACITY]
        return back < _HELD or back != count + 1 + _HELD

    @property
    def has_unread(self) -> bool:
        """Whether the client has not read the results of all entries that have ended."""
        return self._words[_CONSUMED] != self._count

    def take(self) -> CallEntry | None:
        """Return the next entry that is not taken back, None if there is none, or it is held; its call begins.

        Also None once it has passed `CAPACITY` entries: a client that took back one after the other would keep it going for ever.
        Raises MalformedRing.
        """
        fields = self.take_fields()
        return None if fields is None else CallEntry(*fields)

    def take_fields(self) -> tuple[int, int, int, bytes] | None:
        """Return what `take` does as a plain tuple, which takes half the time."""
        words, count = self._words, self._count
        first = count
        while (waiting := words[SUBMITTED] - count) != 0:
            if not 0 < waiting <= CAPACITY:
                raise MalformedRing(f"a call ring with {waiting} entries")
            expected = count + 1
            words[_TAKEN] = expected
            if FENCE.acquire(False):  # `fence` in one step
                FENCE.release()
            else:
                fence()
            if (back := words[_BACK + count % CAPACITY]) >= expected:
                if back == expected + _HELD:
                    words[_TAKEN] = count
                    return None
                if back != expected:
                    raise MalformedRing(f"unexpected mark {back} of entry {expected}")
                self.complete(TAKEN_BACK)
                count = expected
                if count - first == CAPACITY:
                    return None
                continue
            # Now: the client may have written another entry here, which it held before.
            sequence, function, request, start, nbytes, arguments = _read_entry(
                self._bytes, _ENTRY_PLACES[expected % CAPACITY]
            )
            if sequence != expected:
                raise MalformedRing(f"entry {sequence} at the place of entry {expected}")
            if request >= 2**63:
                raise MalformedRing(f"request {request}")
            if nbytes <= _SHORT_ARGUMENTS:
                arguments = arguments[:nbytes]
            else:
                if nbytes > INLINE_BYTES or start + nbytes > DATA_BYTES:
                    raise MalformedRing(f"{nbytes} bytes of arguments at {start}")
                start += _ARGUMENTS
                arguments = self._bytes[start : start + nbytes].tobytes()
            words[_BEGUN] = expected
            return expected, function, request, arguments
        return None

    def complete(self, status: int, value: bytes = b"") -> bool:
        """Publish how the entry that was taken last has ended; False, and nothing else, if there is no room for the value.

        The caller rings if `must_ring`. Raises MalformedRing.
        """
        words, count = self._words, self._count
        sequence = count + 1
        start = 0
        nbytes = len(value)
        short = value
        if nbytes > _SHORT_RESULT:
            if nbytes > INLINE_BYTES:
                return False
            consumed = words[_CONSUMED]
            if consumed != self._consumed:
                if not self._consumed <= consumed <= count:
                    raise MalformedRing(f"{consumed} results read of {count}")
                self._consumed = consumed
                self._space.free(consumed)
            start = self._space.take(sequence, nbytes)
            if start < 0:
                return False
            self._bytes[_VALUES + start : _VALUES + start + nbytes] = value
            short = b""
        _write_result(self._bytes, _RESULT_PLACES[sequence % CAPACITY], status, start, nbytes, short)
        self._count = sequence
        # In this order: an entry that was taken back never counts as begun only.
        words[DONE] = words[_BEGUN] = sequence
        return True

    def must_ring(self, *, fenced: bool = False) -> bool:
        """Return whether the client sleeps for an entry that is done, and has not been rung for since.

        ``fenced``: `take` has returned an entry since the last one was done.
        """
        if not fenced:
            fence()
        wanted = self._words[WAKE_AT]
        if not wanted or wanted > self._count or wanted == self._rung:
            return False
        self._rung = wanted
        return True

    @property
    def client_ran(self) -> int:
        """One more than the processor that the client was last seen on; 0 if it does not say."""
        return self._words[CLIENT_RAN]

    def note_pace(self, nanoseconds: int) -> None:
        """Let the client know how long each of the last calls has taken."""
        self._words[PACE] = nanoseconds

    def sleep(self, *, dozes: bool = False) -> bool:
        """Ask for a bell at the next entry; False if there is one already. Call `awake` afterwards.

        With ``dozes``, the caller sleeps for `DOZE_S` at most.
        """
        self._sleeps += 1
        self._words[SLEEPS] = self._sleeps | DOZES if dozes else self._sleeps
        fence()
        return not self.has_entries

    def awake(self) -> None:
        """Ask for no bell."""
        self._words[SLEEPS] = 0
