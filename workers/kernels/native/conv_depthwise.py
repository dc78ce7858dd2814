"""Depthwise convolution: every channel has its own kernel, so 16 channels side by side are 16 independent lanes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numpy as np

from .compiler import types
from .compiler.language import intrinsic
from .row_pieces import HELD, Piece, pieces_of
from .vec import (
    HALF,
    I64,
    VF,
    WIDTH,
    Builder,
    Value,
    fma,
    lanes_below,
    load,
    maximum,
    some_lanes,
    store,
    vadd,
    vector,
    vfma,
    vkeep,
    vload,
    vload_part,
    vmax,
    vset,
    vstore,
)


def make(isa: str, ragged: bool, row: tuple[int, ...] = (), flat: bool = False) -> tuple[Callable[..., None], Any]:
    """Return the kernel; ``ragged`` if the last block holds fewer than 16 channels.

    The taps of a ``row`` are written out: width of src and dst, and kernel, stride, dilation and padding in columns. It is short,
    unless the window is ``flat``, of one slab: then pieces of it are computed one after the other.

    Arguments: addresses of src, weights (blocks, kernel, 16), bias (0: none), dst, residual (0: none); channels and
    blocks of an image; height and width of src and dst; kernel, stride, dilation (1: dense) and padding in rows and
    columns; slabs of src and dst, and kernel, stride, dilation and padding in slabs; the lower bounds before and after the
    residual is added. One item of work is a row of one block.
    """

    add_rows = _make_row(*row) if row and not flat else None
    whole_row = _make_whole_row(isa, ragged, *row) if row and flat else None

    def finish(value: Any, to: int, residual: int, low: Any, bound: Any, lanes: int) -> None:
        if residual != 0:
            value = vadd(vmax(low, value), vload(residual))
        value = vmax(bound, value)
        if ragged:
            value = vkeep(value, lanes)
        vstore(to, value)

    def depthwise(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, residual: int, channels: int, blocks: int,
        height: int, width: int, out_height: int, out_width: int, kernel_h: int, kernel_w: int, stride_h: int,
        stride_w: int, dilation_h: int, dilation_w: int, top: int, left: int, depth: int, out_depth: int, kernel_d: int,
        stride_d: int, dilation_d: int, front: int, low: float, bound: float,
    ) -> None:  # fmt: skip
        lower = vset(np.float32(low))
        upper = vset(np.float32(bound))
        nothing = vset(np.float32(0.0))
        reach = (kernel_w - 1) * dilation_w
        # Columns in [inner, outer) read no padding.
        inner = min(out_width, (left + stride_w - 1) // stride_w)
        outer = max(inner, min(out_width, (width - 1 - reach + left) // stride_w + 1))
        column = stride_w * 64
        for item in range(begin, end):
            oh = item % out_height
            slab = item // out_height
            image, d = slab, -front
            if out_depth > 1:
                image = slab // out_depth
                d += (slab - image * out_depth) * stride_d
            block = image % blocks
            lanes = channels - block * 16
            start = vset(np.float32(0.0))
            if bias != 0:
                start = vload_part(bias + block * 64, lanes)
            h = oh * stride_h - top
            first = max(0, (dilation_h - 1 - h) // dilation_h)
            last = min(kernel_h, (height - 1 - h) // dilation_h + 1)
            nearest = max(0, (dilation_d - 1 - d) // dilation_d)
            farthest = min(kernel_d, (depth - 1 - d) // dilation_d + 1)
            planes = src + (image * depth + d) * height * width * 64
            factors = weights + block * kernel_d * kernel_h * kernel_w * 64
            to = dst + item * out_width * 64
            other = 0
            if residual != 0:
                other = residual + item * out_width * 64
            if whole_row is not None:
                inside = 0
                if nearest < farthest:
                    inside = last - first
                at = planes + (nearest * dilation_d * height + h + first * dilation_h) * width * 64
                tap = factors + (nearest * kernel_h + first) * kernel_w * 64
                whole_row(at, dilation_h * width * 64, tap, inside, start, to, other, lower, upper, lanes)
                continue
            if add_rows is not None:
                for ow in range(out_width):
                    vstore(to + ow * 64, start)
                if first < last:
                    for kd in range(nearest, farthest):
                        at = planes + (kd * dilation_d * height + h + first * dilation_h) * width * 64
                        tap = factors + (kd * kernel_h + first) * kernel_w * 64
                        add_rows(at, dilation_h * width * 64, tap, last - first, to)
                for ow in range(out_width):
                    value = vload(to + ow * 64)
                    finish(value, to + ow * 64, other + ow * 64 * (other != 0), lower, upper, lanes)
                continue
            ow = 0
            while ow < out_width:
                w = ow * stride_w - left
                if inner <= ow and ow + 4 <= outer:
                    sum0 = start
                    sum1 = start
                    sum2 = start
                    sum3 = start
                    for kd in range(nearest, farthest):
                        plane = planes + kd * dilation_d * height * width * 64
                        taps = factors + kd * kernel_h * kernel_w * 64
                        for kh in range(first, last):
                            at = plane + ((h + kh * dilation_h) * width + w) * 64
                            tap = taps + kh * kernel_w * 64
                            for _ in range(kernel_w):
                                factor = vload(tap)
                                sum0 = vfma(vload(at), factor, sum0)
                                sum1 = vfma(vload(at + column), factor, sum1)
                                sum2 = vfma(vload(at + 2 * column), factor, sum2)
                                sum3 = vfma(vload(at + 3 * column), factor, sum3)
                                at += dilation_w * 64
                                tap += 64
                    finish(sum0, to, other, lower, upper, lanes)
                    finish(sum1, to + 64, other + 64 * (other != 0), lower, upper, lanes)
                    finish(sum2, to + 128, other + 128 * (other != 0), lower, upper, lanes)
                    finish(sum3, to + 192, other + 192 * (other != 0), lower, upper, lanes)
                    step = 4
                else:
                    # Columns of the window that read no padding, four at once: each sum waits for the one before.
                    left_kw = max(0, (dilation_w - 1 - w) // dilation_w)
                    right_kw = min(kernel_w, (width - 1 - w) // dilation_w + 1)
                    sum0, sum1, sum2, sum3 = start, nothing, nothing, nothing
                    beside = dilation_w * 64
                    for kd in range(nearest, farthest):
                        plane = planes + kd * dilation_d * height * width * 64
                        for kh in range(first, last):
                            at = plane + ((h + kh * dilation_h) * width + w + left_kw * dilation_w) * 64
                            tap = factors + ((kd * kernel_h + kh) * kernel_w + left_kw) * 64
                            kw = left_kw
                            while kw + 4 <= right_kw:
                                sum0 = vfma(vload(at), vload(tap), sum0)
                                sum1 = vfma(vload(at + beside), vload(tap + 64), sum1)
                                sum2 = vfma(vload(at + 2 * beside), vload(tap + 128), sum2)
                                sum3 = vfma(vload(at + 3 * beside), vload(tap + 192), sum3)
                                at += 4 * beside
                                tap += 256
                                kw += 4
                            while kw < right_kw:
                                sum0 = vfma(vload(at), vload(tap), sum0)
                                at += beside
                                tap += 64
                                kw += 1
                    sum0 = vadd(vadd(sum0, sum1), vadd(sum2, sum3))
                    finish(sum0, to, other, lower, upper, lanes)
                    step = 1
                ow += step
                to += step * 64
                if other != 0:
                    other += step * 64

    return depthwise, types.void(*[types.int64] * 27, types.float64, types.float64)


def _make_row(width: int, out_width: int, kernel: int, stride: int, dilation: int, left: int) -> Any:
    """Return the intrinsic that adds the products of some rows of the window to the sums of a row of outputs."""
    taps = [
        (x, column, tap)
        for x in range(width)
        for tap in range(kernel)
        for column in range(out_width)
        if column * stride - left + tap * dilation == x
    ]

    @intrinsic
    def add_rows(_: Any, at: Any, line: Any, tap: Any, rows: Any, to: Any) -> Any:
        """Add ``rows`` rows, ``line`` bytes from one to the next, at least one; the sums are in memory."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            places = [b.add(a[4], I64(WIDTH * column)) for column in range(out_width)]
            begun, before, turn = [load(b, place) for place in places], b.block, b.append_basic_block("row")
            b.branch(turn)
            b.position_at_end(turn)
            done, source, factors = (b.phi(I64) for _ in range(3))
            carried = [b.phi(VF) for _ in places]
            sums = list(carried)
            seen = {x: load(b, b.add(source, I64(WIDTH * x))) for x, _, _ in taps}
            for x, column, tap in taps:
                sums[column] = fma(b, seen[x], load(b, b.add(factors, I64(WIDTH * tap))), sums[column])
            following = b.add(done, I64(1)), b.add(source, a[1]), b.add(factors, I64(WIDTH * kernel))
            firsts, afters = (I64(0), a[0], a[2], *begun), (*following, *sums)
            for phi, first, after in zip((done, source, factors, *carried), firsts, afters, strict=True):
                phi.add_incoming(first, before)
                phi.add_incoming(after, turn)
            ended = b.append_basic_block("ended")
            b.cbranch(b.icmp_signed("<", following[0], a[3]), turn, ended)
            b.position_at_end(ended)
            for place, value in zip(places, sums, strict=True):
                store(b, place, value)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return add_rows


