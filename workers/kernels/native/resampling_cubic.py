"""Resample up to three spatial dimensions by cubic convolution: four elements of src and four weights a dimension.

Tables have for each index of dst a record of four places (int64) and four weights, or for rows along the width four arrays of
places (int32), then four of weights. Weights are of the type of lanes: float32, or float64 for data types that float32 does not
hold. ``rows`` has 16 positions of a row a vector. It widens the rows of src that it
needs into memory on the stack, one for each number of height and depth modulo 4, and adds them up in a further row: rows that
the next row of dst needs too are there. ``lower`` is for planes of f32 of fewer rows: it adds up rows of src, which may have as
many elements as `MIXED`, and widens the sum. ``blocked`` has 16 channels a vector. Elements of weight 0 count nothing, even
if they are infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from . import functions
from .compiler import types
from .compiler.language import inlined
from .first_lanes import vstore_part
from .resampling import STRIP, istore, stack
from .samples import Samples, samples, vpick_far
from .vec import (
    fload,
    iload,
    vabs,
    vfma,
    vkeep,
    vload,
    vload_part,
    vmul,
    vselect_gt,
    vset,
    vstore,
)

#: Where the weights of a record begin.
_WEIGHTS = 32
_ROWS = 17
#: Elements of a row that ``lower`` adds up, at most: all rows of the stack but the last.
MIXED: Final = 16 * STRIP


def make(
    isa: str, part: str, chain: tuple[Any, ...], dtype: str = "f32", near: int = 0
) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature, those of `resampling`.

    Each vector of columns sees elements that are fewer than ``near`` behind the first, 16 or, of ``lower``, 32; 0: any.
    """
    of = samples(dtype, False)
    widen = _widener(of, {0: of.gather, 16: of.pick, 32: vpick_far}[near])
    if part == "lower":
        return _lower(of, chain, widen)
    return _rows(of, chain, dtype, widen) if part == "rows" else _blocked(of, chain, dtype)


def _widener(of: Samples, gather: Any) -> Any:
    """Return a function that writes a row of src, seen from ``count`` positions of dst, to an address."""
    lane, weights, keep, fill, real = of.lane, of.load_kept, of.keep, of.fill, of.real

    @inlined
    def widen(line: int, to: int, width: int, padded: int, first: int, count: int) -> None:
        zero = fill(real(0.0))
        for index in range(first, first + count, 16):
            value = zero
            for tap in range(4):
                weight = weights(width + (16 + lane * tap) * padded + lane * index)
                seen = vselect_gt(vabs(weight), zero, gather(line, width + 4 * padded * tap + 4 * index), zero)
                value = vfma(seen, weight, value)
            keep(to + lane * (index - first), value)

    return widen


