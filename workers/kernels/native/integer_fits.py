"""Find the blocks of weights whose sums of two products 16 bits hold.

``vpmaddubsw`` adds two products of bytes, unsigned by signed, in 16 bits. No sum is beyond these if of each two neighbouring
weights the positive ones sum to at most 128 and the negative ones to at least -128: 255 * 128 is 32640.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integers import store_s32
from .vec import I8, I16, I32, I64, WIDTH, Builder, Value, call, pointer

#: The largest sum of two weights of one sign.
_MOST: Final = 128
_BYTES: Final = ir.VectorType(I8, WIDTH)
_HALF: Final = ir.VectorType(I16, 16)


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of weights, and of a number (s32) for each block to write (1: 16 bits hold the sums, 0: they do not);
    groups of a block, of 4 numbers of 16 outputs. One item of work is a block.
    """

    def find(begin: int, end: int, weights: int, fits: int, groups: int) -> None:
        for item in range(begin, end):
            store_s32(fits + item * 4, hold(groups, weights + item * groups * 64))

    return find, types.void(*[types.int64] * 5)


@intrinsic
def hold(_: Any, groups: Any, at: Any) -> Any:
    """Return 1 if 16 bits hold the sums of two products of all groups at an address, else 0."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        groups, at = a
        before = b.block
        loop, done = b.append_basic_block("group"), b.append_basic_block("done")
        b.branch(loop)
        b.position_at_end(loop)
        number, most, least = b.phi(I64), b.phi(_HALF), b.phi(_HALF)
        none = ir.Constant(_HALF, [0] * 16)
        for phi, start in ((number, I64(0)), (most, none), (least, none)):
            phi.add_incoming(start, before)
        value = b.load(pointer(b, b.add(at, b.mul(number, I64(WIDTH))), _BYTES), align=1)
        zero = ir.Constant(_BYTES, [0] * WIDTH)
        new = []
        for name, total in (("smax", most), ("smin", least)):
            one_sign = call(b, f"llvm.{name}.v64i8", value, zero, result=_BYTES)
            for half in _sums(b, one_sign):
                total = call(b, f"llvm.{name}.v16i16", total, half, result=_HALF)
            new.append(total)
        following = b.add(number, I64(1))
        for phi, after in zip((number, most, least), (following, *new), strict=True):
            phi.add_incoming(after, loop)
        b.cbranch(b.icmp_signed("<", following, groups), loop, done)
        b.position_at_end(done)
        highest, lowest = (
            call(b, f"llvm.vector.reduce.{name}.v16i16", value, result=I16)
            for name, value in zip(("smax", "smin"), new, strict=True)
        )
        held = b.and_(b.icmp_signed("<=", highest, I16(_MOST)), b.icmp_signed(">=", lowest, I16(-_MOST)))
        return b.zext(held, I64)

    return types.int64(types.int64, types.int64), emit


def _sums(b: Builder, value: Value) -> list[Value]:
    """Return the sums of neighbouring bytes with sign, in 16 bits."""
    narrow = ir.VectorType(I8, 32)
    found = []
    for start in (0, 32):
        order = ir.Constant(ir.VectorType(I32, 32), list(range(start, start + 32)))
        half = b.shuffle_vector(value, value, order)
        found.append(call(b, "llvm.x86.avx2.pmadd.ub.sw", ir.Constant(narrow, [1] * 32), half, result=_HALF))
    return found
