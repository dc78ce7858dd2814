"""Rows of 16 bytes of right matrices interleaved as tiles read them, whole or in part."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_batch_moves import converted
from .integer_dot import GROUP
from .integer_weights import interleave_rows
from .vec import I8, I32, I64, LANES, Builder, Value, call, lanes_below, pointer


def make_interleave(how: str, kind: str, part: bool) -> Any:
    """Return the intrinsic that interleaves rows of 16 bytes of a group: address of the group, of the rows, their distance.

    Three more arguments are bytes of a row and rows, at least 1 each, of which only a ``part`` may be there, others are 0; and
    what numbers are less.
    """

    @intrinsic
    def interleave(_: Any, to: Any, at: Any, step: Any, lanes: Any, count: Any, less: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            to, at, step, lanes, count, less = a
            row_type = ir.VectorType(I8, LANES)
            rows = list[Value]()
            for n in range(GROUP[how]):
                where = pointer(b, b.add(at, b.mul(step, I64(n))), row_type)
                if not part:
                    rows.append(converted(b, b.load(where, align=1), how, kind, less))
                    continue
                mask = lanes_below(b, b.select(b.icmp_signed(">", count, I64(n)), lanes, I64(0)))
                zeros = ir.Constant(row_type, [0] * LANES)
                row = call(b, "llvm.masked.load.v16i8.p0", where, I32(1), mask, zeros, result=row_type)
                row = converted(b, row, how, kind, less)
                rows.append(b.select(mask, row, ir.Constant(row.type, [0] * LANES)))
            value = interleave_rows(b, rows)
            b.store(value, pointer(b, to, value.type), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return interleave
