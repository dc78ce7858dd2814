"""Softmax of rows of up to 16 elements, side by side: 16 rows a vector, which has the same element of each.

Rows are turned by 8 x 8 elements on their way to the stack and back. What is read and written behind a row is the next one's,
so the last rows of a range are copied. A work item is 16 rows. NaN anywhere makes the whole row NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from .bits import copy_bytes
from .compiler import types
from .compiler.language import intrinsic
from .exponentials import vexp_below, vlog
from .stack_room import stack_room
from .vec import F32, I32, I64, LANES, Builder, Value, pointer, vadd, vdiv, vload, vmax, vmul, vset, vstore, vsub

_SIDE: Final = 8
_ROWS: Final = ir.VectorType(F32, _SIDE)


@intrinsic
def _turn(_: Any, src: Any, row: Any, dst: Any, column: Any) -> Any:
    """Write element k of the row at ``src + j * row`` to lane j at ``dst + k * column``, j and k from 0 to 7, k in order."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        source, row_step, target, column_step = a
        rows = [b.load(pointer(b, b.add(source, b.mul(row_step, I64(j))), _ROWS), align=4) for j in range(_SIDE)]
        size = 1
        while size < _SIDE:
            low = [_SIDE + (lane ^ size) if lane & size else lane for lane in range(_SIDE)]
            high = [_SIDE + lane if lane & size else lane | size for lane in range(_SIDE)]
            turned = list(rows)
            for i in range(_SIDE):
                if not i & size:
                    for place, numbers in ((i, low), (i + size, high)):
                        lanes = ir.Constant(ir.VectorType(I32, _SIDE), numbers)
                        turned[place] = b.shuffle_vector(rows[i], rows[i + size], lanes)
            rows, size = turned, 2 * size
        for k, value in enumerate(rows):
            b.store(value, pointer(b, b.add(target, b.mul(column_step, I64(k))), _ROWS), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), emit


def make(isa: str, logarithm: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel of f32, and its signature."""
    column_room, row_room = stack_room(4 * LANES * LANES), stack_room(4 * LANES * (LANES + 1))

    def kernel(begin: int, end: int, src: int, dst: int, rows: int, count: int) -> None:
        columns, few, step = column_room(), row_room(), 4 * count
        wide = 4 * (count + _SIDE - 1 & -_SIDE)
        src_end, dst_end = src + step * rows, dst + step * min(rows, LANES * end)
        for item in range(begin, end):
            offset = step * LANES * item
            nbytes = min(LANES * step, src_end - src - offset)
            source, target = src + offset, dst + offset
            if source + (LANES - 1) * step + wide > src_end:
                copy_bytes(few, source, nbytes)
                source = few
            for first in range(0, 4 * count, 4 * _SIDE):
                for half in range(0, LANES, _SIDE):
                    _turn(source + first + half * step, step, columns + LANES * first + 4 * half, 4 * LANES)
            bottom = columns + 4 * LANES * count
            shift, total = vset(np.float32(-np.inf)), vset(np.float32(0.0))
            for at in range(columns, bottom, 4 * LANES):
                shift = vmax(vload(at), shift)
            for at in range(columns, bottom, 4 * LANES):
                value = vsub(vload(at), shift)
                power = vexp_below(value)
                total = vadd(total, power)
                vstore(at, value if logarithm else power)
            scale = vlog(total) if logarithm else vdiv(vset(np.float32(1.0)), total)
            for at in range(columns, bottom, 4 * LANES):
                value = vload(at)
                vstore(at, vsub(value, scale) if logarithm else vmul(value, scale))
            to = target
            if target + (LANES - 1) * step + wide > dst_end:
                to = few
            # Later elements of rows first: what is behind a row is the beginning of the next one, which is written later.
            for half in range(0, LANES, _SIDE):
                if count > _SIDE:
                    place = 4 * _SIDE
                    _turn(columns + LANES * place + 4 * half, 4 * LANES, to + place + half * step, step)
                _turn(columns + 4 * half, 4 * LANES, to + half * step, step)
            if to != target:
                copy_bytes(target, few, nbytes)

    return kernel, types.void(*[types.int64] * 6)
