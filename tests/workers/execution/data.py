"""What objects hold: all that can be reached from one of them, by kind."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Final

from poolrt.workers.implementations.program import Launch, NestedLaunch, Transfer
from poolrt.workers.primitives.cached_primitive import CachedPrimitive
from poolrt.workers.primitives.derivation import SharedKernel
from poolrt.workers.primitives.entry import Entry

#: The kinds of objects that cached primitives are made of.
DATA: Final = frozenset(
    (CachedPrimitive, SharedKernel, Entry, Launch, NestedLaunch, Transfer, tuple, bytes, str, int, float, type(None))
)


def kinds_reached(root: object) -> set[type]:
    """Return the kinds of all objects that can be reached from one, classes and modules aside."""
    seen, found = set[int](), set[type]()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, (type, ModuleType)):
            seen.add(id(one))
            found.add(type(one))
            waiting += gc.get_referents(one)
    return found
