"""Calls that wait in order of priority, with the methods of the deque that holds them while there are no priorities."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from poolrt.priorities import OVERTAKEN_LIMIT


class Ticketed(Protocol):
    """An entry that waits; those with lower tickets have come first."""

    @property
    def priority(self) -> int: ...

    @property
    def ticket(self) -> int: ...

    overtaken: int


C = TypeVar("C", bound=Ticketed)


class OrderedQueue(Generic[C]):
    """A queue of each priority, in order of tickets. The highest goes first, unless another one's oldest was overtaken enough.

    The caller locks.
    """

    __slots__ = ("_levels",)

    def __init__(self, calls: Iterable[C] = ()) -> None:
        #: Priority -> its calls, the highest first.
        self._levels: dict[int, deque[C]] = {}
        self.extend(calls)

    def __len__(self) -> int:
        return sum(map(len, self._levels.values()))

    def __bool__(self) -> bool:
        return any(self._levels.values())

    def __iter__(self) -> Iterator[C]:
        for level in [*self._levels.values()]:
            yield from [*level]

    def __contains__(self, call: object) -> bool:
        return any(call in level for level in self._levels.values())

    def __getitem__(self, index: int) -> C:
        """Return the call that goes first; ``index`` is 0."""
        if index:
            raise IndexError(index)
        return self._first()[0]

    def popleft(self) -> C:
        """Remove and return the call that goes first, and note that it has overtaken others."""
        level = self._first()
        call = level.popleft()
        self.note_overtaken(call)
        return call

    def take(self, call: C) -> None:
        """Remove the call that was first, as `popleft`."""
        self.remove(call)
        self.note_overtaken(call)

    def append(self, call: C) -> None:
        """Add a call behind the others of its priority."""
        level = self._levels.get(call.priority)
        if level is None:
            made = {**self._levels, call.priority: deque((call,))}
            self._levels = dict(sorted(made.items(), reverse=True))
        else:
            level.append(call)

    def appendleft(self, call: C) -> None:
        """Put a call back where it was."""
        level = self._levels.get(call.priority)
        if level is None:
            self.append(call)
            return
        index = 0
        while index < len(level) and level[index].ticket < call.ticket:
            index += 1
        level.insert(index, call)

    def extend(self, calls: Iterable[C]) -> None:
        """Add calls in their order."""
        for call in calls:
            self.append(call)

    def extendleft(self, calls: Iterable[C]) -> None:
        """Put calls back where they were."""
        for call in calls:
            self.appendleft(call)

    def remove(self, call: C) -> None:
        """Remove a call. Raises ValueError if it is not there."""
        level = self._levels.get(call.priority)
        if level is None:
            raise ValueError("no such call waits")
        level.remove(call)

    def clear(self) -> None:
        """Remove all calls."""
        self._levels = {}

    @property
    def highest(self) -> int:
        """The highest priority of a call that waits. Raises ValueError if there is none."""
        return max(priority for priority, level in self._levels.items() if level)

    def note_overtaken(self, call: C) -> None:
        """Note that a call goes before those of lower priorities that have come earlier."""
        for priority, level in self._levels.items():
            if level and priority < call.priority and level[0].ticket < call.ticket:
                level[0].overtaken += 1

    def _first(self) -> deque[C]:
        """Return the level whose first call goes first. Raises IndexError if there is none."""
        found: deque[C] | None = None
        for level in self._levels.values():
            if level and (found is None or level[0].overtaken >= OVERTAKEN_LIMIT):
                found = level
        if found is None:
            raise IndexError("no call waits")
        return found
