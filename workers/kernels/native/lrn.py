"""Normalise across channels: each element is divided by a power of a sum of squares over neighbouring channels.

``rows`` has 16 positions of a channel a vector and walks over the channels of its window; ``lanes`` has 16 channels a
vector and shifts three neighbouring blocks against each other, so the window's size is part of the kernel. The sum is
formed again for every element: a running sum would carry rounding errors from channel to channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir

from .compiler import types
from .compiler.language import intrinsic
from .exponentials import emit_exp, emit_log
from .first_lanes import vstore_part
from .vec import (
    LANES,
    VI,
    Builder,
    Value,
    call,
    constant,
    fma,
    splat,
    vdiv,
    vector,
    vfma,
    vkeep,
    vload,
    vset,
    vstore,
)

#: Positions of a channel that an item of ``rows`` has.
POSITIONS: Final = 64


def make(isa: str, part: str, power: str, size: int = 0) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature; ``power`` is beta if it has a short form (0.5, 0.75, 1), else ``any``."""
    return _rows(_raise(power)) if part == "rows" else _lanes(_raise(power), _squares(size))


def _raise(power: str) -> Any:
    """Return an intrinsic f(vector base, float32 beta) -> base ** beta."""

    def emit(b: Builder, base: Value, beta: Value) -> Value:
        if power == "1":
            return base
        if power == "any":
            return emit_exp(b, b.fmul(splat(b, beta), emit_log(b, base)))
        root = call(b, "llvm.sqrt.v16f32", base)
        return root if power == "0.5" else b.fmul(root, call(b, "llvm.sqrt.v16f32", root))

    def typed(_: Any, base: Any, beta: Any) -> Any:
        return vector(vector, types.float32), lambda context, b, sig, a: emit(b, *a)

    return intrinsic(typed)


def _squares(size: int) -> Any:
    """Return an intrinsic that sums squares over a window of lanes of the middle one of three vectors."""
    below, above = (size - 1) // 2, size // 2
    if size < 1 or above > LANES:
        raise ValueError(f"size must be 1 to {2 * LANES}, got {size}")

    def shifted(b: Builder, before: Value, middle: Value, behind: Value, distance: int) -> Value:
        if distance == 0:
            return middle
        low, high = (middle, behind) if distance > 0 else (before, middle)
        return b.shuffle_vector(low, high, ir.Constant(VI, [distance % LANES + lane for lane in range(LANES)]))

    def emit(b: Builder, before: Value, middle: Value, behind: Value) -> Value:
        if above == LANES:
            far: Value = b.fmul(behind, behind)
        else:
            far = constant(0.0)
        total = far
        for distance in range(-below, min(above, LANES - 1) + 1):
            seen = shifted(b, before, middle, behind, distance)
            total = fma(b, seen, seen, total)
        return total

    def typed(_: Any, before: Any, middle: Any, behind: Any) -> Any:
        return vector(vector, vector, vector), lambda context, b, sig, a: emit(b, *a)

    return intrinsic(typed)


def _rows(power: Any) -> tuple[Callable[..., None], Any]:
    def kernel(
        begin: int, end: int, src: int, dst: int, channels: int, length: int, below: int, above: int,
        weight: float, beta: float, k: float,
    ) -> None:  # fmt: skip
        factor, base, exponent = vset(np.float32(weight)), vset(np.float32(k)), np.float32(beta)
        pieces = (length + POSITIONS - 1) // POSITIONS
        for item in range(begin, end):
            batch = item // pieces
            first = POSITIONS * (item - batch * pieces)
            count = min(POSITIONS, length - first)
            offset = 4 * (batch * channels * length + first)
            for channel in range(channels):
                low, high = max(0, channel - below), min(channels - 1, channel + above)
                # Neighbouring vectors together: processors fetch lines ahead within a page, and each channel has its own pages.
                for position in range(0, count, 16):
                    total = vset(np.float32(0.0))
                    start = offset + 4 * position
                    for at in range(start + 4 * length * low, start + 4 * length * high + 1, 4 * length):
                        seen = vload(src + at)
                        total = vfma(seen, seen, total)
                    at = start + 4 * length * channel
                    value = vdiv(vload(src + at), power(vfma(total, factor, base), exponent))
                    if count - position >= 16:
                        vstore(dst + at, value)
                    else:
                        vstore_part(dst + at, value, count - position)

    return kernel, types.void(*[types.int64] * 8, *[types.float64] * 3)


def _lanes(power: Any, squares: Any) -> tuple[Callable[..., None], Any]:
    def kernel(
        begin: int, end: int, src: int, dst: int, blocks: int, tail: int, length: int, chunk: int,
        weight: float, beta: float, k: float,
    ) -> None:  # fmt: skip
        factor, base, exponent = vset(np.float32(weight)), vset(np.float32(k)), np.float32(beta)
        nothing = vset(np.float32(0.0))
        pieces = (length + chunk - 1) // chunk
        step = 64 * length
        for item in range(begin, end):
            run = item // pieces
            first = (item - run * pieces) * chunk
            block = run % blocks
            lanes = tail if block == blocks - 1 else 16
            offset = 64 * (run * length + first)
            for at in range(offset, offset + 64 * min(chunk, length - first), 64):
                middle = vload(src + at)
                before, behind = nothing, nothing
                if block > 0:
                    before = vload(src + at - step)
                if block < blocks - 1:
                    behind = vload(src + at + step)
                total = squares(before, middle, behind)
                value = vdiv(middle, power(vfma(total, factor, base), exponent))
                vstore(dst + at, vkeep(value, lanes))

    return kernel, types.void(*[types.int64] * 8, *[types.float64] * 3)
