"""Dataclasses whose methods are generated at their first use are those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, get_type_hints

import pytest

from poolrt.cachestore.deferred_dataclass import MISSING, dataclass, field, fields, replace

_OPTIONS: list[dict[str, bool]] = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": text}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
    for text in (False, True)
]


def _classes(dataclass: Any, field: Any, options: dict[str, bool]) -> dict[str, Any]:
    """Return dataclasses of several shapes, made with the given functions."""

    @dataclass(**options)
    class Plain:
        one: int
        other: str

    @dataclass(**options)
    class Empty:
        """Has no field."""

    @dataclass(**options)
    class Defaults:
        one: int
        two: str = "2"
        many: list[int] = field(default_factory=lambda: [1, 2])
        hidden: float = field(default=0.5, repr=False, compare=False)
        constant: ClassVar[int] = 7

        def total(self) -> int:
            return self.one + self.constant

    @dataclass(**options)
    class Computed:
        self: int
        _set: int = 3
        later: int = field(init=False, repr=False)
        fixed: int = field(init=False, default=4)
        made: dict[str, int] = field(init=False, default_factory=dict)

        def __post_init__(this) -> None:  # noqa: N805 - a field is named self
            object.__setattr__(this, "later", this.self + 1)

    @dataclass(**options)
    class Derived(Defaults):
        """Has its own fields behind the inherited ones, and another default for one of those."""

        two: str = "two"
        last: tuple[int, ...] = ()

    @dataclass(**options)
    class Own:
        one: int
        two: int = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.one == other.one

        def __repr__(self) -> str:
            return "own"

    @dataclass(**options)
    class OwnHash:
        one: int

        def __hash__(self) -> int:
            return 12

    return {each.__name__: each for each in (Plain, Empty, Defaults, Computed, Derived, Own, OwnHash)}


_MAKINGS: dict[str, list[Callable[[Any], Any]]] = {
    "Plain": [
        lambda c: c(1, "2"),
        lambda c: c(other="2", one=1),
        lambda c: c(1, "3"),
        lambda c: c(1),
        lambda c: c(1, 2, 3),
    ],
    "Empty": [lambda c: c(), lambda c: c(1)],
    "Defaults": [
        lambda c: c(1),
        lambda c: c(1, "x"),
        lambda c: c(1, many=[]),
        lambda c: c(1, hidden=9.0),
        lambda c: c(),
    ],
    "Computed": [lambda c: c(1), lambda c: c(1, 2), lambda c: c(1, later=2)],
    "Derived": [lambda c: c(1), lambda c: c(1, "2", [], 0.5, (1,)), lambda c: c(1, last=(2,))],
    "Own": [lambda c: c(1), lambda c: c(1, 2), lambda c: c(2)],
    "OwnHash": [lambda c: c(1), lambda c: c(2)],
}


def _outcome(action: Callable[[], Any]) -> Any:
    """Return what an action returns, or the type and text of what it raises."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001 - the test compares it
        return type(error), str(error)


def _is_equal(made: Any, make: Callable[[Any], Any], cls: Any) -> bool:
    return bool(made == make(cls))


def _describe(cls: Any, make: Callable[[Any], Any], others: list[Callable[[Any], Any]]) -> dict[str, Any]:
    """Return what can be seen of an instance."""
    made = _outcome(lambda: make(cls))
    if isinstance(made, tuple):
        return {"raised": made}
    names = [each.name for each in dataclasses.fields(made)]
    text = repr(made)
    return {
        "values": {name: getattr(made, name) for name in names},
        "repr": text if cls.__repr__ is not object.__repr__ else "object's",
        "asdict": dataclasses.asdict(made),
        "equal": [_outcome(partial(_is_equal, made, other, cls)) for other in others],
        "unequal to a tuple": made != tuple(names),
        "hash": "object's" if cls.__hash__ is object.__hash__ else _outcome(lambda: hash(made)),
        "set": _outcome(lambda: setattr(made, names[0], 5)) if names else None,
        "new": _outcome(lambda: setattr(made, "new", 5)) is None,
        "delete": _outcome(lambda: delattr(made, names[0])) if names else None,
        "has a dict": hasattr(made, "__dict__"),
        "is weakly referable": not isinstance(_outcome(lambda: weakref.ref(made)), tuple),
    }


@pytest.mark.parametrize(
    "options", _OPTIONS, ids=lambda options: "-".join(n for n, on in options.items() if on) or "none"
)
@pytest.mark.parametrize("name", _MAKINGS)
def test_instances_are_those_of_the_standard_library(name: str, options: dict[str, bool]) -> None:
    own = _classes(dataclass, field, options)[name]
    standard = _classes(dataclasses.dataclass, dataclasses.field, options)[name]
    for make in _MAKINGS[name]:
        if options["frozen"] and options["slots"]:
            # There, another attribute is refused by accident: Python 3.11 raises TypeError.
            (one, other) = (_describe(cls, make, _MAKINGS[name]) for cls in (own, standard))
            assert one.pop("new", False) == other.pop("new", False)
            assert one == other
        else:
            assert _describe(own, make, _MAKINGS[name]) == _describe(standard, make, _MAKINGS[name])
    assert own.__match_args__ == standard.__match_args__
    assert own.__doc__ == standard.__doc__ or own.__doc__ is None
    assert getattr(own, "__slots__", None) == getattr(standard, "__slots__", None)
    assert str(inspect.signature(own)) == str(inspect.signature(standard))
    for mine, theirs in zip(dataclasses.fields(own), dataclasses.fields(standard), strict=True):
        for part in ("name", "type", "init", "repr", "compare", "default"):
            assert getattr(mine, part) == getattr(theirs, part)
    for here, there in zip(fields(own), dataclasses.fields(standard), strict=True):
        assert (here.name, here.init, here.type) == (there.name, there.init, there.type)
        assert (here.default is MISSING) == (there.default is dataclasses.MISSING)
    assert get_type_hints(own) == get_type_hints(standard)


