"""What the code of a Python function depends on, as named fields of a key. Imports no compiler.

A function is described with all functions that it can reach: through globals, closures, defaults and attributes of
modules. Each has the digest of its bytecode and the values of the constants that it names, so that two keys differ in the
field of the callee or constant that changed. Values are described by content, never by address, `hash` or order of a set.

Limitation: line numbers are left out, so that a comment makes nothing cold. A traceback through compiled code may show
the lines of the time of the creation.
"""

from __future__ import annotations

import builtins
import dis
import enum
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from poolrt.cachestore.digests import sha256
from poolrt.cachestore.key import Key

#: Longest text or array, in characters or bytes, that a key holds; of a longer one it holds the digest.
_LONGEST: Final = 128
#: Deepest nesting of a constant; a key's own limit is 64.
_DEEPEST: Final = 16
#: Packages whose functions are named only: their versions are in the key.
_TRUSTED: Final = frozenset({"numpy", "numba", "llvmlite", "builtins", *sys.stdlib_module_names}) - {"__main__"}
_MISSING: Final = object()
_SCALARS: Final = (type(None), bool, int, float)

#: Describes a value that this module does not know: returns a field's value, or raises NotShareable.
Foreign = Callable[[Any, "Fingerprint"], Any]


class NotShareable(Exception):
    """A function depends on something that cannot be described by content; each process compiles it for itself."""


