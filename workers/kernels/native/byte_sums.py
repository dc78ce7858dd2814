"""Sums of rows of neighbouring bytes, exact in 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_dot import register_bits
from .integers import load_u8, store_s32
from .vec import I8, I32, I64, Builder, Value, VectorType, call, pointer

#: Registers' width in bits -> the instruction that adds up groups of eight bytes without sign.
_ADDS: Final = {512: "llvm.x86.avx512.psad.bw.512", 256: "llvm.x86.avx2.psad.bw", 128: "llvm.x86.sse2.psad.bw"}
#: Bytes of registers of which instructions load some bytes.
_MASKED: Final = 64
#: What turns s8 into u8: a byte plus 128.
_SHIFT: Final = 128
_LEAST: Final = -(1 << 31)
_MOST: Final = (1 << 31) - 1


def make(isa: str, signed: bool, short: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel for u8, or s8; rows shorter than registers of 256 bits are added in those of 128.

    Arguments: addresses of the rows and of the sums (s32, saturated); bytes of a row. One item of work is a row.
    """
    size = 16 if short else register_bits(isa) // 8
    nothing, add, add_last, joined, total_of = _sums(size, signed)
    shift, masks = _SHIFT if signed else 0, size == _MASKED

    def sums(begin: int, end: int, src: int, dst: int, length: int) -> None:
        for item in range(begin, end):
            at = src + item * length
            stop = at + length
            first = nothing()
            if at + 4 * size <= stop:
                second, third, fourth = nothing(), nothing(), nothing()
                while at + 4 * size <= stop:
                    first, second = add(first, at), add(second, at + size)
                    third, fourth = add(third, at + 2 * size), add(fourth, at + 3 * size)
                    at += 4 * size
                first = joined(joined(first, second), joined(third, fourth))
            while at + size <= stop:
                first = add(first, at)
                at += size
            if at < stop and (masks or length >= size):
                first = add_last(first, stop, stop - at)
                at = stop
            total = total_of(first)
            while at < stop:
                total += load_u8(at) ^ shift
                at += 1
            store_s32(dst + item * 4, max(_LEAST, min(_MOST, total - shift * length)))

    return sums, types.void(*[types.int64] * 5)


def _sums(size: int, signed: bool) -> tuple[Any, ...]:
    """Return the intrinsics of no sums yet, of sums and ``size`` bytes, of sums and fewer bytes, of two sums, and of their total.

    Fewer bytes are the last ones before an address. Levels without masks of bytes load ``size`` bytes there, and take those in
    front of the last ones for zeros.
    """
    stored, wide = ir.VectorType(I8, size), ir.VectorType(I64, size // 8)
    held = VectorType(f"s64 sums of {size} bytes", wide, types.int64)
    shift = ir.Constant(stored, [_SHIFT if signed else 0] * size)
    places = ir.Constant(stored, list(range(size)))

    def grouped(b: Builder, value: Value) -> Value:
        return call(b, _ADDS[8 * size], value, ir.Constant(stored, None), result=wide)

    @intrinsic
    def nothing(_: Any) -> Any:
        return held(), lambda context, b, sig, a: ir.Constant(wide, None)

    @intrinsic
    def add(_: Any, sums: Any, address: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value = b.load(pointer(b, a[1], stored), align=1)
            return b.add(a[0], grouped(b, b.xor(value, shift)))

        return held(held, types.int64), emit

    @intrinsic
    def add_last(_: Any, sums: Any, stop: Any, count: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            if size == _MASKED:
                mask = b.icmp_unsigned("<", places, _in_bytes(b, a[2], size))
                where = pointer(b, b.sub(a[1], a[2]), stored)
                value = call(b, "llvm.masked.load.v64i8.p0", where, I32(1), mask, shift, result=stored)
                return b.add(a[0], grouped(b, b.xor(value, shift)))
            value = b.xor(b.load(pointer(b, b.sub(a[1], I64(size)), stored), align=1), shift)
            own = b.icmp_signed(">=", places, _in_bytes(b, b.sub(I64(size), a[2]), size))
            return b.add(a[0], grouped(b, b.and_(value, b.sext(own, stored))))

        return held(held, types.int64, types.int64), emit

    @intrinsic
    def joined(_: Any, left: Any, right: Any) -> Any:
        return held(held, held), lambda context, b, sig, a: b.add(a[0], a[1])

    @intrinsic
    def total(_: Any, sums: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value, lanes = a[0], size // 8
            while lanes > 1:
                lanes //= 2
                low, high = (ir.Constant(ir.VectorType(I32, lanes), list(range(at, at + lanes))) for at in (0, lanes))
                value = b.add(b.shuffle_vector(value, value, low), b.shuffle_vector(value, value, high))
            return b.extract_element(value, I32(0))

        return types.int64(held), emit

    return nothing, add, add_last, joined, total


def _in_bytes(b: Builder, number: Value, size: int) -> Value:
    """Return a number below 128 as each of ``size`` bytes."""
    kind = ir.VectorType(I8, size)
    first = b.insert_element(ir.Constant(kind, ir.Undefined), b.trunc(number, I8), I32(0))
    return b.shuffle_vector(first, first, ir.Constant(ir.VectorType(I32, size), [0] * size))
