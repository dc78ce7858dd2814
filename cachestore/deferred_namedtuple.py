"""Named tuples whose constructors are generated at their first use, which makes importing their modules several times as fast.

The standard library compiles the annotation of each field and the text of a constructor as it defines a class, which takes
some 0.2 ms. A coordinator and its fork server define seventy as they start, and most are never made.

Guarantees: instances are tuples with the attributes, methods and texts of those of `typing.NamedTuple`; `copy`, `pickle`, `match`
and `typing.get_type_hints` take them. Two threads that generate a constructor at once make equal ones.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast


class Deferred:
    """An attribute of a class that ``make(cls)`` makes when it is first asked for."""

    __slots__ = ("_make", "_name", "_owner")

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, cls: type | None = None) -> Any:
        made = self._make(self._owner)
        if vars(self._owner).get(self._name) is self:
            setattr(self._owner, self._name, made)
        return made.__get__(instance, cls) if hasattr(made, "__get__") else made


class _Tuple(tuple[Any, ...]):
    """What all named tuples have."""

    __slots__ = ()
    _fields = cast("tuple[str, ...]", ())

    @classmethod
    def _make(cls, values: Any) -> Any:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **changes: Any) -> Any:
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return made

    __replace__ = _replace

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        texts = [f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)]
        return f"{type(self).__name__}({', '.join(texts)})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class _Meta(type):
    """Makes a class of tuples, which is no instance of this, of the body of one that derives from `NamedTuple`."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, body)
        fields = tuple(body.get("__annotations__", ()))
        defaults = {field: body.pop(field) for field in fields if field in body}
        added: dict[str, Any] = {
            "__slots__": (),
            "__match_args__": fields,
            "__new__": Deferred(_constructor),
            "_fields": fields,
            "_field_defaults": defaults,
        }
        for index, field in enumerate(fields):
            added[field] = _tuplegetter(index, f"Alias for field number {index}")
        for taken in body.keys() & added.keys():
            raise AttributeError(f"Cannot overwrite NamedTuple attribute {taken}")
        return type(name, tuple([_Tuple if base is _NamedTuple else base for base in bases]), body | added)


class _NamedTuple(metaclass=_Meta):
    pass


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    NamedTuple = _NamedTuple


def _constructor(cls: Any) -> Any:
    names: dict[str, Any] = {"_tuple_new": tuple.__new__}
    values = "".join([f"{name}, " for name in cls._fields])
    exec(f"def __new__(_cls, {values}): return _tuple_new(_cls, ({values}))", names)
    made: Any = names["__new__"]
    made.__module__ = cls.__module__
    made.__qualname__ = f"{cls.__name__}.__new__"
    made.__doc__ = f"Create new instance of {cls.__name__}({', '.join(cls._fields)})"
    made.__defaults__ = tuple(cls._field_defaults.values()) or None
    made.__annotations__ = {**cls.__annotations__}
    return staticmethod(made)
