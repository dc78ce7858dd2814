"""Keys of elements: integers whose order is that of the elements, with NaN above all, for every data type.

A float's bits are a sign and a magnitude; the key is the magnitude with the sign, so that -0.0 equals 0.0. Vectors of keys are
held as vectors of 16 floats: 16 keys of 32 bits, or 8 of 64 for types of 8 bytes.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .elements import masked_load
from .first_lanes import masked_store
from .limits import key_lanes
from .vec import I32, I64, LANES, VF, Builder, Value, call, lanes_below, pointer, vector

#: Data type -> bits of an element, and of a float those of infinity.
_TYPES: Final[dict[str, tuple[int, int]]] = {
    "f64": (64, 0x7FF << 52), "f32": (32, 0xFF << 23), "f16": (16, 0x1F << 10), "bf16": (16, 0xFF << 7),
    "s64": (64, 0), "s32": (32, 0), "s8": (8, 0), "u8": (8, 0), "bool": (8, 0), "u64": (64, 0), "u32": (32, 0),
    "s16": (16, 0), "u16": (16, 0),
}  # fmt: skip
_UNSIGNED: Final = ("u64", "u32", "u16", "u8", "bool")


def make_key(dtype: str, smallest: bool) -> Any:
    """Return the intrinsic that loads an element and returns its key as int64, of reversed order if the ``smallest`` wins."""

    @intrinsic
    def key(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            found = _emit_keys(b, a[0], dtype, smallest, 1)
            return found if found.type.width == 64 else b.sext(found, I64)

        return types.int64(types.int64), emit

    return key


def make_keys(dtype: str, smallest: bool) -> Any:
    """Return the intrinsic that loads the keys of adjacent elements as a vector."""
    lanes = key_lanes(dtype)

    @intrinsic
    def keys(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return b.bitcast(_emit_keys(b, a[0], dtype, smallest, lanes), VF)

        return vector(types.int64), emit

    return keys


def make_first_keys(dtype: str, smallest: bool) -> Any:
    """Return the intrinsic that loads the keys of the first ``count`` adjacent elements; the other lanes have the least key."""
    kind = _vector_type(key_lanes(dtype))

    @intrinsic
    def first_keys(_: Any, address: types.Integer, count: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            found = _keys_of(b, _first_elements(b, a[0], a[1], dtype), dtype, smallest)
            return b.bitcast(
                b.select(_lanes_below(b, a[1], kind), found, _same(kind, -1 << (kind.element.width - 1))), VF
            )

        return vector(types.int64, types.int64), emit

    return first_keys


def make_first_elements(dtype: str) -> Any:
    """Return the intrinsic that loads the bits of the first ``count`` adjacent elements, each in the lane of its key."""
    kind = _vector_type(key_lanes(dtype))

    @intrinsic
    def first_elements(_: Any, address: types.Integer, count: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            found = _first_elements(b, a[0], a[1], dtype)
            return b.bitcast(found if found.type == kind else b.zext(found, kind), VF)

        return vector(types.int64, types.int64), emit

    return first_elements


def make_store_lanes(dtype: str, nbytes: int) -> Any:
    """Return the intrinsic that stores the first ``count`` lanes side by side, as integers of ``nbytes``."""
    kind = _vector_type(key_lanes(dtype))
    stored = ir.VectorType(ir.IntType(8 * nbytes), kind.count)

    @intrinsic
    def store_lanes(_: Any, address: types.Integer, value: Any, count: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value = b.bitcast(a[1], kind)
            if 8 * nbytes != kind.element.width:
                value = (b.sext if 8 * nbytes > kind.element.width else b.trunc)(value, stored)
            with b.if_else(b.icmp_signed(">=", a[2], I64(kind.count))) as (whole, part):
                # Stores with a mask take longer on some processors.
                with whole:
                    b.store(value, pointer(b, a[0], stored), align=1)
                with part:
                    mask = _lanes_below(b, a[2], kind)
                    if kind.count == LANES:
                        masked_store(b, value, a[0], mask)
                    else:
                        name = f"llvm.masked.store.v{kind.count}i{8 * nbytes}.p0"
                        call(b, name, value, pointer(b, a[0], stored), I32(1), mask, result=ir.VoidType())
            return context.get_dummy_value()

        return types.void(types.int64, vector, types.int64), emit

    return store_lanes


def make_numbers(dtype: str) -> Any:
    """Return the intrinsic that returns ``first`` + ``step`` times the number of its lane, in each lane."""
    lanes = key_lanes(dtype)

    @intrinsic
    def numbers(_: Any, first: types.Integer, step: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            kind = _vector_type(lanes)
            start, distance = (_splat(b, value, kind) for value in a)
            return b.bitcast(b.add(start, b.mul(distance, ir.Constant(kind, list(range(lanes))))), VF)

        return vector(types.int64, types.int64), emit

    return numbers


def make_choose(dtype: str, last: bool) -> Any:
    """Return the intrinsic that returns lanes of ``yes`` where a key replaces the best one, else of ``no``.

    A key replaces one that is less, or the ``last`` of equal ones, too.
    """
    kind = _vector_type(key_lanes(dtype))

    @intrinsic
    def choose(_: Any, keys: Any, best: Any, yes: Any, no: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            keys, best = (b.bitcast(value, kind) for value in a[:2])
            return b.select(b.icmp_signed(">=" if last else ">", keys, best), *(b.bitcast(v, kind) for v in a[2:]))

        def cast(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return b.bitcast(emit(context, b, sig, a), VF)

        return vector(vector, vector, vector, vector), cast

    return choose


def make_lanes_above(dtype: str) -> Any:
    """Return the intrinsic that returns the lanes whose key is above that of the same lane of others, one bit a lane."""
    kind = _vector_type(key_lanes(dtype))

    @intrinsic
    def lanes_above(_: Any, keys: Any, others: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            larger = b.icmp_signed(">", *(b.bitcast(value, kind) for value in a))
            return b.zext(b.bitcast(larger, ir.IntType(kind.count)), I64)

        return types.int64(vector, vector), emit

    return lanes_above


def make_above(dtype: str) -> Any:
    """Return the intrinsic that returns the lanes above a key, one bit a lane."""
    kind = _vector_type(key_lanes(dtype))

    @intrinsic
    def above(_: Any, keys: Any, key: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            larger = b.icmp_signed(">", b.bitcast(a[0], kind), _splat(b, a[1], kind))
            return b.zext(b.bitcast(larger, ir.IntType(kind.count)), I64)

        return types.int64(vector, types.int64), emit

    return above


@intrinsic
def lowest_bit(_: Any, bits: types.Integer) -> Any:
    """Return the number of the lowest bit that is 1; there is one."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return call(b, "llvm.cttz.i64", a[0], ir.IntType(1)(1), result=I64)

    return types.int64(types.int64), emit


