"""One ring as the coordinator knows it: its two sides, and the counts in its memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from poolrt.workers.ipc.ring import CAPACITY, OPEN


class Watched(Protocol):
    """The counts of a ring's memory."""

    @property
    def submitted(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def done(self) -> int: ...
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
