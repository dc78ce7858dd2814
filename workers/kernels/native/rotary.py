"""Rotate pairs of elements of rows of f32, 16 pairs at a time.

Pairs that are interleaved are taken apart in registers, and put together again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .bits import copy_bytes
from .compiler import types
from .compiler.language import intrinsic
from .elements import masked_load
from .first_lanes import masked_store
from .vec import F32, I64, LANES, VF, VI, WIDTH, Builder, Value, fma, lanes_below, pointer

#: The first and second elements of 16 pairs in two vectors, and the halves of 16 pairs.
_FIRST: Final = ir.Constant(VI, list(range(0, 2 * LANES, 2)))
_SECOND: Final = ir.Constant(VI, list(range(1, 2 * LANES, 2)))
_HALVES: Final = tuple(
    ir.Constant(VI, [lane // 2 + lane % 2 * LANES + half for lane in range(LANES)]) for half in (0, LANES // 2)
)


def make(isa: str, interleaved: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel. An item is some rows.

    Arguments: addresses of source, cosines, sines and result; the number of rows, and that of an item; the sizes of the last two
    of three dimensions of rows; the rows of angles from row to row along each of the three; the elements of a row, and its pairs.
    """
    rotate = _make_rotate(interleaved)

    def rotary(
        begin: int, end: int, src: int, cosine: int, sine: int, dst: int, rows: int, together: int, middle: int, inner: int,
        step0: int, step1: int, step2: int, depth: int, pairs: int,
    ) -> None:  # fmt: skip
        rest, step = 4 * (depth - 2 * pairs), 64
        if interleaved:
            step = 128
        row = begin * together
        third, second, first = row % inner, row // inner % middle, row // inner // middle
        while row < min(rows, end * together):
            angle = 4 * pairs * (first * step0 + second * step1 + third * step2)
            c, s = cosine + angle, sine + angle
            x, y = src + 4 * depth * row, dst + 4 * depth * row
            for pair in range(0, pairs, 16):
                rotate(x, y, c, s, pairs, pairs - pair)
                x += step
                y += step
                c += 64
                s += 64
            if rest > 0:
                at = 4 * (depth * row + 2 * pairs)
                copy_bytes(dst + at, src + at, rest)
            row += 1
            third += 1
            if third == inner:
                third = 0
                second += 1
                if second == middle:
                    second = 0
                    first += 1

    return rotary, types.void(*[types.int64] * 15)


def _make_rotate(interleaved: bool) -> Any:
    """Return the intrinsic that rotates up to 16 pairs of a row (source, result, cosines, sines, pairs of the row, pairs)."""

    @intrinsic
    def rotate(_: Any, x: Any, y: Any, cosine: Any, sine: Any, pairs: Any, count: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            x, y, cosine, sine, pairs, count = a
            apart = I64(WIDTH) if interleaved else b.mul(pairs, I64(4))

            def load(address: Value, mask: Value | None) -> Value:
                if mask is None:
                    return b.load(pointer(b, address, VF), align=4)
                return masked_load(b, address, F32, mask)

            def store(value: Value, address: Value, mask: Value | None) -> None:
                if mask is None:
                    b.store(value, pointer(b, address, VF), align=4)
                else:
                    masked_store(b, value, address, mask)

            def piece(of_pairs: Value | None, low: Value | None, high: Value | None) -> None:
                first, second = load(x, low), load(b.add(x, apart), high)
                if interleaved:
                    first, second = b.shuffle_vector(first, second, _FIRST), b.shuffle_vector(first, second, _SECOND)
                c, s = load(cosine, of_pairs), load(sine, of_pairs)
                real = fma(b, first, c, b.fneg(b.fmul(second, s)))
                imaginary = fma(b, second, c, b.fmul(first, s))
                if interleaved:
                    real, imaginary = (b.shuffle_vector(real, imaginary, half) for half in _HALVES)
                store(real, y, low)
                store(imaginary, b.add(y, apart), high)

            with b.if_else(b.icmp_signed("<", count, I64(LANES))) as (part, whole):
                with part:
                    mask = lanes_below(b, count)
                    if interleaved:
                        twice = b.mul(count, I64(2))
                        piece(mask, lanes_below(b, twice), lanes_below(b, b.sub(twice, I64(LANES))))
                    else:
                        piece(mask, mask, mask)
                with whole:
                    piece(None, None, None)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return rotate
