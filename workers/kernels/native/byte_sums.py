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
#: What turns s8 into u8: a byte plus 128.
_SHIFT: Final = 128
_LEAST: Final = -(1 << 31)
_MOST: Final = (1 << 31) - 1


def make(isa: str, signed: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel for u8, or s8.

    Arguments: addresses of the rows and of the sums (s32, saturated); bytes of a row. One item of work is a row.
    """
    size = register_bits(isa) // 8
    nothing, add, total_of = _sums(size, signed)
    shift = _SHIFT if signed else 0

    def sums(begin: int, end: int, src: int, dst: int, length: int) -> None:
        for item in range(begin, end):
            at = src + item * length
            stop = at + length
            first, second, third, fourth = nothing(), nothing(), nothing(), nothing()
            while at + 4 * size <= stop:
                first, second = add(first, at), add(second, at + size)
                third, fourth = add(third, at + 2 * size), add(fourth, at + 3 * size)
                at += 4 * size
            while at + size <= stop:
                first = add(first, at)
                at += size
            total = total_of(first) + total_of(second) + total_of(third) + total_of(fourth)
            while at < stop:
                total += load_u8(at) ^ shift
                at += 1
            store_s32(dst + item * 4, max(_LEAST, min(_MOST, total - shift * length)))

    return sums, types.void(*[types.int64] * 5)


def _sums(size: int, signed: bool) -> tuple[Any, Any, Any]:
    """Return the intrinsics: no sums yet; sums and the ``size`` bytes at an address; the total of sums."""
    stored, wide = ir.VectorType(I8, size), ir.VectorType(I64, size // 8)
    held = VectorType(f"s64 sums of {size} bytes", wide, types.int64)

    @intrinsic
    def nothing(_: Any) -> Any:
        return held(), lambda context, b, sig, a: ir.Constant(wide, None)

    @intrinsic
    def add(_: Any, sums: Any, address: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value = b.load(pointer(b, a[1], stored), align=1)
            if signed:
                value = b.xor(value, ir.Constant(stored, [_SHIFT] * size))
            return b.add(a[0], call(b, _ADDS[8 * size], value, ir.Constant(stored, None), result=wide))

        return held(held, types.int64), emit

    @intrinsic
    def total(_: Any, sums: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            found = b.extract_element(a[0], I32(0))
            for lane in range(1, size // 8):
                found = b.add(found, b.extract_element(a[0], I32(lane)))
            return found

        return types.int64(held), emit

    return nothing, add, total
