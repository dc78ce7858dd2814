"""Updates of elements in place, of any data type: replaced, or combined with what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .bits import copy_bytes
from .compiler import types
from .compiler.language import intrinsic
from .vec import LANES, Builder, Value, pointer


def make_update(reduction: str, kind: str, lanes: int = 1) -> Any:
    """Return the intrinsic that combines ``lanes`` adjacent elements at one address with the updates at another.

    A kind is ``s``, ``u`` or ``f`` with its bits. Sums and products of integers wrap; NaN stays NaN.
    """
    element = ir.IntType(int(kind[1:])) if kind[0] != "f" else ir.FloatType() if kind == "f32" else ir.DoubleType()
    element = element if lanes == 1 else ir.VectorType(element, lanes)

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


def make_row_update(reduction: str, kind: str) -> Callable[[int, int, int], None]:
    """Return what combines a row of adjacent elements with updates that lie elsewhere: (target, source, count)."""
    size = int(kind[1:]) // 8
    if reduction == "none":

        def replace_row(target: int, source: int, count: int) -> None:
            copy_bytes(target, source, count * size)

        return replace_row
    update, update_lanes = make_update(reduction, kind), make_update(reduction, kind, LANES)

    def update_row(target: int, source: int, count: int) -> None:
        for _ in range(count // LANES):
            update_lanes(target, source)
            target += LANES * size
            source += LANES * size
        for _ in range(count % LANES):
            update(target, source)
            target += size
            source += size

    return update_row


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
