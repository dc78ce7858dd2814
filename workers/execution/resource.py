"""Resources: the realized kernels and constant tables of a primitive, which belong to an engine and are never cached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.cachestore.immutable import Immutable
from poolrt.cachestore.kept_property import kept_property

from ..implementations.program import Launch, NestedLaunch
from ..primitives.entry import Entry, MalformedEntry

#: Bytes of a resource beside binaries and tables: 25 kB were measured for a step, with its mapped pages and Python's objects.
OVERHEAD: Final = 24 << 10
Kernel = TypeVar("Kernel")
Tables = TypeVar("Tables")
#: An argument of a launch, as in `Launch`, except ``("t", (tables, offset))``.
Argument: TypeAlias = "tuple[str, Any]"


class LinkedLaunch(NamedTuple, Generic[Kernel]):
    """A launch with its realized kernel, on the memory of the outermost primitive."""

    kernel: Kernel
    args: tuple[Argument, ...]
    work: int
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    #: Estimated time on one thread.
    nanoseconds: int


class Resource(Immutable, Generic[Kernel, Tables]):
    """The kernels and tables of one primitive on one engine. Immutable, so that threads and streams can share it.

    ``nested`` are the resources of its nested primitives, in the order of the entry. Raises MalformedEntry if their number
    is not that of the entry.
    """

    entry: Entry
    _kernels: list[Kernel]
    _tables: Tables
    _nested: tuple[Resource[Kernel, Tables], ...]

    def __init__(
        self, entry: Entry, kernels: list[Kernel], tables: Tables, nested: Sequence[Resource[Kernel, Tables]]
    ) -> None:
        if len(nested) != len(entry.nested):
            raise MalformedEntry(f"{len(nested)} nested primitives instead of {len(entry.nested)}")
        vars(self).update(entry=entry, _kernels=kernels, _tables=tables, _nested=tuple(nested))

    def parts(self) -> list[tuple[object, int]]:
        """Return this and the nested resources with the bytes of their binaries and tables."""
        own = sum(map(len, self.entry.binaries)) + len(self.entry.tables)
        return [(self, own + OVERHEAD), *(part for inner in self._nested for part in inner.parts())]

    @kept_property
    def launches(self) -> tuple[LinkedLaunch[Kernel], ...]:
        """All launches in order, nested primitives' included.

        Linked on first use: many equal primitives may be created and only one executed. Raises MalformedEntry if a nested
        primitive lacks an argument.
        """
        return tuple(linked for run in self.entry.launches for linked in self._linked(run))

    @kept_property
    def _repeats(self) -> Mapping[tuple[int, int], int]:
        """How many launches there are of each kernel, by its number and their work."""
        return Counter((run.kernel, run.work) for run in self.entry.launches if isinstance(run, Launch))

    def _linked(self, run: Launch | NestedLaunch) -> list[LinkedLaunch[Kernel]]:
        if isinstance(run, NestedLaunch):
            nested = self._nested[run.primitive]
            if run.scratchpad + nested.entry.scratchpad > self.entry.scratchpad:
                raise MalformedEntry(f"the scratchpad of nested primitive {run.primitive} exceeds the outer one")
            places = {arg: self._owned(*place) for arg, place in run.args}
            return [
                inner._replace(args=tuple(_placed(*argument, places, run.scratchpad) for argument in inner.args))
                for inner in nested.launches
            ]
        args = tuple(self._owned(where, value) for where, value in run.args)
        # Launches of a primitive differ: one often takes most of the time. Those of one kernel on as much work do not.
        nanoseconds = self.entry.nanoseconds // max(
            min(len(self.entry.launches), 2), self._repeats[run.kernel, run.work]
        )
        sizes = run.work, run.global_size, run.local_size
        return [LinkedLaunch(self._kernels[run.kernel], args, *sizes, nanoseconds)]

    def _owned(self, where: str, value: Any) -> Argument:
        return (where, (self._tables, value)) if where == "t" else (where, value)


def _placed(where: str, value: Any, places: Mapping[int, Argument], scratchpad: int) -> Argument:
    """Return an argument of a nested primitive's launch as the outer primitive sees it."""
    if where == "s":
        return where, scratchpad + value
    if where != "m":
        return where, value
    arg, offset = value
    if arg not in places:
        raise MalformedEntry(f"a nested primitive needs argument {arg}, which is not given")
    outer, place = places[arg]
    if outer == "s":
        return outer, place + offset
    owner, start = place
    return outer, (owner, start + offset)
