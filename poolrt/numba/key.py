"""The key of a compiled overload: the function with all that it reaches, signature, flags, processor and toolchain.

Guarantees: nothing in a key depends on the process, so equal functions have equal keys on all hosts with the same
processor and the same versions. What cannot be described by content raises NotShareable, and is never stored.
"""

from __future__ import annotations

import inspect
import operator
import os
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final
from weakref import WeakSet

from poolrt.cachestore.key import Key, Packed

from .fingerprint import Fingerprint, NotShareable, canonical, is_trusted_module
from .internals import Internals, is_of
from .ufunc_loops import declared_loops

#: Raise it when payloads of before can no longer be read.
SCHEMA: Final = 2
#: The field `kind` of all keys of this package.
KIND: Final = "numba"
#: The module of contexts such as `objmode`, which have no state: what stands in their blocks is bytecode.
_CONTEXTS: Final = "numba.core.withcontexts"
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{5,}|#[0-9a-f]{6,}")


class Describer:
    """Describes values and types of Numba for fingerprints."""

    def __init__(self, numba: Internals) -> None:
        self._numba = numba
        self._stencil: Any = numba.stencil.StencilFunc
        #: Compiled functions and ufuncs in the order of their description, which is the same in all processes.
        self.references: list[Any] = []

    def __call__(self, value: Any, fingerprint: Fingerprint) -> Any:
        """Describe a value of Numba's, or a function with its overloads. Raises NotShareable."""
        numba, types = self._numba, self._numba.types
        if isinstance(value, numba.registry.CPUDispatcher):
            return self.dispatcher(value, fingerprint)
        if is_of(value, types.Type):
            return self.type(value, fingerprint)
        inner: Any = getattr(value, "_dispatcher", None) or getattr(value, "nb_func", None)
        if isinstance(inner, numba.ufuncbuilder.UFuncDispatcher):
            return self._ufunc(value, inner, fingerprint)
        if type(value).__module__ == _CONTEXTS:
            return ["context", type(value).__name__]
        if isinstance(value, self._stencil):
            return self._described_stencil(value, fingerprint)
        definition = getattr(value, "_defn", None)
        if isinstance(definition, FunctionType) and type(value).__name__ == "_Intrinsic":
            return ["intrinsic", fingerprint.add_running(definition)]
        if is_of(getattr(value, "class_type", None), types.ClassType):
            raise NotShareable(f"the compiled class {value.__qualname__} has no identity outside of its process")
        found = self._overloads(value, fingerprint)
        named = isinstance(value, (FunctionType, type)) or (
            isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, (ModuleType, type))
        )
        if found is NotImplemented and not named and self._is_unusable(value):
            # Numba cannot compile it either: only Python code beside the compiled one can mean it.
            fingerprint.note_opaque(f"a {type(value).__module__}.{type(value).__qualname__}")
            return ["unusable", type(value).__module__, type(value).__qualname__]
        return found

    def dispatcher(self, dispatcher: Any, fingerprint: Fingerprint) -> Any:
        """Describe a compiled function by its Python function and its options."""
        if dispatcher._compiler.pipeline_class is not self._numba.compiler.Compiler:
            raise NotShareable(f"{dispatcher.py_func.__qualname__} has a compiler pipeline of its own")
        self._refer(dispatcher)
        described = [fingerprint.value(dict(sorted(dispatcher.targetoptions.items())))]
        described.append([[name, kind] for name, kind in self.locals(dispatcher, fingerprint).items()])
        if not dispatcher._can_compile:
            # A caller converts its arguments to those of the first signature that fits.
            described.append([self._identity(made.signature, fingerprint) for made in dispatcher.overloads.values()])
        return ["compiled", type(dispatcher).__name__, fingerprint.add(dispatcher.py_func), *described]

    def locals(self, subject: Any, fingerprint: Fingerprint) -> dict[str, Any]:
        """Describe the types that local variables are declared with.

        Compiling adds the versions of these variables, such as ``x.1``, which are left out.
        """
        declared = sorted(getattr(subject, "locals", {}).items())
        return {name: self.type(kind, fingerprint) for name, kind in declared if name.isidentifier()}

    def _ufunc(self, ufunc: Any, dispatcher: Any, fingerprint: Fingerprint) -> Any:
        """Describe a ufunc by its function, its options, and what calls and reductions of it depend on."""
        self._refer(ufunc)
        builder = getattr(ufunc, "gufunc_builder", None)
        described = [fingerprint.value(dispatcher.targetoptions)]
        described += [fingerprint.value(getattr(ufunc, name, None)) for name in ("signature", "reorderable")]
        described.append(fingerprint.value(getattr(ufunc, "_identity" if builder is not None else "identity", None)))
        if builder is not None:
            described.append(fingerprint.value([builder.targetoptions, builder.signature, list(builder.writable_args)]))
        if getattr(ufunc, "_frozen", False):
            # A ufunc with signatures takes the first loop that fits; others compile the one that fits best.
            described.append([list(ufunc.types), [str(loop) for loop in dispatcher.overloads]])
        elif declared := declared_loops(ufunc, dispatcher):
            loops = [self._identity(loop, fingerprint) for loop in declared]
            described.append(["declared", *sorted(loops, key=canonical)])
        return ["ufunc", fingerprint.add(dispatcher.py_func), *described]

    def _described_stencil(self, stencil: Any, fingerprint: Fingerprint) -> Any:
        """Describe a stencil by its function, its options, and the constants that it took when it was made."""
        numba = self._numba
        code = stencil.kernel_ir
        taken = [
            [statement.value.name, fingerprint.value(statement.value.value)]
            for _, block in sorted(code.blocks.items())
            for statement in block.find_insts(numba.ir.Assign)
            if isinstance(statement.value, (numba.ir.Global, numba.ir.FreeVar))
        ]
        options = fingerprint.value(dict(sorted(stencil.options.items())))
        return ["stencil", fingerprint.add(code.func_id.func), stencil.mode, options, taken]

    def _refer(self, value: Any) -> None:
        if all(value is not each for each in self.references):
            self.references.append(value)

    def type(self, kind: Any, fingerprint: Fingerprint) -> Any:
        """Describe a type of Numba's by its class and its identity. Raises NotShareable."""
        types = self._numba.types
        name = type(kind).__name__
        if is_of(kind, types.Dispatcher):
            return [name, fingerprint.value(kind.dispatcher)]
        if is_of(kind, types.Module):
            return [name, fingerprint.add_module(kind.pymod)]
        if is_of(kind, types.Literal, types.Omitted):
            value = kind.literal_value if is_of(kind, types.Literal) else kind.value
            return [name, self._identity(value, fingerprint)]
        if is_of(kind, types.ClassInstanceType, types.ClassType, types.DeferredType):
            raise NotShareable(f"{name} has no identity outside of its process")
        if is_of(kind, types.StructRef):
            return [name, *self._structure(kind, fingerprint)]
        if not is_trusted_module(type(kind).__module__):
            raise NotShareable(f"{name} is a type that Numba was extended with")
        return [name, self._identity(kind.key, fingerprint)]

    def _structure(self, kind: Any, fingerprint: Fingerprint) -> list[Any]:
        """Describe a structure by its class, its fields, and the classes of its Python objects."""
        found = [[name, self.type(field, fingerprint)] for name, field in kind.field_dict.items()]
        boxer = self._numba.pythonapi._boxers.functions.get(type(kind))
        cells = [cell.cell_contents for cell in getattr(boxer, "__closure__", None) or ()]
        boxes = [[each.__module__, each.__qualname__] for each in cells if isinstance(each, type)]
        return [type(kind).__module__, type(kind).__qualname__, found, boxes]

    def _identity(self, key: Any, fingerprint: Fingerprint) -> Any:
        if is_of(key, self._numba.types.Type):
            return self.type(key, fingerprint)
        signature: Any = key
        if hasattr(key, "return_type") and hasattr(key, "args"):
            return [
                "signature",
                *(self._identity(kind, fingerprint) for kind in (signature.return_type, *signature.args)),
            ]
        if isinstance(key, (tuple, list)) and not hasattr(key, "_fields"):
            return [self._identity(item, fingerprint) for item in key]
        if isinstance(key, dict):
            return [
                [self._identity(name, fingerprint), self._identity(item, fingerprint)] for name, item in key.items()
            ]
        if isinstance(key, self._numba.compiler.Flags):
            raise NotShareable("flags are part of a type")
        if isinstance(key, str) and _ADDRESS.search(key):
            raise NotShareable(f"the type {key} is named by an address")
        return fingerprint.value(key)

    def _overloads(self, function: Any, fingerprint: Fingerprint) -> Any:
        """Describe the overloads that Numba was given for a function or class by others."""
        context = self._numba.registry.cpu_target.typing_context
        try:
            templates = getattr(context._get_global_type(function), "templates", ())
        except Exception as error:  # noqa: BLE001 - other libraries add what is asked here
            raise NotShareable(f"{function!r}: {error}") from None
        return self._added(templates, fingerprint) or NotImplemented

    def implicit(self, fingerprint: Fingerprint) -> list[Any]:
        """Describe what others gave Numba that bytecode does not name as a constant.

        Those are operators, methods and attributes that are in what was described.
        """
        context = self._numba.registry.cpu_target.typing_context
        attributes = _attribute_templates(context)
        templates = [
            template for name in sorted(fingerprint.names & attributes.keys()) for template in attributes[name]
        ]
        for name in sorted(fingerprint.operators):
            function = getattr(operator, name, None)
            if function is not None:
                templates += getattr(context._get_global_type(function), "templates", ())
        return self._added(templates, fingerprint)

    def _added(self, templates: Iterable[Any], fingerprint: Fingerprint) -> list[Any]:
        """Describe the functions of templates that are not Numba's own, and return their names and options."""
        found: dict[FunctionType, list[Any]] = {}
        for template in templates:
            kind = template if isinstance(template, type) else type(template)
            if kind in _of_numba:
                continue
            for base in kind.__mro__:  # Numba derives its own class from one that it is given
                if not is_trusted_module(base.__module__):
                    raise NotShareable(f"{base.__module__}.{base.__qualname__} extends Numba")
            functions = [getattr(template, attribute, None) for attribute in ("_overload_func", "_definition_func")]
            added = [each for each in functions if isinstance(each, FunctionType) and not self._is_numbas(each)]
            if not added:
                _of_numba.add(kind)
            for function in added:
                inline = getattr(getattr(template, "_inline", None), "value", None)
                options = [getattr(template, name, None) for name in ("prefer_literal", "_strict")]
                found[function] = [dict(getattr(template, "_jit_options", None) or {}), *options, inline]
        ordered = sorted(found, key=lambda function: (function.__module__ or "", function.__qualname__))
        return [[fingerprint.add_running(function), fingerprint.value(found[function])] for function in ordered]

    def _is_numbas(self, function: FunctionType) -> bool:
        """Return whether a function is Numba's, which makes some of text and gives these no module."""
        folder = os.path.dirname(self._numba.config.__file__)
        module: str | None = function.__module__
        return is_trusted_module(module) or (
            module is None and function.__code__.co_filename.startswith(os.path.dirname(folder) + os.sep)
        )

    def _is_unusable(self, value: Any) -> bool:
        try:
            self._numba.registry.cpu_target.typing_context.resolve_value_type(value)
        except Exception:  # noqa: BLE001 - of any type: it is what compiling the value would raise
            return True
        return False