def _make_whole_row(isa: str, ragged: bool, *row: int) -> Any:
    """Return the intrinsic that computes a row of outputs from some rows of the window, piece by piece.

    Vectors of 256 bits have sums of as many columns if halves of the channels are computed one after the other.
    """
    _, _, kernel, stride, _, left = row
    pieces = pieces_of(isa, *row)
    parts = [(VF, 0)] if isa == "x86-64-v4" else [(HALF, 0), (HALF, 8)]
    fenced = isa != "x86-64-v4" and kernel > HELD

    @intrinsic
    def whole_row(
        _: Any,
        at: Any,
        line: Any,
        tap: Any,
        rows: Any,
        start: Any,
        to: Any,
        other: Any,
        low: Any,
        bound: Any,
        lanes: Any,
    ) -> Any:
        """Sum ``rows`` rows of src, ``line`` bytes from one to the next; add what is at ``other``, unless that is 0."""

        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, line, tap, rows, start, to, other, low, bound, lanes = a
            mask = lanes_below(b, lanes)

            def finish(places: list[Value], sums: list[Value], residuals: list[Value] | None, lane: int) -> None:
                kind = sums[0].type
                lower, upper, kept = (some_lanes(b, value, kind.count, lane) for value in (low, bound, mask))
                for number, (place, value) in enumerate(zip(places, sums, strict=True)):
                    if residuals is not None:
                        value = b.fadd(maximum(b, lower, value), load(b, residuals[number], kind))
                    value = maximum(b, upper, value)
                    value = b.select(kept, value, ir.Constant(kind, None)) if ragged else value
                    store(b, place, value)

            def compute(piece: Piece, first: Value) -> None:
                """Compute a piece whose first output has a number."""
                begin = b.mul(b.sub(b.mul(first, I64(stride)), I64(left)), I64(WIDTH))
                for kind, lane in parts:
                    source, factors = b.add(at, b.add(begin, I64(4 * lane))), b.add(tap, I64(4 * lane))
                    bias = some_lanes(b, start, kind.count, lane)
                    sums = _emit_rows(b, piece, kernel, source, line, factors, rows, bias, fenced)
                    places = [
                        b.add(to, b.add(b.mul(b.add(first, I64(column)), I64(WIDTH)), I64(4 * lane)))
                        for column in range(piece.columns)
                    ]
                    with b.if_else(b.icmp_signed("!=", other, I64(0))) as (added, plain):
                        with added:
                            finish(places, sums, [b.add(other, b.sub(place, to)) for place in places], lane)
                        with plain:
                            finish(places, sums, None, lane)

            for piece in pieces:
                if piece.number == 1:
                    compute(piece, I64(piece.first))
                    continue
                before, turn, ended = b.block, b.append_basic_block("piece"), b.append_basic_block("pieces")
                b.branch(turn)
                b.position_at_end(turn)
                first = b.phi(I64)
                first.add_incoming(I64(piece.first), before)
                compute(piece, first)
                following = b.add(first, I64(piece.columns))
                first.add_incoming(following, b.block)
                b.cbranch(b.icmp_signed("<", following, I64(piece.first + piece.number * piece.columns)), turn, ended)
                b.position_at_end(ended)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4, vector, *[types.int64] * 2, vector, vector, types.int64), emit

    return whole_row


