"""Pool windows of row-major planes that move by two, without scratch memory.

The rows of a window are combined into two vectors of 16 columns, those of even and of odd number among 32. What the windows that
begin in them see behind them are the same columns shifted, those of the next vectors among them. So each element is loaded once
for each row of windows that sees it. The geometry is the table of `pooling`. A work item is one row of the destination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from .compiler import types
from .compiler.language import inlined, intrinsic
from .elements import elements
from .inside import load_inside
from .pooling import dimension, inside, next_row, row_of
from .vec import LANES, VI, Builder, Value, dcount_inside, maximum, vadd, vcount_inside, vdiv, veven, vmax, vmul, vodd

#: Bytes of one dimension's entries in the table.
_DIM: Final = 48


def make(isa: str, algorithm: str, dtype: str, window: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for ``max``, ``avg_include_padding`` or ``avg_exclude_padding`` on a data type, and its signature.

    A window has ``window`` columns, 34 at most.
    """
    takes_max, counts_padding = algorithm == "max", algorithm == "avg_include_padding"
    of = elements(dtype)
    combine, start = (vmax, -np.inf) if takes_max else (vadd, 0.0)
    size, real, fill = of.size, of.real, of.fill
    load, store, store_part, seen_inside = of.load, of.store, of.store_part, load_inside(dtype)
    count_inside = vcount_inside if real is np.float32 else dcount_inside
    #: A product with an inverse takes less time, and float32 may have an error in the last place.
    scale = vmul if real is np.float32 else vdiv
    along = _make_along(window, maximum if takes_max else _add)

    @inlined
    def look(line: int, down: int, rows: int, index: int, width: int, nothing: Any) -> tuple[Any, Any]:
        """Return the combinations of the rows' 32 columns from ``index`` on, ``nothing`` outside of the rows.

        Those of even number come first, then those of odd number.
        """
        low, high = nothing, nothing
        at = line
        if index >= 0 and index + 32 <= width:
            for _ in range(rows):
                low = combine(load(at + size * index), low)
                high = combine(load(at + size * index + 16 * size), high)
                at += down
        else:
            for _ in range(rows):
                low = combine(seen_inside(at, index, width, nothing), low)
                high = combine(seen_inside(at, index + 16, width, nothing), high)
                at += down
        return veven(low, high), vodd(low, high)

    @inlined
    def look_deep(
        line: int, behind: int, planes: int, down: int, rows: int, index: int, width: int, nothing: Any
    ) -> tuple[Any, Any]:
        """Return what `look` does, of the rows of some planes."""
        low, high = look(line, down, rows, index, width, nothing)
        for number in range(1, planes):
            low_behind, high_behind = look(line + number * behind, down, rows, index, width, nothing)
            low, high = combine(low_behind, low), combine(high_behind, high)
        return low, high

    @inlined
    def divisor(index: int, width: int, seen: int) -> Any:
        """Return what the sums of the windows from ``index`` on are scaled with, of ``seen`` rows."""
        columns = fill(real(0.0))
        for column in range(index, index + window):
            columns = vadd(count_inside(column, 2, width), columns)
        counts = vmax(vmul(columns, fill(real(seen))), fill(real(1.0)))
        return vdiv(fill(real(1.0)), counts) if real is np.float32 else counts

    def kernel(begin: int, end: int, src: int, dst: int, table: int) -> None:
        depth, out_depth, window_d, stride_d, step_d, left_d = dimension(table)
        height, out_height, window_h, stride_h, step_h, left_h = dimension(table + _DIM)
        width, out_width, _, _, _, left_w = dimension(table + 2 * _DIM)
        nothing = fill(real(start))
        down = size * width * step_h
        behind = size * width * height * step_d
        final = 2 * (out_width - 1 & -16) - left_w
        known = 0
        first_divisor, divisor_inside, last_divisor = nothing, nothing, nothing
        channel, out_d, out_h = row_of(begin, out_depth, out_height)
        for item in range(begin, end):
            first_d = out_d * stride_d - left_d
            first_h = out_h * stride_h - left_h
            from_d, to_d = inside(first_d, step_d, window_d, depth)
            from_h, to_h = inside(first_h, step_h, window_h, height)
            rows = to_h - from_h if to_d > from_d else 0
            seen = rows * (to_d - from_d)
            if not takes_max:
                if counts_padding:
                    seen = window_d * window_h
                if seen != known:
                    known = seen
                    divisor_inside = divisor(0, 32 + window, seen)
                    if counts_padding:
                        first_divisor, last_divisor = divisor_inside, divisor_inside
                    else:
                        first_divisor, last_divisor = divisor(-left_w, width, seen), divisor(final, width, seen)
            plane = (channel * depth + first_d + from_d * step_d) * height + first_h + from_h * step_h
            line = src + size * width * plane
            target = dst + size * item * out_width
            # What is behind a row is stored later, unless it is another range's.
            last = dst + size * (end * out_width - 16)
            index = -left_w
            low, high = look_deep(line, behind, to_d - from_d, down, rows, index, width, nothing)
            for w in range(0, out_width, 16):
                first, second = low, high
                low, high = nothing, nothing
                if index + 32 < width:
                    low, high = look_deep(line, behind, to_d - from_d, down, rows, index + 32, width, nothing)
                value = along(first, second, low, high)
                if not takes_max:
                    if w == 0:
                        value = scale(value, first_divisor)
                    elif index == final:
                        value = scale(value, last_divisor)
                    elif counts_padding or index + 30 + window <= width:
                        value = scale(value, divisor_inside)
                    else:
                        value = scale(value, divisor(index, width, seen))
                if w + 16 <= out_width or target <= last:
                    store(target, value)
                else:
                    store_part(target, value, out_width - w)
                index += 32
                target += 16 * size
            channel, out_d, out_h = next_row(channel, out_d, out_h, out_depth, out_height)

    return kernel, types.void(*[types.int64] * 5)


def _make_along(window: int, combine: Callable[[Builder, Value, Value], Value]) -> Any:
    """Return the intrinsic that combines the columns of 16 windows: those of even and of odd number, and those that follow."""

    @intrinsic
    def along(_: Any, even: Any, odd: Any, next_even: Any, next_odd: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            found: Value | None = None
            for column in range(window):
                distance, which = divmod(column, 2)
                lanes = ir.Constant(VI, list(range(distance, distance + LANES)))
                value = b.shuffle_vector(a[which], a[which + 2], lanes) if distance else a[which]
                found = value if found is None else combine(b, value, found)
            return found

        return even(even, even, even, even), emit

    return along


def _add(b: Builder, x: Value, y: Value) -> Value:
    return b.fadd(x, y)
