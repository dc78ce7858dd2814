"""Explain a miss: compare a key with the stored ones, and name the fields that differ.

Entries contain their whole key and their creator, so an explanation covers processes, restarts and hosts. Entries of
the same kind are compared; the nearest differ in the fewest fields, those that name the same function first. Of equally near
ones, an entry whose key describes the same computation comes first, since only its circumstances differ; then the latest.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, Final

from .deferred_namedtuple import NamedTuple
from .entry import EntryMeta
from .key import ABSENT, Key

#: Fields of a key that name the kind of its object, in order of preference.
_KIND_FIELDS: Final = ("primitive", "kind", "name")
#: Fields of a key that describe the computation; all others describe its circumstances.
_SUBJECT_FIELDS: Final = frozenset({*_KIND_FIELDS, "operation", "attributes"})
#: Fields that name what a user has written. An entry of another name explains nothing if there is one of the same name.
_NAME_FIELDS: Final = ("function", "kernels")
#: Near entries in an explanation.
_MOST_NEAR: Final = 5


class Known(NamedTuple):
    """A stored entry without its payload; `creations` is how often it was created, None if only Redis knows."""

    digest: str
    key: Key
    meta: EntryMeta
    creations: int | None = None


class Near(NamedTuple):
    """A stored entry and its differences: path of the field -> (value of the key in question, value there).

    `created` is in seconds since the epoch, `seconds` the time of its creation; a missing field has the value ABSENT.
    """

    digest: str
    differences: dict[str, tuple[Any, Any]]
    creator: str
    toolchain: str
    created: float
    seconds: float


class Explanation(NamedTuple):
    """The explanation of a miss.

    `kind` is the key's field `primitive`, `kind` or `name`; `missed` is the time of the miss, None if that is not
    known; `stored` is the entry that the key has now. `near` are the nearest of the `compared` entries: those of the
    same kind that existed at the time of the miss.
    """

    key: Key
    kind: str | None
    missed: float | None
    stored: Known | None
    compared: int
    near: tuple[Near, ...]


def kind_of(fields: dict[str, Any]) -> str | None:
    """Return the kind of object that a key's fields name; None if they do not name it."""
    return next((fields[name] for name in _KIND_FIELDS if isinstance(fields.get(name), str)), None)


class Explainer:
    """Compare keys with all that is stored."""

    def __init__(self, entries: Iterable[Known]) -> None:
        self._stored: dict[str, Known] = {}
        self._by_kind: dict[str | None, list[tuple[Known, dict[str, Any]]]] = {}
        for entry in entries:
            self._stored[entry.digest] = entry
            fields = entry.key.fields
            self._by_kind.setdefault(kind_of(fields), []).append((entry, fields))

    def explain(self, key: Key, missed: float | None = None) -> Explanation:
        """Compare a key with the entries that existed at the time `missed`, or exist now."""
        fields = key.fields
        kind, name = kind_of(fields), _name_of(fields)
        stored = self._stored.get(key.digest)
        if missed is None and stored is not None:
            missed = stored.meta.created - stored.meta.seconds
        candidates = [
            (_name_of(others) != name, sum(1 for _ in _unequal(fields, others)), entry)
            for entry, others in self._by_kind.get(kind, ())
            if entry.digest != key.digest and (missed is None or entry.meta.created <= missed)
        ]
        near = self._nearest(key, candidates)
        return Explanation(key, kind, missed, stored, len(candidates), tuple(near))

    def _nearest(self, key: Key, candidates: list[tuple[bool, int, Known]]) -> list[Near]:
        """Return the nearest of candidates.

        They are given with whether their names differ, and with the number of fields on the outermost level that differ.
        """
        candidates.sort(key=lambda candidate: candidate[:2])
        found: list[tuple[tuple[bool, int, bool, float], int, Near]] = []
        for number, (other_name, least, entry) in enumerate(candidates):
            # There are at least as many differences as fields that differ: nothing nearer can follow.
            if len(found) == _MOST_NEAR and (not other_name, -least) < found[0][0][:2]:
                break
            differences = key.diff(entry.key)
            other_subject = any(_outermost(path) in _SUBJECT_FIELDS for path in differences)
            meta = entry.meta
            near = Near(entry.digest, differences, meta.creator, meta.toolchain, meta.created, meta.seconds)
            # A heap whose first item is the farthest.
            item = ((not other_name, -len(differences), not other_subject, meta.created), number, near)
            if len(found) < _MOST_NEAR:
                heapq.heappush(found, item)
            else:
                heapq.heappushpop(found, item)
        return [near for _, _, near in sorted(found, key=lambda item: item[0], reverse=True)]


def _name_of(fields: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(fields.get(name) for name in _NAME_FIELDS)


def _unequal(here: dict[str, Any], there: dict[str, Any]) -> Iterator[str]:
    """Yield the names of fields that may differ; values that are equal in Python may still differ in type."""
    for name in here.keys() | there.keys():
        if here.get(name, ABSENT) != there.get(name, ABSENT):
            yield name


def _outermost(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]
