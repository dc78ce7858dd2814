"""Move nests of strided loops from one layout to another, and from one data type to another.

Extents and strides are arguments: one kernel does it all for a pair of data types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from .bits import LONG, long_moves, move_long
from .compiler import types
from .compiler.language import intrinsic, not_inlined
from .deinterleave import deinterleaver, interleaver
from .first_lanes import store_below
from .movement import Movement
from .short_copy import copy_short
from .transpose import few_rows, transposes
from .vec import I32, LANES, VF, Builder, Value, iload, pointer, vector, vload, vset, vstore

#: Rows of a few columns that are taken apart at a time if there are less than 16.
FEW: Final = 4


def make(isa: str, src: str, dst: str, turns: bool, wraps: bool = False) -> tuple[Callable[..., None], Any]:
    """Return the kernel for elements of two data types, or of one width: ``bits8``, ``bits16``, ``bits32``, ``bits64``.

    With ``wraps``, integers lose the high bits that do not fit, else they are saturated. Modes that transpose need a kernel
    that ``turns``, which takes four times as long to compile.
    Arguments: addresses of src, dst and of a table of records, one a nest, of int64: the work item that ends the nest; bytes
    of the record; the mode of the innermost pair of loops (0 copy, 1 transpose, 2 fill with zeros, 3 and 4 copy and transpose
    with zeros up to 16 elements adjacent in dst, 5 and 6 repeat an element and a row, without conversion); offsets of src and
    dst; two loops as (extent, src stride, dst stride); the innermost pair; the number of outer loops, and these loops,
    innermost first. Offsets and strides are in bytes. The innermost pair is: to copy and fill, ``rows`` rows (strides
    row_src, row_dst) of ``columns`` contiguous elements; to repeat, the same of one element in src, 64 bytes or more in dst,
    or of a single row of up to 63 bytes in src, which are adjacent in dst, 64 bytes or more; to transpose, ``rows`` rows
    (row_src apart in src, adjacent in dst) of ``columns`` elements (adjacent in src, row_dst apart in dst). One item of work
    is one step of the outer loops.
    """
    movement = Movement(src, dst, wraps)
    copy = copier(movement) if src == dst else _convert(movement)
    transpose, fill = _transposer(movement) if turns else _nothing, _fill(movement.dst_size)
    repeat = _repeater(movement) if src == dst else _no_rows
    repeat_row = _row_repeater(movement.src_size)
    move_padded = movement.intrinsics()[2]

    def reorder(begin: int, end: int, src: int, dst: int, table: int) -> None:
        record = table
        first = 0
        for item in range(begin, end):
            while item >= iload(record):
                first = iload(record)
                record += iload(record + 8)
            mode = iload(record + 16)
            source = src + iload(record + 24)
            target = dst + iload(record + 32)
            rest = item - first
            loop = record + 128
            loops = iload(record + 120)
            for number in range(loops):
                index = rest
                if number + 1 < loops:
                    extent = iload(loop)
                    rest //= extent
                    index -= rest * extent
                source += index * iload(loop + 8)
                target += index * iload(loop + 16)
                loop += 24
            rows, row_src, row_dst = iload(record + 88), iload(record + 96), iload(record + 104)
            columns = iload(record + 112)
            for i in range(iload(record + 40)):
                for j in range(iload(record + 64)):
                    at = source + i * iload(record + 48) + j * iload(record + 72)
                    to = target + i * iload(record + 56) + j * iload(record + 80)
                    if mode == 0:
                        copy(at, to, rows, row_src, row_dst, columns)
                    elif mode == 2:
                        fill(to, rows, row_dst, columns)
                    elif mode == 3:
                        for row in range(rows):
                            move_padded(at + row * row_src, to + row * row_dst, columns)
                    elif mode == 5:
                        repeat(at, to, rows, row_src, row_dst, columns)
                    elif mode == 6:
                        repeat_row(at, to, rows, columns)
                    else:
                        transpose(mode, at, to, rows, row_src, row_dst, columns)

    return reorder, types.void(*[types.int64] * 5)


def copier(movement: Movement) -> Callable[..., None]:
    """Return what copies rows of elements that are not converted: (src, dst, rows, row_src, row_dst, columns)."""
    size = movement.src_size

    def copy(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
        whole = columns * size
        if whole >= LONG and whole >= long_moves():
            for row in range(rows):
                move_long(dst + row * row_dst, src + row * row_src, whole)
            return
        if 64 < whole <= 128:
            # Two vectors, which overlap: without branches.
            second = whole - 64
            for _ in range(rows):
                head, tail = vload(src), vload(src + second)
                vstore(dst, head)
                vstore(dst + second, tail)
                src += row_src
                dst += row_dst
            return
        for row in range(rows):
            source = src + row * row_src
            target = dst + row * row_dst
            at = 0
            # Four loads at once, so that no store waits for a single one.
            while at + 256 <= whole:
                first, second = vload(source + at), vload(source + at + 64)
                third, fourth = vload(source + at + 128), vload(source + at + 192)
                vstore(target + at, first)
                vstore(target + at + 64, second)
                vstore(target + at + 128, third)
                vstore(target + at + 192, fourth)
                at += 256
            while at + 64 <= whole:
                vstore(target + at, vload(source + at))
                at += 64
            if at < whole:
                if at:
                    # A whole vector, which overlaps with the last one.
                    vstore(target + whole - 64, vload(source + whole - 64))
                else:
                    copy_short(source, target, whole)

    return copy


def _convert(movement: Movement) -> Callable[..., None]:
    src_size, dst_size = movement.src_size, movement.dst_size
    move, move_part, _, _ = movement.intrinsics()

    def convert(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
        for row in range(rows):
            source = src + row * row_src
            target = dst + row * row_dst
            for _ in range(columns // 64):
                move(source, target)
                move(source + 16 * src_size, target + 16 * dst_size)
                move(source + 32 * src_size, target + 32 * dst_size)
                move(source + 48 * src_size, target + 48 * dst_size)
                source += 64 * src_size
                target += 64 * dst_size
            for _ in range(columns // 16 % 4):
                move(source, target)
                source += 16 * src_size
                target += 16 * dst_size
            if columns & 15:
                move_part(source, target, columns & 15)

    return convert


def _fill(size: int) -> Callable[..., None]:
    @intrinsic
    def zero_part(_: Any, target: types.Integer, count: types.Integer) -> Any:
        """Write ``count`` zeros, at most 16."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            zeros = ir.Constant(ir.VectorType(ir.IntType(8 * size), LANES), None)
            store_below(b, a[0], zeros, a[1])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    def fill(dst: int, rows: int, row_dst: int, columns: int) -> None:
        zero = vset(np.float32(0.0))
        whole = columns * size
        for row in range(rows):
            target = dst + row * row_dst
            at = 0
            while at + 64 <= whole:
                vstore(target + at, zero)
                at += 64
            while at < whole:
                left = min(16, (whole - at) // size)
                zero_part(target + at, left)
                at += left * size

    return fill


def _repeater(movement: Movement) -> Callable[..., None]:
    kind, size = movement.src_kind, movement.src_size

    @intrinsic
    def repeated(_: Any, address: types.Integer) -> Any:
        """Return 64 bytes of one element."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            one = ir.Constant(ir.VectorType(kind, 64 // size), ir.Undefined)
            one = b.insert_element(one, b.load(pointer(b, a[0], kind), align=1), I32(0))
            first = ir.Constant(ir.VectorType(I32, 64 // size), None)
            return b.bitcast(b.shuffle_vector(one, one, first), VF)

        return vector(types.int64), emit

    def repeat(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
        for row in range(rows):
            value = repeated(src + row * row_src)
            target = dst + row * row_dst
            # The last vector overlaps with the one before.
            last = target + columns * size - 64
            while target < last:
                vstore(target, value)
                target += 64
            vstore(last, value)

    return repeat


def _row_repeater(size: int) -> Callable[..., None]:
    def repeat_row(src: int, dst: int, rows: int, columns: int) -> None:
        row = columns * size
        left, whole = rows * row, 64 // row * row
        # A vector of as many rows as it holds; what is written behind them is overwritten by those that follow.
        for at in range(0, whole, row):
            copy_short(src, dst + at, row)
        value = vload(dst)
        at = whole
        while at + 64 <= left:
            vstore(dst + at, value)
            at += whole
        if at < left:
            copy_short(dst, dst + at, left - at)

    return repeat_row


def _no_rows(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
    pass


def _nothing(mode: int, src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
    pass


def _transposer(movement: Movement) -> Callable[..., None]:
    src_size, dst_size, turn = movement.src_size, movement.dst_size, _turner(movement)
    transpose_pad = transposes(movement)[2]
    move_one = movement.intrinsics()[3]
    few = _few(movement)

    # LLVM takes twice as long for it inside the loops of the kernel.
    @not_inlined
    def transpose_many(mode: int, src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
        if mode == 1:
            turn(src, dst, rows, row_src, row_dst, columns)
        else:
            for column in range(0, columns, 16):
                last = min(16, columns - column)
                transpose_pad(src + column * src_size, row_src, dst + column * row_dst, row_dst, rows, last)

    def transpose(mode: int, src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
        if mode == 1 and rows < few and columns < 16:
            for column in range(columns):
                for row in range(rows):
                    move_one(src + row * row_src + column * src_size, dst + row * dst_size + column * row_dst)
        else:
            transpose_many(mode, src, dst, rows, row_src, row_dst, columns)

    return transpose


def _few(movement: Movement) -> int:
    """Return the least number of rows that are not moved element by element: less than 16 elements are not converted."""
    return FEW if movement.src == movement.dst else LANES


def _turner(movement: Movement) -> Callable[..., None]:
    src_size, dst_size = movement.src_size, movement.dst_size
    transpose, transpose_part, _ = transposes(movement)
    move_one = movement.intrinsics()[3]
    take_two, take_three, take_four = (deinterleaver(movement, columns) for columns in (2, 3, 4))
    few = _few(movement)
    take_few_of_two, take_few_of_three, take_few_of_four = (
        deinterleaver(movement, columns, few) for columns in (2, 3, 4)
    )

    one_of_two, one_of_three, one_of_four = (deinterleaver(movement, columns, taken=1) for columns in (2, 3, 4))

    join, copies = _joiner(movement), movement.src == movement.dst

    def turn(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
        if columns == 1 and rows > 16 and 2 * src_size <= row_src <= 4 * src_size and row_src % src_size == 0:
            # What is read ends before the first element of the next row, so there must be one.
            row = 0
            while row + 1 < rows:
                first = min(row, rows - 17)
                source, target = src + first * row_src, dst + first * dst_size
                if row_src == 2 * src_size:
                    one_of_two(source, target, row_dst)
                elif row_src == 3 * src_size:
                    one_of_three(source, target, row_dst)
                else:
                    one_of_four(source, target, row_dst)
                row += 16
            move_one(src + (rows - 1) * row_src, dst + (rows - 1) * dst_size)
            return
        if columns == 1 and copies:
            # One by one: of vectors of their rows, only one lane would be used.
            row = 0
            while row + 4 <= rows:
                move_one(src, dst)
                move_one(src + row_src, dst + dst_size)
                move_one(src + 2 * row_src, dst + 2 * dst_size)
                move_one(src + 3 * row_src, dst + 3 * dst_size)
                src += 4 * row_src
                dst += 4 * dst_size
                row += 4
            while row < rows:
                move_one(src, dst)
                src += row_src
                dst += dst_size
                row += 1
            return
        if rows >= few and 2 <= columns <= 4 and row_src == columns * src_size:
            row, together = 0, 16
            while row < rows:
                if rows < 16:
                    together = few
                # The last rows may have been taken before in part.
                first = min(row, rows - together)
                source, target = src + first * row_src, dst + first * dst_size
                if together == 16:
                    if columns == 2:
                        take_two(source, target, row_dst)
                    elif columns == 3:
                        take_three(source, target, row_dst)
                    else:
                        take_four(source, target, row_dst)
                elif columns == 2:
                    take_few_of_two(source, target, row_dst)
                elif columns == 3:
                    take_few_of_three(source, target, row_dst)
                else:
                    take_few_of_four(source, target, row_dst)
                row += together
            return
        done = 0
        if 1 < rows < 16 <= columns and row_dst == rows * dst_size:
            done = join(src, dst, rows, row_src, row_dst, columns)
        # Up to two rows that are left are moved one by one, as are few rows that do not follow one another.
        whole = rows // 16 * 16 if rows < 16 or rows % 16 <= 2 else rows
        for first in range(0, whole, 16):
            # The last rows may have been turned before in part.
            row = min(first, rows - 16)
            for column in range(0, columns, 16):
                source = src + row * row_src + column * src_size
                target = dst + row * dst_size + column * row_dst
                if column + 16 <= columns:
                    transpose(source, row_src, target, row_dst)
                else:
                    transpose_part(source, row_src, target, row_dst, columns - column)
        for column in range(done, columns):
            for row in range(whole, rows):
                move_one(src + row * row_src + column * src_size, dst + row * dst_size + column * row_dst)

    return turn


def _joiner(movement: Movement) -> Callable[..., int]:
    """Return what transposes 2 to 15 rows whose columns follow one another in dst, and returns how many columns it did."""
    size = movement.src_size
    join_two, join_three, join_four = (interleaver(movement, rows) for rows in (2, 3, 4))
    turn_few = few_rows(movement)

    def join(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> int:
        column = 0
        if rows > 4:
            # What is written behind a column is overwritten by those that follow.
            while (column + 15) * rows + 16 <= columns * rows:
                turn_few(src + column * size, row_src, dst + column * row_dst, row_dst, rows - 1)
                column += 16
            return column
        while column < columns:
            # The last columns may have been joined before in part.
            first = min(column, columns - 16)
            source, target = src + first * size, dst + first * row_dst
            if rows == 2:
                join_two(source, row_src, target)
            elif rows == 3:
                join_three(source, row_src, target)
            else:
                join_four(source, row_src, target)
            column += 16
        return column

    return join
