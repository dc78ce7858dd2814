"""Creations of primitives that no store has: the loads that wait for each, and the creators that work on them.

Guarantees: a primitive is under creation once, however many loads want it. Every waiting load gets the entry or the
error. A creation whose creator is lost is repeated once in another creator, twice if one was killed from outside; after that
an error names the primitive. Starts of creators that are killed from outside are repeated more often,
for some seconds.

Many primitives have a kernel in common, and a creator keeps those that it compiled. So a creation goes to the creator that has
one of its kernels or compiles it now, unless that is busy for long.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.errors import CreatorLost
from poolrt.workers.ipc.protocol import Kind

from .exits import KILLED
from .failed_starts import LOST_FORK_SERVERS_LIMIT, FailedStarts
from .instructions import HangUp, Instruction, Kill, PrimitiveToLoad, Role, Send, Spawn
from .watchdog import Limits, UnderWay

#: Creators that one creation may lose before it fails. One that was killed from outside is not counted here.
LOST_LIMIT: Final = 2
#: The same with those that were killed from outside: as many as workers that a run may lose, with the usual settings.
KILLED_LIMIT: Final = 3
#: Creators that may fail to start in a row before the waiting creations fail.
FAILED_STARTS_LIMIT: Final = 3
#: Seconds that an idle creator is kept: its memory is worth more than the milliseconds of forking another.
IDLE_S: Final = 5.0
#: Seconds that a creator may take to exit by itself after its connection was closed.
LEAVE_S: Final = 10.0
#: Seconds for which a creation waits for the creator that has its kernel: longer than most kernels take to compile.
BUSY_S: Final = 2.0


@dataclass(slots=True, eq=False)
class Creation:
    """A primitive under creation, and each (load, number of the primitive there) that waits for it."""

    primitive: PrimitiveToLoad
    token: int
    #: The identities of its kernels, as far as they are known.
    kernels: frozenset[bytes] = frozenset()
    waiting: list[tuple[int, int]] = field(default_factory=list)
    lost: int = 0
    overdue: int = 0
    #: How many of ``lost`` were killed from outside.
    killed: int = 0
    #: Creators that it has lost with their fork server, which no creation ends; not in ``lost``.
    lost_with_fork_server: int = 0


@dataclass(slots=True, eq=False)
class Creator:
    """One creator process; one that does not compile starts without importing the compiler, and only packs or uses OpenCL."""

    number: int
    compiles: bool = True
    #: `FailedStarts.total` at its spawn.
    failed_starts: int = 0
    ready: bool = False
    creation: Creation | None = None
    idle_since: float = 0.0
    busy_since: float = 0.0
    #: The kernels that it has, or compiles now.
    kernels: set[bytes] = field(default_factory=set)
    leaving: bool = False
    overdue: bool = False
    #: Whether its exit is certain, because its fork server has exited.
    doomed: bool = False


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
        self._failed_starts = FailedStarts(FAILED_STARTS_LIMIT)

    @property
    def waiting(self) -> int:
        """The number of creations that no creator works on yet."""
        return len(self._queue)

    def want(self, primitive: PrimitiveToLoad, load: int, number: int, kernels: frozenset[bytes] = frozenset()) -> None:
        """Note that a load waits for a primitive with such kernels; `schedule` starts the creation."""
        creation = self._wanted.get(primitive.digest)
        if creation is None:
            creation = Creation(primitive, next(self._numbers), kernels)
            self._wanted[primitive.digest] = creation
            self._enqueue(creation)
        creation.waiting.append((load, number))

    def withdraw(self, load: int) -> None:
        """Forget a load. Creations that no load waits for are not started; those under way finish, for the store."""
        for creation in self._wanted.values():
            creation.waiting = [w for w in creation.waiting if w[0] != load]
        for creation in self._queue:
            if not creation.waiting:
                del self._wanted[creation.primitive.digest]
        self._queue = [creation for creation in self._queue if creation.waiting]

    def under_way(self, load: int) -> list[str]:
        """Return the labels of what is being created for a load now."""
        return [
            c.creation.primitive.label
            for c in self.creators.values()
            if c.creation is not None and any(w[0] == load for w in c.creation.waiting)
        ]

    def schedule(self) -> list[int]:
        """Give creations to idle creators and spawn creators for the rest. Return the loads of the creations given."""
        concerned: list[int] = []
        for creator in self.creators.values():
            if self._queue and creator.ready and creator.creation is None and not creator.leaving:
                creation = creator.creation = self._take(creator)
                if creation is None:
                    if not creator.compiles and all(c.primitive.compiles for c in self._queue):
                        # Its place is needed for a creator that compiles.
                        self._hang_up(creator)
                    continue
                creator.kernels |= creation.kernels
                creator.busy_since = self.now
                self._out.append(Send(creator.number, [Kind.CREATE, creation.token, creation.primitive.descriptor]))
                concerned += [load for load, _ in creation.waiting]
        for compiles in (True, False):
            wanted = sum(c.primitive.compiles is compiles for c in self._queue)
            coming = sum(not c.ready and c.compiles is compiles for c in self.creators.values())
            while coming < wanted and sum(not c.leaving for c in self.creators.values()) < self.limit:
                number = next(self._numbers)
                self.creators[number] = Creator(number, compiles, self._failed_starts.total)
                self._out.append(Spawn(number, Role.CREATOR, compiles))
                coming += 1
        return concerned

    def mark_ready(self, number: int) -> None:
        """Note that a creator has started."""
        creator = self.creators[number]
        creator.ready, creator.idle_since = True, self.now
        self._failed_starts.clear()

    def finish(self, number: int, token: int) -> Creation | None:
        """Return the creation that a creator has finished or failed, None if the creator had no such creation."""
        creator = self.creators[number]
        creation = creator.creation
        if creation is None or creation.token != token:
            return None
        creator.creation, creator.idle_since = None, self.now
        del self._wanted[creation.primitive.digest]
        return creation

    def reap(self, number: int, ending: str = "") -> list[tuple[Creation, CreatorLost]]:
        """Remove a creator that has exited: repeat its creation, or return it with the error for the waiting loads.

        ``ending`` names the signal that ended it, for the error.
        """
        creator = self.creators.pop(number)
        killed = ending == KILLED and not creator.overdue
        if not creator.ready:
            if killed:
                too_often = self._failed_starts.count_killed(creator.failed_starts, self.now)
            else:
                self._failed_starts.count(creator.failed_starts, creator.doomed and not creator.overdue)
                too_often = self._failed_starts.excess >= 0
            if too_often:
                failed = self._failed_starts.in_a_row
                self._failed_starts.clear()
                return [self._lost(c, self._never_started(c, failed, ending)) for c in list(self._queue)]
        creation = creator.creation
        if creation is None:
            return []
        if creator.doomed and creation.lost_with_fork_server < LOST_FORK_SERVERS_LIMIT:
            creation.lost_with_fork_server += 1
        else:
            creation.lost += 1
            creation.killed += killed
        creation.overdue += creator.overdue
        if creation.lost - creation.killed < LOST_LIMIT and creation.lost < KILLED_LIMIT and creation.waiting:
            self._enqueue(creation)
            return []
        label = creation.primitive.label
        text = f"creating {label} lost {creation.lost} processes"
        if creation.overdue < creation.lost:
            text += " (the compiler crashed, or memory ran out)"
            text += f"; the last one was ended by {ending}" if ending and not creator.overdue else ""
        if creation.overdue:
            limit = f"{self.limits.creation_s:g} s (the setting creation_limit_s)"
            text += f"; {creation.overdue} of them were killed because creation took longer than {limit}"
        return [self._lost(creation, CreatorLost(text, label, creation.lost))]

    def at_work(self) -> Iterator[UnderWay]:
        """Yield what each creator works on."""
        for creator in self.creators.values():
            if creator.leaving:
                yield UnderWay(creator.number, "end", LEAVE_S)
            elif not creator.ready:
                yield UnderWay(creator.number, "start", self.limits.start_s)
            elif creator.creation is not None:
                yield UnderWay(creator.number, creator.creation.token, self.limits.creation_s)

    def give_up_on(self, item: UnderWay) -> None:
        """Kill a creator that is overdue."""
        creator = self.creators[item.process]
        if creator.overdue:
            return  # it is being killed already
        creator.overdue = True
        doing = f"its {item.what}" if creator.creation is None else f"creating {creator.creation.primitive.label}"
        self._out.append(Kill(creator.number, f"{doing} took longer than {item.limit_s:g} s"))

    def tick(self, now: float) -> None:
        """Hang up on creators that were idle for `IDLE_S`; ``now`` is in seconds of any steady clock."""
        self.now = now
        for creator in self.creators.values():
            idle = creator.ready and creator.creation is None and not creator.leaving
            if idle and not self._queue and now - creator.idle_since >= IDLE_S:
                self._hang_up(creator)

    def _take(self, creator: Creator) -> Creation | None:
        """Remove and return the longest creation that a creator can do and no other has a kernel of; None if there is none."""
        for place in reversed(range(len(self._queue))):
            creation = self._queue[place]
            can = creator.compiles or not creation.primitive.compiles
            if can and not self._belongs_to_another(creation, creator):
                return self._queue.pop(place)
        return None

    def _belongs_to_another(self, creation: Creation, creator: Creator) -> bool:
        if creation.kernels & creator.kernels:
            return False
        return any(
            creation.kernels & other.kernels
            and not (other.leaving or other.overdue or other.doomed)
            and (other.creation is None or self.now - other.busy_since < BUSY_S)
            for other in self.creators.values()
        )

    def _hang_up(self, creator: Creator) -> None:
        creator.leaving = True
        self._out.append(HangUp(creator.number, "idle"))

    def _enqueue(self, creation: Creation) -> None:
        insort(self._queue, creation, key=lambda c: c.primitive.cost)

    def _lost(self, creation: Creation, error: CreatorLost) -> tuple[Creation, CreatorLost]:
        if creation in self._queue:
            self._queue.remove(creation)
        del self._wanted[creation.primitive.digest]
        return creation, error

    def _never_started(self, creation: Creation, failed: int, ending: str) -> CreatorLost:
        label = creation.primitive.label
        text = f"creating {label}: {failed} times in a row, creator processes exited while they started"
        if ending:
            text += f"; the last one was ended by {ending}"
        else:
            text += f", or took longer than {self.limits.start_s:g} s (the setting start_timeout_s)"
        return CreatorLost(text, label, failed)
