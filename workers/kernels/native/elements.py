"""Elements of every data type as lanes of vectors, read and written 16 at a time.

f32, f16 and bf16 are computed with in float32, the other types in float64, which holds their numbers (s64 and u64 beyond 2**53
to nearest) as the reference implementations do. A result is rounded once, to even; integers are saturated, and NaN becomes the
least one; a bool is whether a number is not 0. f16 is converted by integer arithmetic where the processor has no instructions
for it, and bf16 everywhere: AVX-512's instruction takes the smallest numbers for 0.

Guarantees: nothing behind a part of 16 elements is written, and nothing is read that is in another page than the part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc.data_type import LIMITS, item_size
from .compiler import types
from .compiler.language import intrinsic
from .first_lanes import masked_kind, store_below
from .vec import (
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    LANES,
    VD,
    VF,
    VI,
    WIDTH,
    Builder,
    Value,
    VectorType,
    allocate,
    apply,
    call,
    constant,
    doubles,
    dset,
    isa_of,
    lanes_below,
    maximum,
    minimum,
    pointer,
    splat,
    vector,
    vset,
)

_VB: Final = ir.VectorType(I8, LANES)
_VW: Final = ir.VectorType(I16, LANES)
_VL: Final = ir.VectorType(I64, LANES)
_VH: Final = ir.VectorType(ir.HalfType(), LANES)
#: Data type -> its elements in memory.
STORED: Final[dict[str, ir.Type]] = {
    "f64": F64, "f32": F32, "f16": I16, "bf16": I16, "s64": I64, "s32": I32, "s8": I8, "u8": I8, "bool": I8, "u64": I64,
    "u32": I32, "s16": I16, "u16": I16,
}  # fmt: skip
#: Types whose numbers float32 holds.
SMALL: Final = ("f32", "f16", "bf16", "s16", "u16", "s8", "u8", "bool")
_IN_FLOAT32: Final = ("f32", "f16", "bf16")
#: Bytes of the smallest pages: memory is readable or not by pages.
_PAGE: Final = 4096
#: Levels whose processors convert f16.
_CONVERTS_HALF: Final = ("x86-64-v3", "x86-64-v4")


@dataclass(frozen=True, slots=True)
class Elements:
    """What kernels use of a data type: ``size`` in bytes, scalars of its lanes, and functions on addresses."""

    size: int
    real: Any  #: np.float32 or np.float64
    load: Any  #: (address) -> lanes
    load_part: Any  #: (address, count) -> lanes, zeros behind the first ``count``
    load_tail: Any  #: (address, count) -> lanes, anything behind the first ``count``: no slower than load_part
    load_one: Any  #: (address) -> one element in every lane
    store: Any  #: (address, lanes)
    store_part: Any  #: (address, lanes, count): the first ``count`` lanes
    store_one: Any  #: (address, lanes): lane 0; LLVM 22 makes four bytes of a byte stored under a constant mask
    fill: Any  #: (scalar of the type of lanes) -> it in every lane
    parameters: Any  #: (address) -> lanes of 16 float32: scales, shifts and statistics are of that type
    parameters_tail: Any  #: (address, count) -> the same, anything behind the first ``count``

    @property
    def lanes_as(self) -> Elements:
        """Return what kernels use of lanes in scratch memory."""
        return elements("f32" if self.real is np.float32 else "f64")


@lru_cache
def elements(dtype: str) -> Elements:
    """Return what kernels use of a data type."""
    lanes = vector if dtype in _IN_FLOAT32 else doubles
    stored = ir.VectorType(STORED[dtype], LANES)

    @intrinsic
    def load(_: Any, address: types.Integer) -> Any:
        return lanes(types.int64), lambda context, b, sig, a: emit_load(b, a[0], dtype)

    @intrinsic
    def load_part(_: Any, address: types.Integer, count: types.Integer) -> Any:
        return lanes(types.int64, types.int64), lambda context, b, sig, a: _load_part(b, a[0], a[1], dtype)

    @intrinsic
    def load_tail(_: Any, address: types.Integer, count: types.Integer) -> Any:
        return lanes(types.int64, types.int64), lambda context, b, sig, a: emit_load_tail(b, a[0], a[1], dtype)

    @intrinsic
    def load_one(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return widened(b, splat(b, b.load(pointer(b, a[0], STORED[dtype]), align=1)), dtype)

        return lanes(types.int64), emit

    @intrinsic
    def store(_: Any, address: types.Integer, value: VectorType) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(narrowed(b, a[1], dtype), pointer(b, a[0], stored), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, value), emit

    @intrinsic
    def store_part(_: Any, address: types.Integer, value: VectorType, count: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            store_below(b, a[0], narrowed(b, a[1], dtype), a[2])
            return context.get_dummy_value()

        return types.void(types.int64, value, types.int64), emit

    @intrinsic
    def store_one(_: Any, address: types.Integer, value: VectorType) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            one = b.extract_element(narrowed(b, a[1], dtype), I32(0))
            b.store(one, pointer(b, a[0], STORED[dtype]), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, value), emit

    @intrinsic
    def parameters(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            stored = b.load(pointer(b, a[0], VF), align=1)
            return stored if lanes is vector else b.fpext(stored, VD)

        return lanes(types.int64), emit

    @intrinsic
    def parameters_tail(_: Any, address: types.Integer, count: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            stored = emit_load_tail(b, a[0], a[1], "f32")
            return stored if lanes is vector else b.fpext(stored, VD)

        return lanes(types.int64, types.int64), emit

    real, fill = (np.float32, vset) if lanes is vector else (np.float64, dset)
    return Elements(
        item_size(dtype), real, load, load_part, load_tail, load_one, store, store_part, store_one, fill, parameters,
        parameters_tail,
    )  # fmt: skip


def emit_load(b: Builder, address: Value, dtype: str, whole: ir.Type = VD) -> Value:
    """Return 16 elements as lanes: whole numbers as vectors of the type ``whole``."""
    return widened(b, b.load(pointer(b, address, ir.VectorType(STORED[dtype], LANES)), align=1), dtype, whole)


def emit_load_tail(b: Builder, address: Value, count: Value, dtype: str) -> Value:
    """Return ``count`` elements as lanes, anything in the others."""
    if item_size(dtype) == 8 or isa_of(b) == "x86-64-v4":
        return _load_part(b, address, count, dtype)
    # Where there are no masks, or slower ones: elements beside one another are read together if all are in one page.
    lanes, begins = ir.VectorType(STORED[dtype], LANES), b.icmp_signed(">", count, I64(0))

    def copied() -> Value:
        room = allocate(b, lanes)
        room.align = item_size(dtype) * LANES
        nbytes = b.select(begins, b.mul(count, I64(item_size(dtype))), I64(0))
        pair = [b.bitcast(room, I8.as_pointer()), pointer(b, address, I8)]
        call(b, "llvm.memcpy.p0.p0.i64", *pair, nbytes, I1(0), result=ir.VoidType())
        return b.load(room)

    return widened(b, _load_in_page(b, address, lanes, begins, copied), dtype)


def _load_in_page(b: Builder, address: Value, lanes: ir.Type, begins: Value, otherwise: Callable[[], Value]) -> Value:
    """Load a vector, all of it if its first element is wanted and it ends in the page in which it begins."""
    nbytes = LANES * lanes.element.width // 8 if isinstance(lanes.element, ir.IntType) else WIDTH
    is_inside = b.and_(begins, b.icmp_unsigned("<=", b.and_(address, I64(_PAGE - 1)), I64(_PAGE - nbytes)))
    with b.if_else(is_inside, likely=True) as (inside, across):
        with inside:
            whole, near = b.load(pointer(b, address, lanes), align=1), b.block
        with across:
            apart = otherwise()
            far = b.block
    found = b.phi(lanes)
    found.add_incoming(whole, near)
    found.add_incoming(apart, far)
    return found


def _load_part(b: Builder, address: Value, count: Value, dtype: str) -> Value:
    return widened(b, masked_load(b, address, STORED[dtype], lanes_below(b, count)), dtype)


def masked_load(b: Builder, address: Value, kind: ir.Type, mask: Value) -> Value:
    """Load the elements of a mask, zeros in the others."""
    lanes = ir.VectorType(kind, LANES)
    zeros = ir.Constant(lanes, None)

    def masked() -> Value:
        name = f"llvm.masked.load.{masked_kind(kind)}.p0"
        return call(b, name, pointer(b, address, lanes), I32(1), mask, zeros, result=lanes)

    if kind in (I8, I16) and isa_of(b) != "x86-64-v4":
        # There are no masks for them: one after the other takes long.
        return b.select(mask, _load_in_page(b, address, lanes, b.extract_element(mask, I32(0)), masked), zeros)
    return masked()


def widened(b: Builder, stored: Value, dtype: str, whole: ir.Type = VD) -> Value:
    """Return stored elements as lanes: whole numbers as vectors of the type ``whole``."""
    if dtype in ("f32", "f64"):
        return stored
    if dtype == "bf16":
        return b.bitcast(b.shl(b.zext(stored, VI), _ints(16)), VF)
    if dtype == "f16":
        return b.fpext(b.bitcast(stored, _VH), VF) if isa_of(b) in _CONVERTS_HALF else _half_to_float(b, stored)
    if dtype == "bool":
        return b.select(b.icmp_signed("!=", stored, ir.Constant(_VB, None)), constant(1.0, whole), constant(0.0, whole))
    if dtype in ("u64", "u32"):
        return b.uitofp(stored, whole)
    if dtype in ("u16", "u8"):
        stored = b.zext(stored, VI)
    elif dtype in ("s16", "s8"):
        stored = b.sext(stored, VI)
    return b.sitofp(stored, whole)


def narrowed(b: Builder, lanes: Value, dtype: str) -> Value:
    """Return lanes, of float32 or float64, as they are stored: rounded once, to even."""
    is_double = lanes.type == VD
    if dtype == "f64":
        return lanes if is_double else b.fpext(lanes, VD)
    if dtype == "f32":
        return b.fptrunc(lanes, VF) if is_double else lanes
    if dtype in ("f16", "bf16"):
        narrow = _rounded_to_odd(b, lanes) if is_double else lanes
        return _to_half(b, narrow) if dtype == "f16" else _to_bfloat(b, narrow)
    if dtype == "bool":
        return b.zext(b.fcmp_unordered("!=", lanes, ir.Constant(lanes.type, None)), _VB)
    if dtype == "s32" and not is_double:
        return _to_int(b, apply(b, "rint", lanes))
    wide = lanes if is_double or item_size(dtype) < 4 else b.fpext(lanes, VD)
    if item_size(dtype) == 8:
        return _to_long(b, wide, dtype)
    limited = _limited(b, apply(b, "rint", wide), *map(float, LIMITS[dtype]))
    found = b.fptoui(limited, VI) if dtype == "u32" else b.fptosi(limited, VI)
    return found if item_size(dtype) == 4 else b.trunc(found, ir.VectorType(STORED[dtype], LANES))


def _limited(b: Builder, value: Value, lowest: float, highest: float) -> Value:
    """Return values in a range, the lowest for NaN."""
    kind = value.type
    return minimum(b, maximum(b, value, constant(lowest, kind)), constant(highest, kind))


def _to_int(b: Builder, rounded: Value) -> Value:
    """Return whole numbers of float32 as int32, saturated, the least for NaN; float32 does not hold the largest."""
    too_large = b.fcmp_ordered(">=", rounded, constant(2.0**31))
    too_small = b.fcmp_unordered("<", rounded, constant(-(2.0**31)))
    found = b.fptosi(b.select(b.or_(too_large, too_small), constant(0.0), rounded), VI)
    return b.select(too_small, _ints(-(2**31)), b.select(too_large, _ints(2**31 - 1), found))


def _to_long(b: Builder, value: Value, dtype: str) -> Value:
    least, most = LIMITS[dtype]
    rounded = apply(b, "rint", value)
    too_large = b.fcmp_ordered(">=", rounded, constant(float(most + 1), VD))
    too_small = b.fcmp_unordered("<", rounded, constant(float(least), VD))
    inside = b.select(b.or_(too_large, too_small), constant(0.0, VD), rounded)
    found = b.fptoui(inside, _VL) if dtype == "u64" else b.fptosi(inside, _VL)
    return b.select(too_small, _longs(least), b.select(too_large, _longs(most), found))


def _rounded_to_odd(b: Builder, value: Value) -> Value:
    """Return float64 as float32, to odd if it is not exact: rounded to fewer bits again, that is as if rounded once."""
    near = b.fptrunc(value, VF)
    back, bits = b.fpext(near, VD), b.bitcast(near, VI)
    is_even = b.icmp_signed("==", b.and_(bits, _ints(1)), _ints(0))
    inexact = b.and_(b.fcmp_ordered("!=", back, value), is_even)
    too_far = b.fcmp_ordered(">", apply(b, "fabs", back), apply(b, "fabs", value))
    odd = b.add(bits, b.select(too_far, _ints(-1), _ints(1)))
    return b.bitcast(b.select(inexact, odd, bits), VF)


def _to_bfloat(b: Builder, value: Value) -> Value:
    bits = b.bitcast(value, VI)
    last = b.and_(b.lshr(bits, _ints(16)), _ints(1))
    rounded = b.add(bits, b.add(last, _ints(0x7FFF)))
    quiet = b.or_(bits, _ints(0x400000))
    kept = b.select(b.fcmp_unordered("uno", value, value), quiet, rounded)
    return b.trunc(b.lshr(kept, _ints(16)), _VW)


def _to_half(b: Builder, value: Value) -> Value:
    """Return float32 as the bits of f16; without instructions, numbers below the normal range by adding one of half's ulp."""
    if isa_of(b) in _CONVERTS_HALF:
        return b.bitcast(b.fptrunc(value, _VH), _VW)
    bits = b.bitcast(value, VI)
    sign = b.and_(b.lshr(bits, _ints(16)), _ints(0x8000))
    size = b.and_(bits, _ints(0x7FFFFFFF))
    # The bias of the exponent is 112 less; what the lowest 13 bits of the fraction hold is rounded to even.
    last = b.and_(b.lshr(size, _ints(13)), _ints(1))
    normal = b.lshr(b.add(b.sub(size, _ints(112 << 23)), b.add(last, _ints(0xFFF))), _ints(13))
    # The last place of 0.5 in float32 is that of the smallest f16.
    small = b.bitcast(b.fadd(b.bitcast(size, VF), constant(0.5)), VI)
    small = b.sub(small, b.bitcast(constant(0.5), VI))
    found = b.select(b.icmp_signed("<", size, _ints(113 << 23)), small, normal)
    found = b.select(b.icmp_signed(">=", size, _ints(0x477FF000)), _ints(0x7C00), found)
    payload = b.or_(_ints(0x7E00), b.and_(b.lshr(size, _ints(13)), _ints(0x3FF)))
    found = b.select(b.icmp_signed(">", size, _ints(0x7F800000)), payload, found)
    return b.trunc(b.or_(found, sign), _VW)


def _half_to_float(b: Builder, stored: Value) -> Value:
    """Return the bits of f16 as float32: shifted, then multiplied by the difference of the two exponents' biases."""
    bits = b.zext(stored, VI)
    size = b.shl(b.and_(bits, _ints(0x7FFF)), _ints(13))
    number = b.bitcast(b.fmul(b.bitcast(size, VF), constant(math.ldexp(1.0, 112))), VI)
    special = b.or_(size, _ints(0x7F800000))
    is_special = b.icmp_signed(">=", size, _ints(0x7C00 << 13))
    sign = b.shl(b.and_(bits, _ints(0x8000)), _ints(16))
    return b.bitcast(b.or_(b.select(is_special, special, number), sign), VF)


def _ints(value: int) -> ir.Constant:
    return ir.Constant(VI, [value] * LANES)


def _longs(value: int) -> ir.Constant:
    return ir.Constant(_VL, [value] * LANES)
