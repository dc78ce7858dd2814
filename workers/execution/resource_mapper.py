"""Resources of a user-facing primitive: which belongs to which cached primitive."""

from __future__ import annotations

import threading
from typing import Any

from ..engines.engine import Engine
from ..primitives.cached_primitive import CachedPrimitive
from .native_binding import RealizedPrimitive
from .resource import Resource


class ResourceMapper:
    """Makes the resource of each cached primitive on one engine, once for all that are equal, and keeps it.

    Nested primitives have theirs from the same mapper. It is owned by the primitive that a user holds, as oneDNN's:
    resources end with it, the cached primitives do not. Safe from many threads.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.RLock()
        self._resources: dict[bytes, Resource[Any, Any]] = {}

    def get(self, primitive: CachedPrimitive) -> Resource[Any, Any]:
        """Return the resource of a primitive, made now if it is not there.

        Raises ObjectError or RealizeError where a binary is refused, and OSError where there is no memory.
        """
        found = self._resources.get(primitive.identity)
        if found is None:
            with self._lock:
                found = self._resources.get(primitive.identity)
                if found is None:
                    found = self._resources[primitive.identity] = self._made(primitive)
        return found

    def _made(self, primitive: CachedPrimitive) -> Resource[Any, Any]:
        nested: list[Any] = [self.get(inner) for inner in primitive.nested]
        if self.engine.kind == "cpu":
            return RealizedPrimitive(primitive.entry, self.engine.cpu, nested)
        from .opencl_binding import RealizedOpenClPrimitive

        return RealizedOpenClPrimitive(primitive.entry, self.engine.opencl, nested)
