"""Sum up what a deconvolution adds to each element of dst: products of weights and src, or of depthwise ones here.

Tables have, for each index of depth and height of dst, the number of taps and for each its number in the kernel and the
index of src; the same for each phase of the width (an index modulo the stride), with the index of src of its first element.
A work item is a row of a channel of dst. Elements of one phase are adjacent in src, 16 a vector; phases are brought
together in registers or on the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from . import functions
from .compiler import types
from .compiler.language import inlined, intrinsic
from .elements import elements
from .inside import load_inside
from .interleaving import write_interleaved
from .limits import MOST_PHASES
from .vec import (
    I8,
    I32,
    I64,
    LANES,
    VI,
    VM,
    WIDTH,
    Builder,
    Value,
    VectorType,
    call,
    dload,
    fload,
    iload,
    load,
    splat,
    vadd,
    vfma,
)


def make(
    isa: str, scaled: bool, phases: int, chain: tuple[Any, ...], dtype: str = "f32"
) -> tuple[Callable[..., None], Any]:
    """Return the kernel for f32 or f64, and its signature.

    If ``scaled``, src are images, multiplied by the weights of a channel each; else products of every tap. ``phases`` is the
    stride along the width, 0 for one that no vectors are interleaved for.
    """
    finish = functions.post_ops_part(chain, dtype)
    total = _total(scaled, dtype)
    of = elements(dtype)
    nbytes, real, load_vector, store, store_part = of.size, of.real, of.load, of.store, of.store_part
    write = _make_write(phases, chain)
    one, stacked = dload if dtype == "f64" else fload, _stack(of.size)
    # What is added may be in the memory of dst.
    overlaps = all(kind == "eltwise" for kind, *_ in chain)

    def kernel(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        kernel_height: int, kernel_width: int, size: int, depth_record: int, height_record: int, width_record: int,
        stride: int, channels: int, shared: int,
    ) -> None:  # fmt: skip
        area = in_depth * in_height * in_width
        gathered = stacked()
        for item in range(begin, end):
            rest = item // out_height
            h = height + height_record * (item - rest * out_height)
            channel = rest // out_depth
            d = depth + depth_record * (rest - channel * out_depth)
            number = channel % channels
            start = real(0.0)
            if bias != 0:
                start = one(bias + nbytes * number)
            factors = weights + nbytes * number * size
            base = src + nbytes * (channel // shared if scaled else channel * size) * area
            to = nbytes * item * out_width
            positions = (out_width + stride - 1) // stride
            for first in range(0, positions, 16):
                j = first
                if overlaps:
                    # The last elements may be stored twice: stores of part of a vector are slow, and so are such loads.
                    j = max(0, min(first, positions - 16))
                at = to + nbytes * j * stride
                left = min(16 * stride, out_width - j * stride)
                if phases > 2:
                    for phase in range(phases):
                        value = total(
                            base, factors, start, d, h, width + phase * width_record, j, in_height, in_width, area,
                            kernel_height, kernel_width,
                        )  # fmt: skip
                        store(gathered + nbytes * LANES * phase, value)
                    write(gathered, dst + at, other + at, left)
                elif phases == 0:
                    for phase in range(stride):
                        value = total(
                            base, factors, start, d, h, width + phase * width_record, j, in_height, in_width, area,
                            kernel_height, kernel_width,
                        )  # fmt: skip
                        _spread(gathered + nbytes * phase, value, stride)
                    for index in range(0, left, 16):
                        place = at + nbytes * index
                        value = finish(load_vector(gathered + nbytes * index), other + place, min(16, left - index))
                        if left - index >= 16:
                            store(dst + place, value)
                        else:
                            store_part(dst + place, value, left - index)
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
                            place = at + 16 * nbytes
                            upper = finish(_upper(value, second), other + place, min(16, left - 16))
                            if left >= 32:
                                store(dst + place, upper)
                            else:
                                store_part(dst + place, upper, left - 16)
                        value = _lower(value, second)
                    value = finish(value, other + at, min(16, left))
                    if left >= 16:
                        store(dst + at, value)
                    else:
                        store_part(dst + at, value, left)

    return kernel, types.void(*[types.int64] * 25)


def _total(scaled: bool, dtype: str) -> Any:
    """Return a function that adds up the taps of 16 elements of a phase, from number ``j`` on."""
    of = elements(dtype)
    nbytes, real, fill, load, load_one, seen_inside = (
        of.size,
        of.real,
        of.fill,
        of.load,
        of.load_one,
        load_inside(dtype),
    )

    @inlined
    def total(
        base: int, factors: int, start: float, d: int, h: int, w: int, j: int, in_height: int, in_width: int, area: int,
        kernel_height: int, kernel_width: int,
    ) -> Any:  # fmt: skip
        value, nothing = fill(start), fill(real(0.0))
        for first in range(d + 8, d + 8 + 16 * iload(d), 16):
            for second in range(h + 8, h + 8 + 16 * iload(h), 16):
                tap = (iload(first) * kernel_height + iload(second)) * kernel_width
                line = base + nbytes * (iload(first + 8) * in_height + iload(second + 8)) * in_width
                for third in range(w + 8, w + 8 + 16 * iload(w), 16):
                    index, each = iload(third + 8) + j, tap + iload(third)
                    place = line
                    if not scaled:
                        place = line + nbytes * each * area
                    if index >= 0 and index + 16 <= in_width:
                        seen = load(place + nbytes * index)
                    else:
                        seen = seen_inside(place, index, in_width, nothing)
                    if scaled:
                        value = vfma(seen, load_one(factors + nbytes * each), value)
                    else:
                        value = vadd(value, seen)
        return value

    return total


def _stack(nbytes: int) -> Any:
    """Return an intrinsic that returns the address of memory on the stack: a vector of elements for each phase."""

    @intrinsic
    def memory(_: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            with b.goto_entry_block():
                place = b.alloca(ir.ArrayType(I8, nbytes * LANES * MOST_PHASES))
                place.align = 64
            return b.ptrtoint(place, I64)

        return types.int64(), emit

    return memory


def _make_write(count: int, chain: tuple[Any, ...]) -> Any:
    """Return the intrinsic that writes the lanes of ``count`` vectors in memory in turn: at most ``left`` elements."""

    @intrinsic
    def write(_: Any, address: Any, to: Any, other: Any, left: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            address, to, other, left = a
            values = [load(b, b.add(address, I64(WIDTH * number))) for number in range(count)]
            write_interleaved(b, chain, values, to, other, left)
            return context.get_dummy_value()

        return types.void(address, to, other, left), emit

    return write


@intrinsic
def _spread(_: Any, address: types.Integer, value: VectorType, step: types.Integer) -> Any:
    """Store the lanes of a vector ``step`` elements apart."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        nbytes, kind = (8, "f64") if value.scalar == types.float64 else (4, "f32")
        numbers = ir.Constant(ir.VectorType(I64, LANES), [nbytes * lane for lane in range(LANES)])
        places = b.add(splat(b, a[0]), b.mul(numbers, splat(b, a[2])))
        where = b.inttoptr(places, ir.VectorType(a[1].type.element.as_pointer(), LANES))
        every = ir.Constant(VM, [1] * LANES)
        call(b, f"llvm.masked.scatter.v16{kind}.v16p0", a[1], where, I32(nbytes), every, result=ir.VoidType())
        return context.get_dummy_value()

    return types.void(types.int64, value, types.int64), emit


def _interleaved(first: int, doc: str) -> Any:
    lanes = [first + lane // 2 + LANES * (lane % 2) for lane in range(LANES)]

    def typed(_: Any, x: Any, y: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return b.shuffle_vector(a[0], a[1], ir.Constant(VI, lanes))

        return x(x, x), emit

    typed.__doc__ = doc
    return intrinsic(typed)


_lower = _interleaved(0, "Return lanes 0 to 7 of two vectors in turn.")
_upper = _interleaved(LANES // 2, "Return lanes 8 to 15 of two vectors in turn.")
