"""Dot products of groups of neighbouring 8-bit numbers, lane by lane: the instruction of VNNI, or those before it."""

from __future__ import annotations

from typing import Final

import llvmlite.ir as ir

from .vec import I32, LANES, Builder, Value, call

#: Numbers of a group: 4 bytes, unsigned on the left (``vnni``, and ``bytes`` whose sums of two 16 bits must hold), or 2 numbers
#: of 16 bits (``pairs``).
GROUP: Final = {"vnni": 4, "bytes": 4, "pairs": 2}
#: A group of ones.
ONES: Final = {"vnni": 0x01010101, "bytes": 0x01010101, "pairs": 0x00010001}
#: Registers' width in bits -> (LLVM intrinsic that multiplies pairs of 16 bits and adds them, lanes of its result).
_PAIRS: Final = {
    512: ("llvm.x86.avx512.pmaddw.d.512", 16),
    256: ("llvm.x86.avx2.pmadd.wd", 8),
    128: ("llvm.x86.sse2.pmadd.wd", 4),
}
#: Registers' width in bits -> LLVM intrinsic that multiplies bytes, unsigned by signed, and adds two products in 16 bits.
_BYTES: Final = {256: "llvm.x86.avx2.pmadd.ub.sw"}


def register_bits(isa: str) -> int:
    """Return the width of a level's registers in bits."""
    return {"x86-64-v4": 512, "x86-64-v3": 256}.get(isa.partition("+")[0], 128)


def multiply_groups(b: Builder, how: str, bits: int, total: Value, left: Value, right: Value) -> Value:
    """Return ``total`` plus the dot products of the groups of two vectors, lane by lane."""
    name, lanes = _PAIRS[bits]
    kind, result = ir.VectorType(ir.IntType(16), 2 * lanes), ir.VectorType(I32, lanes)
    narrow, ones = ir.VectorType(ir.IntType(8), 4 * lanes), ir.Constant(kind, [1] * 2 * lanes)
    parts = []
    for start in range(0, LANES, lanes):
        factors = [_part(b, value, start, lanes) for value in (left, right)]
        if how == "vnni":
            numbers = [b.bitcast(factor, narrow) for factor in factors]
            sums = _part(b, total, start, lanes)
            parts.append(call(b, f"llvm.x86.avx512.vpdpbusd.{bits}", sums, *numbers, result=result))
            continue
        if how == "bytes":
            factors = [call(b, _BYTES[bits], *(b.bitcast(factor, narrow) for factor in factors), result=kind), ones]
        parts.append(call(b, name, *(b.bitcast(factor, kind) for factor in factors), result=result))
    while len(parts) > 1:
        joined = ir.VectorType(I32, 2 * parts[0].type.count)
        both = ir.Constant(joined, list(range(joined.count)))
        parts = [b.shuffle_vector(x, y, both) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0] if how == "vnni" else b.add(total, parts[0])


def _part(b: Builder, value: Value, start: int, lanes: int) -> Value:
    """Return so many lanes of a vector, from one on: those of a register."""
    if lanes == LANES:
        return value
    return b.shuffle_vector(value, value, ir.Constant(ir.VectorType(I32, lanes), list(range(start, start + lanes))))
