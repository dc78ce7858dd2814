"""Maps cached primitives to their resources on one engine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ..engines.engine import Engine
from ..primitives.cached_primitive import CachedPrimitive
from ..primitives.entry import Entry
from .native_binding import RealizedPrimitive
from .resource import Resource


class ResourceMapper:
    """Realizes each cached primitive on one engine, once for all that are equal, and keeps the resource.

    Nested primitives use the same mapper. The primitive that a user holds owns it, as in oneDNN: resources end with that
    primitive, cached primitives do not. Safe from many threads.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.RLock()
        self._resources: dict[bytes, Resource[Any, Any]] = {}

    def get(self, primitive: CachedPrimitive) -> Resource[Any, Any]:
        """Return the resource of a primitive, realized now if there is none.

        Raises ObjectError or RealizeError if a binary is refused, and OSError if memory is short.
        """
        found = self._resources.get(primitive.identity)
        if found is None:
            with self._lock:
                found = self._resources.get(primitive.identity)
                if found is None:
                    found = self._resources[primitive.identity] = self._realize(primitive)
        return found

    def _realize(self, primitive: CachedPrimitive) -> Resource[Any, Any]:
        return realize(primitive.entry, self.engine, [self.get(inner) for inner in primitive.nested])


def realize(entry: Entry, engine: Engine, nested: Sequence[Any]) -> Resource[Any, Any]:
    """Return the resource of an entry on an engine, with those of its nested primitives. Raises as `ResourceMapper.get`."""
    if engine.kind == "cpu":
        return RealizedPrimitive(entry, engine.cpu, nested)
    from .opencl_binding import RealizedOpenClPrimitive

    return RealizedOpenClPrimitive(entry, engine.opencl, nested)
