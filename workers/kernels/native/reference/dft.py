"""A part of a Fourier transform's result is a sum over the signal; an item is one of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ..compiler import types
from .epilogue import fetch, finish

_TURN: Final = 2 * math.pi


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: src, dst, chain; elements along the axis in src and in dst, and behind it; parts of src and of dst; the length,
    the elements that are read, whether the transform is inverse, and whether the other half of src is its conjugate.
    """

    def dft(
        begin: int, end: int, src: int, dst: int, chain: int, size: int, made: int, inner: int, src_parts: int,
        dst_parts: int, length: int, read: int, inverse: int, mirrors: int, operands: Any,
    ) -> None:  # fmt: skip
        sign = 1.0 if inverse != 0 else -1.0
        for item in range(begin, end):
            number = item // dst_parts
            part = item - number * dst_parts
            column = number // inner
            behind = number - column * inner
            outer = column // made
            frequency = column - outer * made
            total = 0.0
            for index in range(length):
                place = index
                conjugate = 1.0
                if mirrors != 0 and 2 * index > length:
                    place = length - index
                    conjugate = -1.0
                if place < read:
                    first = ((outer * size + place) * inner + behind) * src_parts
                    real = fetch(operands, src, first)
                    imaginary = 0.0
                    if src_parts == 2:
                        imaginary = conjugate * fetch(operands, src, first + 1)
                    steps = index * frequency
                    angle = _TURN * (steps - steps // length * length) / length
                    cosine, sine = math.cos(angle), sign * math.sin(angle)
                    if part == 0:
                        total += real * cosine - imaginary * sine
                    else:
                        total += real * sine + imaginary * cosine
            if inverse != 0:
                total = total / length
            finish(operands, dst, chain, item, total)

    return dft, types.void(*[types.int64] * 14, types.voidptr)
