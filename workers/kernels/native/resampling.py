"""Resample up to three spatial dimensions by the nearest element or linearly, wherever places in src are.

Weights are separable: each index of dst has a place below and one above it in src, and weights of both, each rounded once;
the upper one's is 0 if there is only one place. Tables hold them: for each index a record of both places (int64) and both
weights (float32), or for rows along the width an array of each.

``rows`` has 16 positions of a row a vector. It widens the rows of src that it needs into memory on the stack, one for
each parity of height and depth, and combines them: a row that the next row of dst needs too is there. ``blocked`` has 16
channels a vector. Elements of weight 0 count nothing, even if they are infinite. If positions see ``pairs`` that follow one
another (1 plus the number of the first element), these are loaded as vectors. Rows whose elements ``repeat`` equally often are
written at once.
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
    constant,
    fload,
    iload,
    isa_of,
    load,
    pointer,
    splat,
    vector,
    veven,
    vfma,
    vkeep,
    vload,
    vmul,
    vodd,
    vselect_gt,
    vset,
    vstore,
    vstore_part,
)

#: Positions of a row that are widened at once: four rows of them are in the first-level cache.
STRIP: Final = 512
#: Bytes of a row on the stack, and of a record.
ROW = 4 * STRIP
_RECORD = 24


def make(
    isa: str, part: str, linear: bool, close: bool, chain: tuple[Any, ...], repeat: int = 1
) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature.

    Positions are ``close`` if each vector of them sees elements of which the last is at most 15 behind the first. If position p
    of a row sees element p // ``repeat``, that is 2, 4, 8 or 16; else it is 1.
    """
    if part == "blocked":
        return _blocked(linear, chain)
    return _rows(linear, pick if close else gather, chain, repeat)


