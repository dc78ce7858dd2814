"""Product of few rows of 8-bit integers by a row-major matrix, which is read once and interleaved in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_bounds import make_bounds
from .integer_dot import GROUP
from .integer_rows_tile import UNIT, RowsTile, make_rows_tile
from .integer_tile import SIZES
from .integers import clear16, load_s32, store_s32
from .point_limits import LEAST_POINT, MOST_POINT
from .short_copy import copy_short
from .stack_room import stack_room
from .vec import I32, I64, VI, Builder, Value, call, pointer

#: Groups, at most, of which rows end near the end of the matrix: those are copied before a whole tile reads them.
_REST: Final = 4


def make(
    isa: str, how: str, positions: int, units: int, signed: bool, kind: str, dtype: str, residual: str, exact: bool,
    terms: bool, point: bool, points: bool,
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel whose tiles have ``positions`` rows and ``units`` of columns, of 64 (``vnni``) or 16 (``pairs``).

    Src is ``signed`` or not and row-major bytes (``vnni``), or their copy in 16 bits (``pairs``) less its zero point, as
    `integer_copy` bounds it. ``kind``, ``dtype`` and ``residual`` (nothing: none) are data types of weights, dst and of what is
    added. ``terms`` if sums begin with some, ``point`` if src has a zero point, ``points`` if weights have one or one a column.

    Arguments, distances in bytes: addresses of src, weights, dst, residual, of terms (s32), factors and offsets (f32, one a
    column, filled up to whole tiles), of scale (f32) and zero point (s32) of dst, and of zero points (s32) of src and weights,
    each 0 for none; the distance from zero point to zero point of weights; rows, K and columns, at least 16; the distances
    from row to row of src, weights, dst and residual; the address of room for sums, and groups that are added up for all
    columns of a thread before the next groups (``pairs``); and as floats the residual's factor and the bounds of the result
    before scale and zero point of dst. One item of work is a tile of columns.
    """
    copies = how == "vnni"
    carries = how == "pairs"
    size, unit = GROUP[how], UNIT[how]
    # Instructions take unsigned bytes on one side and signed ones on the other: two of a kind need one of them shifted.
    flips = how == "vnni" and signed == (kind == "s8")
    # What each number on the other side is multiplied by to undo that.
    shift = (-128 if signed else 128) if flips else 0
    wide_columns = units * unit
    wide, single = (
        make_rows_tile(
            RowsTile(isa, how, positions, count, signed, kind, dtype, residual, exact, terms, point, points, carries)
        )
        for count in (units, 1)
    )
    #: Bytes of sums for a column of a tile.
    sum_bytes = (positions + point) * 4
    sum_row = _make_sum(1 if copies else 2, signed)
    room_on_stack = stack_room(_REST * size * wide_columns + positions * (_REST * 4 + 8) + 4 * wide_columns)
    width, other_width = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def copy_row(source: int, target: int, count: int, whole: int) -> None:
        """Copy ``count`` bytes; those behind them are 0, up to ``whole``, a multiple of 16."""
        for at in range(0, whole, 16):
            clear16(target + at)
            if count - at >= 16:
                copy_short(source + at, target + at, 16)
            elif count - at > 0:
                copy_short(source + at, target + at, count - at)

    def clear(target: int, count: int) -> None:
        for at in range(0, count, 16):
            clear16(target + at)

    def product(
        begin: int, end: int, src: int, weights: int, dst: int, other: int, first_terms: int, factors: int, offsets: int,
        scale: int, zero_point: int, src_point: int, column_points: int, point_step: int, rows: int, K: int, columns: int,
        src_row: int, weight_row: int, dst_row: int, other_row: int, sums: int, together: int, weight: float, low: float,
        high: float,
    ) -> None:  # fmt: skip
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        minus = 0
        if point and src_point != 0:
            minus = load_s32(src_point)
            if not copies:
                minus -= max(LEAST_POINT, min(MOST_POINT, minus))
        groups = (K + size - 1) // size
        line = (columns + wide_columns - 1) // wide_columns * wide_columns
        # What undoes the same in a sum of weights.
        more = shift * groups * size
        room = room_on_stack()
        left_room = room + _REST * size * wide_columns
        row_terms = left_room + positions * _REST * 4
        row_sums = row_terms + positions * 4
        points_room = row_sums + positions * 4
        for band in range(0, groups, together):
            # All columns of a thread are multiplied by some rows of weights before the next ones: these are read in their order.
            ends = 1 if band + together >= groups else 0
            for item in range(begin, end):
                column = item * wide_columns
                last = min(columns, column + wide_columns)
                while column < last:
                    tile_columns = unit
                    if last - column >= wide_columns:
                        tile_columns = wide_columns
                    at = weights + column
                    # A whole tile of these rows ends before the matrix does.
                    inside = (K - 1) * weight_row + columns - column - tile_columns
                    whole = 0
                    if inside >= 0:
                        whole = min(K // size, (inside // weight_row + 1) // size)
                    here = max(0, min(whole - band, together))
                    behind = 0
                    if ends:
                        behind = groups - whole
                        for k in range(whole * size, groups * size):
                            count = 0
                            if k < K:
                                count = min(tile_columns, columns - column)
                            copy_row(at + k * weight_row, room + (k - whole * size) * tile_columns, count, tile_columns)
                    if points and ends:
                        for j in range(tile_columns):
                            # Columns behind the last one are not stored.
                            index = min(column + j, columns - 1)
                            store_s32(points_room + j * 4, load_s32(column_points + index * point_step))
                    right = at + band * size * weight_row
                    for row in range(0, rows, positions):
                        count = min(positions, rows - row)
                        left = src + row * src_row
                        rest, rest_row = left + whole * 4, src_row
                        if copies and whole < groups:
                            rest, rest_row = left_room, _REST * 4
                            for i in range(count):
                                source = left + i * src_row + whole * size
                                copy_row(source, left_room + i * rest_row, K - whole * size, _REST * 4)
                        if (flips or points) and ends:
                            for i in range(count):
                                total = sum_row(left + i * src_row, K)
                                store_s32(row_terms + i * 4, shift * total)
                                store_s32(row_sums + i * 4, total - minus * K)
                        summed = sums + (row // positions * line + column) * sum_bytes
                        if carries and band == 0:
                            clear(summed, tile_columns * sum_bytes)
                        to = dst + row * dst_row + column * width
                        beside = other + row * other_row + column * other_width
                        own = column * 4
                        if tile_columns == wide_columns:
                            wide(
                                here, left + band * 4, src_row, right, weight_row, behind, rest, rest_row, room, tile_columns,
                                summed, ends, minus, more, row_terms, row_sums, points_room, count, to, dst_row,
                                first_terms + own, factors + own, offsets + own, columns - column, beside, other_row, factor32,
                                low32, high32, plus,
                            )  # fmt: skip
                        else:
                            single(
                                here, left + band * 4, src_row, right, weight_row, behind, rest, rest_row, room, tile_columns,
                                summed, ends, minus, more, row_terms, row_sums, points_room, count, to, dst_row,
                                first_terms + own, factors + own, offsets + own, columns - column, beside, other_row, factor32,
                                low32, high32, plus,
                            )  # fmt: skip
                    column += tile_columns

    return product, types.void(*[types.int64] * 23, *[types.float64] * 3)


def _make_sum(nbytes: int, signed: bool) -> Callable[..., Any]:
    """Return the function that adds up bytes, or signed numbers of two bytes: address, count."""
    sum16, sum1 = _make_part(16, nbytes, signed), _make_part(1, nbytes, signed)

    def sum_row(address: int, count: int) -> int:
        total = 0
        for at in range(0, count - 15, 16):
            total += sum16(address + at * nbytes)
        for at in range(count - count % 16, count):
            total += sum1(address + at * nbytes)
        return total

    return sum_row


def _make_part(lanes: int, nbytes: int, signed: bool) -> Any:
    """Return the intrinsic that adds up so many numbers at an address."""
    kind = ir.IntType(8 * nbytes)

    @intrinsic
    def total(_: Any, address: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            widened = b.sext if signed or nbytes > 1 else b.zext
            if lanes == 1:
                return widened(b.load(pointer(b, a[0], kind), align=1), I64)
            value = widened(b.load(pointer(b, a[0], ir.VectorType(kind, lanes)), align=1), VI)
            return b.sext(call(b, "llvm.vector.reduce.add.v16i32", value, result=I32), I64)

        return types.int64(types.int64), emit

    return total