def _emit_rows(
    b: Builder,
    piece: Piece,
    kernel: int,
    source: Value,
    line: Value,
    tap: Value,
    rows: Value,
    start: Value,
    fenced: bool,
) -> list[Value]:
    """Return the sums of a piece over ``rows`` rows, none of them or more, which begin with ``start``.

    If it is ``fenced``, weights are read for each column of the source: registers do not hold a row of them.
    """
    kind = start.type
    before, turn, ended = b.block, b.append_basic_block("row"), b.append_basic_block("ended")
    b.cbranch(b.icmp_signed(">", rows, I64(0)), turn, ended)
    b.position_at_end(turn)
    done, at, factors = (b.phi(I64) for _ in range(3))
    carried = [b.phi(kind) for _ in range(piece.columns)]
    sums: list[Value] = list(carried)
    for x, taps in itertools.groupby(piece.taps, key=lambda each: each[0]):
        if fenced:
            b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)
        seen = load(b, b.add(at, I64(WIDTH * x)), kind)
        for _, column, number in taps:
            factor = load(b, b.add(factors, I64(WIDTH * number)), kind)
            sums[column] = fma(b, seen, factor, sums[column])
    following = b.add(done, I64(1)), b.add(at, line), b.add(factors, I64(WIDTH * kernel))
    firsts, afters = (I64(0), source, tap, *[start] * piece.columns), (*following, *sums)
    for phi, first, after in zip((done, at, factors, *carried), firsts, afters, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(after, turn)
    b.cbranch(b.icmp_signed("<", following[0], rows), turn, ended)
    b.position_at_end(ended)
    results = []
    for value in sums:
        result = b.phi(kind)
        result.add_incoming(start, before)
        result.add_incoming(value, turn)
        results.append(result)
    return results
