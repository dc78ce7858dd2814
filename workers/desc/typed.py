"""Data whose fields are checked when it is made: the annotation of a field is what it accepts.

Values of other types that stand for the same are replaced by values of the declared type: NumPy's numbers, arrays without
dimensions, lists, integers for floats, and floats without a fraction for integers. Everything else is refused here, before it
could become a number of an entry that no process can parse; truth values are no numbers.

Guarantees: equal data make equal keys, and equal keys come of equal data alone. A zero has no sign in a field of type
``float``. In one of type `Signed` it keeps its sign, and data that differ in it are not equal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import copysign, isinf
from operator import index
from typing import Any, Final, TypeAlias, cast

from poolrt.cachestore.deferred_namedtuple import NamedTuple

#: Any number: the class checks it itself, when it has the data type that the number is for.
Number: TypeAlias = float
#: A float whose operation computes other results with -0.0 than with 0.0.
Signed: TypeAlias = float
#: The range of numbers in entries: int64.
LEAST: Final = -(1 << 63)
MOST: Final = (1 << 63) - 1
#: The largest float32, which kernels take all parameters as. Infinities are accepted, too: `clip` may have one.
LARGEST: Final = (2.0 - 2.0**-23) * 2.0**127


class _Kind(NamedTuple):
    """The values of an annotation: one and several of them in words, their type, and the conversion of other values.

    A conversion returns a value of the type, or raises TypeError, ValueError or OverflowError. The expression ``wrong``
    is true for a ``value`` that needs it.
    """

    one: str
    several: str
    type: type
    convert: Callable[[Any], Any]
    wrong: str = "type(value) is not kind"


class _Field(NamedTuple):
    name: str
    kind: _Kind
    many: bool
    optional: bool


class Typed:
    """Base of frozen dataclasses whose fields are checked before their own ``__post_init__``.

    Raises ValueError naming field, value, class, and the values that are expected.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        own = cls.__dict__.get("__post_init__")
        found = [
            _field(name, text, cls.__module__)
            for name, text in cls.__annotations__.items()
            if not (name.startswith("_") or text.startswith("ClassVar"))
        ]
        # A dataclass with slots is a second class, which is made of the attributes of the first.
        if found and not hasattr(own, "checks_fields"):
            cls.__post_init__ = _checked(cls.__name__, found, own)  # type: ignore[attr-defined]
        if any(field.kind is _KINDS["Signed"] for field in found):
            cls.__eq__ = _equality(found)  # type: ignore[method-assign]  # a dataclass keeps it


