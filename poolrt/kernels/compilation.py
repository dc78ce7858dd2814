"""Compile a kernel of a user to a native object. Imports Numba, so only a creator imports this module."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CellType, FunctionType, ModuleType
from typing import Any, Final

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.errors import NumbaTypeError, UnsupportedBytecodeError
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from poolrt.numba.bytecode import uses
from poolrt.numba.fingerprint import is_trusted_module
from poolrt.workers.kernels.native.compiler.codegen import CompileError
from poolrt.workers.kernels.native.compiler.numba_codegen import compile_function
from poolrt.workers.kernels.native.user_function import compile_user_function

from .signature import Argument

#: Beginnings of lines in Numba's messages that are about its own steps.
_STEPS: Final = ("Failed in", "During:", "File ", "<source", ">>>", "- ", "^")
#: Numba's words for an array that is made in a function without its runtime.
_NO_RUNTIME: Final = ("Only accept returning of array passed into the function", "NRT_", "NRT required")
#: The words of `_nothing`.
_RETURNS: Final = re.compile(r"it returns a value of type .*")


def compile_user_kernel(
    function: FunctionType, arguments: tuple[Argument, ...], options: Mapping[str, Any], isa: str
) -> bytes:
    """Return the object of a kernel for an ISA level. Raises CompileError, which names function, file and line.

    The object takes its arguments packed in 8 bytes each: of an array its address and then its dimensions, of a number its
    value, as int64 or float64.
    """
    names: dict[str, Any] = {"kernel": _compiled(function, options, {}), "array": _array, "nothing": _nothing}
    parameters, passed, kinds = [], [], []
    for number, argument in enumerate(arguments):
        names[f"t{number}"] = dtype = np.dtype(argument.dtype).type
        parameters.append(f"a{number}")
        if argument.ndim:
            dimensions = [f"d{number}_{axis}" for axis in range(argument.ndim)]
            parameters += dimensions
            kinds += [types.int64] * (1 + argument.ndim)
            passed.append(f"array(a{number}, ({', '.join(dimensions)},), t{number})")
        elif issubclass(dtype, np.floating):
            kinds.append(types.float64)
            passed.append(f"t{number}(a{number})")
        else:
            kinds.append(types.int64)
            passed.append(f"a{number} != 0" if argument.dtype == "bool" else f"t{number}(a{number})")
    if not parameters:
        parameters, kinds = ["nothing"], [types.int64]
    exec(f"def entry({', '.join(parameters)}):\n    nothing(kernel({', '.join(passed)}))\n", names)
    with _refusing(function):
        binary: bytes = compile_function(function.__qualname__, names["entry"], types.void(*kinds), isa)
        return binary


def compile_for_graphs(
    function: FunctionType, signature: str, options: Mapping[str, Any], isa: str
) -> tuple[str, tuple[str, ...], bool, str, bytes]:
    """Return what `NativeKernel` consists of. Raises CompileError, and ValueError for types that graphs do not have."""
    with _refusing(function):
        return compile_user_function(_compiled(function, options, {}), signature, isa)


@contextmanager
def _refusing(function: FunctionType) -> Iterator[None]:
    """Raise errors of the compiler as CompileError with the function's place."""
    try:
        yield
    except CompileError as error:
        raise _refusal(function, error) from None
    except (AttributeError, UnsupportedBytecodeError) as error:
        raise CompileError(_place(function), f"Numba rejects it: {error}") from error


