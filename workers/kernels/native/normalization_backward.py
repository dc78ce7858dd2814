"""The gradients of a layer normalization over rows that follow one another in memory.

With e the gradient of the normalised values z = (x - mean) / deviation: diff_src = (e - mean(e) - z * mean(e * z)) /
deviation; if the statistics were given, e / deviation. An item of ``rows`` is a chunk of rows; it adds up what the chunk
contributes to the gradients of scale and shift, two lines of the scratchpad. An item of ``columns`` adds up 16 elements of
these lines. So memory is read once, and the result does not depend on how work is divided. If a kernel is not ``centered``,
the mean is 0, and mean(e) is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import inlined
from .first_lanes import vstore_part
from .vec import (
    fload,
    vadd,
    vfma,
    vkeep,
    vload,
    vmul,
    vset,
    vstore,
    vsub,
    vsum,
)

#: Bytes whose elements are added to one partial sum, so that errors do not grow with the row.
_GROUP = 64 * 64


def make(isa: str, part: str, sums: bool = False, centered: bool = True) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature: ``rows``, which leaves ``sums`` for scale and shift or not, or ``columns``."""
    return _rows(sums, centered) if part == "rows" else _columns()


@inlined
def _part(src: int, error: int, scale: int, middle: Any, factor: Any) -> tuple[Any, Any]:
    """Return 16 gradients of normalised values, and the products with these."""
    one = vmul(vload(error), vload(scale))
    return one, vmul(one, vmul(vsub(vload(src), middle), factor))


@inlined
def _row_sums(
    src: int, error: int, length: int, scale: int, mask: int, middle: Any, factor: Any
) -> tuple[float, float]:
    """Return the sums of a row's gradients of normalised values, and of the products with these, in float64."""
    whole = 4 * (length & -16)
    zero = vset(np.float32(0.0))
    errors, along = zero, zero
    at = 0
    while at < whole:
        stop = min(whole, at + _GROUP)
        first, second, third, fourth = zero, zero, zero, zero
        while at + 128 <= stop:
            one, product = _part(src + at, error + at, scale + (at & mask), middle, factor)
            first, second = vadd(first, one), vadd(second, product)
            one, product = _part(src + at + 64, error + at + 64, scale + (at + 64 & mask), middle, factor)
            third, fourth = vadd(third, one), vadd(fourth, product)
            at += 128
        while at < stop:
            one, product = _part(src + at, error + at, scale + (at & mask), middle, factor)
            first, second = vadd(first, one), vadd(second, product)
            at += 64
        errors, along = vadd(errors, vadd(first, third)), vadd(along, vadd(second, fourth))
    one, product = _part(src + whole, error + whole, scale + (whole & mask), middle, factor)
    errors, along = vadd(errors, vkeep(one, length & 15)), vadd(along, vkeep(product, length & 15))
    return np.float64(vsum(errors)), np.float64(vsum(along))


def _rows(sums: bool, centered: bool) -> tuple[Callable[..., None], Any]:
    @inlined
    def finish(
        src: int, error: int, scale: int, middle: Any, factor: Any, shared: Any, slant: Any, line: int, below: int,
        lanes: int,
    ) -> Any:  # fmt: skip
        given = vload(error)
        z = vmul(vsub(vload(src), middle), factor)
        if sums:
            if lanes < 16:
                given, z = vkeep(given, lanes), vkeep(z, lanes)
            vstore(line, vfma(given, z, vload(line)))
            vstore(line + below, vadd(vload(line + below), given))
        return vmul(vsub(vsub(vmul(given, vload(scale)), shared), vmul(z, slant)), factor)

    def kernel(
        begin: int, end: int, src: int, diff_dst: int, diff_src: int, mean: int, variance: int, scale: int, mask: int,
        lines: int, below: int, rows: int, chunk: int, length: int, given: int, epsilon: float,
    ) -> None:  # fmt: skip
        whole = 4 * (length & -16)
        nothing = vset(np.float32(0.0))
        for item in range(begin, end):
            line = lines + 2 * below * item
            if sums:
                for at in range(0, 2 * below, 64):
                    vstore(line + at, nothing)
            for row in range(item * chunk, min(rows, (item + 1) * chunk)):
                offset = 4 * row * length
                x, error, target = src + offset, diff_dst + offset, diff_src + offset
                middle = nothing
                if centered:
                    middle = vset(fload(mean + 4 * row))
                factor = vset(np.float32(1.0 / np.sqrt(np.float64(fload(variance + 4 * row)) + epsilon)))
                shared, slant = nothing, nothing
                if not given:
                    errors, along = _row_sums(x, error, length, scale, mask, middle, factor)
                    slant = vset(np.float32(along / length))
                    if centered:
                        shared = vset(np.float32(errors / length))
                for at in range(0, whole, 64):
                    place = scale + (at & mask)
                    value = finish(x + at, error + at, place, middle, factor, shared, slant, line + at, below, 16)
                    vstore(target + at, value)
                if length & 15:
                    at, place, rest = whole, scale + (whole & mask), length & 15
                    value = finish(x + at, error + at, place, middle, factor, shared, slant, line + at, below, rest)
                    vstore_part(target + at, value, rest)

    return kernel, types.void(*[types.int64] * 15, types.float64)


def _columns() -> tuple[Callable[..., None], Any]:
    def kernel(
        begin: int, end: int, lines: int, diff_scale: int, diff_shift: int, below: int, chunks: int, length: int
    ) -> None:
        for item in range(begin, end):
            at = 64 * item
            count = min(16, length - 16 * item)
            first, second = vset(np.float32(0.0)), vset(np.float32(0.0))
            for chunk in range(chunks):
                line = lines + 2 * below * chunk + at
                first, second = vadd(first, vload(line)), vadd(second, vload(line + below))
            if diff_scale != 0:
                vstore_part(diff_scale + at, first, count)
            if diff_shift != 0:
                vstore_part(diff_shift + at, second, count)

    return kernel, types.void(*[types.int64] * 8)
