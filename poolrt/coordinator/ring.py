"""One ring as the coordinator knows it: its two sides, and the counts in its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


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
    #: Entries up to this one are given up: their caller waits no longer.
    given_up: int = 0
    #: Entries that were submitted when `Rings.find_active` looked.
    seen: int = 0

    @property
    def under_way(self) -> bool:
        """Whether the worker executes an entry."""
        return self.view is not None and self.view.taken > self.view.done

    @property
    def is_given_up(self) -> bool:
        """Whether the caller of the entry that was begun last waits no longer."""
        return self.view is not None and self.view.taken <= self.given_up
