"""The gradients of a batch normalization: those of src, and those of scale and shift if they have a place.

With z = (x - mean) / deviation: diff_src = (e - mean(e) - z * mean(e * z)) * scale / deviation; if the statistics were
given, e * scale / deviation. An item of ``rows`` is a channel of a row-major tensor, an item of ``lanes`` 16 channels. Its
elements are read twice, the second time from a cache if they fit. ``marked``: only gradients marked by the workspace count.
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
    fstore,
    vadd,
    vdiv,
    vfma,
    vkeep,
    vload,
    vload_marked,
    vmul,
    vset,
    vsqrt,
    vstore,
    vsub,
    vsum,
)

#: Vectors that are added to one partial sum, so that errors do not grow with the tensor.
_GROUP = 64


def make(isa: str, part: str, marked: bool) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature."""

    @inlined
    def errors(diff_dst: int, workspace: int, offset: int) -> Any:
        """Return the gradients of 16 elements of dst."""
        if marked:
            return vload_marked(diff_dst + offset, workspace + offset // 4)
        return vload(diff_dst + offset)

    return (_rows if part == "rows" else _lanes)(errors)


def _rows(errors: Any) -> tuple[Callable[..., None], Any]:
    @inlined
    def add(src: int, diff_dst: int, workspace: int, at: int, middle: Any, one: Any, along: Any) -> tuple[Any, Any]:
        error = errors(diff_dst, workspace, at)
        return vadd(one, error), vfma(error, vsub(vload(src + at), middle), along)

    @inlined
    def run_sums(src: int, diff_dst: int, workspace: int, offset: int, length: int, middle: Any) -> tuple[Any, Any]:
        zero = vset(np.float32(0.0))
        whole = offset + 4 * (length & -16)
        rest = vkeep(errors(diff_dst, workspace, whole), length & 15)
        total, totals = rest, vkeep(vmul(rest, vsub(vload(src + whole), middle)), length & 15)
        at = offset
        while at < whole:
            stop = min(whole, at + 64 * _GROUP)
            first, second, third, fourth = zero, zero, zero, zero
            while at + 128 <= stop:
                first, second = add(src, diff_dst, workspace, at, middle, first, second)
                third, fourth = add(src, diff_dst, workspace, at + 64, middle, third, fourth)
                at += 128
            if at < stop:
                first, second = add(src, diff_dst, workspace, at, middle, first, second)
                at += 64
            total, totals = vadd(total, vadd(first, third)), vadd(totals, vadd(second, fourth))
        return total, totals

    def kernel(
        begin: int, end: int, src: int, mean: int, variance: int, scale: int, diff_dst: int, workspace: int,
        diff_src: int, diff_scale: int, diff_shift: int, batch: int, channels: int, length: int, given: int,
        epsilon: float,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            inverse = 1.0 / np.sqrt(np.float64(fload(variance + 4 * item)) + epsilon)
            middle = vset(fload(mean + 4 * item))
            total, along = 0.0, 0.0
            if not given or diff_scale != 0 or diff_shift != 0:
                for image in range(batch):
                    offset = 4 * (image * channels + item) * length
                    one, other = run_sums(src, diff_dst, workspace, offset, length, middle)
                    total += np.float64(vsum(one))
                    along += np.float64(vsum(other))
            if diff_scale != 0:
                fstore(diff_scale + 4 * item, np.float32(along * inverse))
            if diff_shift != 0:
                fstore(diff_shift + 4 * item, np.float32(total))
            if given:
                total, along = 0.0, 0.0
            factor = inverse
            if scale != 0:
                factor *= np.float64(fload(scale + 4 * item))
            count = batch * length
            steep = vset(np.float32(factor))
            shared = vset(np.float32(total / count))
            slant = vset(np.float32(along * inverse * inverse / count))
            for image in range(batch):
                offset = 4 * (image * channels + item) * length
                whole = offset + 4 * (length & -16)
                for at in range(offset, whole, 64):
                    error = vsub(errors(diff_dst, workspace, at), shared)
                    value = vmul(vsub(error, vmul(vsub(vload(src + at), middle), slant)), steep)
                    vstore(diff_src + at, value)
                if length & 15:
                    error = vsub(errors(diff_dst, workspace, whole), shared)
                    value = vmul(vsub(error, vmul(vsub(vload(src + whole), middle), slant)), steep)
                    vstore_part(diff_src + whole, value, length & 15)

    return kernel, types.void(*[types.int64] * 15, types.float64)


def _lanes(errors: Any) -> tuple[Callable[..., None], Any]:
    def kernel(
        begin: int, end: int, src: int, mean: int, variance: int, scale: int, diff_dst: int, workspace: int,
        diff_src: int, diff_scale: int, diff_shift: int, batch: int, tail: int, image: int, block: int, positions: int,
        full: int, blocks: int, given: int, epsilon: float,
    ) -> None:  # fmt: skip
        zero = vset(np.float32(0.0))
        for item in range(begin, end):
            lanes = tail if item == blocks - 1 else 16
            inverse = vdiv(vset(np.float32(1.0)), vsqrt(vadd(vload(variance + 64 * item), vset(np.float32(epsilon)))))
            middle = vload(mean + 64 * item)
            total, along = zero, zero
            if not given or diff_scale != 0 or diff_shift != 0:
                for picture in range(batch):
                    offset = 4 * (picture * image + item * block)
                    stop = offset + 64 * positions
                    at = offset
                    while at < stop:
                        until = min(stop, at + 64 * _GROUP)
                        one, other = zero, zero
                        while at < until:
                            error = errors(diff_dst, workspace, at)
                            one = vadd(one, error)
                            other = vfma(error, vsub(vload(src + at), middle), other)
                            at += 64
                        total, along = vadd(total, one), vadd(along, other)
            along = vmul(along, inverse)
            if diff_scale != 0:
                vstore_part(diff_scale + 64 * item, along, lanes)
            if diff_shift != 0:
                vstore_part(diff_shift + 64 * item, total, lanes)
            if given:
                total, along = zero, zero
            steep = inverse
            if scale != 0:
                steep = vmul(inverse, vload(scale + 64 * item))
            count = vset(np.float32(batch * positions))
            shared, slant = vdiv(total, count), vmul(vdiv(along, count), inverse)
            for picture in range(batch):
                offset = 4 * (picture * image + item * block)
                for at in range(offset, offset + 64 * positions, 64):
                    error = vsub(errors(diff_dst, workspace, at), shared)
                    value = vmul(vsub(error, vmul(vsub(vload(src + at), middle), slant)), steep)
                    if lanes == 16 or full:
                        vstore(diff_src + at, vkeep(value, lanes))
                    else:
                        vstore_part(diff_src + at, value, lanes)

    return kernel, types.void(*[types.int64] * 19, types.float64)
