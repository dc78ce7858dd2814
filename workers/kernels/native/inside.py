"""Elements of a row at indices of which some may be outside of it, as lanes: what a window sees."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .elements import STORED, elements, widened
from .first_lanes import masked_kind
from .vec import I8, I16, I32, I64, LANES, VI, Builder, Value, call, pointer, splat

_VL = ir.VectorType(I64, LANES)


def load_inside(dtype: str) -> Any:
    """Return an intrinsic (address of the row, index, limit, other): the elements at ``index`` to ``index + 15``.

    Those outside of [0, limit) are lanes of ``other``, and their memory is not read. Limitation: indices are below 2**31.
    """
    kind, size = STORED[dtype], elements(dtype).size

    @intrinsic
    def load(_: Any, address: types.Integer, first: types.Integer, limit: types.Integer, other: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            base, index, end, fill = a
            numbers = b.add(splat(b, b.trunc(index, I32)), ir.Constant(VI, list(range(LANES))))
            mask = b.icmp_unsigned("<", numbers, splat(b, b.trunc(end, I32)))
            where = b.add(base, b.mul(index, I64(size)))
            lanes = ir.VectorType(kind, LANES)
            name = f"llvm.masked.load.{masked_kind(kind)}.p0"
            if dtype in ("f32", "f64"):
                return call(b, name, pointer(b, where, lanes), I32(1), mask, fill, result=lanes)
            zeros = ir.Constant(lanes, None)
            found = call(b, name, pointer(b, where, lanes), I32(1), mask, zeros, result=lanes)
            return b.select(mask, widened(b, found, dtype), fill)

        return other(types.int64, types.int64, types.int64, other), emit

    return load


def load_apart(dtype: str) -> Any:
    """Return an intrinsic (address of the row, index, step, limit, other): elements at ``index``, ``index + step``, ... (16).

    Those outside of [0, limit) are lanes of ``other``.
    """
    kind, size = STORED[dtype], elements(dtype).size
    read = I32 if kind in (I8, I16) else kind
    kinds = ir.VectorType(kind, LANES)

    @intrinsic
    def load(
        _: Any, address: types.Integer, first: types.Integer, step: types.Integer, limit: types.Integer, other: Any
    ) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            base, index, distance, end, fill = a
            numbers = ir.Constant(_VL, list(range(LANES)))
            places = b.add(splat(b, index), b.mul(numbers, splat(b, distance)))
            mask = b.icmp_unsigned("<", places, splat(b, end))  # a negative place is beyond
            places = b.add(splat(b, base), b.mul(places, splat(b, I64(size))))
            # Small elements are read with the four bytes around them, which are in one page.
            whole = b.and_(places, _longs(-4)) if read is not kind else places
            where = b.inttoptr(whole, ir.VectorType(read.as_pointer(), LANES))
            lanes = ir.VectorType(read, LANES)
            name = f"llvm.masked.gather.{masked_kind(read)}.v{LANES}p0"
            found = call(b, name, where, I32(1), mask, ir.Constant(lanes, None), result=lanes)
            if read is not kind:
                bits = b.trunc(b.shl(b.and_(places, _longs(3)), _longs(3)), lanes)
                found = b.trunc(b.lshr(found, bits), kinds)
            return b.select(mask, widened(b, found, dtype), fill)

        return other(types.int64, types.int64, types.int64, types.int64, other), emit

    return load


def _longs(value: int) -> ir.Constant:
    return ir.Constant(_VL, [value] * LANES)
