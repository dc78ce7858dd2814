"""Runs that follow one another on a ring, each in a place that is prepared for it, and one of them for a thread that waits.

A ring has them as one entry of what is under way, so that beginning and ending a short run changes a few numbers only.
"""

from __future__ import annotations

from _thread import LockType
from typing import TYPE_CHECKING, Any

from poolrt.errors import PoolClosed
from poolrt.workers.ipc.ring import CAPACITY, DONE, EXECUTED, RETURNED, STATUSES

from .ring_entry import LOST, RingEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .client_ring import ClientRing
    from .loaded_model import LoadedModel
    from .prepared_places import PreparedPlaces


class PlacedRuns:
    """Runs ``first`` to ``sequence`` of a ring, the last of which grows while others follow.

    The lock of the ring protects it, and the ring refers to it until all have ended; so the slots of its places are not
    released while a worker may write to them.
    """

    __slots__ = ("_bad", "_known", "_taken", "counted", "first", "gates", "keeper", "places", "sequence", "status")

    def __init__(self, places: PreparedPlaces, first: int) -> None:
        self.places = places
        self.first = self.sequence = first
        #: Not 0 once all have ended.
        self.status = 0
        #: Locks that are released at the end: threads wait for them.
        self.gates: list[LockType] = []
        #: The model, if it has to stay loaded until the end: callers wait no longer, or it is being closed, and ``counted``.
        self.keeper: LoadedModel | None = None
        self.counted = False
        #: The last run whose status is known; the statuses up to it that are not `EXECUTED`, and of those that are withdrawn.
        self._known = first - 1
        self._bad: dict[int, int] = {}
        #: The last run that a worker had taken when it exited.
        self._taken = 0

    @property
    def ended(self) -> bool:
        """Whether all have ended."""
        return self.status != 0

    def count_for(self, loaded: LoadedModel) -> bool:
        """Keep a model that is being closed loaded until all have ended, if these are its runs; return whether it counts them."""
        if self.status or self.counted or self.places.model != loaded.number:
            return False
        self.keeper, self.counted = loaded, True
        return True

    def status_of(self, sequence: int) -> int:
        """Return how a run has ended, 0 if it has not."""
        if self._bad and (known := self._bad.get(sequence)) is not None:
            return known
        if sequence <= self._known:
            return EXECUTED
        if self.status:
            return LOST if sequence <= self._taken else RETURNED
        words = self.places.words
        if sequence <= words[DONE]:
            found: int = words[STATUSES + (sequence - 1) % CAPACITY]
            if sequence > self._known:
                return found
            return self.status_of(sequence)  # another thread has noted its end meanwhile
        return 0

    def note_done(self) -> int:
        """Note how the runs that are done have ended, before other entries take their places; return the last of them."""
        words = self.places.words
        begin, end = self._known, min(words[DONE], self.sequence)
        if end > begin:
            first = max(begin, end - CAPACITY)
            count, start = end - first, first % CAPACITY
            beyond = start + count - CAPACITY
            statuses = words[STATUSES + start : STATUSES + CAPACITY + min(0, beyond)].tolist()
            if beyond > 0:
                statuses += words[STATUSES : STATUSES + beyond].tolist()
            if statuses.count(EXECUTED) != count:
                self._bad.update((first + 1 + at, status) for at, status in enumerate(statuses) if status != EXECUTED)
            self._known = end
        return self._known

    def find_waiting(self, taken: int) -> list[int]:
        """Return the runs that a worker has not begun, which has taken so many, and that their owners wait for."""
        places, bad = self.places, self._bad
        found = range(max(self.first, taken + 1), self.sequence + 1)
        return [sequence for sequence in found if sequence not in bad and places.is_held(sequence)]

    def note_withdrawn(self, sequence: int) -> None:
        """Note that no worker has executed a run or ever will."""
        self._bad[sequence] = RETURNED

    def executed_to(self, first: int, last: int) -> int:
        """Return up to which of the runs ``first`` to ``last`` all were executed; less than ``first`` if that was not."""
        with self.places.ring.lock:
            end = min(last, self.note_done())
            return min([end, *(each - 1 for each in self._bad if each >= first)]) if self._bad else end

    def end(self, status: int) -> None:
        """Note the end of all: those that are not done were returned. May be repeated: an interrupt may end the first call."""
        if not self.status:
            self.note_done()
            self.status = status
            if self.places.runs is self:
                self.places.runs = None  # no cycle keeps the slots
            if self.places.ring.newest is self:
                self.places.ring.newest = None  # nor does the ring
            self.leave_ring()
        for gate in self.gates:
            if gate.locked():
                gate.release()

    def lose(self, taken: int) -> None:
        """Note the exit of the worker, which had taken so many entries."""
        self._taken = taken
        self.end(RETURNED)

    def unpublish(self, submitted: int) -> bool:
        """Forget the runs that were not submitted, because an interrupt came before; return whether all are forgotten."""
        self.sequence = min(self.sequence, submitted)
        if self.sequence >= self.first:
            return False
        self.end(RETURNED)
        return True

    def leave_ring(self) -> None:
        """Keep the model loaded no longer, unless runs have ended without outputs and their callers do not know yet."""
        if not self.status or (self.counted and self._is_unfinished()):
            return
        keeper, self.keeper = self.keeper, None
        if self.counted and keeper is not None:
            self.counted = False
            keeper.end_on_ring()

    def _is_unfinished(self) -> bool:
        places = self.places
        last = range(max(self.first, self.sequence - places.count + 1), self.sequence + 1)
        return any(places.is_held(sequence) and self.status_of(sequence) != EXECUTED for sequence in last)


