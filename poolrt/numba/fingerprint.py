"""What the code of a Python function depends on, as named fields of a key. Imports no compiler.

A function is described with all functions that it can reach: through globals, closures, defaults and attributes of
modules. Each has the digest of its bytecode and the values of the constants that it names, so that two keys differ in the
field of the callee or constant that changed. Values are described by content, never by address, `hash` or order of a set.

Python functions that run while Numba compiles, such as those of `numba.extending.overload`, may reach more than compiled code
can: with one of them, every object has to be described, and every class is with its members.

Limitation: line numbers are left out, so that a comment makes nothing cold. A traceback through compiled code may show
the lines of the time of the creation.
"""

from __future__ import annotations

import builtins
import enum
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from poolrt.cachestore.digests import sha256
from poolrt.cachestore.key import Key

from .bytecode import uses

#: Longest text or array, in characters or bytes, that a key holds; of a longer one it holds the digest.
_LONGEST: Final = 128
#: Deepest nesting of a constant; a key's own limit is 64.
_DEEPEST: Final = 16
#: Packages whose functions are named only: their versions are in the key.
_TRUSTED: Final = frozenset({"numpy", "numba", "llvmlite", "builtins"})
_STANDARD: Final = os.path.dirname(os.__file__) + os.sep
#: Functions by which code can name anything by a text.
_BY_TEXT: Final = (getattr, hasattr)
#: Functions by which code that runs while Numba compiles can read what no description holds.
_UNKNOWN: Final = (eval, exec, globals, locals, vars, open, __import__)
#: Types of members that read a field of an object.
_FIELDS: Final = ("_tuplegetter", "member_descriptor", "getset_descriptor")
#: Members of every class.
_OF_CLASSES: Final = (
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__firstlineno__",
    "_abc_impl",
)
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
        #: Functions of the module `operator` that all of it calls by signs.
        self.operators: set[str] = set()
        self._strings: set[str] = set()
        self._by_text = False
        #: Modules that functions pass on, by the function's name and the module's path there.
        self._passed_on: dict[tuple[str, str], ModuleType] = {}
        self._classes: dict[type, str] = {}
        self._runs = False
        #: Why a function that runs while Numba compiles could not be described.
        self._opaque: list[str] = []
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

    def add(self, function: FunctionType) -> str:
        """Have one more function described, and return its name."""
        label = self._labels.get(function)
        if label is not None:
            return label
        name = f"{_module_name(function)}.{function.__qualname__}"
        label, number = name, 1
        while label in self._described:
            number += 1
            label = f"{name}#{number}"
        self._labels[function] = label
        self._described[label] = {}
        self._waiting.append(function)
        return label

    def add_running(self, function: FunctionType) -> str:
        """Have a function described that runs while Numba compiles, with all that it reaches, and return its name."""
        self._runs = True
        return self.add(function)

    def add_module(self, module: ModuleType) -> str:
        """Have the attributes of a module described that any of the functions may mean, and return its name."""
        if not is_trusted_module(module.__name__):
            self._passed_on[self.name, f"module {module.__name__}"] = module
        return module.__name__

    def note_opaque(self, what: str) -> None:
        """Note a value that no compiled code can use, so that only its kind is described."""
        self._opaque.append(what)

    def describe_waiting(self) -> None:
        """Describe the functions that were added. Raises NotShareable."""
        known: tuple[int, ...] = ()
        while self._waiting or known != self._known():
            known = self._known()
            while self._waiting:
                function = self._waiting.pop()
                fields = self._described[self._labels[function]]
                fields["code"] = code_digest(function.__code__)
                defaults = [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]
                if defaults:
                    fields["defaults"] = [self.value(value) for value in defaults]
                fields["constants"] = dict(self._constants(function))
            self._describe_modules()
            if self._runs:
                self._describe_classes()
        if self._runs and self._opaque:
            raise NotShareable(f"a function that runs while Numba compiles may use {self._opaque[0]}")

    def _known(self) -> tuple[int, ...]:
        """Return how much is known: what is described last may name more of what was described before."""
        found = (self.names, self._strings, self._passed_on, self._classes, self._labels)
        return (*map(len, found), self._by_text, self._runs)

    def _describe_modules(self) -> None:
        """Describe every attribute that any function may mean of a module that one of them passes on."""
        names = self.names | self._strings if self._by_text else self.names
        for (label, path), module in list(self._passed_on.items()):
            constants = self._described[label]["constants"]
            constants.update(self._attributes(label, path, module, names, set()))

    def _describe_classes(self) -> None:
        """Describe the members of classes, which a function that runs while Numba compiles may use."""
        for kind, label in list(self._classes.items()):
            if label in self._described:
                continue
            self._described[label] = fields = {}
            fields["bases"] = [self.value(base) for base in kind.__bases__]
            for name, member in sorted(vars(kind).items()):
                if name not in _OF_CLASSES:
                    fields[name] = self._constant(f"{kind.__qualname__}.{name}", _member(member))

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
            if kind is str and value.isidentifier():
                self._strings.add(value)
            return value if len(value) <= _LONGEST else ["long", kind.__name__, _digest(value)]
        if kind is complex:
            return ["complex", value.real, value.imag]
        if kind is tuple or kind is list:
            return [kind.__name__, *map(self.value, value)]
        if kind is frozenset or kind is set:
            return [kind.__name__, *sorted((self.value(item) for item in value), key=canonical)]
        if kind is dict:
            items = [[self.value(name), self.value(item)] for name, item in value.items()]
            return ["dict", *items]
        if kind is FunctionType:
            return self._function(value)
        if isinstance(value, ModuleType):
            if self._depth > 1 and not is_trusted_module(value.__name__):
                self._opaque.append(f"the module {value.__name__}")
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
            self._by_text |= value in _BY_TEXT
            if value in _UNKNOWN:
                self._opaque.append(value.__name__)
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
        named: list[Any] = ["class", _module_name(kind), kind.__qualname__]
        if issubclass(kind, enum.Enum):
            named.append([[name, self.value(member.value)] for name, member in kind.__members__.items()])
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            named.append(list(getattr(kind, "_fields", ())))
        if not is_trusted_module(kind.__module__) and kind not in self._classes:
            self._classes[kind] = f"class {_module_name(kind)}.{kind.__qualname__} {len(self._classes)}"
        return named

    def _constants(self, function: FunctionType) -> Iterator[tuple[str, Any]]:
        """Yield the names that the bytecode uses, each with the description of its present value."""
        used = uses(function.__code__)
        label = self._labels[function]
        found: dict[str, Any] = {
            name: function.__globals__.get(name, getattr(builtins, name, _MISSING)) for name in used.globals
        }
        self.names |= used.names
        self.operators |= used.operators
        self._strings |= used.strings
        self._opaque += [f"the module {name}" for name in sorted(used.imports) if not is_trusted_module(name)]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                found[name] = cell.cell_contents
            except ValueError:
                found[name] = _MISSING
        for name, value in sorted(found.items()):
            yield name, ["missing"] if value is _MISSING else self._constant(name, value)
            if isinstance(value, ModuleType):
                if name in used.passed_on and not is_trusted_module(value.__name__):
                    self._passed_on[label, name] = value
                yield from self._attributes(label, name, value, used.names, set())

    def _constant(self, name: str, value: Any) -> Any:
        try:
            return self.value(value)
        except NotShareable as error:
            raise NotShareable(f"{name}: {error}") from None

    def _attributes(
        self, label: str, path: str, module: ModuleType, names: Iterable[str], seen: set[ModuleType]
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
                if not is_trusted_module(value.__name__):
                    self._passed_on[label, f"{path}.{name}"] = value
                yield from self._attributes(label, f"{path}.{name}", value, names, seen)


def code_digest(code: CodeType) -> str:
    """Return a digest of a function's bytecode without its line numbers."""
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
        return [type(value).__name__, *(items if isinstance(value, tuple) else sorted(items, key=canonical))]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    return ["..."] if value is Ellipsis else value


def canonical(value: Any) -> bytes:
    """Return bytes that are equal for equal values of fields."""
    return Key({"": value}).canonical


def _digest(value: str | bytes) -> str:
    return sha256(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value).hexdigest()


def _dtype(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.fields is None else f"{dtype.descr} {dtype.itemsize} {sorted(dtype.fields.items())}"


def is_trusted_module(name: str | None) -> bool:
    """Return whether a module's functions are named only: its version is in the key.

    A user's module may have the name of a standard one. Tests within Numba define functions as users do.
    """
    first = (name or "").partition(".")[0]
    if first in _TRUSTED:
        return not (name or "").startswith("numba.tests")
    if first not in sys.stdlib_module_names or first == "__main__" or first not in sys.modules:
        return False
    file = getattr(sys.modules[first], "__file__", None)
    return file is None or file.startswith(_STANDARD)


def _is_trusted(value: Any) -> bool:
    return is_trusted_module(getattr(value, "__module__", None)) and hasattr(value, "__name__")


def _module_name(value: Any) -> str:
    """Return the name of a value's module. Children of multiprocessing have another name for the main one."""
    found = value.__module__ or "__main__"
    return "__main__" if found == "__mp_main__" else str(found)


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", None) or value.__name__)


def _member(member: Any) -> Any:
    """Return what a member of a class is made of."""
    if type(member).__name__ in _FIELDS:
        return type(member).__name__
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__
    if isinstance(member, property):
        return (member.fget, member.fset, member.fdel)
    return member
