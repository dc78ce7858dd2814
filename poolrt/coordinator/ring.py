"""One ring as the coordinator knows it: its two sides, and the counts in its memory.

The client can write any count there, also one that is its worker's. `is_damaged` finds those that make no sense.
"""

from __future__ import annotations

from typing import Final, Protocol

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.workers.ipc.ring import CAPACITY, OPEN

#: More entries than a ring ever has: they would take a worker decades.
_COUNTS_LIMIT: Final = 2**50


class Watched(Protocol):
    """The counts of a ring's memory."""

    @property
    def submitted(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def returned(self) -> int: ...
    @property
    def state(self) -> int: ...
    def model_of(self, sequence: int) -> int: ...


class LostRing(NamedTuple):
    """Why a ring was lost: the signal that ended its worker, as text, and whether that worker took too long."""

    client: int
    ending: str
    overdue: bool


@dataclass(slots=True, eq=False)
class Ring:
    """A ring; ``view`` is its memory once there is one. ``left``: its client has disconnected."""

    number: int
    client: int
    worker: int
    view: Watched | None = None
    left: bool = False
    #: Entries that are given up: their caller waits no longer. At most those that there is room for.
    given_up: set[int] = field(default_factory=set)
    #: Entries that were submitted when `Rings.find_active` looked.
    seen: int = 0
    #: Its progress when its worker was found to be held up, and at the last tick if entries waited then; -1 before.
    held_at: int = -1
    ticked_at: int = -1

    @property
    def is_damaged(self) -> bool:
        """Whether no worker and client have written the counts that are in its memory."""
        return self._count_done() < 0

    @property
    def completed(self) -> int:
        """Entries that were executed, or have failed, for statistics; none if its memory is damaged."""
        done = self._count_done()
        return 0 if self.view is None or done <= 0 else done - min(self.view.returned, done)

    def _count_done(self) -> int:
        """Return how many entries have a status, -1 if the counts make no sense."""
        view = self.view
        if view is None:
            return 0
        # Both sides go on meanwhile, so each count is read before one that is never far below it.
        submitted, taken, done = view.submitted, view.taken, view.done
        sensible = submitted <= done + CAPACITY and taken <= done + 1 and done <= min(view.submitted, _COUNTS_LIMIT)
        return done if sensible else -1

    @property
    def waits(self) -> bool:
        """Whether there are entries that the worker has begun, or may begin."""
        return self.view is not None and self.view.state == OPEN and self.view.submitted != self.view.done

    @property
    def progress(self) -> int:
        """A number that grows with each entry that the worker begins or ends."""
        return self.view.taken + self.view.done if self.view is not None else 0

    @property
    def is_held_up(self) -> bool:
        """Whether entries wait, and the worker has made no progress since it was found to be held up."""
        return self.held_at >= 0 and self.held_at == self.progress and self.waits

    @property
    def under_way(self) -> bool:
        """Whether the worker executes an entry."""
        return self.view is not None and self.view.taken > self.view.done

    @property
    def is_given_up(self) -> bool:
        """Whether the caller of the entry that was begun last waits no longer."""
        return self.view is not None and self.view.taken in self.given_up

    def give_up(self, sequence: int) -> None:
        """Note that the caller of an entry waits no longer; an entry that is done or unknown is ignored."""
        if self.view is not None:
            done = self.view.done
            self.given_up = {number for number in self.given_up if number > done}
            if done < sequence <= done + CAPACITY:
                self.given_up.add(sequence)