def _checked(owner: str, fields: Sequence[_Field], own: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """Return the ``__post_init__`` that checks fields and then does what the class's own one does."""
    is_exact: Callable[[Any], bool] | None = None

    def check(data: Any) -> None:
        nonlocal is_exact
        if is_exact is None:
            is_exact = _exactness(fields)  # a process makes data of few of the classes that it defines
        if not is_exact(data):
            for field in fields:
                object.__setattr__(data, field.name, _convert(owner, field, getattr(data, field.name)))
        if own is not None:
            own(data)

    check.checks_fields = True  # type: ignore[attr-defined]
    return check


def _exactness(fields: Sequence[_Field]) -> Callable[[Any], bool]:
    """Return a function that returns whether all fields have the values that a conversion would give them.

    It is compiled from text, as dataclasses compile theirs: a loop over fields would double the time of making a
    descriptor.
    """
    names: dict[str, Any] = {"LEAST": LEAST, "MOST": MOST, "LARGEST": LARGEST, "copysign": copysign}
    lines = ["def is_exact(data):"]
    for number, (name, kind, many, optional) in enumerate(fields):
        names[f"kind{number}"] = kind.type
        wrong = kind.wrong.replace("kind", f"kind{number}")
        if many:
            lines += [
                f"    if type(data.{name}) is not tuple:",
                "        return False",
                f"    for value in data.{name}:",
            ]
            lines += [f"        if {wrong}:", "            return False"]
        else:
            wrong = f"value is not None and ({wrong})" if optional else wrong
            lines += [f"    value = data.{name}", f"    if {wrong}:", "        return False"]
    exec("\n".join([*lines, "    return True"]), names)
    return cast("Callable[[Any], bool]", names["is_exact"])


def _equality(fields: Sequence[_Field]) -> Callable[[Any, object], bool]:
    """Return the ``__eq__`` of a class with fields of type `Signed`: of dataclasses, and a zero's sign counts.

    It is compiled as `_exactness` is: attributes with post-ops are compared at each hit in the cache of descriptors.
    """
    one, other = (", ".join(f"{data}.{field.name}" for field in fields) for data in ("data", "other"))
    lines = [
        "def are_equal(data, other):",
        "    if other.__class__ is not data.__class__:",
        "        return NotImplemented",
        f"    if ({one},) != ({other},):",
        "        return False",
    ]
    for name in [field.name for field in fields if field.kind is _KINDS["Signed"] and not field.many]:
        lines += [
            f"    one, two = data.{name}, other.{name}",
            "    if one is not two and one == 0.0 and copysign(1.0, one) != copysign(1.0, two):",
            "        return False",
        ]
    for name in [field.name for field in fields if field.kind is _KINDS["Signed"] and field.many]:
        lines += [
            f"    for one, two in zip(data.{name}, other.{name}):",
            "        if copysign(1.0, one) != copysign(1.0, two):",
            "            return False",
        ]
    names: dict[str, Any] = {"copysign": copysign}
    exec("\n".join([*lines, "    return True"]), names)
    return cast("Callable[[Any, object], bool]", names["are_equal"])


def _field(name: str, text: str, module: str) -> _Field:
    """Read an annotation. Raises TypeError for one of a form that is not known here."""
    optional = text.endswith(" | None")
    inner = text.removesuffix(" | None")
    many = inner.startswith("tuple[") and inner.endswith(", ...]")
    if many:
        inner = inner.removeprefix("tuple[").removesuffix(", ...]")
    kind = _KINDS.get(inner) or _instances(vars(sys.modules[module]).get(inner))
    if kind is None:
        raise TypeError(f"{name}: a field cannot be checked by the annotation {text!r}")
    return _Field(name, kind, many, optional)


def _convert(owner: str, field: _Field, value: Any) -> Any:
    """Return a value of a field's type. Raises ValueError for one that stands for none."""
    name, kind, many, optional = field
    if value is None and optional:
        return None
    try:
        if not many:
            return kind.convert(value)
        if value is None or isinstance(value, (str, bytes, bytearray, Mapping, AbstractSet)):
            raise TypeError
        return tuple([kind.convert(item) for item in value])
    except (TypeError, ValueError, OverflowError):
        expected = f"a tuple of {kind.several}" if many else kind.one
        of = f" ({owner})" if owner else ""
        raise ValueError(f"{name}: expect {expected}, got {shorten(value)}{of}") from None


def to_float(name: str, value: object, owner: str = "") -> float:
    """Return a number as a float, which keeps the sign of a zero. Raises ValueError naming argument and owner for others."""
    return float(_convert(owner, _Field(name, _KINDS["Signed"], many=False, optional=False), value))


def to_floats(name: str, values: object, owner: str = "") -> tuple[float, ...]:
    """Return several numbers as floats. Raises ValueError as `to_float` does."""
    return tuple(_convert(owner, _Field(name, _KINDS["Signed"], many=True, optional=False), values))


def to_integer(name: str, value: object, owner: str = "") -> int:
    """Return an integer of any type as one of Python's. Raises ValueError as `to_float` does."""
    if type(value) is int and LEAST <= value <= MOST:
        return value
    return int(_convert(owner, _Field(name, _KINDS["int"], many=False, optional=False), value))


def to_integers(name: str, values: object, owner: str = "") -> tuple[int, ...]:
    """Return integers of any type as Python's. Raises ValueError as `to_float` does."""
    return tuple(_convert(owner, _Field(name, _KINDS["int"], many=True, optional=False), values))


def to_bool(name: str, value: object, owner: str = "") -> bool:
    """Return a truth value of any type as one of Python's. Raises ValueError as `to_float` does."""
    return bool(_convert(owner, _Field(name, _KINDS["bool"], many=False, optional=False), value))


def shorten(value: object) -> str:
    """Return how a value begins, on one line."""
    text = f"a {type(value).__name__}"
    if type(value).__repr__ is not object.__repr__:
        try:
            text = repr(value)
        except ValueError:  # an integer of more digits than Python prints
            pass
    return " ".join(text[:80].split())


def _scalar(value: Any) -> Any:
    """Return what an array without dimensions holds, and any other value as it is."""
    # Without NumPy, which workers do not import. Its scalars have no dimensions either; of those, `Real` knows the numbers.
    if getattr(value, "ndim", None) == 0 and callable(item := getattr(value, "item", None)):
        return item()
    return value


def _integer(value: Any) -> int:
    number = value if type(value) is int else _number(value)
    if not (LEAST <= number <= MOST and number == int(number)):
        raise ValueError
    return int(number)


def _number(value: Any) -> float:
    """Return any number as an integer or a float."""
    from numbers import Real

    value = _scalar(value)
    if isinstance(value, bool):
        raise TypeError
    if hasattr(value, "__index__"):
        return index(value)
    # NumPy's numbers are registered there; text and arrays are not.
    if not isinstance(value, Real):
        raise TypeError
    return float(value)


def _signed(value: Any) -> float:
    number = float(_number(value))
    # NaN does not equal itself: no primitive would be found again.
    if not (abs(number) <= LARGEST or isinf(number)):
        raise ValueError
    return number


def _float(value: Any) -> float:
    return without_sign(_signed(value))


def without_sign(value: float) -> float:
    """Return a number; 0.0 for -0.0."""
    return value + 0.0


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str.__str__(value)


def _truth(value: Any) -> bool:
    found = _scalar(value)
    if type(found) is not bool:
        raise TypeError
    return found


def _instances(kind: Any) -> _Kind | None:
    """Return the values of a class; it has no subclasses that count."""
    if not isinstance(kind, type):
        return None

    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return _Kind(f"a {kind.__name__}", f"{kind.__name__}s", kind, convert)


_NO_INTEGER: Final = "type(value) is not int or not LEAST <= value <= MOST"
_NO_SIGNED: Final = "type(value) is not float or not -LARGEST <= value <= LARGEST"
_NO_FLOAT: Final = f"{_NO_SIGNED} or (value == 0.0 and copysign(1.0, value) < 0.0)"
_FLOATS: Final = ("a number that a float32 holds", "numbers that a float32 holds", float)
#: Annotation -> its values.
_KINDS: Final = {
    "int": _Kind("an integer of 64 bits", "integers of 64 bits", int, _integer, _NO_INTEGER),
    "float": _Kind(*_FLOATS, _float, _NO_FLOAT),
    "Signed": _Kind(*_FLOATS, _signed, _NO_SIGNED),
    "Number": _Kind("a number", "numbers", float, _number, "type(value) not in (int, float)"),
    "str": _Kind("a str", "texts", str, _text),
    "bool": _Kind("a bool", "bools", bool, _truth),
}
