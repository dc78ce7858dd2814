"""Move nests of strided loops from one layout to another. Extents and strides are arguments: one kernel does it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import types

from .transpose import transpose, transpose_pad, transpose_part
from .vec import fload, fstore, iload, vload, vload_part, vset, vstore, vstore_part


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of src, dst and of a table of records, one a nest, of int64: the work item that ends the nest;
    bytes of the record; the mode of the innermost pair of loops (0 copy, 1 transpose, 2 fill with zeros, 3 and
    4 copy and transpose with zeros up to 16 floats adjacent in dst); offsets of src and dst; two loops as (extent, src
    stride, dst stride); the innermost pair; the number of outer loops, and these loops, innermost first. Offsets and
    strides are in bytes. The innermost pair is: to copy and fill, ``rows`` rows (strides row_src, row_dst) of
    ``columns`` contiguous floats; to transpose, ``rows`` rows (row_src apart in src, adjacent in dst) of ``columns``
    floats (adjacent in src, row_dst apart in dst). One item of work is one step of the outer loops.
    """
    copy, turn, fill = numba.njit(_copy), numba.njit(_transpose), numba.njit(_fill)

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
            for _ in range(iload(record + 120)):
                extent = iload(loop)
                left = rest // extent
                index = rest - left * extent
                rest = left
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
                    elif mode == 1:
                        turn(at, to, rows, row_src, row_dst, columns)
                    elif mode == 2:
                        fill(to, rows, row_dst, columns)
                    elif mode == 3:
                        for row in range(rows):
                            vstore(to + row * row_dst, vload_part(at + row * row_src, columns))
                    else:
                        for column in range(0, columns, 16):
                            last = min(16, columns - column)
                            transpose_pad(at + column * 4, row_src, to + column * row_dst, row_dst, rows, last)

    return reorder, types.void(*[types.int64] * 5)


def _copy(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
    whole = columns // 16 * 64
    tail = columns % 16
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
        while at < whole:
            vstore(target + at, vload(source + at))
            at += 64
        if tail:
            vstore_part(target + whole, vload_part(source + whole, tail), tail)


def _fill(dst: int, rows: int, row_dst: int, columns: int) -> None:
    zero = vset(np.float32(0.0))
    whole = columns // 16 * 64
    tail = columns % 16
    for row in range(rows):
        target = dst + row * row_dst
        for at in range(0, whole, 64):
            vstore(target + at, zero)
        if tail:
            vstore_part(target + whole, zero, tail)


def _transpose(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
    whole = rows // 16 * 16
    for row in range(0, whole, 16):
        for column in range(0, columns, 16):
            source = src + row * row_src + column * 4
            target = dst + row * 4 + column * row_dst
            if column + 16 <= columns:
                transpose(source, row_src, target, row_dst)
            else:
                transpose_part(source, row_src, target, row_dst, columns - column)
    # One by one: stores of part of a vector take many cycles on some processors.
    for column in range(columns):
        for row in range(whole, rows):
            fstore(dst + row * 4 + column * row_dst, fload(src + row * row_src + column * 4))