def _rows(of: Samples, chain: tuple[Any, ...], dtype: str, widen: Any) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops_part(chain, dtype)
    memory = stack(_ROWS, of.lane)
    size, lane, store, store_part, load_kept, keep = of.size, of.lane, of.store, of.store_part, of.load_kept, of.keep
    weight, fill, real = of.weight, of.fill, of.real
    row_bytes, record = lane * STRIP, _WEIGHTS + 4 * lane

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        padded: int, chunk: int,
    ) -> None:  # fmt: skip
        rows = memory()
        numbers = rows + _ROWS * row_bytes
        total = rows + 16 * row_bytes
        strips = (out_width + STRIP - 1) // STRIP
        lines = out_depth * out_height
        pieces = (lines + chunk - 1) // chunk
        for item in range(begin, end):
            rest = item // pieces
            start = (item - rest * pieces) * chunk
            plane = rest // strips
            first = (rest - plane * strips) * STRIP
            count = min(STRIP, out_width - first)
            image = src + size * plane * in_depth * in_height * in_width
            for slot in range(16):
                istore(numbers + 8 * slot, -1)
            for line in range(start, min(lines, start + chunk)):
                d = depth + record * (line // out_height)
                h = height + record * (line % out_height)
                for at in range(0, lane * count, 16 * lane):
                    keep(total + at, fill(real(0.0)))
                for far in range(4):
                    deep = weight(d + _WEIGHTS + lane * far)
                    for low in range(4):
                        high = weight(h + _WEIGHTS + lane * low)
                        if deep == 0.0 or high == 0.0:
                            continue
                        number = iload(d + 8 * far) * in_height + iload(h + 8 * low)
                        slot = 4 * (iload(d + 8 * far) & 3) + (iload(h + 8 * low) & 3)
                        row = rows + slot * row_bytes
                        if iload(numbers + 8 * slot) != number:
                            istore(numbers + 8 * slot, number)
                            widen(image + size * number * in_width, row, width, padded, first, count)
                        share = fill(deep * high)
                        for at in range(0, lane * count, 16 * lane):
                            keep(total + at, vfma(load_kept(row + at), share, load_kept(total + at)))
                to = size * ((plane * lines + line) * out_width + first)
                for at in range(0, count, 16):
                    value = finish(load_kept(total + lane * at), other + to + size * at, min(16, count - at))
                    if at + 16 <= count:
                        store(dst + to + size * at, value)
                    else:
                        store_part(dst + to + size * at, value, count & 15)

    return kernel, types.void(*[types.int64] * 16)


def _lower(of: Samples, chain: tuple[Any, ...], widen: Any) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops_part(chain, "f32")
    memory = stack(_ROWS, of.lane)
    record = _WEIGHTS + 16

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        padded: int, chunk: int,
    ) -> None:  # fmt: skip
        mixed = memory()
        total = mixed + 4 * MIXED
        strips = (out_width + STRIP - 1) // STRIP
        pieces = (out_height + chunk - 1) // chunk
        whole = in_width // 16 * 16
        for item in range(begin, end):
            rest = item // pieces
            start = (item - rest * pieces) * chunk
            plane = rest // strips
            first = (rest - plane * strips) * STRIP
            count = min(STRIP, out_width - first)
            image = src + 4 * plane * in_height * in_width
            for line in range(start, min(out_height, start + chunk)):
                h = height + record * line
                w0, w1 = fload(h + _WEIGHTS), fload(h + _WEIGHTS + 4)
                w2, w3 = fload(h + _WEIGHTS + 8), fload(h + _WEIGHTS + 12)
                done = 0
                if w0 != 0.0 and w1 != 0.0 and w2 != 0.0 and w3 != 0.0:
                    row0, row1 = image + 4 * in_width * iload(h), image + 4 * in_width * iload(h + 8)
                    row2, row3 = image + 4 * in_width * iload(h + 16), image + 4 * in_width * iload(h + 24)
                    share0, share1, share2, share3 = vset(w0), vset(w1), vset(w2), vset(w3)
                    while done < whole:
                        at = 4 * done
                        value = vmul(share0, vload(row0 + at))
                        value = vfma(share1, vload(row1 + at), value)
                        value = vfma(share2, vload(row2 + at), value)
                        vstore(mixed + at, vfma(share3, vload(row3 + at), value))
                        done += 16
                # The last columns, or all if a row counts nothing: it may have infinite elements.
                for at in range(done, in_width, 16):
                    vstore(mixed + 4 * at, vset(np.float32(0.0)))
                for low in range(4):
                    high = fload(h + _WEIGHTS + 4 * low)
                    if high == 0.0:
                        continue
                    row = image + 4 * in_width * iload(h + 8 * low)
                    share = vset(high)
                    for at in range(done, whole, 16):
                        vstore(mixed + 4 * at, vfma(vload(row + 4 * at), share, vload(mixed + 4 * at)))
                    if whole < in_width:
                        last = vload_part(row + 4 * whole, in_width - whole)
                        vstore(mixed + 4 * whole, vfma(last, share, vload(mixed + 4 * whole)))
                widen(mixed, total, width, padded, first, count)
                to = 4 * ((plane * out_height + line) * out_width + first)
                for at in range(0, count, 16):
                    value = finish(vload(total + 4 * at), other + to + 4 * at, min(16, count - at))
                    if at + 16 <= count:
                        vstore(dst + to + 4 * at, value)
                    else:
                        vstore_part(dst + to + 4 * at, value, count & 15)

    return kernel, types.void(*[types.int64] * 16)


def _blocked(of: Samples, chain: tuple[Any, ...], dtype: str) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain, dtype)
    size, lane, load, store, weight, fill, real = of.size, of.lane, of.load, of.store, of.weight, of.fill, of.real
    record, step = _WEIGHTS + 4 * lane, 16 * size

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        period: int, tail: int,
    ) -> None:  # fmt: skip
        lines = out_depth * out_height
        for item in range(begin, end):
            block = item // lines
            line = item - block * lines
            d = depth + record * (line // out_height)
            h = height + record * (line % out_height)
            image = src + step * block * in_depth * in_height * in_width
            lanes = tail if block % period == period - 1 else 16
            to = step * item * out_width
            for w in range(width, width + record * out_width, record):
                value = fill(real(0.0))
                for far in range(4):
                    deep = weight(d + _WEIGHTS + lane * far)
                    for low in range(4):
                        high = deep * weight(h + _WEIGHTS + lane * low)
                        if high == 0.0:
                            continue
                        row = image + step * (iload(d + 8 * far) * in_height + iload(h + 8 * low)) * in_width
                        for tap in range(4):
                            share = high * weight(w + _WEIGHTS + lane * tap)
                            if share != 0.0:
                                value = vfma(load(row + step * iload(w + 8 * tap)), fill(share), value)
                store(dst + to, vkeep(finish(value, other + to), lanes))
                to += step

    return kernel, types.void(*[types.int64] * 16)