#: Classes of templates that are Numba's, with their functions.
_of_numba: Final[WeakSet[type]] = WeakSet()


def _attribute_templates(context: Any) -> dict[str, list[Any]]:
    """Return the templates of attributes and methods that a typing context has, by the name of the attribute.

    Numba only ever adds templates, so that their number shows whether the last answer still holds.
    """
    global _indexed
    state = id(context), sum(map(len, context._attributes.values()))
    if _indexed is None or _indexed[0] != state:
        found: dict[str, list[Any]] = {}
        for template in chain.from_iterable(context._attributes.values()):
            if (name := getattr(template, "_attr", None)) is not None:
                found.setdefault(name, []).append(template)
        _indexed = state, found
    return _indexed[1]


_indexed: tuple[tuple[int, int], dict[str, list[Any]]] | None = None


def overload_key(
    numba: Internals, subject: Any, function: FunctionType, signature: Any, flags: Any, target_context: Any
) -> tuple[Key, frozenset[FunctionType], list[Any]]:
    """Return the key of one overload, all Python functions that its function can reach, and what each process has itself.

    The latter are compiled functions, ufuncs and globals, in the same order in all processes. Raises NotShareable.

    ``subject`` is the compiled function: a dispatcher of Numba, or a ufunc's. ``flags`` are those that its compiler
    would have now: a callee inherits some of its caller's.
    """
    describe = Describer(numba)
    fingerprint = Fingerprint(function, describe)
    arguments, result = numba.sigutils.normalize_signature(signature)
    if isinstance(subject, numba.registry.CPUDispatcher):
        describe.dispatcher(subject, fingerprint)  # refuses what cannot be described
    options = dict(sorted(getattr(subject, "targetoptions", {}).items()))
    types = [describe.type(kind, fingerprint) for kind in arguments]
    returned = None if result is None else describe.type(result, fingerprint)
    described_options = {name: fingerprint.value(value) for name, value in options.items()}
    locals_ = describe.locals(subject, fingerprint)
    fingerprint.describe_waiting()
    implicit: list[Any] = []
    while len(found := describe.implicit(fingerprint)) > len(implicit):
        implicit = found
        fingerprint.describe_waiting()
    triple, processor, features = _target(target_context.codegen(), numba.config.CPU_NAME)
    key = Key(
        {
            "schema": SCHEMA,
            "kind": KIND,
            "function": fingerprint.name,
            "compiled": type(subject).__name__,
            "signature": signature_text(arguments, result),
            "types": [types, returned],
            **fingerprint.own,
            "callees": fingerprint.callees,
            "methods": implicit,
            "options": described_options,
            "locals": locals_,
            "flags": _packed(_flags(flags)),
            "target": {"triple": triple, "processor": processor, "features": features},
            "toolchain": _packed(toolchain()),
            "settings": _settings(numba),
        }
    )
    names = {id(each.__globals__): each.__globals__ for each in fingerprint.functions}
    return key, frozenset(fingerprint.functions), [*describe.references, *names.values()]


