"""Depthwise convolution of 8-bit integers with VNNI: 64 channels at once, whose dot products are over rows of the window.

A work item is a row of outputs of 64 channels. Each column of the source that it reads is interleaved once into memory on the
stack: four rows of the window are side by side in each channel (a *quad*). Outputs whose windows share a column read its quads.
Padding is in them as the zero point of the source, so that no window has an edge. Bytes are interleaved within 128 bits, hence
lanes of the sums have channels in another order, which weights and terms have too; the results are packed back into theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import inlined, intrinsic
from .integer_bounds import make_bounds
from .integer_dot import multiply_groups
from .integers import clear16, load_s32
from .limits import QUAD_BYTES, QUAD_CHANNELS, QUAD_ROWS, QUADS_OF_WEIGHTS_ROOM, QUADS_ROOM
from .stack_room import stack_room
from .vec import (
    I8,
    I32,
    I64,
    LANES,
    VF,
    VI,
    WIDTH,
    Builder,
    Value,
    call,
    constant,
    fma,
    maximum,
    minimum,
    pointer,
    splat,
)

#: Positions of a tile: registers hold their sums, a quad's weights and no more.
_POSITIONS: Final = 4
#: A float to which others below 2**22 are added to round them: their bits are those of this one plus the whole number.
_ROUND: Final = 12582912.0
_ROUND_BITS: Final = 0x4B400000

_BYTES: Final = ir.VectorType(I8, QUAD_CHANNELS)
_I16: Final = ir.IntType(16)
_WORDS: Final = ir.VectorType(_I16, 32)
_MASK: Final = ir.VectorType(ir.IntType(1), QUAD_CHANNELS)
_PART: Final = ir.VectorType(I8, 16)
_FOUR: Final = ir.VectorType(I32, 4)


def make(isa: str, signed: bool, dtype: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for src ``signed`` or not, and results of ``dtype``, a type of bytes.

    Arguments: addresses of src, weights (blocks, kernel, 16), dst, zero point of src (s32; 0: none), terms (s32), factors
    and offsets (f32), each for whole blocks of 64 channels; scale (f32) and zero point (s32) of dst (0: none); channels;
    height and width of src and dst; kernel, stride, dilation (1: dense) and padding in rows and columns; columns of outputs
    whose quads `QUADS_ROOM` holds; and as floats the bounds of the result before scale and zero point of dst.
    """
    interleave, fill = _make_interleave(signed), _make_fill(signed)
    interleave_weights = _make_interleave(False)
    four, one = (_make_tile(positions, dtype) for positions in (_POSITIONS, 1))
    bounds = make_bounds(dtype)
    quads_room, weights_room, rows_room = (
        stack_room(QUADS_ROOM),
        stack_room(QUADS_OF_WEIGHTS_ROOM),
        stack_room(QUAD_ROWS * QUAD_CHANNELS),
    )
    own_room, pad_room = stack_room(3 * QUAD_BYTES), stack_room(QUAD_CHANNELS)

    @inlined
    def prepare(
        block: int, channels: int, kernel_h: int, kernel_w: int, weights: int, terms: int, factors: int, offsets: int,
        minus: int, factors_to: int, rows: int, own: int,
    ) -> None:  # fmt: skip
        """Interleave the weights of a block, and put its terms, factors and offsets into the order of lanes."""
        last = (channels + 15) // 16 - 1
        groups = (kernel_h + 3) // 4
        for group in range(groups):
            for column in range(kernel_w):
                for row in range(4):
                    y = group * 4 + row
                    for part in range(4):
                        to = rows + row * 64 + part * 16
                        if y < kernel_h:
                            tap = (min(block * 4 + part, last) * kernel_h + y) * kernel_w + column
                            _copy16(to, weights + tap * 16)
                        else:
                            clear16(to)
                to = factors_to + (group * kernel_w + column) * 256
                interleave_weights(to, rows, rows + 64, rows + 128, rows + 192, 64)
        _reorder(own, terms + block * 256)
        _reorder(own + 256, factors + block * 256)
        _reorder(own + 512, offsets + block * 256)
        _subtract_sums(own, factors_to, groups * kernel_w, minus)

    def depthwise(
        begin: int, end: int, src: int, weights: int, dst: int, src_point: int, terms: int, factors: int, offsets: int,
        scale: int, zero_point: int, channels: int, height: int, width: int, out_height: int, out_width: int,
        kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int, top: int,
        left: int, piece: int, low: float, high: float,
    ) -> None:  # fmt: skip
        point = 0
        if src_point != 0:
            point = load_s32(src_point)
        minus = point
        if signed:
            minus += 128
        _weight, low32, high32, plus = bounds(scale, zero_point, 1.0, low, high)
        quads, own_weights, rows, own, pad = quads_room(), weights_room(), rows_room(), own_room(), pad_room()
        _fill64(pad, point)
        blocks = (channels + 63) // 64
        groups = (kernel_h + 3) // 4
        line = width * channels
        known = -1
        for item in range(begin, end):
            whole = item // out_height
            image = whole // blocks
            block = whole - image * blocks
            if block != known:
                prepare(
                    block, channels, kernel_h, kernel_w, weights, terms, factors, offsets, minus, own_weights, rows, own
                )  # fmt: skip
                known = block
            count = min(64, channels - block * 64)
            oh = item - whole * out_height
            h = oh * stride_h - top
            plane = src + image * height * line + block * 64
            for first in range(0, out_width, piece):
                positions = min(piece, out_width - first)
                columns = (positions - 1) * stride_w + (kernel_w - 1) * dilation_w + 1
                w = first * stride_w - left
                # Columns in [inner, outer) are no padding.
                inner = min(columns, max(0, -w))
                outer = max(inner, min(columns, width - w))
                for group in range(groups):
                    y0 = h + group * 4 * dilation_h
                    y1, y2, y3 = y0 + dilation_h, y0 + 2 * dilation_h, y0 + 3 * dilation_h
                    # Rows behind the window have weights of 0.
                    begin0 = plane + y0 * line + (w + inner) * channels if 0 <= y0 < height else pad
                    begin1 = plane + y1 * line + (w + inner) * channels if 0 <= y1 < height else pad
                    begin2 = plane + y2 * line + (w + inner) * channels if 0 <= y2 < height else pad
                    begin3 = plane + y3 * line + (w + inner) * channels if 0 <= y3 < height else pad
                    step0 = channels if 0 <= y0 < height else 0
                    step1 = channels if 0 <= y1 < height else 0
                    step2 = channels if 0 <= y2 < height else 0
                    step3 = channels if 0 <= y3 < height else 0
                    to = quads + group * columns * 256
                    for _turn in range(inner):
                        fill(to, point)
                        to += 256
                    for _turn in range(outer - inner):
                        interleave(to, begin0, begin1, begin2, begin3, count)
                        begin0 += step0
                        begin1 += step1
                        begin2 += step2
                        begin3 += step3
                        to += 256
                    for _turn in range(columns - outer):
                        fill(to, point)
                        to += 256
                to = dst + ((image * out_height + oh) * out_width + first) * channels + block * 64
                at = 0
                while at < positions:
                    if positions < 4:
                        one(quads + at * stride_w * 256, stride_w * 256, groups, columns * 256, kernel_w, dilation_w * 256,
                            own_weights, own, to + at * channels, channels, count, low32, high32, plus)  # fmt: skip
                        at += 1
                    else:
                        # The last ones are computed with those before them, which are written again.
                        at = min(at, positions - 4)
                        four(quads + at * stride_w * 256, stride_w * 256, groups, columns * 256, kernel_w, dilation_w * 256,
                             own_weights, own, to + at * channels, channels, count, low32, high32, plus)  # fmt: skip
                        at += 4

    return depthwise, types.void(*[types.int64] * 25, types.float64, types.float64)


