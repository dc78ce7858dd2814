"""Move a nest of strided loops from one layout to another. Extents and strides are arguments: few kernels do it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types

from .transpose import transpose, transpose_part
from .vec import fload, fstore, iload, vload, vload_part, vset, vstore, vstore_part


def make(isa: str, mode: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel that moves what the two innermost loops span: ``copy``, ``transpose`` or ``fill`` with zeros.

    Arguments: addresses of src and dst; the table of outer loops, innermost first, as (extent, src stride, dst stride),
    and their number; then two loops and the innermost pair. All strides are in bytes. The innermost pair is:
    for ``copy`` and ``fill``, ``rows`` rows (strides row_src, row_dst) of ``columns`` contiguous floats; for
    ``transpose``, ``rows`` rows (row_src apart in src, adjacent in dst) of ``columns`` floats (adjacent in src,
    row_dst apart in dst). One item of work is one step of the outer loops.
    """
    inner = {"copy": _copy, "transpose": _transpose, "fill": _fill}[mode]()

    def reorder(
        begin: int, end: int, src: int, dst: int, table: int, loops: int, extent3: int, src3: int, dst3: int,
        extent2: int, src2: int, dst2: int, rows: int, row_src: int, row_dst: int, columns: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            source = src
            target = dst
            rest = item
            for loop in range(loops):
                extent = iload(table + loop * 24)
                left = rest // extent
                index = rest - left * extent
                rest = left
                source += index * iload(table + loop * 24 + 8)
                target += index * iload(table + loop * 24 + 16)
            for i in range(extent3):
                for j in range(extent2):
                    inner(source + i * src3 + j * src2, target + i * dst3 + j * dst2, rows, row_src, row_dst, columns)

    return reorder, types.void(*[types.int64] * 16)


def _jit(function: Callable[..., None]) -> Any:
    import numba

    return numba.njit(function)


def _copy() -> Any:
    def copy(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
        whole = columns // 16 * 64
        tail = columns % 16
        for row in range(rows):
            source = src + row * row_src
            target = dst + row * row_dst
            for at in range(0, whole, 64):
                vstore(target + at, vload(source + at))
            if tail:
                vstore_part(target + whole, vload_part(source + whole, tail), tail)

    return _jit(copy)


def _fill() -> Any:
    def fill(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
        zero = vset(np.float32(0.0))
        whole = columns // 16 * 64
        tail = columns % 16
        for row in range(rows):
            target = dst + row * row_dst
            for at in range(0, whole, 64):
                vstore(target + at, zero)
            if tail:
                vstore_part(target + whole, zero, tail)

    return _jit(fill)


def _transpose() -> Any:
    def turn(src: int, dst: int, rows: int, row_src: int, row_dst: int, columns: int) -> None:
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

    return _jit(turn)
