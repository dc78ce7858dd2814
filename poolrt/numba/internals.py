"""All of Numba's names that are private, in one place, and the check that they are what poolrt expects.

`internals` raises `Unsupported` if a name is missing or has another form; functions are then plain Numba's.
"""

from __future__ import annotations

import ctypes
import inspect
import io
import itertools
import os
import pickle
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from .code_settings import changes_code

#: Function -> the parameters that it must have, in order.
_PARAMETERS: Final = {
    "dispatcher.Dispatcher.enable_caching": ("self",),
    "dispatcher.Dispatcher.compile": ("self", "sig"),
    "dispatcher._FunctionCompiler.compile": ("self", "args", "return_type"),
    "dispatcher._FunctionCompiler._customize_flags": ("self", "flags"),
    "ufuncbuilder.UFuncDispatcher.enable_caching": ("self",),
    "ufuncbuilder.UFuncDispatcher._compile_core": ("self", "sig", "flags", "locals"),
    "ccallback.CFunc.enable_caching": ("self",),
    "ccallback.CFunc._compile_uncached": ("self",),
    "compiler.CompileResult._reduce": ("self",),
    "caching._Cache.load_overload": ("self", "sig", "target_context"),
    "caching._Cache.save_overload": ("self", "sig", "data"),
    "wrappers._GufuncWrapper._compile_wrapper": ("self", "wrapper_name"),
    "wrappers._GufuncWrapper._build_wrapper": ("self", "library", "name"),
    "codegen.RuntimeLinker.scan_defined_symbols": ("self", "module"),
    "serialize.dumps": ("obj",),
    "serialize.ReduceMixin._reduce_class": ("self",),
    "serialize.NumbaPickler.reducer_override": ("self", "obj"),
    "sigutils.normalize_signature": ("sig",),
}
#: What must be there, whatever its form.
_PRESENT: Final = (
    "wrappers.GufWrapperCache",
    "caching.NullCache",
    "compiler.CompileResult._rebuild",
    "codegen.CPUCodegen.magic_tuple",
    "codegen.CodeLibrary.has_dynamic_globals",
    "codegen.CPUCodeLibrary.serialize_using_object_code",
    "targetconfig.ConfigStack.top_or_none",
    "targetconfig.TargetConfig.values",
    "compiler.Compiler",
    "compiler.compile_extra",
    "errors.NumbaError",
    "errors.ForceLiteralArg",
    "registry.CPUDispatcher._rebuild",
    "registry.cpu_target.typing_context._attributes",
    "ufuncbuilder.UFuncDispatcher._rebuild",
    "gufunc.GUFunc._rebuild",
    "gufunc.GUFunc._get_ewise_dtypes",
    "gufunc.GUFunc._get_function_type",
    "bytecode.FunctionIdentity._unique_ids",
    "codegen.RuntimeLinker",
    "stencil.StencilFunc",
    "pythonapi._boxers.functions",
    "types.StructRef",
    "ir.Global",
    "environment.Environment._memo",
    "environment.Environment.env_name",
    "ir.FreeVar",
    "ir.Block.find_insts",
)
#: Numba's prefix of a variable with the address of a function that was not compiled yet: functions that call each other.
_UNRESOLVED: Final = ".numba.unresolved$"


class Unsupported(Exception):
    """This version of Numba is not the one that poolrt's contract describes."""


def is_of(value: Any, *kinds: type) -> bool:
    """Return whether a value's class derives from one of ``kinds``, which are classes of Numba's types.

    Their metaclass is `abc.ABCMeta`, so that `isinstance` asks each of their hundreds of subclasses, for each new class
    of value: 45 ms in a process that loads one function.
    """
    return not set(kinds).isdisjoint(type(value).__mro__)


