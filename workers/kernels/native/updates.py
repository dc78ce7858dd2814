"""Updates of elements in place, of any data type: replaced, or combined with what is there."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import Builder, Value, pointer


def make_update(reduction: str, kind: str) -> Any:
    """Return the intrinsic that combines the element at one address with the update at another.

    A kind is ``s``, ``u`` or ``f`` with its bits. Sums and products of integers wrap; NaN stays NaN.
    """
    element = ir.IntType(int(kind[1:])) if kind[0] != "f" else ir.FloatType() if kind == "f32" else ir.DoubleType()

    @intrinsic
    def update(_: Any, target: types.Integer, source: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            place = pointer(b, a[0], element)
            value = b.load(pointer(b, a[1], element), align=1)
            if reduction != "none":
                value = _combined(b, reduction, kind, b.load(place, align=1), value)
            b.store(value, place, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return update


def _combined(b: Builder, reduction: str, kind: str, value: Value, given: Value) -> Value:
    is_float = kind[0] == "f"
    if reduction == "add":
        return b.fadd(value, given) if is_float else b.add(value, given)
    if reduction == "mul":
        return b.fmul(value, given) if is_float else b.mul(value, given)
    predicate = "<" if reduction == "min" else ">"
    if is_float:
        kept = b.or_(b.fcmp_ordered(predicate, value, given), b.fcmp_unordered("uno", value, value))
    else:
        kept = (b.icmp_signed if kind[0] == "s" else b.icmp_unsigned)(predicate, value, given)
    return b.select(kept, value, given)
