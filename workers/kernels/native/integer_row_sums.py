"""What the sums of each row of an integer product begin with: the row's numbers times the zero point of the other side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_dot import ONES, multiply_groups, register_bits
from .integer_terms import left_point
from .integers import store_s32
from .vec import I32, I64, LANES, VI, Builder, Value, call, lanes_below, pointer


def make(isa: str, how: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of the rows as they are packed for tiles, of the results (s32) and of the zero point (s32; 0: none); the
    bytes from row to row; groups of a row; and what is added to the zero point, which in ``pairs`` is
    less itself as `integer_copy` bounds it. One item of work is a row.
    """
    add_up = _make_sum(how, register_bits(isa))

    def sums(
        begin: int, end: int, rows: int, to: int, point: int, row: int, groups: int, shift: int
    ) -> None:  # fmt: skip
        factor = left_point(point, shift, how == "pairs")
        for item in range(begin, end):
            total, at = 0, rows + item * row
            if factor != 0:
                for first in range(0, groups, 16):
                    total += add_up(at + first * 4, groups - first)
            store_s32(to + item * 4, -factor * total)

    return sums, types.void(*[types.int64] * 8)


def _make_sum(how: str, bits: int) -> Any:
    """Return the intrinsic that adds up to 16 neighbouring groups: address, groups from there on."""

    @intrinsic
    def add_up(_: Any, at: Any, count: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            zeros = ir.Constant(VI, [0] * LANES)
            mask, where = lanes_below(b, a[1]), pointer(b, a[0], VI)
            words = call(b, "llvm.masked.load.v16i32.p0", where, I32(4), mask, zeros, result=VI)
            sums = multiply_groups(b, how, bits, zeros, words, ir.Constant(VI, [ONES[how]] * LANES))
            return b.sext(call(b, "llvm.vector.reduce.add.v16i32", sums, result=I32), I64)

        return types.int64(types.int64, types.int64), emit

    return add_up
