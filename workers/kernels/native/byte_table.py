"""Look up bytes in a table of 256: 64 at a time by permutations of words (AVX-512) or bytes (AVX2), else one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .bits import make_store
from .compiler import types
from .compiler.language import intrinsic
from .integers import load_u8
from .vec import I8, I16, I32, Builder, Value, call, pointer, vector, vload

#: Bytes of a table.
SIZE: Final = 256
_STEP: Final = 64
_PART: Final = 16
_PARTS: Final = SIZE // _PART

_WORDS: Final = ir.VectorType(I16, _STEP // 2)
_HALF: Final = ir.VectorType(I8, _STEP // 2)
_QUARTER: Final = ir.VectorType(I8, _PART)

store_byte: Final = make_store(1)


def make_look_up(isa: str) -> Callable[[int, int, int, int, int], None]:
    """Return the function that looks up ``count`` bytes at ``src`` in a table and stores what it finds at ``dst``.

    Arguments: src, dst (both may be the same), count, the address of the table, and that of 256 bytes to work with.
    """
    by_words, by_bytes = isa == "x86-64-v4", isa == "x86-64-v3"

    def look_up(src: int, dst: int, count: int, table: int, work: int) -> None:
        at = 0
        if by_words and count >= _STEP:
            t0, t1, t2, t3 = vload(table), vload(table + 64), vload(table + 128), vload(table + 192)
            while at + _STEP <= count:
                _look_up_words(src + at, dst + at, t0, t1, t2, t3)
                at += _STEP
        elif by_bytes and count >= _STEP:
            _find_differences(table, work)
            while at + _STEP <= count:
                _look_up_bytes(src + at, dst + at, work)
                _look_up_bytes(src + at + 32, dst + at + 32, work)
                at += _STEP
        while at + 4 <= count:
            p, q = load_u8(table + load_u8(src + at)), load_u8(table + load_u8(src + at + 1))
            r, s = load_u8(table + load_u8(src + at + 2)), load_u8(table + load_u8(src + at + 3))
            store_byte(dst + at, p)
            store_byte(dst + at + 1, q)
            store_byte(dst + at + 2, r)
            store_byte(dst + at + 3, s)
            at += 4
        while at < count:
            store_byte(dst + at, load_u8(table + load_u8(src + at)))
            at += 1

    return look_up


@intrinsic
def _look_up_words(_: Any, src: types.Integer, dst: types.Integer, t0: Any, t1: Any, t2: Any, t3: Any) -> Any:
    """Look up 64 bytes in four vectors of 32 words: a byte's upper seven bits number its word, its lowest the half of it."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        src, dst, *rest = a
        tables = [b.bitcast(table, _WORDS) for table in rest]
        words = b.load(pointer(b, src, _WORDS), align=1)

        def is_set(bit: int) -> Value:
            return b.icmp_signed("!=", b.and_(words, _all(_WORDS, 1 << bit)), _all(_WORDS, 0))

        def found(byte: int) -> Value:
            numbers = b.lshr(words, _all(_WORDS, 8 * byte + 1))
            low, high = (
                call(b, "llvm.x86.avx512.vpermi2var.hi.512", first, numbers, second, result=_WORDS)
                for first, second in (tables[:2], tables[2:])
            )
            return b.select(is_set(8 * byte + 7), high, low)

        even, odd = found(0), found(1)
        even = b.select(is_set(0), b.lshr(even, _all(_WORDS, 8)), even)
        odd = b.select(is_set(8), odd, b.shl(odd, _all(_WORDS, 8)))
        both = b.or_(b.and_(even, _all(_WORDS, 0x00FF)), b.and_(odd, _all(_WORDS, 0xFF00)))
        b.store(both, pointer(b, dst, _WORDS), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, *[vector] * 4), emit


@intrinsic
def _find_differences(_: Any, table: types.Integer, differences: types.Integer) -> Any:
    """Store how each part of a table, of 16 bytes, differs (xor) from the part before; of each half the first part as it is."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        parts = [_part(b, a[0], number) for number in range(_PARTS)]
        for number, part in enumerate(parts):
            if number % (_PARTS // 2):
                part = b.xor(part, parts[number - 1])
            b.store(part, pointer(b, _moved(b, a[1], number), _QUARTER), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _look_up_bytes(_: Any, src: types.Integer, dst: types.Integer, differences: types.Integer) -> Any:
    """Look up 32 bytes: the sum (xor) of the differences up to a byte's own part is the table's.

    VPSHUFB takes the lowest four bits of a number, and gives 0 for a negative one. With 16 subtracted for each part, numbers of
    the parts before are negative; those of the other half are from the beginning, and stay so as the subtraction saturates.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        numbers = b.load(pointer(b, a[0], _HALF), align=1)
        result: Value | None = None
        for first in (0, _PARTS // 2):
            if first:
                numbers = b.xor(numbers, _all(_HALF, 0x80))
            left = numbers
            for number in range(first, first + _PARTS // 2):
                part = _part(b, a[2], number)
                twice = b.shuffle_vector(part, part, ir.Constant(ir.VectorType(I32, 32), [*range(_PART)] * 2))
                found = call(b, "llvm.x86.avx2.pshuf.b", twice, left, result=_HALF)
                result = found if result is None else b.xor(result, found)
                left = call(b, "llvm.ssub.sat.v32i8", left, _all(_HALF, _PART), result=_HALF)
        b.store(result, pointer(b, a[1], _HALF), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


def _part(b: Builder, table: Value, number: int) -> Value:
    return b.load(pointer(b, _moved(b, table, number), _QUARTER), align=1)


def _moved(b: Builder, address: Value, number: int) -> Value:
    return b.add(address, ir.Constant(address.type, _PART * number))


def _all(kind: ir.VectorType, value: int) -> ir.Constant:
    """Return a vector with one value in every lane."""
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)
