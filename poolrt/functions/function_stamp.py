"""A stamp of a function: whether its pickle would be the same now, without pickling it again.

A function sees the globals of the moment at which it is submitted. A stamp holds what a pickle contains, if all of it is
immutable, or a function for which the same holds: two moments with equal stamps have equal pickles. Others have no stamp.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, Final

from cloudpickle import cloudpickle as _internals

_MAIN: Final = "__main__"
#: Types of immutable values, whose identity stands for their content.
_VALUES: Final = frozenset((type(None), bool, int, float, complex, str, bytes))
#: Functions that a stamp may contain.
_FUNCTIONS: Final = 16


class FunctionStamp:
    """The stamp of ``fn``. ``facts`` are names of globals by their table, with their values, and attributes of functions."""

    __slots__ = ("_attributes", "_globals", "_modules", "_places")

    def __init__(self, attributes: list[Any], tables: list[Any], places: list[str]) -> None:
        self._attributes = attributes
        self._globals = tables
        self._places = places
        #: A pickle names the submodules that a function may use, of those that are imported.
        self._modules = len(sys.modules)

    def holds(self) -> bool:
        """Return whether the function is what it was, and imports from the same folders."""
        if sys.path != self._places or len(sys.modules) != self._modules:
            return False
        for fn, code, defaults, names, types_ in self._attributes:
            if fn.__code__ is not code or fn.__defaults__ is not defaults or fn.__kwdefaults__:
                return False
            if fn.__name__ != names[0] or fn.__qualname__ != names[1] or fn.__module__ != names[2] or fn.__dict__:
                return False
            if fn.__annotations__ != types_:
                return False
        for table, name, value in self._globals:  # noqa: SIM110 - a generator takes longer than what it looks at
            if table.get(name, table) is not value:
                return False
        return True


def stamp(fn: Callable[..., Any]) -> FunctionStamp | None:
    """Return the stamp of a function, None if it has none."""
    if "" in sys.path or _internals.list_registry_pickle_by_value():
        return None  # '' stands for the present folder
    attributes: list[Any] = []
    tables: list[Any] = []
    if not _collect(fn, attributes, tables):
        return None
    return FunctionStamp(attributes, tables, [*sys.path])


def _collect(fn: Any, attributes: list[Any], tables: list[Any]) -> bool:
    kind = type(fn)
    if kind is types.BuiltinFunctionType:
        owner = fn.__self__
        return owner is None or isinstance(owner, types.ModuleType)
    if kind is not types.FunctionType or len(attributes) >= _FUNCTIONS:
        return False
    if any(each[0] is fn for each in attributes):
        return True
    module: types.ModuleType | None = sys.modules.get(fn.__module__ or "")
    name: str = fn.__name__
    if fn.__module__ != _MAIN and module is not None and vars(module).get(name) is fn:
        tables.append((vars(module), name, fn))  # it travels by name
        return True
    if fn.__closure__ or fn.__dict__ or fn.__globals__.get("__name__") != _MAIN:
        return False
    if not all(type(value) in _VALUES for value in (fn.__defaults__ or ())) or fn.__kwdefaults__:
        return False
    if not all(type(value) is str or value in _VALUES for value in fn.__annotations__.values()):
        return False
    names = (fn.__name__, fn.__qualname__, fn.__module__)
    attributes.append((fn, fn.__code__, fn.__defaults__, names, {**fn.__annotations__}))
    table = fn.__globals__
    for name in _internals._extract_code_globals(fn.__code__):
        if name not in table:
            tables.append((table, name, table))  # a builtin, as long as no global hides it
            continue
        value = table[name]
        if type(value) is types.ModuleType:
            if sys.modules.get(value.__name__) is not value:
                return False
        elif type(value) not in _VALUES and not _collect(value, attributes, tables):
            return False
        tables.append((table, name, value))
    return True
