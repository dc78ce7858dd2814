"""Sum up what a deconvolution adds to each element of dst: products of weights and src, or of depthwise ones here.

Tables have, for each index of depth and height of dst, the number of taps and for each its number in the kernel and the
index of src; the same for each phase of the width (an index modulo the stride), with the index of src of its first element.
A work item is a row of a channel of dst. Elements of one phase are adjacent in src, 16 a vector; phases are brought
together in registers or on the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from . import functions
from .compiler import types
from .compiler.language import inlined, intrinsic
from .vec import (
    F32,
    I8,
    I32,
    I64,
    LANES,
    VI,
    VM,
    Builder,
    Value,
    call,
    fload,
    iload,
    splat,
    vadd,
    vbroadcast,
    vector,
    vfma,
    vload,
    vload_inside,
    vset,
    vstore,
    vstore_part,
)

#: Largest stride along the width: the stack has a vector for each phase.
MOST_PHASES: Final = 16


def make(isa: str, scaled: bool, phases: int, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel and its signature.

    If ``scaled``, src are images, multiplied by the weights of a channel each; else products of every tap. ``phases`` is the
    stride along the width, 0 for one of more than 2.
    """
    finish = functions.post_ops(chain)
    total = _total(scaled)
    # What is added may be in the memory of dst.
    overlaps = all(kind == "eltwise" for kind, *_ in chain)

    def kernel(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        kernel_height: int, kernel_width: int, size: int, depth_record: int, height_record: int, width_record: int,
        stride: int, channels: int, shared: int,
    ) -> None:  # fmt: skip
        area = in_depth * in_height * in_width
        gathered = _stack()
        for item in range(begin, end):
            rest = item // out_height
            h = height + height_record * (item - rest * out_height)
            channel = rest // out_depth
            d = depth + depth_record * (rest - channel * out_depth)
            number = channel % channels
            start = np.float32(0.0)
            if bias != 0:
                start = fload(bias + 4 * number)
            factors = weights + 4 * number * size
            base = src + 4 * (channel // shared if scaled else channel * size) * area
            to = 4 * item * out_width
            positions = (out_width + stride - 1) // stride
            for first in range(0, positions, 16):
                j = first
                if overlaps:
                    # The last elements may be stored twice: stores of part of a vector are slow, and so are such loads.
                    j = max(0, min(first, positions - 16))
                at = to + 4 * j * stride
                left = min(16 * stride, out_width - j * stride)
                if phases == 0:
                    for phase in range(stride):
                        value = total(
                            base, factors, start, d, h, width + phase * width_record, j, in_height, in_width, area,
                            kernel_height, kernel_width,
                        )  # fmt: skip
                        _spread(gathered + 4 * phase, value, stride)
                    for index in range(0, left, 16):
                        value = finish(vload(gathered + 4 * index), other + at + 4 * index)
                        if left - index >= 16:
                            vstore(dst + at + 4 * index, value)
                        else:
                            vstore_part(dst + at + 4 * index, value, left - index)
                else:
                    value = total(
                        base, factors, start, d, h, width, j, in_height, in_width, area, kernel_height, kernel_width
                    )
                    if phases == 2:
                        second = total(
                            base, factors, start, d, h, width + width_record, j, in_height, in_width, area,
                            kernel_height, kernel_width,
                        )  # fmt: skip
                        if left > 16:
                            upper = finish(_upper(value, second), other + at + 64)
                            if left >= 32:
                                vstore(dst + at + 64, upper)
                            else:
                                vstore_part(dst + at + 64, upper, left - 16)
                        value = _lower(value, second)
                    if left >= 16:
                        vstore(dst + at, finish(value, other + at))
                    else:
                        vstore_part(dst + at, finish(value, other + at), left)

    return kernel, types.void(*[types.int64] * 25)


def _total(scaled: bool) -> Any:
    """Return a function that adds up the taps of 16 elements of a phase, from number ``j`` on."""

    @inlined
    def total(
        base: int, factors: int, start: float, d: int, h: int, w: int, j: int, in_height: int, in_width: int, area: int,
        kernel_height: int, kernel_width: int,
    ) -> Any:  # fmt: skip
        value, nothing = vset(start), vset(np.float32(0.0))
        for first in range(d + 8, d + 8 + 16 * iload(d), 16):
            for second in range(h + 8, h + 8 + 16 * iload(h), 16):
                tap = (iload(first) * kernel_height + iload(second)) * kernel_width
                line = base + 4 * (iload(first + 8) * in_height + iload(second + 8)) * in_width
                for third in range(w + 8, w + 8 + 16 * iload(w), 16):
                    index, each = iload(third + 8) + j, tap + iload(third)
                    place = line
                    if not scaled:
                        place = line + 4 * each * area
                    if index >= 0 and index + 16 <= in_width:
                        seen = vload(place + 4 * index)
                    else:
                        seen = vload_inside(place, index, in_width, nothing)
                    if scaled:
                        value = vfma(seen, vbroadcast(factors + 4 * each), value)
                    else:
                        value = vadd(value, seen)
        return value

    return total


@intrinsic
def _stack(_: Any) -> Any:
    """Return the address of memory on the stack: a vector for each phase."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        with b.goto_entry_block():
            place = b.alloca(ir.ArrayType(I8, 4 * LANES * MOST_PHASES))
            place.align = 64
        return b.ptrtoint(place, I64)

    return types.int64(), emit


@intrinsic
def _spread(_: Any, address: types.Integer, value: Any, step: types.Integer) -> Any:
    """Store the lanes of a vector ``step`` floats apart."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        numbers = ir.Constant(ir.VectorType(I64, LANES), [4 * lane for lane in range(LANES)])
        places = b.add(splat(b, a[0]), b.mul(numbers, splat(b, a[2])))
        where = b.inttoptr(places, ir.VectorType(F32.as_pointer(), LANES))
        every = ir.Constant(VM, [1] * LANES)
        call(b, "llvm.masked.scatter.v16f32.v16p0", a[1], where, I32(4), every, result=ir.VoidType())
        return context.get_dummy_value()

    return types.void(types.int64, vector, types.int64), emit


def _interleaved(first: int, doc: str) -> Any:
    lanes = [first + lane // 2 + LANES * (lane % 2) for lane in range(LANES)]

    def typed(_: Any, x: Any, y: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return b.shuffle_vector(a[0], a[1], ir.Constant(VI, lanes))

        return vector(vector, vector), emit

    typed.__doc__ = doc
    return intrinsic(typed)


_lower = _interleaved(0, "Return lanes 0 to 7 of two vectors in turn.")
_upper = _interleaved(LANES // 2, "Return lanes 8 to 15 of two vectors in turn.")
