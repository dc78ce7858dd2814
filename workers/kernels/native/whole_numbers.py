"""Whole numbers combined as such, without float64.

Those of `SATURATING` give what float64, rounded and saturated, gives, in fewer instructions. Those of `WRAPPING` are exact.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import llvmlite.ir as ir

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc.data_type import WRAPPING
from .compiler import types
from .compiler.language import intrinsic
from .elements import STORED, masked_load
from .first_lanes import store_below
from .vec import LANES, Builder, Value, VectorType, call, lanes_below, pointer, splat

SATURATING: Final = ("s32", "s8", "u8")
_ALGORITHMS: Final = ("add", "sub", "max", "min")


def has_whole_numbers(dtype: str, algorithm: str) -> bool:
    """Return whether numbers of a data type are combined as whole ones by an algorithm."""
    if dtype in WRAPPING:
        return algorithm in (*_ALGORITHMS, "mul")
    return dtype in SATURATING and algorithm in _ALGORITHMS


@dataclass(frozen=True, slots=True)
class WholeNumbers:
    """Functions on addresses, as in `elements.Elements`, and ``combine`` of two vectors."""

    size: int
    load: Any
    load_tail: Any
    load_one: Any
    store: Any
    store_part: Any
    combine: Any


@lru_cache
def whole_numbers(dtype: str, algorithm: str) -> WholeNumbers:
    """Return what a kernel uses of a data type and a function."""
    kind = STORED[dtype]
    lanes = ir.VectorType(kind, LANES)
    vector = VectorType(f"i{kind.width}", lanes, types.int64)

    @intrinsic
    def load(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return b.load(pointer(b, a[0], lanes), align=1)

        return vector(types.int64), emit

    @intrinsic
    def load_tail(_: Any, address: types.Integer, count: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return masked_load(b, a[0], kind, lanes_below(b, a[1]))

        return vector(types.int64, types.int64), emit

    @intrinsic
    def load_one(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return splat(b, b.load(pointer(b, a[0], kind), align=1))

        return vector(types.int64), emit

    @intrinsic
    def store(_: Any, address: types.Integer, value: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(a[1], pointer(b, a[0], lanes), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, vector), emit

    @intrinsic
    def store_part(_: Any, address: types.Integer, value: Any, count: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            store_below(b, a[0], a[1], a[2])
            return context.get_dummy_value()

        return types.void(types.int64, vector, types.int64), emit

    @intrinsic
    def combine(_: Any, x: Any, y: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return _combined(b, algorithm, dtype, a[0], a[1])

        return vector(vector, vector), emit

    return WholeNumbers(kind.width // 8, load, load_tail, load_one, store, store_part, combine)


def _combined(b: Builder, algorithm: str, dtype: str, x: Value, y: Value) -> Value:
    unsigned = dtype[0] == "u"
    if dtype in WRAPPING and algorithm in ("add", "sub", "mul"):
        return {"add": b.add, "sub": b.sub, "mul": b.mul}[algorithm](x, y)
    if algorithm in ("add", "sub"):
        name = f"llvm.{'u' if unsigned else 's'}{algorithm}.sat.v{LANES}i{x.type.element.width}"
        return call(b, name, x, y, result=x.type)
    compare = b.icmp_unsigned if unsigned else b.icmp_signed
    return b.select(compare(">" if algorithm == "max" else "<", x, y), x, y)
