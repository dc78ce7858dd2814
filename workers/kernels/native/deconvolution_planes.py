"""Depthwise deconvolution of row-major planes: a vector of each phase of some rows of dst at once, the taps written out.

A *phase* is the elements of dst that are a stride apart. A work item is a band of rows of a plane. Its part of src is copied to
the stack with zeros in place of what is outside of the plane, so every tap of a vector is 16 neighbouring floats without a mask.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .compiler import types
from .compiler.language import inlined, intrinsic
from .interleaving import write_interleaved
from .limits import ROOM, reach
from .stack_room import stack_room
from .vec import (
    F32,
    I64,
    Builder,
    Value,
    fma,
    load,
    pointer,
    splat,
    vbroadcast,
    vector,
    vload,
    vload_inside,
    vset,
    vstore,
)

#: ISA level -> vectors of sums that registers hold beside what they are made of. A row of dst has a vector for each phase.
_SUMS: Final = {"x86-64": 2, "x86-64-v2": 2, "x86-64-v3": 2, "x86-64-v4": 8}

Pair = tuple[int, int]


def make(isa: str, kernel: Pair, stride: Pair, lead: Pair, chain: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
    """Return the kernel; sizes in rows and columns, ``lead`` are the phases of the first row and column of dst.

    Arguments: addresses of src, weights (channels, rows, columns), bias (0: none), dst and the source of a binary post-op;
    channels of dst, and of these for a channel of src; height and width of src and dst; bands of a plane, and positions in rows
    of a band; bytes of a row of the copy; padding above and at the left in whole strides.
    """
    (top, bottom), (before, _) = (reach(k, s, start) for k, s, start in zip(kernel, stride, lead, strict=True))
    tile = _make_tile(_SUMS[isa], kernel, stride, lead, chain)
    whole = all(kind == "eltwise" for kind, *_ in chain)
    room, size, (down, right) = stack_room(ROOM), kernel[0] * kernel[1], stride

    @inlined
    def copy_row(line: int, first: int, width: int, to: int, nbytes: int) -> None:
        """Copy a row from column ``first`` on, zeros outside of the row."""
        nothing = vset(np.float32(0.0))
        for column in range(0, nbytes // 4, 16):
            at = first + column
            if at >= 0 and at + 16 <= width:
                vstore(to + 4 * column, vload(line + 4 * at))
            else:
                vstore(to + 4 * column, vload_inside(line, at, width, nothing))

    def planes(
        begin: int, end: int, src: int, weights: int, bias: int, dst: int, other: int, channels: int, shared: int,
        height: int, width: int, out_height: int, out_width: int, bands: int, band: int, row_bytes: int, above: int,
        left: int,
    ) -> None:  # fmt: skip
        copy = room()
        positions = (out_width + right - 1) // right
        for item in range(begin, end):
            plane = item // bands
            first = (item - plane * bands) * band
            rows = min(band, (out_height + down - 1) // down - first)
            source = src + 4 * (plane // shared) * height * width
            for number in range(rows + bottom - top):
                y = first + above + top + number
                inside = width if 0 <= y < height else 0
                copy_row(source + 4 * y * inside, left + before, inside, copy + number * row_bytes, row_bytes)
            channel = plane % channels
            start = vset(np.float32(0.0))
            if bias != 0:
                start = vbroadcast(bias + 4 * channel)
            taps = weights + 4 * channel * size
            for number in range(rows):
                row = (first + number) * down
                to = 4 * (plane * out_height + row) * out_width
                for column in range(0, positions, 16):
                    j = column
                    if whole:
                        # The last elements may be stored twice: stores of part of a vector are slow.
                        j = max(0, min(column, positions - 16))
                    at = to + 4 * j * right
                    tile(
                        copy + number * row_bytes + 4 * j, row_bytes, taps, start, dst + at, other + at, 4 * out_width,
                        out_width - j * right, out_height - row,
                    )  # fmt: skip

    return planes, types.void(*[types.int64] * 18)


def _make_tile(most: int, kernel: Pair, stride: Pair, lead: Pair, chain: tuple[Any, ...]) -> Any:
    """Return the intrinsic that computes 16 positions of each phase, as many rows of dst at once as ``most`` sums allow."""
    together = max(1, most // stride[1])

    @intrinsic
    def tile(
        _: Any, at: Any, row: Any, taps: Any, start: Any, to: Any, other: Any, line: Any, left: Any, rows: Any
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, row, taps, start, to, other, line, left, rows = a
            for first in range(0, stride[0], together):
                numbers = range(first, min(stride[0], first + together))
                sums = _emit_sums(b, numbers, kernel, stride, lead, (at, row, taps, start))
                for number in numbers:
                    values = [sums[number, column] for column in range(stride[1])]
                    with b.if_then(b.icmp_signed("<", I64(number), rows)):
                        below = b.mul(line, I64(number))
                        write_interleaved(b, chain, values, b.add(to, below), b.add(other, below), left)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3, vector, *[types.int64] * 5), emit

    return tile


def _emit_sums(
    b: Builder, numbers: range, kernel: Pair, stride: Pair, lead: Pair, a: tuple[Value, Value, Value, Value]
) -> dict[Pair, Value]:  # fmt: skip
    """Return the sums of each phase of rows: each vector of src is loaded once, and multiplied by the taps that see it."""
    at, row, taps, start = a
    sums = {(number, column): start for number in numbers for column in range(stride[1])}
    seen: dict[Pair, list[tuple[Pair, int]]] = {}
    for phase in sums:
        for tap in itertools.product(range(kernel[0]), range(kernel[1])):
            turns = [p + first - k for p, first, k in zip(phase, lead, tap, strict=True)]
            if all(turn % each == 0 for turn, each in zip(turns, stride, strict=True)):
                y, x = (
                    turn // each - reach(k, each, first)[0]
                    for turn, each, k, first in zip(turns, stride, kernel, lead, strict=True)
                )
                seen.setdefault((y, x), []).append((phase, tap[0] * kernel[1] + tap[1]))
    for (y, x), users in sorted(seen.items()):
        value = load(b, b.add(b.add(at, b.mul(row, I64(y))), I64(4 * x)))
        for phase, number in users:
            factor = splat(b, b.load(pointer(b, b.add(taps, I64(4 * number)), F32), align=4))
            sums[phase] = fma(b, value, factor, sums[phase])
    return sums
