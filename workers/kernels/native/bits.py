"""Elements and rows of bytes of any data type, moved without regard to what they mean."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import extending
from numba.core import types

from .vec import I8, I64, Builder, Value, intrinsic, pointer, vload, vstore


def make_load(nbytes: int) -> Any:
    """Return the intrinsic that loads an element of 1, 2, 4 or 8 bytes, its bits as int64."""
    kind = ir.IntType(8 * nbytes)

    @intrinsic
    def load(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            bits = b.load(pointer(b, a[0], kind), align=1)
            return bits if nbytes == 8 else b.zext(bits, I64)

        return types.int64(types.int64), emit

    return load


def make_store(nbytes: int) -> Any:
    """Return the intrinsic that stores the low 1, 2, 4 or 8 bytes of an int64."""
    kind = ir.IntType(8 * nbytes)

    @intrinsic
    def store(_: Any, address: types.Integer, bits: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value = a[1] if nbytes == 8 else b.trunc(a[1], kind)
            b.store(value, pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return store


def make_load_index(wide: bool) -> Any:
    """Return the intrinsic that loads a signed index of 8 bytes if it is ``wide``, else of 4."""
    kind = ir.IntType(64 if wide else 32)

    @intrinsic
    def load(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            index = b.load(pointer(b, a[0], kind), align=1)
            return index if wide else b.sext(index, I64)

        return types.int64(types.int64), emit

    return load


def _mover(nbytes: int) -> Any:
    kind = ir.VectorType(I8, nbytes)

    @intrinsic
    def move(_: Any, target: types.Integer, source: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(b.load(pointer(b, a[1], kind), align=1), pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return move


_move_1, _move_2, _move_4, _move_8, _move_16, _move_32 = (_mover(1 << power) for power in range(6))


@extending.register_jitable
def copy_bytes(target: int, source: int, nbytes: int) -> None:
    """Copy bytes to a place that does not overlap with their own. The last vector of a row overlaps the one before it."""
    if nbytes >= 64:
        at = 0
        while at + 256 <= nbytes:
            first, second = vload(source + at), vload(source + at + 64)
            third, fourth = vload(source + at + 128), vload(source + at + 192)
            vstore(target + at, first)
            vstore(target + at + 64, second)
            vstore(target + at + 128, third)
            vstore(target + at + 192, fourth)
            at += 256
        while at + 64 <= nbytes:
            vstore(target + at, vload(source + at))
            at += 64
        if at < nbytes:
            vstore(target + nbytes - 64, vload(source + nbytes - 64))
    elif nbytes >= 32:
        _move_32(target, source)
        _move_32(target + nbytes - 32, source + nbytes - 32)
    elif nbytes >= 16:
        _move_16(target, source)
        _move_16(target + nbytes - 16, source + nbytes - 16)
    elif nbytes >= 8:
        _move_8(target, source)
        _move_8(target + nbytes - 8, source + nbytes - 8)
    elif nbytes >= 4:
        _move_4(target, source)
        _move_4(target + nbytes - 4, source + nbytes - 4)
    elif nbytes >= 2:
        _move_2(target, source)
        _move_2(target + nbytes - 2, source + nbytes - 2)
    elif nbytes == 1:
        _move_1(target, source)


@intrinsic
def _fill_64(_: Any, target: types.Integer, pattern: types.Integer) -> Any:
    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        kind = ir.VectorType(I64, 8)
        undefined = ir.Constant(kind, ir.Undefined)
        first = b.insert_element(undefined, a[1], ir.Constant(ir.IntType(32), 0))
        every = b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8))
        b.store(every, pointer(b, a[0], kind), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@extending.register_jitable
def fill_bytes(target: int, pattern: int, nbytes: int) -> None:
    """Write elements that are equal, of which ``pattern`` has eight bytes."""
    at = 0
    while at + 64 <= nbytes:
        _fill_64(target + at, pattern)
        at += 64
    while at + 8 <= nbytes:
        _store_8(target + at, pattern)
        at += 8
    while at < nbytes:
        _store_1(target + at, pattern)
        pattern >>= 8
        at += 1


@extending.register_jitable
def zero_bytes(target: int, nbytes: int) -> None:
    """Write zeros."""
    fill_bytes(target, 0, nbytes)


_store_1, _store_8 = make_store(1), make_store(8)
