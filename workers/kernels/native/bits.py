"""Elements and rows of bytes of any data type, moved without regard to what they mean."""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir

from ...engines.object_loader import LONG_MOVES
from .compiler import types
from .compiler.language import intrinsic
from .vec import I8, I64, Builder, Value, call, pointer, splat, vload, vstore

#: Bytes of rows that `move_long` may copy: kernels do not look up `long_moves` for shorter ones.
LONG: Final = 1 << 13


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


def make_gather(nbytes: int, wide: bool) -> Any:
    """Return the intrinsic that gathers eight elements of 4 or 8 bytes at eight adjacent indices, and stores them side by side.

    Arguments: the addresses of the indices, of the source and of the target, the size of the axis and bytes from index to
    index, and bytes from element to element of the source beside them. An index that is out of range gives zero.
    """
    element = ir.IntType(8 * nbytes)

    @intrinsic
    def gather(
        _: Any, indices: types.Integer, source: types.Integer, target: types.Integer, limit: types.Integer,
        stride: types.Integer, step: types.Integer,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            numbers = ir.VectorType(I64, 8)
            stored = numbers if wide else ir.VectorType(ir.IntType(32), 8)
            index = b.load(pointer(b, a[0], stored), align=1)
            index = index if wide else b.sext(index, numbers)
            start, limit, stride, step = (splat(b, a[number], 8) for number in (1, 3, 4, 5))
            negative = b.icmp_signed("<", index, ir.Constant(numbers, [0] * 8))
            index = b.select(negative, b.add(index, limit), index)
            inside = b.icmp_unsigned("<", index, limit)
            places = b.add(b.add(start, b.mul(step, ir.Constant(numbers, list(range(8))))), b.mul(index, stride))
            kind = ir.VectorType(element, 8)
            name = f"llvm.masked.gather.v8i{element.width}.v8p0"
            where = b.inttoptr(places, ir.VectorType(element.as_pointer(), 8))
            found = call(b, name, where, ir.IntType(32)(1), inside, ir.Constant(kind, [0] * 8), result=kind)
            b.store(found, pointer(b, a[2], kind), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return gather


def _mover(nbytes: int) -> Any:
    kind = ir.VectorType(I8, nbytes)

    @intrinsic
    def move(_: Any, target: types.Integer, source: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(b.load(pointer(b, a[1], kind), align=1), pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return move


def make_reverse(nbytes: int) -> Any:
    """Return the intrinsic that copies 32 bytes to an address, the last element of 1, 2, 4 or 8 bytes first."""
    lanes = 32 // nbytes
    kind = ir.VectorType(ir.IntType(8 * nbytes), lanes)

    @intrinsic
    def reverse(_: Any, target: types.Integer, source: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value = b.load(pointer(b, a[1], kind), align=1)
            order = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(lanes))[::-1])
            b.store(b.shuffle_vector(value, value, order), pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return reverse


_move_1, _move_2, _move_4, _move_8, _move_16, move_32 = (_mover(1 << power) for power in range(6))


@intrinsic
def long_moves(_: Any) -> Any:
    """Return the bytes from which on `move_long` copies rows on this host."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        known = b.module.globals.get(LONG_MOVES)
        return b.load(known or ir.GlobalVariable(b.module, I64, LONG_MOVES), align=8)

    return types.int64(), emit


@intrinsic
def move_long(_: Any, target: types.Integer, source: types.Integer, nbytes: types.Integer) -> Any:
    """Copy bytes by the processor's instruction for that, which does not read the lines that it writes."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        kind = ir.FunctionType(ir.LiteralStructType([I64, I64, I64]), [I64, I64, I64])
        b.asm(kind, "rep movsb", "={rdi},={rsi},={rcx},0,1,2,~{memory},~{dirflag},~{fpsr},~{flags}", a, True)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


def copy_bytes(target: int, source: int, nbytes: int) -> None:
    """Copy bytes to a place that does not overlap with their own. The last vector of a row overlaps the one before it."""
    if nbytes >= LONG and nbytes >= long_moves():
        move_long(target, source, nbytes)
    elif nbytes >= 64:
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
        move_32(target, source)
        move_32(target + nbytes - 32, source + nbytes - 32)
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


def _filler(words: int) -> Any:
    @intrinsic
    def fill(_: Any, target: types.Integer, pattern: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(splat(b, a[1], words), pointer(b, a[0], ir.VectorType(I64, words)), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return fill


#: Write 32 or 64 bytes of equal elements, of which ``pattern`` has eight bytes.
fill_32, _fill_64 = _filler(4), _filler(8)


def fill_bytes(target: int, pattern: int, nbytes: int) -> None:
    """Write elements that are equal, of which ``pattern`` has eight bytes."""
    at = 0
    while at + 64 <= nbytes:
        _fill_64(target + at, pattern)
        at += 64
    while at + 8 <= nbytes:
        _store_8(target + at, pattern)
        at += 8
    if nbytes - at >= 4:
        _store_4(target + at, pattern)
        pattern >>= 32
        at += 4
    while at < nbytes:
        _store_1(target + at, pattern)
        pattern >>= 8
        at += 1


def zero_bytes(target: int, nbytes: int) -> None:
    """Write zeros."""
    fill_bytes(target, 0, nbytes)


_store_1, _store_4, _store_8 = make_store(1), make_store(4), make_store(8)
