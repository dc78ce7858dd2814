"""Compile a function of a user into an object that launches call: addresses and numbers become arrays and the user's types.

The object is called as ``kernel(begin, end, ...)`` with the address and the dimensions of each array, int64 and float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numba
from numba.core import cgutils, sigutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from ...engines.target import cpu_target
from .compiler.codegen import CompileError
from .compiler.numba_codegen import compile_function

#: Numba's types of elements -> data types.
_ELEMENTS: Final = {
    types.float64: "f64", types.float32: "f32", types.int64: "s64", types.int32: "s32", types.int8: "s8",
    types.uint8: "u8", types.boolean: "bool", types.uint64: "u64", types.uint32: "u32", types.int16: "s16",
    types.uint16: "u16",
}  # fmt: skip
#: Options of a user's own decorator that change results.
_OPTIONS: Final = ("fastmath", "error_model", "boundscheck")


def compile_user_function(
    function: Callable[..., None], signature: str, isa: str = ""
) -> tuple[str, tuple[str, ...], bool, str, bytes]:
    """Return name, parameters, whether it takes ranges, ISA level and object of a function.

    Raises ValueError for a signature with other types than C-contiguous arrays and numbers, CompileError if Numba rejects it.
    """
    try:
        given, result = sigutils.normalize_signature(signature)
    except Exception as error:  # the text is evaluated: anything may be raised
        raise ValueError(f"signature: {signature!r} is none: {error}") from error
    if result not in (types.void, None):
        raise ValueError(f"signature: expect void, got {result}: a kernel writes its results into arrays")
    ranged = given[:2] == (types.int64, types.int64)
    level = isa or cpu_target().isa
    python = getattr(function, "py_func", function)
    chosen: dict[str, Any] = getattr(function, "targetoptions", {})
    options: dict[str, Any] = {name: chosen[name] for name in _OPTIONS if name in chosen}
    # Without Numba's runtime, which no worker has.
    decorator: Any = numba.njit  # its stubs know no private options
    inner = decorator(**options, _nrt=False)(python)
    names: dict[str, Any] = {"user": inner}
    parameters, taken, passed = [], [], ["begin", "end"] if ranged else []
    kinds: list[Any] = []
    for number, kind in enumerate(given[2:] if ranged else given):
        name = f"a{number}"
        taken.append(name)
        if isinstance(kind, types.Array):
            if kind.layout != "C" or kind.dtype not in _ELEMENTS:
                known = ", ".join(map(str, _ELEMENTS))
                raise ValueError(f"signature: {kind} is no C-contiguous array of {known}")
            parameters.append(f"{_ELEMENTS[kind.dtype]}:{kind.ndim}")
            sizes = [f"{name}_{axis}" for axis in range(kind.ndim)]
            names[f"at{number}"] = _array_at(kind)
            passed.append(f"at{number}({name}, ({''.join(f'{size}, ' for size in sizes)}))")
            taken += sizes
            kinds += [types.int64] * (1 + kind.ndim)
        elif isinstance(kind, (types.Integer, types.Boolean)):
            parameters.append("int")
            names[f"as{number}"] = kind if isinstance(kind, types.Integer) else bool
            passed.append(f"as{number}({name})")
            kinds.append(types.int64)
        elif isinstance(kind, types.Float):
            parameters.append("float")
            names[f"as{number}"] = kind
            passed.append(f"as{number}({name})")
            kinds.append(types.float64)
        else:
            raise ValueError(f"signature: a kernel takes no {kind}")
    lines = [f"def entry({', '.join(['begin', 'end', *taken])}):", f"    user({', '.join(passed)})"]
    exec("\n".join(lines), names)
    name = getattr(python, "__name__", "kernel")
    binary = compile_function(name, names["entry"], types.void(types.int64, types.int64, *kinds), level)
    return name, tuple(parameters), ranged, level, binary


def _array_at(kind: types.Array) -> Any:
    """Return the intrinsic that makes an address and dimensions an array, which owns nothing."""

    @intrinsic
    def array_at(_: Any, address: types.Integer, dims: Any) -> Any:
        """Return the array at an address."""

        def emit(context: Any, b: Any, sig: Any, a: list[Any]) -> Any:
            array = make_array(kind)(context, b)
            item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
            shape = cgutils.unpack_tuple(b, a[1], kind.ndim)
            strides = [item]
            for size in reversed(shape[1:]):
                strides.insert(0, b.mul(strides[0], size))
            data = b.inttoptr(a[0], context.get_data_type(kind.dtype).as_pointer())
            populate_array(array, data, shape, strides[: kind.ndim], item, None)
            return array._getvalue()

        return kind(address, dims), emit

    return array_at


__all__ = ["CompileError", "compile_user_function"]
