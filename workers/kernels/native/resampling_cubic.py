"""Resample up to three spatial dimensions by cubic convolution: four elements of src and four weights a dimension.

Tables have for each index of dst a record of four places (int64) and four weights (float32), or for rows along the width four
arrays of places (int32), then four of weights. ``rows`` has 16 positions of a row a vector. It widens the rows of src that it
needs into memory on the stack, one for each number of height and depth modulo 4, and adds them up in a further row: rows that
the next row of dst needs too are there. ``blocked`` has 16 channels a vector. Elements of weight 0 count nothing, even if they
are infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import functions
from .compiler import types
from .compiler.language import inlined
from .resampling import ROW, STRIP, gather, istore, stack
from .vec import fload, iload, vabs, vfma, vkeep, vload, vselect_gt, vset, vstore, vstore_part

#: Bytes of a record, and where its weights begin.
_RECORD = 48
_WEIGHTS = 32
_ROWS = 17


def make(isa: str, part: str, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature, those of `resampling`."""
    return _rows(chain) if part == "rows" else _blocked(chain)


@inlined
def _widen(line: int, to: int, width: int, padded: int, first: int, count: int) -> None:
    """Write a row of src, seen from ``count`` positions of dst, to an address."""
    zero = vset(np.float32(0.0))
    for at in range(4 * first, 4 * (first + count), 64):
        value = zero
        for tap in range(4):
            weight = vload(width + 4 * padded * (4 + tap) + at)
            seen = vselect_gt(vabs(weight), zero, gather(line, width + 4 * padded * tap + at), zero)
            value = vfma(seen, weight, value)
        vstore(to + at - 4 * first, value)


def _rows(chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain)
    memory = stack(_ROWS)

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        padded: int, chunk: int,
    ) -> None:  # fmt: skip
        rows = memory()
        numbers = rows + _ROWS * ROW
        total = rows + 16 * ROW
        strips = (out_width + STRIP - 1) // STRIP
        lines = out_depth * out_height
        pieces = (lines + chunk - 1) // chunk
        for item in range(begin, end):
            rest = item // pieces
            start = (item - rest * pieces) * chunk
            plane = rest // strips
            first = (rest - plane * strips) * STRIP
            count = min(STRIP, out_width - first)
            image = src + 4 * plane * in_depth * in_height * in_width
            for slot in range(16):
                istore(numbers + 8 * slot, -1)
            for line in range(start, min(lines, start + chunk)):
                d = depth + _RECORD * (line // out_height)
                h = height + _RECORD * (line % out_height)
                for at in range(0, 4 * count, 64):
                    vstore(total + at, vset(np.float32(0.0)))
                for far in range(4):
                    deep = fload(d + _WEIGHTS + 4 * far)
                    for low in range(4):
                        high = fload(h + _WEIGHTS + 4 * low)
                        if deep == 0.0 or high == 0.0:
                            continue
                        number = iload(d + 8 * far) * in_height + iload(h + 8 * low)
                        slot = 4 * (iload(d + 8 * far) & 3) + (iload(h + 8 * low) & 3)
                        row = rows + slot * ROW
                        if iload(numbers + 8 * slot) != number:
                            istore(numbers + 8 * slot, number)
                            _widen(image + 4 * number * in_width, row, width, padded, first, count)
                        weight = vset(deep * high)
                        for at in range(0, 4 * count, 64):
                            vstore(total + at, vfma(vload(row + at), weight, vload(total + at)))
                to = 4 * ((plane * lines + line) * out_width + first)
                for at in range(0, 4 * count, 64):
                    value = finish(vload(total + at), other + to + at)
                    if at + 64 <= 4 * count:
                        vstore(dst + to + at, value)
                    else:
                        vstore_part(dst + to + at, value, count & 15)

    return kernel, types.void(*[types.int64] * 16)


def _blocked(chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain)

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        period: int, tail: int,
    ) -> None:  # fmt: skip
        lines = out_depth * out_height
        for item in range(begin, end):
            block = item // lines
            line = item - block * lines
            d = depth + _RECORD * (line // out_height)
            h = height + _RECORD * (line % out_height)
            image = src + 64 * block * in_depth * in_height * in_width
            lanes = tail if block % period == period - 1 else 16
            to = 64 * item * out_width
            for w in range(width, width + _RECORD * out_width, _RECORD):
                value = vset(np.float32(0.0))
                for far in range(4):
                    deep = fload(d + _WEIGHTS + 4 * far)
                    for low in range(4):
                        high = deep * fload(h + _WEIGHTS + 4 * low)
                        if high == 0.0:
                            continue
                        row = image + 64 * (iload(d + 8 * far) * in_height + iload(h + 8 * low)) * in_width
                        for tap in range(4):
                            weight = high * fload(w + _WEIGHTS + 4 * tap)
                            if weight != 0.0:
                                value = vfma(vload(row + 64 * iload(w + 8 * tap)), vset(weight), value)
                vstore(dst + to, vkeep(finish(value, other + to), lanes))
                to += 64

    return kernel, types.void(*[types.int64] * 16)
