"""Elements added to a sum that is kept wider: float64 of floats, int64 of integers; one, or several side by side."""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir
from numba.core import types

from .vec import I64, Builder, Value, intrinsic, pointer

_F64: Final = ir.DoubleType()


def make_add(kind: str, lanes: int, exclusive: bool) -> Any:
    """Return the intrinsic that adds ``lanes`` elements to sums in memory and stores these, or those before, as elements.

    A kind is ``s``, ``u`` or ``f`` with its bits. Arguments: the addresses of the sums, of src and of dst.
    """
    element = ir.IntType(int(kind[1:])) if kind[0] != "f" else ir.FloatType() if kind == "f32" else _F64
    sums = _F64 if kind[0] == "f" else I64

    @intrinsic
    def add(_: Any, total: types.Integer, source: types.Integer, target: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            stored, wide = (each if lanes == 1 else ir.VectorType(each, lanes) for each in (element, sums))
            place = pointer(b, a[0], wide)
            before = b.load(place, align=8)
            value = b.load(pointer(b, a[1], stored), align=1)
            if kind[0] == "f":
                after = b.fadd(before, value if kind == "f64" else b.fpext(value, wide))
            else:
                same = kind[1:] == "64"
                after = b.add(before, value if same else (b.zext if kind[0] == "u" else b.sext)(value, wide))
            b.store(after, place, align=8)
            result = before if exclusive else after
            if kind[1:] != "64":
                result = b.fptrunc(result, stored) if kind[0] == "f" else b.trunc(result, stored)
            b.store(result, pointer(b, a[2], stored), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), emit

    return add


@intrinsic
def clear_sums(_: Any, total: types.Integer) -> Any:
    """Write zero to eight sums."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        kind = ir.VectorType(I64, 8)
        b.store(ir.Constant(kind, [0] * 8), pointer(b, a[0], kind), align=8)
        return context.get_dummy_value()

    return types.void(types.int64), emit