class Fingerprint:
    """One function and everything that it reaches, described once each."""

    def __init__(self, function: FunctionType, foreign: Foreign | None = None) -> None:
        """Describe a function. ``foreign`` describes values of other libraries. Raises NotShareable."""
        self._foreign = foreign
        self._labels: dict[FunctionType, str] = {}
        self._described: dict[str, Any] = {}
        self._depth = 0
        self._waiting: list[FunctionType] = []
        #: Names of globals and attributes in the bytecode of all that is described.
        self.names: set[str] = set()
        self.name = self.add(function)
        self.describe_waiting()

    @property
    def functions(self) -> Mapping[FunctionType, str]:
        """All functions reached, the described one first, with their names."""
        return self._labels

    @property
    def own(self) -> dict[str, Any]:
        """The fields of the function itself: ``code``, ``constants``, and ``defaults`` if it has any."""
        fields: dict[str, Any] = self._described[self.name]
        return fields

    @property
    def callees(self) -> dict[str, Any]:
        """The fields of each other function that it reaches, by name."""
        return {name: fields for name, fields in sorted(self._described.items()) if name != self.name}

    def add(self, function: FunctionType, options: Any = None) -> str:
        """Have one more function described, with its compiler's options, and return its name."""
        label = self._labels.get(function)
        if label is not None:
            return label
        name = f"{function.__module__ or '__main__'}.{function.__qualname__}"
        label, number = name, 1
        while label in self._described:
            number += 1
            label = f"{name}#{number}"
        self._labels[function] = label
        self._described[label] = {} if options is None else {"options": options}
        self._waiting.append(function)
        return label

    def describe_waiting(self) -> None:
        """Describe the functions that were added. Raises NotShareable."""
        while self._waiting:
            function = self._waiting.pop()
            fields = self._described[self._labels[function]]
            fields["code"] = _code_digest(function.__code__)
            defaults = [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]
            if defaults:
                fields["defaults"] = [self.value(value) for value in defaults]
            fields["constants"] = dict(self._constants(function))

    def value(self, value: Any) -> Any:
        """Return a value's description. Raises NotShareable."""
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise NotShareable("a constant is nested too deeply")
            return self._value(value)
        finally:
            self._depth -= 1

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is str or kind is bytes:
            return value if len(value) <= _LONGEST else ["long", kind.__name__, _digest(value)]
        if kind is complex:
            return ["complex", value.real, value.imag]
        if kind is tuple or kind is list:
            return [kind.__name__, *map(self.value, value)]
        if kind is frozenset or kind is set:
            return [kind.__name__, *sorted((self.value(item) for item in value), key=_canonical)]
        if kind is dict:
            items = [[self.value(name), self.value(item)] for name, item in value.items()]
            return ["dict", *items]
        if kind is FunctionType:
            return self._function(value)
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if kind is MethodType:
            return ["method", self.value(value.__self__), self.value(value.__func__)]
        if value is Ellipsis:
            return ["..."]
        if kind is slice or kind is range:
            return [kind.__name__, *map(self.value, (value.start, value.stop, value.step))]
        if isinstance(value, enum.Enum):
            return [*self._class(type(value)), value.name]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["named tuple", *self._class(kind), *map(self.value, tuple(value))]
        return self._of_libraries(value)

    def _of_libraries(self, value: Any) -> Any:
        if isinstance(value, np.dtype):
            return ["dtype", _dtype(value)]
        if isinstance(value, np.generic):
            return ["numpy", _dtype(value.dtype), value.tobytes()]
        if type(value) is np.ndarray:
            if value.dtype.hasobject:
                raise NotShareable("an array of objects is a constant")
            aligned = [value.flags.c_contiguous, value.flags.f_contiguous, value.flags.writeable, value.flags.aligned]
            return ["array", _dtype(value.dtype), value.shape, *aligned, _digest(value.tobytes())]
        name = getattr(value, "__name__", None)
        if isinstance(value, np.ufunc) and getattr(np, str(name), None) is value:
            return ["numpy function", name]
        if self._foreign is not None:
            described = self._foreign(value, self)
            if described is not NotImplemented:
                return described
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, BuiltinFunctionType) or _is_trusted(value):
            return ["named", getattr(value, "__module__", None) or "builtins", _name(value)]
        raise NotShareable(f"a {type(value).__module__}.{type(value).__qualname__} is a constant")

    def _function(self, function: FunctionType) -> Any:
        if _is_trusted(function):
            found = self._foreign(function, self) if self._foreign is not None else NotImplemented
            named = ["named", function.__module__, function.__qualname__]
            return named if found is NotImplemented else [*named, found]
        label = self.add(function)
        found = self._foreign(function, self) if self._foreign is not None else NotImplemented
        return ["function", label] if found is NotImplemented else ["function", label, found]

    def _class(self, kind: type) -> list[Any]:
        """Describe a class by its name, and by its members if these become constants."""
        named: list[Any] = ["class", kind.__module__, kind.__qualname__]
        if issubclass(kind, enum.Enum):
            named.append([[name, self.value(member.value)] for name, member in kind.__members__.items()])
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            named.append(list(getattr(kind, "_fields", ())))
        return named

    def _constants(self, function: FunctionType) -> Iterator[tuple[str, Any]]:
        """Yield the names that the bytecode uses, each with the description of its present value."""
        found: dict[str, Any] = {}
        attributes: set[str] = set()
        for code in _codes(function.__code__):
            attributes.update(code.co_names)
            for instruction in dis.get_instructions(code):
                if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                    name = instruction.argval
                    found[name] = function.__globals__.get(name, getattr(builtins, name, _MISSING))
        self.names |= attributes
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                found[name] = cell.cell_contents
            except ValueError:
                found[name] = _MISSING
        for name, value in sorted(found.items()):
            yield name, ["missing"] if value is _MISSING else self._constant(name, value)
            if isinstance(value, ModuleType):
                yield from self._attributes(name, value, attributes, set())

    def _constant(self, name: str, value: Any) -> Any:
        try:
            return self.value(value)
        except NotShareable as error:
            raise NotShareable(f"{name}: {error}") from None

    def _attributes(
        self, path: str, module: ModuleType, names: Iterable[str], seen: set[ModuleType]
    ) -> Iterator[tuple[str, Any]]:
        """Yield every attribute of a module that the bytecode could mean, whatever it was assigned to before."""
        if is_trusted_module(module.__name__) or module in seen:
            return
        seen.add(module)
        for name in sorted(names):
            value = vars(module).get(name, _MISSING)
            if value is _MISSING and "__getattr__" in vars(module):
                value = getattr(module, name, _MISSING)
            if value is _MISSING:
                continue
            yield f"{path}.{name}", self._constant(f"{path}.{name}", value)
            if isinstance(value, ModuleType):
                yield from self._attributes(f"{path}.{name}", value, names, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _code_digest(code: CodeType) -> str:
    return Key({"code": _code(code)}).digest


def _code(code: CodeType) -> list[Any]:
    counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    names = [code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars]
    constants = [_constant(value) for value in code.co_consts]
    return [code.co_name, code.co_code, code.co_exceptiontable, *counts, *names, constants]


def _constant(value: Any) -> Any:
    """Describe a constant of bytecode. A set of literals has another order in each process: it is sorted."""
    if isinstance(value, CodeType):
        return ["code", *_code(value)]
    if isinstance(value, (tuple, frozenset)):
        items = [_constant(item) for item in value]
        return [type(value).__name__, *(items if isinstance(value, tuple) else sorted(items, key=_canonical))]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    return ["..."] if value is Ellipsis else value


def _canonical(value: Any) -> bytes:
    return Key({"": value}).canonical


def _digest(value: str | bytes) -> str:
    return sha256(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value).hexdigest()


def _dtype(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.fields is None else f"{dtype.descr} {dtype.itemsize} {sorted(dtype.fields.items())}"


def is_trusted_module(name: str | None) -> bool:
    """Return whether a module's functions are named only. Tests within Numba define functions as users do."""
    return (name or "").partition(".")[0] in _TRUSTED and not (name or "").startswith("numba.tests")


def _is_trusted(value: Any) -> bool:
    return is_trusted_module(getattr(value, "__module__", None)) and hasattr(value, "__name__")


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", None) or value.__name__)
