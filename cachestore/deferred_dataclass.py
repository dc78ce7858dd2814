"""Dataclasses whose methods are generated at their first use, which makes importing their modules several times as fast.

The standard library compiles the text of six methods as it defines a class, which takes some 0.6 ms, and imports `inspect`.
A process of a pool defines a hundred classes as it starts, and uses a few methods of some of them.

Guarantees: `dataclass`, `field`, `fields` and `replace` have the results of the standard library's, for the parameters that
they have. `dataclasses.fields`, `asdict`, `copy`, `pickle` and `match` take the instances, and a dataclass of the standard
library may derive from the classes. Once it is generated, a method is an ordinary function. Two threads that generate one at
once make equal ones.
"""

from __future__ import annotations

from abc import update_abstractmethods
from collections.abc import Mapping, Sequence
from reprlib import recursive_repr
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from .deferred_namedtuple import Deferred, NamedTuple


class _Factory:
    """The default of a parameter whose value a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()


#: The default, or the factory, of a field that has none.
_NONE: Final = object()


class _Field(NamedTuple):
    """A field, as `field` describes it, and the text of its annotation."""

    default: Any = _NONE
    default_factory: Any = _NONE
    init: bool = True
    repr: bool = True
    compare: bool = True
    metadata: Mapping[str, Any] = MappingProxyType({})
    name: str = ""
    type: Any = None


class _Definition(NamedTuple):
    """The fields of a class, inherited ones first, and the options that its methods depend on.

    ``given`` are the names of those that the constructor takes.
    """

    fields: tuple[_Field, ...]
    frozen: bool
    slots: bool
    given: tuple[str, ...]


def _dataclass(
    cls: Any = None,
    /,
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    weakref_slot: bool = False,
) -> Any:
    """Return a class with the methods that `dataclasses.dataclass` gives it; with ``slots``, it is another class."""

    def define(cls: Any) -> Any:
        own = _own_fields(cls)
        found = _all_fields(cls, own, frozen)
        definition = _Definition(found, frozen, slots, tuple([each.name for each in found if each.init]))
        added: dict[str, Any] = {
            "__dataclass_fields__": Deferred(_standard_fields),
            "__dataclass_params__": Deferred(_standard_params),
            "__deferred__": definition,
            "__replace__": _replace,
            "__match_args__": definition.given,
            **({"__init__": Deferred(_init)} if init else {}),
            **({"__repr__": Deferred(_repr)} if repr else {}),
            **({"__eq__": Deferred(_eq)} if eq else {}),
            **({"__setattr__": Deferred(_setattr), "__delattr__": Deferred(_delattr)} if frozen else {}),
            **({"__getstate__": _getstate, "__setstate__": _setstate} if frozen and slots else {}),
        }
        given = vars(cls)
        if frozen and ("__setattr__" in given or "__delattr__" in given):
            raise TypeError(f"a frozen dataclass cannot have __setattr__ or __delattr__: {cls.__name__}")
        added = {name: value for name, value in added.items() if name not in given}
        # Python sets the hash of a class with `__eq__` and without a hash to None.
        if eq and (given.get("__hash__") is None and ("__eq__" in given or "__hash__" not in given)):
            added["__hash__"] = Deferred(_hash) if frozen else None
        if slots:
            return _with_slots(cls, own, added, weakref_slot)
        for each in own:
            if each.default is not _NONE:
                setattr(cls, each.name, each.default)
            elif each.name in given:
                delattr(cls, each.name)
        for name, value in added.items():
            setattr(cls, name, value)
            if isinstance(value, Deferred):
                value.__set_name__(cls, name)
        return update_abstractmethods(cls)

    return define if cls is None else define(cls)


def _field(
    *,
    default: Any = _NONE,
    default_factory: Any = _NONE,
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
    metadata: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Describe a field, as `dataclasses.field` does."""
    return _Field(default, default_factory, init, repr, compare, metadata)


def _fields(data: Any) -> tuple[Any, ...]:
    """Return the fields of a class or an instance, as `dataclasses.fields` does."""
    found: _Definition = data.__deferred__
    return found.fields


def _replace(data: Any, /, **changes: Any) -> Any:
    """Return data of the same class, with other values of some fields, as `dataclasses.replace` does."""
    definition: _Definition = type(data).__deferred__
    for name in definition.given:
        if name not in changes:
            changes[name] = getattr(data, name)
    if len(changes) > len(definition.given):
        for name in [each.name for each in definition.fields if not each.init and each.name in changes]:
            raise ValueError(f"field {name} is declared with init=False, it cannot be specified with replace()")
    return type(data)(**changes)


if TYPE_CHECKING:
    from dataclasses import MISSING as MISSING
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
    from dataclasses import replace as replace
else:
    MISSING, dataclass, field, fields, replace = _NONE, _dataclass, _field, _fields, _replace


def _own_fields(cls: Any) -> list[_Field]:
    """Return the fields that the body of a class declares."""
    found = []
    for name, annotation in cls.__annotations__.items():
        if isinstance(annotation, str) and annotation.startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = vars(cls).get(name, _NONE)
        described = given if isinstance(given, _Field) else _Field(given)
        if described.default is not _NONE and described.default.__class__.__hash__ is None:
            kind = type(described.default)
            raise ValueError(f"mutable default {kind} for field {name} is not allowed: use default_factory")
        found.append(described._replace(name=name, type=annotation))
    return found


def _all_fields(cls: Any, own: Sequence[_Field], frozen: bool) -> tuple[_Field, ...]:
    found: dict[str, _Field] = {}
    for base in cls.__mro__[-1:0:-1]:
        definition = vars(base).get("__deferred__")
        if definition is not None:
            if definition.frozen is not frozen:
                raise TypeError("a frozen dataclass and one that is not cannot inherit from each other")
            found |= {each.name: each for each in definition.fields}
    found |= {each.name: each for each in own}
    return tuple(found.values())