@lru_cache(maxsize=8)
def _target(codegen: Any, processor: str | None) -> tuple[str, str, str]:
    """Return what a code generator generates for, if Numba's setting CPU_NAME is ``processor``: it asks LLVM each time."""
    found: tuple[str, str, str] = codegen.magic_tuple()
    return found


def _settings(numba: Internals) -> Packed:
    """Return the settings that may change generated code: packed again only if one of Numba's values is another object."""
    global _last_settings
    values = tuple(vars(numba.config).values())
    if len(values) != len(_last_settings[0]) or not all(map(operator.is_, values, _last_settings[0])):
        _last_settings = values, Packed(numba.settings())
    return _last_settings[1]


_last_settings: tuple[tuple[Any, ...], Packed] = (), Packed({})


def _packed(fields: dict[str, Any]) -> Packed:
    """Return fields that most functions of a process have in common, packed once for all of them."""
    text = repr(fields)
    found = _of_all.get(text)
    if found is None:
        if len(_of_all) >= _MOST_OF_ALL:
            _of_all.clear()
        found = _of_all[text] = Packed(fields)
    return found


#: The text of fields -> the fields packed, and how many of them a process remembers.
_of_all: Final[dict[str, Packed]] = {}
_MOST_OF_ALL: Final = 64


def signature_text(arguments: Iterable[Any], result: Any) -> str:
    """Return a signature for people, without addresses."""
    text = f"({', '.join(map(str, arguments))})" + (f" -> {result}" if result is not None else "")
    return _ADDRESS.sub("...", text)


def _flags(flags: Any) -> dict[str, str]:
    found = {name: str(value) for name, value in sorted(flags.values().items())}
    if any(_ADDRESS.search(text) for text in found.values()):
        found = {name: _option_text(value) for name, value in sorted(flags.values().items())}
    return found


def _option_text(value: Any) -> str:
    """Return an option's text: of an object without one of its own, its class and fields; of a function, its place."""
    text = str(value)
    if not _ADDRESS.search(text):
        return text
    if inspect.isfunction(getattr(value, "_cost_model_func", None)):
        return f"{type(value).__name__} with a cost model"  # the function itself is in the options
    raise NotShareable(f"an option's value is {text}")


@lru_cache(maxsize=1)
def toolchain() -> dict[str, str]:
    """Return the versions of what generates code and of what compiled code calls."""
    import llvmlite
    import numba
    import numpy

    # Imported already, and sooner than their metadata, which takes 4 ms to find
    versions = {"numba": numba.__version__, "llvmlite": llvmlite.__version__, "numpy": numpy.__version__}
    python = f"{sys.implementation.name} {'.'.join(map(str, sys.version_info[:3]))}"
    return {"python": python, **versions}