class Internals(NamedTuple):
    """Numba's modules that poolrt reaches into."""

    bytecode: Any
    caching: Any
    ccallback: Any
    codegen: Any
    compiler: Any
    config: Any
    dispatcher: Any
    environment: Any
    errors: Any
    gufunc: Any
    ir: Any
    pythonapi: Any
    registry: Any
    serialize: Any
    sigutils: Any
    stencil: Any
    targetconfig: Any
    types: Any
    ufuncbuilder: Any
    wrappers: Any

    def settings(self) -> dict[str, Any]:
        """Return the settings that may change generated code. One that is not known to be harmless counts as such."""
        found = {}
        for name, value in sorted(vars(self.config).items()):
            if name.isupper() and not name.startswith("_") and changes_code(name):
                found[name] = value if value is None or type(value) in (bool, int, float, str) else repr(value)
        return {name: value for name, value in found.items() if " at 0x" not in str(value)}

    def refusal(self, result: Any) -> str:
        """Return why a compile result holds addresses of this process, in Numba's words; empty if it holds none."""
        library = result.library
        # None: a context such as `parallel_chunksize`, whose block stays in the function
        if any(lifted is not None and not lifted.can_cache for lifted in result.lifted):
            return "as it uses lifted code"
        if library.has_dynamic_globals:
            return "as it uses dynamic globals (such as ctypes pointers and large global arrays)"
        module = library._final_module
        wanted = {v.name.removeprefix(_UNRESOLVED) for v in module.global_variables if v.name.startswith(_UNRESOLVED)}
        if wanted and not wanted <= {f.name for f in module.functions if not f.is_declaration}:
            return "as it calls a function that is compiled later"
        return ""

    def dump_result(self, result: Any, references: Sequence[Any]) -> bytes:
        """Return a compile result as bytes; of ``references``, which each process has itself, only the numbers."""
        numbers = {id(each): number for number, each in enumerate(references)}
        function, dispatcher, environment = self.types.Function, self.types.Dispatcher, self.environment.Environment

        class Pickler(self.serialize.NumbaPickler):  # type: ignore[misc, name-defined]  # Numba is not typed
            def persistent_id(self, value: Any) -> Any:
                """Return the number of a reference, or that of a type's only value."""
                if is_of(value, function):
                    number = numbers.get(id(value.typing_key))
                elif is_of(value, dispatcher):
                    number = numbers.get(id(value.dispatcher))
                else:
                    return numbers.get(id(value))
                return None if number is None else ("type", number)

            def reducer_override(self, value: Any) -> Any:
                """Refer to the globals of an environment: Numba finds them by the name of a module, which may lack."""
                if type(value) is environment and id(value.globals) in numbers:
                    return rebuild_environment, (value.globals, value.consts, value.env_name)
                return super().reducer_override(value)

        buffer = io.BytesIO()
        Pickler(buffer, protocol=4).dump(result._reduce())
        return buffer.getvalue()

    def load_result(self, target_context: Any, verified: bytes, references: Sequence[Any]) -> Any:
        """Return the compile result in the bytes of an entry that the store has verified."""
        import llvmlite.binding  # with Numba, on first use

        def persistent_load(number: Any) -> Any:
            if isinstance(number, int):
                return references[number]
            return target_context.typing_context.resolve_value_type(references[number[1]])

        unpickler = pickle.Unpickler(io.BytesIO(verified))
        unpickler.persistent_load = persistent_load  # type: ignore[method-assign]
        reduced = unpickler.load()
        wanted = _unresolved_names(reduced[0][2][0])
        for name in wanted:
            llvmlite.binding.add_symbol(_UNRESOLVED + name, ctypes.addressof(_cell(name)))
        result = self.compiler.CompileResult._rebuild(target_context, *reduced)
        library = result.library
        if getattr(library, "_shared_module", None) is not None:
            kind: Any = type(library)
            library.__class__, library._disable_inspection = _loaded(kind), False
        for name in wanted:
            address = result.library.get_pointer_to_function(name)
            if not address:
                raise LookupError(f"the entry does not define {name}")
            _cell(name).value = address
        if wanted:
            # Code that inlines this one has the same variables, which Numba fills with what it knows to be defined.
            target_context.codegen()._rtlinker.scan_defined_symbols(library._shared_module)
        return result

    def make_names_unique(self) -> None:
        """Number the symbols of this process's functions from a random begin.

        Code is found by its symbol. Numba numbers from 1, so that two versions of a function, from two processes, would
        have the same symbol in a third that loads both.
        """
        self.bytecode.FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(6), "big") + 1)

    def dump_library(self, library: Any) -> bytes:
        """Return a code library as bytes."""
        dumped: bytes = self.serialize.dumps(library.serialize_using_object_code())
        return dumped

    def load_library(self, target_context: Any, verified: bytes) -> Any:
        """Return the code library in the bytes of an entry that the store has verified."""
        return target_context.codegen().unserialize_library(pickle.loads(verified))