class PlacedRun:
    """One run, for the thread that waits for it; its outputs stay in its place until `release`.

    It is the owner of its place (`PreparedPlaces.put`), and there before it has begun.
    """

    #: The runs that it is one of; None before it has begun. Attributes of the class are read until they are set, which makes
    #: this object in a fourth of the time.
    runs: PlacedRuns | None = None
    sequence = 0
    #: Whether its thread leads those that wait for the ring.
    leads = False
    _withdrawn = False

    @classmethod
    def of(cls, runs: PlacedRuns, sequence: int) -> PlacedRun:
        """Return one of some runs."""
        found = cls()
        found.runs, found.sequence = runs, sequence
        return found

    @property
    def ring(self) -> ClientRing | None:
        """Where it was submitted."""
        return None if self.runs is None else self.runs.places.ring

    @property
    def status(self) -> int:
        """How it has ended; 0 before."""
        if self._withdrawn or self.runs is None:
            return RETURNED
        return self.runs.status_of(self.sequence)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.status != 0

    @property
    def gates(self) -> list[LockType]:
        """The locks that are released at the end of all runs around it."""
        return [] if self.runs is None else self.runs.gates

    def note_withdrawn(self) -> None:
        """Note that no worker has executed it or ever will."""
        self._withdrawn = True

    def withdraw(self) -> bool:
        """Withdraw it; return whether no worker has executed it or ever will."""
        return self.runs is None or self.runs.places.withdraw(self)

    def abandon(self, loaded: LoadedModel) -> bool:
        """Withdraw it, whose caller waits no longer; return False if a worker has begun it."""
        runs = self.runs
        return runs is None or runs.places.abandon(self, runs, self.sequence, self.sequence, loaded)

    def leave(self, loaded: LoadedModel, *, timed_out: bool) -> None:
        """Withdraw it, or let it end, as `abandon`; after a timeout a worker has little time for it."""
        ring = self.ring
        if not self.abandon(loaded) and timed_out and ring is not None:
            ring.give_up(self.sequence, loaded.client)

    def inputs(self) -> list[NDArray[Any]]:
        """Return copies of its inputs."""
        return [] if self.runs is None else self.runs.places.inputs_of(self.sequence)

    def convert(self, loaded: LoadedModel, arrays: list[NDArray[Any]]) -> RingEntry | None:
        """Return what a run that has ended without outputs is to the path of all runs; None if its model has been unloaded.

        Its place may be used again; ``arrays`` are copies of its inputs.
        """
        entry = RingEntry(loaded, arrays, (), [], (), ())
        entry.ring, entry.sequence, entry.status = self.ring, self.sequence, self.status
        is_kept = self.runs is not None and self.runs.counted
        begins = loaded.begin_on_ring(is_kept=is_kept)
        self.release()
        return entry if begins else None

    def take(self, found: list[tuple[Any, BaseException | None]]) -> None:
        """Add copies of the outputs of a run that was executed to ``found``, and let its place be used again.

        May be repeated with the same list: an interrupt may end the first call, and another run have the place since.
        """
        runs, sequence = self.runs, self.sequence
        if runs is None:
            raise PoolClosed("this run was not begun")
        if not found:
            found.append((runs.places.copy(sequence), None))
        if runs.places.owner_of(sequence) is not self:
            return
        if runs.counted:
            runs.places.release(sequence, runs)
        else:
            runs.places.free(sequence)

    def release(self) -> None:
        """Let its place be used again. It has ended."""
        runs = self.runs
        if runs is not None and runs.counted:
            runs.places.release(self.sequence, runs)
        elif runs is not None:
            runs.places.free(self.sequence)
