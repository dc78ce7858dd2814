"""Where the tensors of a plan are: what a place means once reorders between engines need not copy."""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..memory.buffer import Buffer
from .execution_plan import CrossEngineReorder, Place, PlaceKind


class Location(NamedTuple):
    """Where an argument is: a place in the memory of the engine ``owner``, ``start`` bytes from its beginning."""

    owner: int
    kind: PlaceKind
    value: int
    start: int


class Aliases:
    """Destinations of reorders between engines that need no copy, and up to which step each is its source."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Location, int]] = {}

    def add(self, reorder: CrossEngineReorder, source: Location) -> None:
        """Read the destination of a reorder at its source."""
        self._known[reorder.destination_engine, reorder.destination.value] = source, reorder.until

    def locate(self, place: Place, engine: int, step: int) -> Location:
        """Return where an argument of a step on an engine is."""
        if place.kind is PlaceKind.WORK:
            source, until = self._known.get((engine, place.value), (None, -1))
            if source is not None and step <= until:
                return source._replace(start=source.start + place.start)
        return Location(engine, place.kind, place.value, place.start)


class HostMemory:
    """Memory of a plan that the host addresses: constants, and the workspaces of engines that work on it."""

    def __init__(self, constants: Sequence[int], workspaces: dict[int, Buffer]) -> None:
        self.constants = list(constants)
        self.workspaces = workspaces

    def address(self, location: Location) -> int | None:
        """Return the address of a location, None for an input or output, which moves."""
        if location.kind is PlaceKind.WORK:
            return self.workspaces[location.owner].address + location.value + location.start
        if location.kind is PlaceKind.CONSTANT:
            return self.constants[location.value] + location.start
        return None
