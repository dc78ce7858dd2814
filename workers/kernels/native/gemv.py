"""Product of one row by a matrix, batched: the matrix is read once, mostly in the order of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .compiler import types
from .first_lanes import vstore_part
from .gemv_sums import add_rows, sum_blocks, sum_columns, sum_packed, sum_part, sum_rows
from .stack_room import stack_room
from .vec import iload, vadd, vload, vload_part, vmax, vset, vstore

#: ISA level -> sums at once, each of them a vector: they fill half of the registers at most.
_SUMS: Final = {"x86-64-v4": 8, "x86-64-v3": 4}
#: ISA level -> blocks of 16 packed columns that are summed together. A processor reads several streams at a time faster than one,
#: and then needs no requests. Others ask for the lines of one stream.
_BLOCKS: Final = {"x86-64-v3": 4}
#: ISA level -> rows that are added at once: each takes a register for its input.
_ROWS: Final = {"x86-64-v4": 8, "x86-64-v3": 8}
#: ISA level -> vectors of columns that are summed at once, over all rows, if the rows are near each other.
_VECTORS: Final = {"x86-64-v3": 4}
#: ISA levels that sum 64 or 128 columns so, if these are all: rows are read in one piece then, however far they reach.
_WHOLE: Final = ("x86-64-v4",)
#: Fewer columns than these are summed over all rows by those levels, too, a vector at a time, if the rows are near: few rows, or
#: rows of one vector.
_FEW: Final = 64
_FEW_ROWS: Final = 128
#: Bytes of rows that are near: they stay in the second-level cache, so that each may be read in several pieces.
_NEAR: Final = 256 << 10
#: Bytes of a matrix that is far: no second-level cache holds it from one product to the next. Bytes between its packed columns
#: that are multiplied and those that are asked for.
_FAR: Final = 1 << 20
_AHEAD: Final = 4096
#: Most columns of adjacent items in rows that are computed together: rows are read at the speed of memory only if their
#: pieces are long, and the sums, which are on the stack, must stay in the first-level cache.
_JOINED: Final = 4096
_PAGE: Final = 4096


def make(isa: str, order: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for weights in an ``order``: "packed", "rows" or "columns".

    Packed weights have 16 columns side by side; in rows and columns, the elements of one are adjacent.

    Arguments, distances in bytes: addresses of the left rows, the right matrices, bias (0: none), sums (dst itself if nothing
    is added to them; in rows they are on the stack), dst, residual (0: none); a table of (left, right, dst) offsets of each
    product of the batch; K, columns of dst and those of an item of work, a multiple of 16, in rows at most 4096; the
    distances lane (from one input to the next in the left row; 4 for columns), block (from 16 columns to the next 16, if
    packed) and step (from row to row, or from column to column in columns); and the lower bounds before and after the
    residual is added. One item of work is some columns of one product; a job's items in rows are computed together.
    """
    sums_at_once = _SUMS.get(isa, 2)
    joined = _JOINED if order == "rows" else 1
    room_on_stack = stack_room(_JOINED * 4 + _PAGE if order == "rows" else 4)
    if order == "rows":
        compute = _rows(_ROWS.get(isa, 2), _VECTORS.get(isa, 0), isa in _WHOLE)
    else:
        compute = _columns(sums_at_once) if order == "columns" else _packed(sums_at_once, _BLOCKS.get(isa, 0))

    def gemv(
        begin: int, end: int, left: int, right: int, bias: int, sums: int, dst: int, residual: int, batch_table: int,
        K: int, columns: int, part: int, lane: int, block: int, step: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        parts = (columns + part - 1) // part
        most = max(1, joined // part)
        before, after = vset(np.float32(low)), vset(np.float32(bound))
        far = int(K * columns * 4 > _FAR)
        room = room_on_stack()
        item = begin
        while item < end:
            product = batch_table + item // parts * 24
            number = item % parts
            first = number * part
            together = min(most, end - item, parts - number)
            item += together
            count = min(together * part, columns - first)
            at = iload(product + 16) + first * 4
            matrix = right + iload(product + 8)
            to = sums + at
            if order == "rows":
                # Half a page behind the place of the columns in theirs: loads wait for stores to the same place in another page.
                to = room + (matrix + first * 4 + _PAGE // 2 - room & _PAGE - 1)
            compute(left + iload(product), matrix, first, count, K, lane, block, step, far, to)
            for j in range(0, count, 16):
                rest = min(16, count - j)
                if rest == 16:
                    # A store of some lanes takes tens of cycles.
                    value = vload(to + j * 4)
                    if bias != 0:
                        value = vadd(value, vload(bias + (first + j) * 4))
                    if residual != 0:
                        value = vadd(vmax(before, value), vload(residual + at + j * 4))
                    vstore(dst + at + j * 4, vmax(after, value))
                    continue
                value = vload_part(to + j * 4, rest)
                if bias != 0:
                    value = vadd(value, vload_part(bias + (first + j) * 4, rest))
                if residual != 0:
                    value = vadd(vmax(before, value), vload_part(residual + at + j * 4, rest))
                vstore_part(dst + at + j * 4, vmax(after, value), rest)

    return gemv, types.void(*[types.int64] * 15, types.float64, types.float64)


def _packed(sums_at_once: int, together: int) -> Callable[..., None]:
    total, total_of_far = sum_packed(sums_at_once), sum_packed(sums_at_once, _AHEAD)
    several = sum_blocks(together or 1)

    def compute(
        left: int, right: int, first: int, count: int, K: int, lane: int, block: int, step: int, far: int, to: int
    ) -> None:
        # Distances that the compiler knows take no instructions.
        begun = 0
        if together > 0 and lane == 4:
            begun = count - count % (together * 16)
            for j in range(0, begun, together * 16):
                several(left, right + (first + j) // 16 * block, block, K, to + j * 4)
        for j in range(begun, count, 16):
            at = right + (first + j) // 16 * block
            if lane != 4:
                value = total(left, lane, at, 64, K)
            elif together == 0 and far:
                value = total_of_far(left, 4, at, 64, K)
            else:
                value = total(left, 4, at, 64, K)
            if count - j >= 16:
                vstore(to + j * 4, value)
            else:
                vstore_part(to + j * 4, value, count - j)

    return compute


def _rows(sums_at_once: int, vectors: int, whole_rows: bool) -> Callable[..., None]:
    several, one = add_rows(sums_at_once), add_rows(1)
    # Levels that never take rows for near ones compile this, too, and have fewer registers.
    sums_of_near = 4 if vectors or whole_rows else 2
    wide, narrow, part = sum_rows(vectors or 1), sum_packed(sums_of_near), sum_part(sums_of_near)
    few = _FEW if whole_rows else 0
    of_64, of_128 = sum_rows(4), sum_rows(8)

    def compute(
        left: int, right: int, first: int, count: int, K: int, lane: int, block: int, step: int, far: int, to: int
    ) -> None:
        at = right + first * 4
        if whole_rows and count == 64:
            of_64(left, lane, at, step, K, to)
            return
        if whole_rows and count == 128:
            of_128(left, lane, at, step, K, to)
            return
        if K * step <= _NEAR and (vectors > 0 or (count < few and (count <= 16 or K <= _FEW_ROWS))):
            whole = 0
            if vectors > 0:
                whole = count - count % (vectors * 16)
                for j in range(0, whole, vectors * 16):
                    wide(left, lane, at + j * 4, step, K, to + j * 4)
            for j in range(whole, count - 15, 16):
                vstore(to + j * 4, narrow(left, lane, at + j * 4, step, K))
            # Nothing behind the last column is read.
            whole, rest = count - count % 16, count % 16
            if rest:
                vstore_part(to + whole * 4, part(left, lane, at + whole * 4, step, K, rest), rest)
            return
        nothing = vset(np.float32(0))
        for j in range(0, count - 15, 16):
            vstore(to + j * 4, nothing)
        if count % 16:
            vstore_part(to + (count - count % 16) * 4, nothing, count % 16)
        for k in range(0, K - sums_at_once + 1, sums_at_once):
            several(left + k * lane, lane, at + k * step, step, to, count)
        for k in range(K // sums_at_once * sums_at_once, K):
            one(left + k * lane, lane, at + k * step, step, to, count)

    return compute


def _columns(sums_at_once: int) -> Callable[..., None]:
    several, one = sum_columns(sums_at_once), sum_columns(1)

    def compute(
        left: int, right: int, first: int, count: int, K: int, lane: int, block: int, step: int, far: int, to: int
    ) -> None:
        at = right + first * step
        whole = count // sums_at_once * sums_at_once
        for j in range(0, whole, sums_at_once):
            several(left, at + j * step, step, K, to + j * 4)
        for j in range(whole, count):
            one(left, at + j * step, step, K, to + j * 4)

    return compute