def make_highest(dtype: str) -> Any:
    """Return the intrinsic that returns the highest of a vector of keys as int64."""
    kind = _vector_type(key_lanes(dtype))

    @intrinsic
    def highest(_: Any, keys: Any) -> Any:
        return types.int64(vector), lambda context, b, sig, a: _reduced(b, "smax", b.bitcast(a[0], kind))

    return highest


def make_number_of(dtype: str, last: bool) -> Any:
    """Return the intrinsic that returns the first, or ``last``, number of the lanes that have a key; there is one."""
    kind = _vector_type(key_lanes(dtype))

    @intrinsic
    def number_of(_: Any, key: types.Integer, keys: Any, numbers: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            same = b.icmp_signed("==", b.bitcast(a[1], kind), _splat(b, a[0], kind))
            # Numbers are not negative.
            none = _same(kind, -1 if last else (1 << (kind.element.width - 1)) - 1)
            return _reduced(b, "smax" if last else "smin", b.select(same, b.bitcast(a[2], kind), none))

        return types.int64(types.int64, vector, vector), emit

    return number_of


def make_lane_of(dtype: str, last: bool) -> Any:
    """Return the intrinsic that returns the number of the first, or ``last``, of ``count`` lanes with a key; there is one."""
    kind = _vector_type(key_lanes(dtype))

    @intrinsic
    def lane_of(_: Any, key: types.Integer, keys: Any, count: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            same = b.icmp_signed("==", b.bitcast(a[1], kind), _splat(b, a[0], kind))
            bits = b.zext(b.bitcast(b.and_(same, _lanes_below(b, a[2], kind)), ir.IntType(kind.count)), I64)
            if last:
                return b.sub(I64(63), call(b, "llvm.ctlz.i64", bits, ir.IntType(1)(1), result=I64))
            return call(b, "llvm.cttz.i64", bits, ir.IntType(1)(1), result=I64)

        return types.int64(types.int64, vector, types.int64), emit

    return lane_of


def make_lane(dtype: str) -> Any:
    """Return the intrinsic that returns a lane as int64."""
    kind = _vector_type(key_lanes(dtype))

    @intrinsic
    def lane(_: Any, value: Any, number: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            found = b.extract_element(b.bitcast(a[0], kind), b.trunc(a[1], I32))
            return found if kind.element.width == 64 else b.sext(found, I64)

        return types.int64(vector, types.int64), emit

    return lane


def _reduced(b: Builder, function: str, value: Value) -> Value:
    kind = value.type
    found = call(b, f"llvm.vector.reduce.{function}.v{kind.count}i{kind.element.width}", value, result=kind.element)
    return found if kind.element.width == 64 else b.sext(found, I64)


def _emit_keys(b: Builder, address: Value, dtype: str, smallest: bool, lanes: int) -> Value:
    element = ir.IntType(_TYPES[dtype][0])
    stored: ir.Type = element if lanes == 1 else ir.VectorType(element, lanes)
    return _keys_of(b, b.load(pointer(b, address, stored), align=1), dtype, smallest)


def _keys_of(b: Builder, value: Value, dtype: str, smallest: bool) -> Value:
    """Return the keys of the bits of an element, or of a vector of them."""
    bits, infinity = _TYPES[dtype]
    wide = 64 if bits == 64 else 32
    key = ir.IntType(wide)
    kind: ir.Type = ir.VectorType(key, value.type.count) if isinstance(value.type, ir.VectorType) else key
    if bits < wide:
        value = b.zext(value, kind) if dtype in _UNSIGNED else b.sext(value, kind)
    elif dtype in _UNSIGNED:
        # Keys are compared as signed numbers.
        value = b.xor(value, _same(kind, -1 << (wide - 1)))
    if not infinity:
        return b.not_(value) if smallest else value
    magnitude = b.and_(value, _same(kind, (1 << (bits - 1)) - 1))
    ordered = b.select(b.icmp_signed("<", value, _same(kind, 0)), b.sub(_same(kind, 0), magnitude), magnitude)
    ordered = b.not_(ordered) if smallest else ordered
    unordered = b.icmp_signed(">", magnitude, _same(kind, infinity))
    return b.select(unordered, _same(kind, (1 << (wide - 1)) - 1), ordered)


def _first_elements(b: Builder, address: Value, count: Value, dtype: str) -> Value:
    """Return the bits of the first ``count`` adjacent elements, zeros in the other lanes."""
    lanes, element = key_lanes(dtype), ir.IntType(_TYPES[dtype][0])
    if lanes == LANES:
        return masked_load(b, address, element, lanes_below(b, count))
    stored = ir.VectorType(element, lanes)
    mask = _lanes_below(b, count, stored)
    name = f"llvm.masked.load.v{lanes}i{element.width}.p0"
    return call(b, name, pointer(b, address, stored), I32(1), mask, ir.Constant(stored, None), result=stored)


def _lanes_below(b: Builder, count: Value, kind: ir.VectorType) -> Value:
    """Return a mask of the lanes whose number is below ``count`` (int64)."""
    if kind.count == LANES:
        return lanes_below(b, count)
    return b.icmp_signed("<", ir.Constant(kind, list(range(kind.count))), _splat(b, count, kind))


def _vector_type(lanes: int) -> ir.VectorType:
    return ir.VectorType(I64 if lanes == 8 else I32, lanes)


def _same(kind: ir.Type, value: int) -> ir.Constant:
    """Return a constant of a scalar or vector type with one value in every lane."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)
    return ir.Constant(kind, value)


def _splat(b: Builder, scalar: Value, kind: ir.VectorType) -> Value:
    value = scalar if kind.element.width == 64 else b.trunc(scalar, kind.element)
    undefined = ir.Constant(kind, ir.Undefined)
    first = b.insert_element(undefined, value, I32(0))
    return b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))
