"""Implementation candidates: the primitive descriptors of an operation on a target, best first, found again when asked again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from math import copysign
from operator import attrgetter, is_
from typing import Any, Final

from poolrt.cachestore.forked_locks import freed_in_children
from poolrt.cachestore.lru import Lru

from ..desc import MemoryDesc, OpDesc, PrimitiveAttr
from ..engines.target import Target, cpu_target
from ..implementations.primitive_desc import PrimitiveDesc, find_accepting, unsupported_error
from .hint import take_hint

#: PrimitiveDescCache that are found again.
_KEPT: Final = 1024


class ImplementationCandidates:
    """The primitive descriptors of the implementations that accept, best first; each is made when it is first needed."""

    def __init__(self, op: OpDesc, attr: PrimitiveAttr, target: Target, hint: PrimitiveDesc | None = None) -> None:
        """Find the best one. Raises UnsupportedPrimitive with every reason, and ValueError for a hint of another operation."""
        known: tuple[tuple[int, MemoryDesc], ...] = ()
        if hint is not None:
            op = take_hint(op, hint)
            known = tuple(sorted((int(arg), desc) for arg, desc in hint.memories().items()))
        reasons: list[str] = []
        #: Whether this is a reorder between two engines.
        self.is_cross_engine: bool = op.kind == "reorder" and op.is_cross_engine  # type: ignore[attr-defined]
        # The host can compute a reorder to or from a device instead of the device.
        either = self.is_cross_engine and target.engine_kind != "cpu"
        targets = (target, cpu_target()) if either else (target,)
        self._rest = chain.from_iterable(find_accepting(op, attr, each, known, reasons) for each in targets)
        self._lock = freed_in_children(threading.RLock())
        self._found: list[PrimitiveDesc] = []
        best = self.at(0)
        if best is None:
            raise unsupported_error(op, target, reasons)
        self.best: PrimitiveDesc = best

    def at(self, position: int) -> PrimitiveDesc | None:
        """Return the primitive descriptor at a position, None behind the last."""
        if position < len(self._found):
            return self._found[position]
        with self._lock:
            while len(self._found) <= position:
                pd = next(self._rest, None)
                if pd is None:
                    return None
                self._found.append(pd)
            return self._found[position]


class PrimitiveDescCache:
    """Implementation candidates under the query that found them: operation, target, attributes, hint and fields.

    Queries are the same if they are identical in type and value, down to the sign of a zero, as keys distinguish them;
    values that only compare equal, such as 1 and 1.0, make another query.
    """

    def __init__(self) -> None:
        self._known: Lru[tuple[Any, ...], tuple[tuple[Any, ...], ImplementationCandidates]] = Lru(_KEPT)
        self._attributes: Lru[PrimitiveAttr, PrimitiveAttr] = Lru(_KEPT)

    def same(self, attr: PrimitiveAttr) -> PrimitiveAttr:
        """Return one object for all equal attributes, for queries: to compare it once is a fifth of a hit."""
        known = self._attributes.values.get(attr)
        if known is None:
            self._attributes.put(attr, attr)
            return attr
        return known

    def find(self, query: tuple[Any, ...]) -> ImplementationCandidates | None:
        """Return the candidates of the same query. Raises TypeError if a part of it has no hash."""
        known = self._known.values  # not by `Lru.get`: a call more would be a tenth of a hit
        try:
            former, found = known[query]
            known.move_to_end(query)
        except KeyError:  # not there, or evicted at this moment by another thread
            return None
        return found if identical(former, query) else None

    def put(self, query: tuple[Any, ...], found: ImplementationCandidates) -> None:
        """Keep candidates, evicting the least recently used."""
        self._known.put(query, (query, found))


@lru_cache(maxsize=1)
def _primitive_desc_cache() -> PrimitiveDescCache:
    return PrimitiveDescCache()


def find_candidates(
    kind: type[OpDesc],
    target: Target,
    attr: PrimitiveAttr,
    hint: PrimitiveDesc | None,
    fields: tuple[Any, ...],
) -> ImplementationCandidates:
    """Return the candidates for an operation with these fields, those found before for identical ones.

    Raises ValueError for values that the operation cannot have, and UnsupportedPrimitive.
    """
    cache = _primitive_desc_cache()
    attr = cache.same(attr)
    query = (kind, target, attr, hint, *fields)
    try:
        found = cache.find(query)
    except TypeError:  # a list or an array, which has no hash: the operation has a value of the declared type instead
        fields = _getter(kind.__match_args__)(kind(*fields))
        query = (kind, target, attr, hint, *fields)
        found = cache.find(query)
    if found is None:
        found = ImplementationCandidates(kind(*fields), attr, target, hint)
        cache.put(query, found)
    return found


def identical(one: Any, other: Any) -> bool:
    """Return whether two values have the same type and value, down to the sign of a zero, in all their parts."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and (all(map(is_, one, other)) or all(map(identical, one, other)))
    if isinstance(one, float):
        return one == other and copysign(1.0, one) == copysign(1.0, other)
    names: tuple[str, ...] = () if isinstance(one, MemoryDesc) else getattr(type(one), "__match_args__", ())
    if not names:
        return bool(one == other)
    values = _getter(names)
    return identical(values(one), values(other))


@lru_cache(maxsize=64)
def _getter(names: tuple[str, ...]) -> Callable[[Any], Any]:
    return attrgetter(*names)
