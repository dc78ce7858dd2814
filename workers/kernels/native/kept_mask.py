"""A mask of 16 lanes for loads in a loop, kept in registers from turn to turn.

LLVM knows how a mask is computed. It computes it again in each turn, from vectors for which loops full of sums have no
registers. So the mask passes through assembly without instructions, in the form that the loads take: AVX-512's is a number,
AVX2's are vectors with the sign bits of lanes.
"""

from __future__ import annotations

import llvmlite.ir as ir

from .vec import I16, I32, LANES, VM, Builder, Value, isa_of

#: Bits of a register of masks.
_WIDTH = 256


def begin_mask(b: Builder, mask: Value, bits: int) -> list[Value]:
    """Return what a loop keeps of a mask for elements of 32 or 64 bits, before the first turn."""
    if isa_of(b) == "x86-64-v4":
        return [b.bitcast(mask, I16)]
    lanes = _WIDTH // bits
    kind, undefined = ir.VectorType(ir.IntType(bits), lanes), ir.Constant(VM, ir.Undefined)
    parts = []
    for first in range(0, LANES, lanes):
        numbers = ir.Constant(ir.VectorType(I32, lanes), list(range(first, first + lanes)))
        parts.append(b.sext(b.shuffle_vector(mask, undefined, numbers), kind))
    return parts


def next_mask(b: Builder, kept: list[Value]) -> list[Value]:
    """Return what the loop keeps for the next turn, which is the same, but LLVM does not know that."""
    if kept[0].type == I16:
        return [b.asm(ir.FunctionType(I16, [I16]), "", "=r,0", kept, False)]
    return [b.asm(ir.FunctionType(part.type, [part.type]), "", "=x,0", [part], False) for part in kept]


def mask_of(b: Builder, kept: list[Value]) -> Value:
    """Return the mask in a turn."""
    if kept[0].type == I16:
        return b.bitcast(kept[0], VM)
    parts = [b.icmp_signed("<", part, ir.Constant(part.type, None)) for part in kept]
    while len(parts) > 1:
        count = parts[0].type.count
        numbers = ir.Constant(ir.VectorType(I32, 2 * count), list(range(2 * count)))
        parts = [b.shuffle_vector(low, high, numbers) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]
