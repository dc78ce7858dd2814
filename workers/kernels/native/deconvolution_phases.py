"""Write products of matrices, one for each phase of a deconvolution, to dst: each element of dst is in one of them.

A *phase* is the elements of dst that are a stride apart. A work item is a row of a channel of dst. Its elements come from as many
rows of products as the stride along the width; vectors of these are interleaved in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import intrinsic
from .interleaving import write_interleaved
from .vec import (
    I64,
    Builder,
    Value,
    load,
    vbroadcast,
    vset,
)


def make(
    isa: str, stride: int, chain: tuple[Any, ...], kept: int = 0, lead: int = 0
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel for a ``stride`` along the width.

    If phases have no products, along any dimension, ``kept`` of those along the width have some; the others are the bias. Then
    the phase of the first column of dst is ``lead``, known before.

    Arguments: addresses of products (images, channels, phases, positions), bias (0: none), dst and the source of a binary
    post-op; channels; slabs and rows of dst that are written, and the number of the first in padded dst; the strides in slabs
    and rows, and how many phases of each have products; the first slab and the first row of positions, and their rows and
    columns; the phase of the first column of dst; bytes of a phase, and of all phases of a channel; the width of dst, and its
    bytes of a slab, a channel and an image.
    Up to 15 floats behind the products are read.
    """
    gaps = kept > 0
    write, write_bias = _make_write(stride, chain, kept, lead), _make_write(stride, chain, -1, lead)
    width_kept = kept or stride
    whole = all(kind == "eltwise" for kind, *_ in chain)

    def phases(
        begin: int, end: int, src: int, bias: int, dst: int, other: int, channels: int, slabs: int, rows: int,
        first_slab: int, first_row: int, stride_d: int, stride_h: int, kept_d: int, kept_h: int, from_slab: int, from_row: int,
        from_rows: int, from_columns: int, first_phase: int, phase: int, volume: int, width: int, slab_bytes: int,
        channel_bytes: int, image_bytes: int,
    ) -> None:  # fmt: skip
        positions = (width + stride - 1) // stride
        rest = begin // rows
        row = begin - rest * rows
        number = rest // slabs
        slab = rest - number * slabs
        image = number // channels
        channel = number - image * channels
        for _ in range(begin, end):
            z = (first_slab + slab) // stride_d
            y = (first_row + row) // stride_h
            phase_d, phase_h = first_slab + slab - z * stride_d, first_row + row - y * stride_h
            line = src + (image * channels + channel) * volume + (phase_d * kept_h + phase_h) * width_kept * phase
            line += 4 * ((z - from_slab) * from_rows + y - from_row) * from_columns
            to = image * image_bytes + channel * channel_bytes + slab * slab_bytes + 4 * row * width
            start = vset(np.float32(0.0))
            if bias != 0:
                start = vbroadcast(bias + 4 * channel)
            for first in range(0, positions, 16):
                j = first
                if whole:
                    # The last elements may be stored twice: stores of part of a vector are slow.
                    j = max(0, min(first, positions - 16))
                at = to + 4 * j * stride
                if gaps and (phase_d >= kept_d or phase_h >= kept_h):
                    write_bias(line, phase, first_phase, start, dst + at, other + at, width - j * stride)
                else:
                    write(line + 4 * j, phase, first_phase, start, dst + at, other + at, width - j * stride)
            row += 1
            if row == rows:
                row = 0
                slab += 1
            if slab == slabs:
                slab = 0
                channel += 1
            if channel == channels:
                channel = 0
                image += 1

    return phases, types.void(*[types.int64] * 26)


def _make_write(stride: int, chain: tuple[Any, ...], kept: int, known: int) -> Any:
    """Return the intrinsic that writes up to 16 elements of each phase: ``left`` of all, in the order of dst.

    ``kept`` phases have products, 0: all, -1: none. Unless all have, the phase of the first column is ``known``.
    """

    @intrinsic
    def write(_: Any, line: Any, phase: Any, lead: Any, start: Any, to: Any, other: Any, left: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            line, phase, lead, start, to, other, left = a
            seen = []
            for number in range(stride):
                if kept and (known + number) % stride >= kept:
                    seen.append(start)
                    continue
                # Behind the last phase is the next position of the first one.
                turn = I64(known + number) if kept else b.add(lead, I64(number))
                apart = b.add(b.mul(b.urem(turn, I64(stride)), phase), b.mul(b.udiv(turn, I64(stride)), I64(4)))
                seen.append(b.fadd(load(b, b.add(line, apart)), start))
            write_interleaved(b, chain, seen, to, other, left)
            return context.get_dummy_value()

        return types.void(line, phase, lead, start, to, other, left), emit

    return write
