"""Maps cached primitives to their resources on one engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..engines.engine import Engine
from ..primitives.entry import Entry
from .native_binding import RealizedPrimitive
from .resource import Resource

if TYPE_CHECKING:
    # A worker has no cached primitives, which would import the store.
    from ..primitives.cached_primitive import CachedPrimitive


class ResourceMapper:
    """Maps cached primitives to their resources on one engine, and keeps these.

    Nested primitives use the same mapper. The primitive that a user holds owns it, as in oneDNN. Equal primitives of an
    engine share one resource: it is realized for the first, and released with the last one that a user holds. Cached
    primitives have none. Safe from many threads.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._resources: dict[bytes, Resource[Any, Any]] = {}

    def get(self, primitive: CachedPrimitive) -> Resource[Any, Any]:
        """Return the resource of a primitive, realized now if there is none.

        Raises ObjectError or RealizeError if a binary is refused, and OSError if memory is short.
        """
        found = self._resources.get(primitive.identity)
        if found is None:
            # Without a lock, which would be a sixth of a hit in the cache: threads get the engine's one resource.
            found = self._resources[primitive.identity] = self._realize(primitive)
        return found

    def _realize(self, primitive: CachedPrimitive) -> Resource[Any, Any]:
        def make() -> Resource[Any, Any]:
            return realize(primitive.entry, self.engine, [self.get(inner) for inner in primitive.nested])

        found: Resource[Any, Any] = self.engine.resources.get(primitive.identity, make)
        return found


def realize(entry: Entry, engine: Engine, nested: Sequence[Any]) -> Resource[Any, Any]:
    """Return the resource of an entry on an engine, with those of its nested primitives. Raises as `ResourceMapper.get`."""
    if engine.kind == "cpu":
        return RealizedPrimitive(entry, engine.cpu, nested)
    from .opencl_binding import RealizedOpenClPrimitive

    return RealizedOpenClPrimitive(entry, engine.opencl, nested)
