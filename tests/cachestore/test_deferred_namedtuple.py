"""Named tuples whose constructors are generated at their first use are those of the standard library."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_type_hints

import pytest

from poolrt.cachestore import deferred_namedtuple

T = TypeVar("T")
_BASES = {"deferred": deferred_namedtuple.NamedTuple, "typing": typing.NamedTuple}


def _classes(base: Any) -> dict[str, Any]:
    """Return named tuples of several shapes, derived from the given base."""

    class Plain(base):  # type: ignore[misc]
        """Has a text."""

        one: int
        other: str

    class Empty(base):  # type: ignore[misc]
        pass

    class Defaults(base):  # type: ignore[misc]
        one: int
        two: str = "2"
        many: tuple[int, ...] = (1, 2)

        @property
        def total(self) -> int:
            return self.one + sum(self.many)

        def __repr__(self) -> str:
            return f"<{self.one}>"

    class Derived(Defaults):
        def doubled(self) -> Any:
            return self._replace(one=2 * self.one)

    class Typed(base, Generic[T]):  # type: ignore[misc]
        value: T

    return {each.__name__: each for each in (Plain, Empty, Defaults, Derived, Typed)}


_ACTIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "made": lambda c: [c["Plain"](1, "a"), c["Plain"](other="b", one=2), c["Empty"](), c["Defaults"](1), c["Typed"](4)],
    "without the first": lambda c: c["Defaults"](two="3"),
    "too many": lambda c: c["Plain"](1, 2, 3),
    "unknown": lambda c: c["Plain"](1, third=3),
    "attributes": lambda c: [(x := c["Defaults"](1, many=(3,))).one, x.two, x.many, x.total, x.index((3,))],
    "assigned": lambda c: setattr(c["Plain"](1, 2), "one", 3),
    "equal": lambda c: [c["Plain"](1, 2) == (1, 2), c["Plain"](1, 2) < (1, 3), hash(c["Plain"](1, 2)) == hash((1, 2))],
    "replaced": lambda c: c["Plain"](1, 2)._replace(other=3),
    "replaced unknown": lambda c: c["Plain"](1, 2)._replace(third=3),
    "as a dict": lambda c: c["Defaults"](1)._asdict(),
    "of values": lambda c: c["Plain"]._make([1, 2]),
    "of too few values": lambda c: c["Plain"]._make([1]),
    "derived": lambda c: [c["Derived"](3).doubled(), c["Derived"](3).total, c["Derived"]._make([1, 2, 3])],
    "copied": lambda c: [copy.copy(c["Plain"](1, [2])), copy.deepcopy(c["Defaults"](1))],
    "described": lambda c: [
        [
            each._fields,
            each._field_defaults,
            each.__match_args__,
            each.__name__,
            each.__annotations__.keys(),
        ]
        for each in c.values()
    ],
    "parameters": lambda c: [[p.name for p in inspect.signature(each).parameters.values()] for each in c.values()],
    "hints": lambda c: get_type_hints(c["Defaults"]),
    "type parameters": lambda c: [c["Typed"].__parameters__, c["Typed"][int](3)],
}


@pytest.mark.parametrize("action", _ACTIONS.values(), ids=_ACTIONS.keys())
def test_they_do_what_the_standard_librarys_do(action: Callable[[dict[str, Any]], object]) -> None:
    found = {}
    for name, base in _BASES.items():
        try:
            found[name] = repr(action(_classes(base)))
        except (TypeError, ValueError, AttributeError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    assert found["deferred"] == found["typing"]


class Pair(deferred_namedtuple.NamedTuple):
    one: int
    two: int = 2


def test_they_are_pickled_by_name_and_matched() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(Pair(1), protocol))  # noqa: S301 - it has just made it
        assert type(found) is Pair
        assert found == (1, 2)
    match Pair(3):
        case Pair(one, two=two):
            assert (one, two) == (3, 2)


def test_an_attribute_of_the_class_cannot_be_overwritten() -> None:
    base: Any = deferred_namedtuple.NamedTuple
    with pytest.raises(AttributeError, match="_fields"):

        class Wrong(base):  # type: ignore[misc]
            _fields = ()


def test_two_threads_may_make_the_first_ones_at_once() -> None:
    for _ in range(20):
        kind = _classes(deferred_namedtuple.NamedTuple)["Plain"]
        found: list[object] = []

        def make(kind: Any = kind, found: list[object] = found) -> None:
            found.append(kind(1, 2))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [(1, 2)] * 4
