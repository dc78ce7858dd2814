"""Primitives that nobody has yet: who waits for each, which creator works on it, and what becomes of it when one dies.

Guarantees: a primitive is under creation once, however many loads want it; everyone who waits gets the entry or the
error; a creator's death repeats its creation once elsewhere, after that it is an error that names the primitive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from poolrt.errors import CreatorLost
from poolrt.workers.ipc.protocol import Kind

from .instructions import HangUp, Instruction, Kill, PrimitiveToLoad, Role, Send, Spawn
from .watchdog import Limits, UnderWay

#: Creators that may die of one creation before it is given up.
LOST_LIMIT: Final = 2
#: Creators that may die in a row before they are ready to work.
FAILED_STARTS_LIMIT: Final = 3
#: Seconds that a creator is kept without work: its memory is worth more than the milliseconds of forking another.
IDLE_S: Final = 5.0
#: Seconds that a creator may take to end by itself once it is told to.
LEAVE_S: Final = 10.0


@dataclass(slots=True, eq=False)
class Creation:
    """A primitive under creation, and the (load, number of the primitive there) that wait for it."""

    primitive: PrimitiveToLoad
    token: int
    waiting: list[tuple[int, int]] = field(default_factory=list)
    deaths: int = 0
    overdue: int = 0


@dataclass(slots=True, eq=False)
class Creator:
    """One creator process."""

    number: int
    ready: bool = False
    creation: Creation | None = None
    idle_since: float = 0.0
    leaving: bool = False
    overdue: bool = False


class Creations:
    """Spreads creations over at most ``limit`` creator processes, which exist only while there is work."""

    def __init__(self, limit: int, limits: Limits, numbers: Iterator[int], out: list[Instruction]) -> None:
        self.limit = limit
        self.limits = limits
        self.creators: dict[int, Creator] = {}
        self.now = 0.0
        self._wanted: dict[str, Creation] = {}
        self._queue: list[Creation] = []  # cheapest first, so that the longest is popped
        self._numbers = numbers
        self._out = out
        self._failed_starts = 0

    @property
    def waiting(self) -> int:
        """Creations that no creator works on yet."""
        return len(self._queue)

    def want(self, primitive: PrimitiveToLoad, load: int, number: int) -> None:
        """Note that a load waits for a primitive; `schedule` gets it under way."""
        creation = self._wanted.get(primitive.digest)
        if creation is None:
            creation = self._wanted[primitive.digest] = Creation(primitive, next(self._numbers))
            self._enqueue(creation)
        creation.waiting.append((load, number))

    def withdraw(self, load: int) -> None:
        """A load waits no more. What nobody waits for is not begun; what is under way is finished, for the store."""
        for creation in list(self._wanted.values()):
            creation.waiting = [w for w in creation.waiting if w[0] != load]
            if not creation.waiting and creation in self._queue:
                self._queue.remove(creation)
                del self._wanted[creation.primitive.digest]

    def under_way(self, load: int) -> list[str]:
        """Return the labels of what is being created for a load now."""
        return [
            c.creation.primitive.label
            for c in self.creators.values()
            if c.creation is not None and any(w[0] == load for w in c.creation.waiting)
        ]

    def schedule(self) -> list[int]:
        """Give creations to idle creators and ask for more creators where they pay. Return the loads that this concerns."""
        concerned: list[int] = []
        for creator in self.creators.values():
            if self._queue and creator.ready and creator.creation is None and not creator.leaving:
                creation = creator.creation = self._queue.pop()
                self._out.append(Send(creator.number, [Kind.CREATE, creation.token, creation.primitive.descriptor]))
                concerned += [load for load, _ in creation.waiting]
        coming = sum(not c.ready for c in self.creators.values())
        while coming < len(self._queue) and sum(not c.leaving for c in self.creators.values()) < self.limit:
            number = next(self._numbers)
            self.creators[number] = Creator(number)
            self._out.append(Spawn(number, Role.CREATOR))
            coming += 1
        return concerned

    def mark_ready(self, number: int) -> None:
        """A creator has come up."""
        creator = self.creators[number]
        creator.ready, creator.idle_since = True, self.now
        self._failed_starts = 0

    def finish(self, number: int, token: int) -> Creation | None:
        """A creator has ended a creation, well or not: return it, or None where it had no such one."""
        creator = self.creators[number]
        creation = creator.creation
        if creation is None or creation.token != token:
            return None
        creator.creation, creator.idle_since = None, self.now
        del self._wanted[creation.primitive.digest]
        return creation

    def reap(self, number: int) -> list[tuple[Creation, CreatorLost]]:
        """A creator is certainly dead: repeat its creation, or return it with the error for those who wait."""
        creator = self.creators.pop(number)
        if not creator.ready:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS_LIMIT:
                self._failed_starts = 0
                return [self._lost(c, self._never_started(c)) for c in list(self._queue)]
        creation = creator.creation
        if creation is None:
            return []
        creation.deaths += 1
        creation.overdue += creator.overdue
        if creation.deaths < LOST_LIMIT and creation.waiting:
            self._enqueue(creation)
            return []
        label = creation.primitive.label
        text = f"creating {label} killed {creation.deaths} processes"
        if creation.overdue < creation.deaths:
            text += " (a crash of the compiler, or memory ran out)"
        if creation.overdue:
            limit = f"{self.limits.creation_s:g} s (the setting creation_limit_s)"
            text += f"; {creation.overdue} of them were ended because it took longer than {limit}"
        return [self._lost(creation, CreatorLost(text, label, creation.deaths))]

    def at_work(self) -> Iterator[UnderWay]:
        """Tell what each creator is at."""
        for creator in self.creators.values():
            if creator.leaving:
                yield UnderWay(creator.number, "end", LEAVE_S)
            elif not creator.ready:
                yield UnderWay(creator.number, "start", self.limits.start_s)
            elif creator.creation is not None:
                yield UnderWay(creator.number, creator.creation.token, self.limits.creation_s)

    def give_up_on(self, item: UnderWay) -> None:
        """End a creator that is overdue."""
        creator = self.creators[item.who]
        if creator.overdue:
            return  # it is being ended
        creator.overdue = True
        doing = f"its {item.what}" if creator.creation is None else f"creating {creator.creation.primitive.label}"
        self._out.append(Kill(creator.number, f"it took longer than {item.limit_s:g} s for {doing}"))

    def tick(self, now: float) -> None:
        """Let go creators that have been idle for long; ``now`` is in seconds of any steady clock."""
        self.now = now
        for creator in self.creators.values():
            idle = creator.ready and creator.creation is None and not creator.leaving
            if idle and not self._queue and now - creator.idle_since >= IDLE_S:
                creator.leaving = True
                self._out.append(HangUp(creator.number, "idle"))

    def _enqueue(self, creation: Creation) -> None:
        self._queue.append(creation)
        self._queue.sort(key=lambda c: c.primitive.cost)

    def _lost(self, creation: Creation, error: CreatorLost) -> tuple[Creation, CreatorLost]:
        if creation in self._queue:
            self._queue.remove(creation)
        del self._wanted[creation.primitive.digest]
        return creation, error

    def _never_started(self, creation: Creation) -> CreatorLost:
        label = creation.primitive.label
        text = (
            f"creating {label}: {FAILED_STARTS_LIMIT} creator processes in a row died while they started, or took longer "
            f"than {self.limits.start_s:g} s (the setting start_timeout_s)"
        )
        return CreatorLost(text, label, FAILED_STARTS_LIMIT)