def _with_slots(cls: Any, own: Sequence[_Field], added: dict[str, Any], weakref_slot: bool) -> Any:
    """Return the class again, with slots, which a class must have from its beginning on."""
    given = vars(cls)
    if "__slots__" in given:
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    inherited: set[str] = set()
    for base in cls.__mro__[1:-1]:
        slots = vars(base).get("__slots__", ())
        inherited.update((slots,) if isinstance(slots, str) else slots)
    names = [each.name for each in own] + ["__weakref__"] * weakref_slot
    body = {name: value for name, value in given.items() if name not in {*names, "__dict__", "__weakref__"}}
    body |= added
    body["__slots__"] = tuple([name for name in names if name not in inherited])
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _init(cls: Any) -> Any:
    definition: _Definition = cls.__deferred__
    names: dict[str, Any] = {"__dataclass_factory__": _FACTORY, "__dataclass_set__": object.__setattr__}
    this = "__dataclass_self__" if any(each.name == "self" for each in definition.fields) else "self"
    parameters, lines = [this], []
    for number, each in enumerate(definition.fields):
        name = value = each.name
        if each.default_factory is not _NONE:
            names[f"__dataclass_factory{number}__"] = each.default_factory
            value = f"__dataclass_factory{number}__()"
            if each.init:
                parameters.append(f"{name}=__dataclass_factory__")
                value = f"{value} if {name} is __dataclass_factory__ else {name}"
        elif each.default is not _NONE:
            names[f"__dataclass_default{number}__"] = each.default
            if each.init:
                parameters.append(f"{name}=__dataclass_default{number}__")
            elif definition.slots:
                value = f"__dataclass_default{number}__"
            else:
                continue
        elif each.init:
            if "=" in parameters[-1]:
                raise TypeError(f"non-default argument {name!r} follows default argument")
            parameters.append(name)
        else:
            continue
        lines.append(
            f"__dataclass_set__({this}, {name!r}, {value})" if definition.frozen else f"{this}.{name} = {value}"
        )
    if hasattr(cls, "__post_init__"):
        lines.append(f"{this}.__post_init__()")
    made = _compile(cls, "__init__", parameters, lines or ["pass"], names)
    made.__annotations__ = {each.name: each.type for each in definition.fields if each.init} | {"return": None}
    return made


def _eq(cls: Any) -> Any:
    one, other = (_values(cls, data) for data in ("self", "other"))
    lines = ["if other.__class__ is self.__class__:", f"    return {one} == {other}", "return NotImplemented"]
    return _compile(cls, "__eq__", ["self", "other"], lines, {})


def _hash(cls: Any) -> Any:
    return _compile(cls, "__hash__", ["self"], [f"return hash({_values(cls, 'self')})"], {})


def _values(cls: Any, data: str) -> str:
    """Return the text of a tuple with the values of fields that are compared."""
    return "(" + "".join(f"{data}.{each.name}, " for each in cls.__deferred__.fields if each.compare) + ")"


def _repr(cls: Any) -> Any:
    names = [each.name for each in cls.__deferred__.fields if each.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807 - it becomes the method of this name
        return f"{self.__class__.__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return _named(cls, __repr__)


def _setattr(cls: Any) -> Any:
    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807 - as above
        _check_free(self, cls, "assign to", name)
        super(cls, self).__setattr__(name, value)

    return _named(cls, __setattr__)


def _delattr(cls: Any) -> Any:
    def __delattr__(self: Any, name: str) -> None:  # noqa: N807 - as above
        _check_free(self, cls, "delete", name)
        super(cls, self).__delattr__(name)

    return _named(cls, __delattr__)


def _check_free(data: Any, cls: Any, action: str, name: str) -> None:
    """Raise FrozenInstanceError for an attribute of a frozen dataclass, for a derived class's own only for its fields."""
    if type(data) is cls or any(each.name == name for each in cls.__deferred__.fields):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {action} field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in self.__deferred__.fields]


def _setstate(self: Any, state: list[Any]) -> None:
    for each, value in zip(self.__deferred__.fields, state, strict=False):
        object.__setattr__(self, each.name, value)


def _compile(cls: Any, name: str, parameters: list[str], lines: list[str], names: dict[str, Any]) -> Any:
    text = "\n    ".join([f"def {name}({', '.join(parameters)}):", *lines])
    exec(text, names)
    return _named(cls, names[name])


def _named(cls: Any, function: Any) -> Any:
    function.__module__ = cls.__module__
    function.__qualname__ = f"{cls.__qualname__}.{function.__name__}"
    return function


def _standard_fields(cls: Any) -> Any:
    return _standard(cls).__dataclass_fields__


def _standard_params(cls: Any) -> Any:
    return _standard(cls).__dataclass_params__


def _standard(cls: Any) -> Any:
    """Return a class of the standard library's `dataclass` with the same fields, for its functions."""
    import dataclasses

    definition: _Definition = cls.__deferred__
    body: dict[str, Any] = {"__annotations__": {}, "__module__": cls.__module__}
    for each in definition.fields:
        options: dict[str, Any] = {
            "init": each.init,
            "repr": each.repr,
            "compare": each.compare,
            "metadata": each.metadata,
        }
        if each.default is not _NONE:
            options["default"] = each.default
        if each.default_factory is not _NONE:
            options["default_factory"] = each.default_factory
        body["__annotations__"][each.name] = each.type
        body[each.name] = dataclasses.field(**options)
    return dataclasses.dataclass(init=False, repr=False, eq=False, frozen=definition.frozen)(
        type(cls.__name__, (), body)
    )