def _make_tile(positions: int, dtype: str) -> Any:
    """Return the intrinsic that computes neighbouring positions.

    Arguments: quads of the first column, bytes from position to position; groups of four rows, bytes from one to the next;
    columns of the window, bytes from one to the next; weights, and terms, factors and offsets, in the order of lanes;
    dst, bytes from position to position; channels; bounds; what is added to rounded results.
    """

    @intrinsic
    def tile(
        _: Any, quads: Any, step: Any, groups: Any, group: Any, columns: Any, across: Any, weights: Any, own: Any,
        dst: Any, dst_step: Any, count: Any, lower: Any, upper: Any, plus: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            quads, step, groups, group, columns, across, weights, own, dst, dst_step, count, lower, upper, plus = a
            starts = [b.load(pointer(b, b.add(own, I64(WIDTH * j)), VI), align=64) for j in range(4)] * positions
            before = b.block
            row, tap, latch, done = (b.append_basic_block(name) for name in ("group", "tap", "next", "store"))
            b.branch(row)

            b.position_at_end(row)
            left, line, factors = (_phi(b, value, before) for value in (groups, quads, weights))
            carried = [_phi(b, value, before) for value in starts]
            b.branch(tap)

            b.position_at_end(tap)
            rest, source, taps = (_phi(b, value, row) for value in (columns, line, factors))
            sums = [_phi(b, value, row) for value in carried]
            rows = [b.load(pointer(b, b.add(taps, I64(WIDTH * j)), VI), align=64) for j in range(4)]
            new = []
            for position in range(positions):
                at = b.add(source, b.mul(step, I64(position)))
                for j in range(4):
                    seen = b.load(pointer(b, b.add(at, I64(WIDTH * j)), VI), align=64)
                    new.append(multiply_groups(b, "vnni", 512, sums[4 * position + j], seen, rows[j]))
            following = (b.sub(rest, I64(1)), b.add(source, across), b.add(taps, I64(QUAD_BYTES)), *new)
            for each, value in zip((rest, source, taps, *sums), following, strict=True):
                each.add_incoming(value, tap)
            b.cbranch(b.icmp_signed(">", following[0], I64(0)), tap, latch)

            b.position_at_end(latch)
            after = (b.sub(left, I64(1)), b.add(line, group), following[2], *new)
            for each, value in zip((left, line, factors, *carried), after, strict=True):
                each.add_incoming(value, latch)
            b.cbranch(b.icmp_signed(">", after[0], I64(0)), row, done)

            b.position_at_end(done)
            results = [
                _narrowed(b, new[4 * position :][:4], own, splat(b, lower), splat(b, upper), plus, dtype)
                for position in range(positions)
            ]
            places = [pointer(b, b.add(dst, b.mul(dst_step, I64(position))), _BYTES) for position in range(positions)]
            with b.if_else(b.icmp_signed("<", count, I64(QUAD_CHANNELS))) as (part, whole):
                with part:
                    for place, value in zip(places, results, strict=True):
                        call(
                            b,
                            "llvm.masked.store.v64i8.p0",
                            value,
                            place,
                            I32(1),
                            _below(b, count),
                            result=ir.VoidType(),
                        )
                with whole:
                    for place, value in zip(places, results, strict=True):
                        b.store(value, place, align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11, types.float32, types.float32, types.int64), emit

    return tile


def _narrowed(b: Builder, sums: list[Value], own: Value, lower: Value, upper: Value, plus: Value, dtype: str) -> Value:
    """Return the results of four sums as bytes, in the order of channels."""
    moved = splat(b, b.sub(b.trunc(plus, I32), I32(_ROUND_BITS)))
    whole = []
    for j, total in enumerate(sums):
        scale, shift = (b.load(pointer(b, b.add(own, I64(QUAD_BYTES * k + WIDTH * j)), VF), align=64) for k in (1, 2))
        value = fma(b, b.sitofp(total, VF), scale, shift)
        value = minimum(b, maximum(b, value, lower), upper)
        whole.append(b.add(b.bitcast(b.fadd(value, constant(_ROUND)), VI), moved))
    pairs = [call(b, "llvm.x86.avx512.packssdw.512", *whole[k : k + 2], result=_WORDS) for k in (0, 2)]
    name = "llvm.x86.avx512.packuswb.512" if dtype == "u8" else "llvm.x86.avx512.packsswb.512"
    return call(b, name, *pairs, result=_BYTES)


def _make_interleave(signed: bool) -> Any:
    """Return the intrinsic that writes quads of ``count`` channels at four addresses; signed bytes become unsigned ones."""

    @intrinsic
    def interleave(_: Any, to: Any, row0: Any, row1: Any, row2: Any, row3: Any, count: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            mask, none = _below(b, a[5]), ir.Constant(_BYTES, [0] * QUAD_CHANNELS)
            rows = [
                call(b, "llvm.masked.load.v64i8.p0", pointer(b, row, _BYTES), I32(1), mask, none, result=_BYTES)
                for row in a[1:5]
            ]
            if signed:
                rows = [b.xor(row, ir.Constant(_BYTES, [0x80] * QUAD_CHANNELS)) for row in rows]
            pairs = [_unpacked(b, rows[k], rows[k + 1], high) for k in (0, 2) for high in (0, 1)]
            words = [b.bitcast(pair, _WORDS) for pair in pairs]
            for j in range(4):
                quad = _unpacked(b, words[j // 2], words[2 + j // 2], j % 2)
                b.store(b.bitcast(quad, VI), pointer(b, b.add(a[0], I64(WIDTH * j)), VI), align=64)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return interleave


def _unpacked(b: Builder, first: Value, second: Value, high: int) -> Value:
    """Return the items of the low or high halves of each 128 bits of two vectors in turn."""
    count: int = first.type.count
    lane, half = count // 4, count // 8
    places = [
        place
        for start in range(0, count, lane)
        for item in range(start + high * half, start + high * half + half)
        for place in (item, count + item)
    ]
    return b.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, count), places))


def _make_fill(signed: bool) -> Any:
    """Return the intrinsic that writes quads of one number."""

    @intrinsic
    def fill(_: Any, to: Any, number: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            byte = b.xor(b.trunc(a[1], I8), I8(0x80)) if signed else b.trunc(a[1], I8)
            for j in range(4):
                b.store(_same(b, byte), pointer(b, b.add(a[0], I64(WIDTH * j)), _BYTES), align=64)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return fill


@intrinsic
def _fill64(_: Any, to: types.Integer, number: types.Integer) -> Any:
    """Write one number to 64 bytes."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(_same(b, b.trunc(a[1], I8)), pointer(b, a[0], _BYTES), align=64)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _copy16(_: Any, to: types.Integer, source: types.Integer) -> Any:
    """Copy 16 bytes."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(b.load(pointer(b, a[1], _PART), align=1), pointer(b, a[0], _PART), align=16)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _reorder(_: Any, to: types.Integer, source: types.Integer) -> Any:
    """Copy 64 items of four bytes in the order of lanes: each 128 bits of a vector have four channels of one part of 16."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        for place in range(16):
            four = b.load(pointer(b, b.add(a[1], I64(16 * place)), _FOUR), align=4)
            part, number = divmod(place, 4)
            b.store(four, pointer(b, b.add(a[0], I64(WIDTH * number + 16 * part)), _FOUR), align=16)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _subtract_sums(
    _: Any, terms: types.Integer, weights: types.Integer, count: types.Integer, point: types.Integer
) -> Any:
    """Subtract the sums of ``count`` (at least one) quads of weights, times a zero point, from terms."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        before, loop, done = b.block, b.append_basic_block("sum"), b.append_basic_block("done")
        b.branch(loop)
        b.position_at_end(loop)
        rest, at = _phi(b, a[2], before), _phi(b, a[1], before)
        zero, ones = ir.Constant(VI, [0] * LANES), ir.Constant(VI, [0x01010101] * LANES)
        sums = [_phi(b, zero, before) for _ in range(4)]
        new = [
            multiply_groups(b, "vnni", 512, total, ones, b.load(pointer(b, b.add(at, I64(WIDTH * j)), VI), align=64))
            for j, total in enumerate(sums)
        ]
        following = (b.sub(rest, I64(1)), b.add(at, I64(QUAD_BYTES)), *new)
        for each, value in zip((rest, at, *sums), following, strict=True):
            each.add_incoming(value, loop)
        b.cbranch(b.icmp_signed(">", following[0], I64(0)), loop, done)
        b.position_at_end(done)
        point = splat(b, b.trunc(a[3], I32))
        for j, total in enumerate(new):
            place = pointer(b, b.add(a[0], I64(WIDTH * j)), VI)
            b.store(b.sub(b.load(place, align=64), b.mul(total, point)), place, align=64)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), emit


def _below(b: Builder, count: Value) -> Value:
    """Return a mask of the bytes whose number is below ``count``, 1 to 64."""
    return b.bitcast(b.lshr(I64(-1), b.sub(I64(QUAD_CHANNELS), count)), _MASK)


def _same(b: Builder, byte: Value) -> Value:
    none = ir.Constant(_BYTES, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(I32, QUAD_CHANNELS), [0] * QUAD_CHANNELS)
    return b.shuffle_vector(b.insert_element(none, byte, I32(0)), none, zeros)


def _phi(b: Builder, value: Value, block: Value) -> Value:
    made = b.phi(value.type)
    made.add_incoming(value, block)
    return made
