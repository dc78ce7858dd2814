"""What is offered for an operation on a target: its primitive descriptors, best first; found again from equal arguments."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from math import copysign
from operator import attrgetter, is_
from typing import Any, Final

from ..desc import MemoryDesc, OpDesc, PrimitiveAttr
from ..engines.target import Target, cpu_target
from ..implementations.primitive_desc import PrimitiveDesc, accepted, unsupported
from .hint import take_hint

#: PrimitiveDescCache that are found again.
_KEPT: Final = 1024


class ImplementationCandidates:
    """The primitive descriptors of the implementations that accept, best first; each is made when it is first asked for."""

    def __init__(self, op: OpDesc, attr: PrimitiveAttr, target: Target, hint: PrimitiveDesc | None = None) -> None:
        """Find the best one. Raises UnsupportedPrimitive with every reason, and ValueError for a hint of something else."""
        known: tuple[tuple[int, MemoryDesc], ...] = ()
        if hint is not None:
            op = take_hint(op, hint)
            known = tuple(sorted((int(arg), desc) for arg, desc in hint.memories().items()))
        reasons: list[str] = []
        #: Whether this is a reorder between two engines.
        self.is_cross_engine: bool = op.kind == "reorder" and op.is_cross_engine  # type: ignore[attr-defined]
        # What goes to or from a device can be computed on the host instead.
        either = self.is_cross_engine and target.engine_kind != "cpu"
        targets = (target, cpu_target()) if either else (target,)
        self._rest = chain.from_iterable(accepted(op, attr, each, known, reasons) for each in targets)
        self._lock = threading.Lock()
        self._found: list[PrimitiveDesc] = []
        best = self.at(0)
        if best is None:
            raise unsupported(op, target, reasons)
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
    """The latest offers by the arguments that they were asked for with.

    Arguments are the same where they are identical in type and value, down to the sign of a zero, as keys tell them
    apart; those that only compare equal, such as 1 and 1.0, are described anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Any, ...], tuple[tuple[Any, ...], ImplementationCandidates]] = OrderedDict()

    def find(self, asked: tuple[Any, ...]) -> ImplementationCandidates | None:
        """Return what was put down for the same arguments. Raises TypeError where they have no hash."""
        known = self._known
        try:
            given, offers = known[asked]
            known.move_to_end(asked)
        except KeyError:  # not there, or dropped at this moment by another thread
            return None
        return offers if identical(given, asked) else None

    def put(self, asked: tuple[Any, ...], offers: ImplementationCandidates) -> None:
        """Keep offers, dropping the least recently used."""
        with self._lock:
            self._known[asked] = (asked, offers)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)


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

    Raises ValueError for values that the operation cannot have, TypeError for those that have no hash, and
    UnsupportedPrimitive.
    """
    query = (kind, target, attr, hint, *fields)
    try:
        found = _primitive_desc_cache().find(query)
    except TypeError:  # a list, most likely
        return find_candidates(kind, target, attr, hint, tuple(_hashable(value) for value in fields))
    if found is None:
        found = ImplementationCandidates(kind(*fields), attr, target, hint)
        _primitive_desc_cache().put(query, found)
    return found


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    hash(value)  # raises TypeError, which names the type
    return value


def identical(one: Any, other: Any) -> bool:
    """Return whether two values are the same in type and value, down to the sign of a zero and through all their parts."""
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