@lru_cache(maxsize=1)
def internals() -> Internals:
    """Return Numba's internals. Raises Unsupported if they are not as expected."""
    try:
        from numba.core import (
            bytecode,
            caching,
            ccallback,
            codegen,
            compiler,
            config,
            dispatcher,
            environment,
            errors,
            ir,
            pythonapi,
            registry,
            serialize,
            sigutils,
            targetconfig,
            types,
        )
        from numba.np.ufunc import gufunc, ufuncbuilder, wrappers
        from numba.stencils import stencil
    except ImportError as error:
        raise Unsupported(str(error)) from None
    found = Internals(
        bytecode, caching, ccallback, codegen, compiler, config, dispatcher, environment, errors, gufunc, ir,
        pythonapi, registry, serialize, sigutils, stencil, targetconfig, types, ufuncbuilder, wrappers,
    )  # fmt: skip
    check_contract(found)
    return found


def check_contract(found: Internals) -> None:
    """Raise Unsupported, with the name, unless each private name has the form that poolrt relies on."""
    for path in (*_PRESENT, *_PARAMETERS):
        value: Any = found
        for part in path.split("."):
            value = getattr(value, part, None)
        if value is None:
            raise Unsupported(f"numba has no {path}")
        wanted = _PARAMETERS.get(path)
        if wanted is not None and _parameters(value) != wanted:
            raise Unsupported(f"numba's {path} takes {_parameters(value)}, not {wanted}")
    if found.codegen.RuntimeLinker.PREFIX != _UNRESOLVED:
        raise Unsupported(f"numba's RuntimeLinker.PREFIX is {found.codegen.RuntimeLinker.PREFIX!r}")


def _parameters(function: Any) -> tuple[str, ...]:
    """Return the names of a function's parameters; `inspect.signature` takes ten times as long."""
    plain: Any = inspect.unwrap(function)
    code = getattr(plain, "__code__", None)
    if code is None or code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return tuple(inspect.signature(function).parameters)
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return names[1:] if inspect.ismethod(plain) else names


@cache
def _loaded(kind: Any) -> Any:
    """Return the class of code libraries that come from the store."""

    class Loaded(kind):  # type: ignore[misc]
        """Shows the module for inlining: the one that was linked is empty, since the machine code is there already."""

        def get_llvm_str(self) -> str:
            return str(self._shared_module)

        def get_asm_str(self) -> str:
            return str(self._codegen._tm.emit_assembly(self._shared_module))

        def get_function(self, name: str) -> Any:
            return self._shared_module.get_function(name)

    return Loaded


def rebuild_environment(names: dict[str, Any], constants: list[Any], name: str) -> Any:
    """Return the environment of a loaded function with these globals and constants."""
    kind = internals().environment.Environment
    found = kind._memo.get(name)
    if found is None:
        found = kind(names)
        found.consts[:] = constants
        found.env_name = name
        kind._memo[name] = found
    return found


def _unresolved_names(binary: bytes) -> list[str]:
    """Return the functions whose addresses an object expects in variables; numba loads them for new code only."""
    pattern = re.escape(_UNRESOLVED.encode()) + rb"([^\0]+)\0"
    return sorted({name.decode() for name in re.findall(pattern, binary)})


@cache
def _cell(name: str) -> ctypes.c_void_p:
    """Return the variable with a function's address. Loaded code reads it for as long as the process lives."""
    return ctypes.c_void_p()