def _refusal(function: FunctionType, error: CompileError) -> CompileError:
    """Return the error with the function's place, and with what Numba says as its reason."""
    name, text = _place(function), f"{error.reason}\n{error.log}"
    if any(words in text for words in _NO_RUNTIME):
        return CompileError(
            name, "it makes an array, list, dictionary or text: give it its memory as arguments", error.log
        )
    if "numba_gil_ensure" in error.reason:
        return CompileError(name, f"it calls Python, as print and numpy.dot do; {error.reason}", error.log)
    returns = _RETURNS.search(error.log)
    if returns is not None:
        return CompileError(name, returns[0], error.log)
    if not error.log:
        return CompileError(name, error.reason)
    lines = [line.strip() for line in error.log.splitlines()]
    kind, _, first = lines[0].partition(": ")
    said = [line for line in (first, *lines[1:]) if line and not line.startswith(_STEPS)][:1] or [kind]
    if said[0].endswith(":"):
        said += [line.removeprefix(">>>").strip() for line in lines if line.startswith(">>>")][:1]
    places = [line.rstrip(":") for line in lines if line.startswith('File "')]
    own = [place for place in places if "<string>" not in place and "site-packages" not in place]
    return CompileError(name, f"Numba rejects it: {' '.join(said)}{f' ({own[0]})' if own else ''}", error.log)


def _place(function: FunctionType) -> str:
    code = function.__code__
    return f"{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def _compiled(function: FunctionType, options: Mapping[str, Any], done: dict[FunctionType | ModuleType, Any]) -> Any:
    """Return a function of Numba's for a copy of a function, in which the plain functions that it names are such, too."""
    found = done.get(function)
    if found is not None:
        return found
    names = dict(function.__globals__)
    cells = [CellType() for _ in function.__closure__ or ()]
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, tuple(cells))
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    done[function] = made = numba.njit(error_model="numpy", **options)(copy)
    for name in uses(function.__code__).globals & names.keys():
        names[name] = _value(names[name], options, done)
    for own, cell in zip(cells, function.__closure__ or (), strict=True):
        own.cell_contents = _value(cell.cell_contents, options, done)
    return made


def _value(value: Any, options: Mapping[str, Any], done: dict[FunctionType | ModuleType, Any]) -> Any:
    if isinstance(value, ModuleType):
        return value if is_trusted_module(value.__name__) else _module(value, options, done)
    if isinstance(value, FunctionType) and not (value.__module__ or "").startswith(("numpy", "numba")):
        return _compiled(value, options, done)
    kernel = getattr(value, "function", None)
    if isinstance(kernel, FunctionType) and hasattr(value, "arguments"):
        return _compiled(kernel, options, done)
    return value


def _module(module: ModuleType, options: Mapping[str, Any], done: dict[FunctionType | ModuleType, Any]) -> ModuleType:
    """Return a module whose attributes are those of another one, with functions of Numba's for plain functions and kernels.

    Numba asks for attributes as it needs them, also by a name of the module that only a callee has.
    """
    found: ModuleType | None = done.get(module)
    if found is None:
        done[module] = found = ModuleType(module.__name__)
        vars(found)["__getattr__"] = lambda name: _value(getattr(module, name), options, done)
    return found


@intrinsic  # type: ignore[untyped-decorator]
def _nothing(typing_context: Any, result: Any) -> Any:
    """Accept the result of a kernel without one. A value would be lost."""
    if result != types.none:
        raise NumbaTypeError(f"it returns a value of type {result}: a kernel writes its results into arrays")

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_dummy_value()

    return types.none(result), code


@intrinsic  # type: ignore[untyped-decorator]
def _array(typing_context: Any, address: Any, shape: Any, dtype: Any) -> Any:
    """Return a C-contiguous array at an address. Numba's `carray` is refused without the runtime, as it returns an array."""
    kind = types.Array(dtype.dtype, shape.count, "C")

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = make_array(kind)(context, builder)
        width = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        dimensions = cgutils.unpack_tuple(builder, arguments[1], shape.count)
        strides: list[Any] = []
        step = width
        for dimension in reversed(dimensions):
            strides.insert(0, step)
            step = builder.mul(step, dimension)
        data = builder.inttoptr(arguments[0], array.data.type)
        populate_array(array, data=data, shape=dimensions, strides=strides, itemsize=width, meminfo=None)
        return array._getvalue()

    return kind(address, shape, dtype), code