def stack(rows: int) -> Any:
    """Return an intrinsic that returns the address of memory on the stack: rows, and a number of eight bytes for each."""

    def typed(_: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            with b.goto_entry_block():
                place = b.alloca(ir.ArrayType(I8, rows * (ROW + 8)))
                place.align = 64
            return b.ptrtoint(place, I64)

        return types.int64(), emit

    return intrinsic(typed)


@intrinsic
def istore(_: Any, address: types.Integer, value: types.Integer) -> Any:
    """Store an int64."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(a[1], pointer(b, a[0], I64), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def gather(_: Any, line: types.Integer, table: types.Integer) -> Any:
    """Load the 16 floats of a row whose numbers a table has."""

    return vector(types.int64, types.int64), lambda context, b, sig, a: _gathered(b, *a)


def _gathered(b: Builder, line: Value, table: Value) -> Value:
    numbers = b.load(pointer(b, table, VI), align=4)
    offsets = b.shl(b.sext(numbers, ir.VectorType(I64, LANES)), ir.Constant(ir.VectorType(I64, LANES), [2] * LANES))
    where = b.inttoptr(b.add(splat(b, line), offsets), ir.VectorType(F32.as_pointer(), LANES))
    every = ir.Constant(VM, [1] * LANES)
    return call(b, "llvm.masked.gather.v16f32.v16p0", where, I32(4), every, constant(0.0))


@intrinsic
def pick(_: Any, line: types.Integer, table: types.Integer) -> Any:
    """Load what `gather` does, of numbers that are at most 15 above the first one: by a permutation if the level has one.

    Limitation: up to 60 bytes behind the row are read.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        if isa_of(b) != "x86-64-v4":
            return _gathered(b, *a)
        numbers = b.load(pointer(b, a[1], VI), align=4)
        first = b.extract_element(numbers, I32(0))
        found = load(b, b.add(a[0], b.shl(b.sext(first, I64), I64(2))))
        return call(b, "llvm.x86.avx512.permvar.sf.512", found, b.sub(numbers, splat(b, first)))

    return vector(types.int64, types.int64), emit


def _make_repeated(times: int) -> Any:
    """Return the intrinsic that loads as many floats as make a vector if each is there so many ``times``."""

    @intrinsic
    def repeated(_: Any, place: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            kind = ir.VectorType(F32, LANES // times)
            few = b.load(pointer(b, a[0], kind), align=4)
            lanes = ir.Constant(ir.VectorType(I32, LANES), [lane // times for lane in range(LANES)])
            return b.shuffle_vector(few, ir.Constant(kind, ir.Undefined), lanes)

        return vector(types.int64), emit

    return repeated


@inlined
def _mixed(low: Any, high: Any, lower: Any, upper: Any) -> Any:
    """Return low * lower + high * upper, for the weights of two neighbours."""
    return vfma(high, upper, vmul(low, lower))


def _widener(linear: bool, take: Any) -> Any:
    """Return a function that writes a row of src, seen from ``count`` positions of dst, to an address.

    ``take`` loads elements.
    """

    @inlined
    def widen(line: int, to: int, width: int, padded: int, first: int, count: int, pairs: int) -> None:
        zero = vset(np.float32(0.0))
        start = 4 * first
        if linear and pairs:
            start += 4 * (count & -16)
            for at in range(4 * first, start, 64):
                place = line + 4 * pairs - 4 + 2 * at
                one, two = vload(place), vload(place + 64)
                lower, upper = vload(width + 8 * padded + at), vload(width + 12 * padded + at)
                vstore(to + at - 4 * first, _mixed(veven(one, two), vodd(one, two), lower, upper))
        for at in range(start, 4 * (first + count), 64):
            value = take(line, width + at)
            if linear:
                upper = vload(width + 12 * padded + at)
                # An infinite neighbour of weight 0 would give NaN
                high = vselect_gt(upper, zero, take(line, width + 4 * padded + at), zero)
                value = _mixed(value, high, vload(width + 8 * padded + at), upper)
            vstore(to + at - 4 * first, value)

    return widen


def _rows(linear: bool, take: Any, chain: tuple[Any, ...], repeat: int) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain)
    widen = _widener(linear, take)
    memory = stack(4)
    repeated = _make_repeated(repeat)

    @inlined
    def repeat_row(line: int, to: int, width: int, first: int, count: int) -> None:
        """Write ``count`` positions, of which each element of src has ``repeat``."""
        for at in range(0, 4 * (count & -16), 64):
            vstore(to + at, repeated(line + (4 * first + at) // repeat))
        at = 4 * (count & -16)
        if count & 15:
            if count >= 16 and count % repeat == 0:
                # The last vector begins in the one before it.
                vstore(to + 4 * (count - 16), repeated(line + 4 * (first + count - 16) // repeat))
            else:
                vstore_part(to + at, take(line, width + 4 * first + at), count & 15)

    @inlined
    def brought(
        rows: int, image: int, d: int, h: int, in_height: int, in_width: int, width: int, padded: int, first: int,
        count: int, pairs: int,
    ) -> int:  # fmt: skip
        number = d * in_height + h
        slot = 2 * (d & 1) + (h & 1)
        if iload(rows + 4 * ROW + 8 * slot) != number:
            istore(rows + 4 * ROW + 8 * slot, number)
            widen(image + 4 * number * in_width, rows + slot * ROW, width, padded, first, count, pairs)
        return rows + slot * ROW

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        padded: int, chunk: int, pairs: int,
    ) -> None:  # fmt: skip
        rows = memory()
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
            for slot in range(4):
                istore(rows + 4 * ROW + 8 * slot, -1)
            d = depth + _RECORD * (start // out_height)
            h = height + _RECORD * (start % out_height) - _RECORD
            for line in range(start, min(lines, start + chunk)):
                h += _RECORD
                if h == height + _RECORD * out_height:
                    h = height
                    d += _RECORD
                to = 4 * ((plane * lines + line) * out_width + first)
                if repeat > 1:
                    row = image + 4 * (iload(d) * in_height + iload(h)) * in_width
                    repeat_row(row, dst + to, width, first, count)
                    continue
                deep, high = fload(d + 20), fload(h + 20)
                near = brought(
                    rows, image, iload(d), iload(h), in_height, in_width, width, padded, first, count, pairs
                )  # fmt: skip
                below, behind, last = near, near, near
                if linear:
                    if high > 0.0:
                        below = brought(
                            rows, image, iload(d), iload(h + 8), in_height, in_width, width, padded, first, count, pairs
                        )  # fmt: skip
                    if deep > 0.0:
                        behind = brought(
                            rows, image, iload(d + 8), iload(h), in_height, in_width, width, padded, first, count, pairs
                        )  # fmt: skip
                        last = behind
                        if high > 0.0:
                            last = brought(
                                rows, image, iload(d + 8), iload(h + 8), in_height, in_width, width, padded, first, count, pairs
                            )  # fmt: skip
                across, down, above, front = vset(high), vset(deep), vset(fload(h + 16)), vset(fload(d + 16))
                for at in range(0, 4 * count, 64):
                    value = vload(near + at)
                    if linear:
                        if high > 0.0:
                            value = _mixed(value, vload(below + at), above, across)
                        if deep > 0.0:
                            second = vload(behind + at)
                            if high > 0.0:
                                second = _mixed(second, vload(last + at), above, across)
                            value = _mixed(value, second, front, down)
                    value = finish(value, other + to + at)
                    if at + 64 <= 4 * count:
                        vstore(dst + to + at, value)
                    else:
                        vstore_part(dst + to + at, value, count & 15)

    return kernel, types.void(*[types.int64] * 17)


def _blocked(linear: bool, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain)

    @inlined
    def column(near: int, below: int, behind: int, last: int, h: int, d: int, at: int) -> Any:
        deep, high = fload(d + 20), fload(h + 20)
        value = vload(near + at)
        if linear:
            if high > 0.0:
                value = _mixed(value, vload(below + at), vset(fload(h + 16)), vset(high))
            if deep > 0.0:
                second = vload(behind + at)
                if high > 0.0:
                    second = _mixed(second, vload(last + at), vset(fload(h + 16)), vset(high))
                value = _mixed(value, second, vset(fload(d + 16)), vset(deep))
        return value

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
            row = 64 * in_width
            near = image + (iload(d) * in_height + iload(h)) * row
            below = image + (iload(d) * in_height + iload(h + 8)) * row
            behind = image + (iload(d + 8) * in_height + iload(h)) * row
            last = image + (iload(d + 8) * in_height + iload(h + 8)) * row
            lanes = tail if block % period == period - 1 else 16
            to = 64 * item * out_width
            for w in range(width, width + _RECORD * out_width, _RECORD):
                value = column(near, below, behind, last, h, d, 64 * iload(w))
                if linear:
                    weight = fload(w + 20)
                    if weight > 0.0:
                        beside = column(near, below, behind, last, h, d, 64 * iload(w + 8))
                        value = _mixed(value, beside, vset(fload(w + 16)), vset(weight))
                vstore(dst + to, vkeep(finish(value, other + to), lanes))
                to += 64

    return kernel, types.void(*[types.int64] * 16)