@dataclass(frozen=True, slots=True)
class Travelling:
    """A class that pickle finds."""

    one: int
    many: tuple[int, ...] = ()
    length: int = field(init=False, default=0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.many))


@dataclass(slots=True, weakref_slot=True, eq=False)
class Watched:
    """A class with slots that can be referred to weakly."""

    one: int = field(default=1, metadata={"unit": "s"})


@dataclasses.dataclass(frozen=True)
class Further(Travelling):
    """A dataclass of the standard library."""

    own: str = "own"


def test_instances_travel_and_are_copied_and_changed() -> None:
    data = Travelling(1, (2, 3))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copied = pickle.loads(pickle.dumps(data, protocol))  # noqa: S301 - this test's own
        assert (copied, copied.length) == (data, 2)
    assert copy.copy(data) == copy.deepcopy(data) == data
    assert replace(data, many=(5,)) == dataclasses.replace(data, many=(5,)) == Travelling(1, (5,))
    for change in (replace, dataclasses.replace):
        with pytest.raises(ValueError, match="field length is declared with init=False"):
            change(data, length=4)
        with pytest.raises(TypeError, match="unexpected keyword argument 'two'"):
            change(data, two=4)
    match data:
        case Travelling(one, (_, last)):
            assert (one, last) == (1, 3)
        case _:
            pytest.fail("the pattern does not match")


def test_a_process_that_unpickles_its_first_instance_has_all_methods() -> None:
    code = (
        "import sys, pickle; found = pickle.loads(bytes.fromhex(sys.argv[1])); "
        "print(found, found == found, hash(found) == hash(found), found.length)"
    )
    data = pickle.dumps(Travelling(1, (2, 3))).hex()
    run = [sys.executable, "-c", code, data]
    result = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split("\n")[0] == "Travelling(one=1, many=(2, 3), length=2) True True 2"


def test_a_dataclass_of_the_standard_library_may_derive_from_a_deferred_one() -> None:
    data = Further(1, (2,), "x")
    assert repr(data) == "Further(one=1, many=(2,), length=1, own='x')"
    assert [each.name for each in dataclasses.fields(data)] == ["one", "many", "length", "own"]
    assert data == Further(1, (2,), "x") != Further(1, (2,), "y")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'one'"):
        data.one = 3  # type: ignore[misc]


def test_weak_references_and_metadata() -> None:
    data = Watched()
    assert weakref.ref(data)() is data
    assert fields(Watched)[0].metadata == dataclasses.fields(Watched)[0].metadata == {"unit": "s"}


def test_a_method_is_an_ordinary_function_after_its_first_use() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        one: int

    for name, use in (
        ("__init__", lambda: Fresh(1)),
        ("__eq__", lambda: Fresh(1) == Fresh(1)),
        ("__hash__", lambda: hash(Fresh(1))),
    ):
        assert not inspect.isfunction(vars(Fresh)[name])
        use()
        assert inspect.isfunction(vars(Fresh)[name])
        assert vars(Fresh)[name].__qualname__.endswith(f"Fresh.{name}")
        assert vars(Fresh)[name].__module__ == __name__


def test_a_class_without_a_decorator_inherits_deferred_methods() -> None:
    @dataclass
    class Base:
        one: int

    class Derived(Base):
        def __init__(self, one: int) -> None:
            super().__init__(one + 1)

    assert Derived(1).one == 2
    assert Derived(1) == Derived(1) != Base(2)


def test_threads_that_use_a_class_first_at_once_have_equal_methods() -> None:
    for _ in range(30):

        @dataclass(frozen=True, slots=True)
        class Shared:
            one: int
            two: str = "2"

        found: list[Any] = []
        start = threading.Barrier(4)

        def work(shared: Any = Shared, found: list[Any] = found, start: threading.Barrier = start) -> None:
            start.wait(60)
            made = shared(1)
            found.append((made, hash(made), repr(made), made == shared(1)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(found) == 4
        assert all(each == found[0] and each[3] for each in found)


def _mutable() -> None:
    @dataclass
    class _Mutable:
        many: list[int] = []  # noqa: RUF012 - the mistake


def _disordered() -> None:
    @dataclass
    class _Disordered:
        one: int = 1
        two: int  # type: ignore[misc]

    _Disordered(1, 2)


def _thawed() -> None:
    @dataclass  # pyright: ignore[reportGeneralTypeIssues]
    class _Thawed(Travelling):  # type: ignore[misc]
        pass


def _guarded() -> None:
    @dataclass(frozen=True)
    class _Guarded:
        one: int

        def __setattr__(self, name: str, value: object) -> None:
            pass


@pytest.mark.parametrize(
    ("mistake", "kind", "text"),
    [
        (_mutable, ValueError, "mutable default <class 'list'> for field many is not allowed"),
        (_disordered, TypeError, "non-default argument 'two' follows default argument"),
        (_thawed, TypeError, "cannot inherit"),
        (_guarded, TypeError, "__setattr__"),
    ],
)
def test_mistakes_are_those_of_the_standard_library(
    mistake: Callable[[], None], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        mistake()


def test_defining_and_using_a_class_does_not_import_the_standard_librarys() -> None:
    code = (
        "import sys\n"
        "from poolrt.cachestore.deferred_dataclass import dataclass, field, fields, replace\n"
        "@dataclass(frozen=True, slots=True)\nclass Data:\n    one: int\n    two: list = field(default_factory=list)\n"
        "data = replace(Data(1), one=2); (data == data, repr(data), fields(data))\n"
        "print(*sorted({'dataclasses', 'inspect'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == []
