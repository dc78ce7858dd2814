"""Pack a factor of an integer product: groups along K of one 32-bit word each, and the terms that offsets add to each sum.

A group is 4 bytes (``vnni``: unsigned on the left, a signed left factor is shifted by 128; signed on the right) or 2
numbers of 16 bits (``pairs``). Groups are filled up with zeros on the right-hand side, which cancel the left-hand side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .integers import load_s8, load_s32, load_u8, store_s32


def make(isa: str, how: str, signed: bool, width: int, side: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel that packs panels of ``width`` rows (``left``) or columns (``right``).

    Arguments: addresses of the matrix, of the panels and of the terms (s32, one a row or column); of the offsets of the
    left and the right factor and of the result (s32; 0: none); vectors (rows or columns) and K; the distances in bytes from
    vector to vector and along K; and 1 if the result's offset has one value a vector, 0 if all share it. One item
    of work is one panel.
    """
    load = load_s8 if signed else load_u8
    left = side == "left"
    size = 4 if how == "vnni" else 2
    bits = 32 // size
    mask = (1 << bits) - 1
    # The instruction takes unsigned bytes on the left: signed ones are shifted, which their columns' sums undo.
    shift = 128 if how == "vnni" and signed and left else 0
    undo = 128 if how == "vnni" and not left else 0

    def pack(
        begin: int, end: int, src: int, dst: int, terms: int, left_offset: int, right_offset: int, result_offset: int,
        vectors: int, K: int, vector: int, step: int, varies: int, shifted: int,
    ) -> None:  # fmt: skip
        groups = (K + size - 1) // size
        a, b = 0, 0
        if left_offset != 0:
            a = load_s32(left_offset)
        if right_offset != 0:
            b = load_s32(right_offset)
        for item in range(begin, end):
            first = item * width
            to = dst + item * groups * width * 4
            for i in range(width):
                source = src + min(first + i, vectors - 1) * vector
                total = 0
                for group in range(groups):
                    word = 0
                    for n in range(size):
                        k = group * size + n
                        if k < K:
                            value = load(source + k * step)
                            total += value
                            word |= ((value + shift) & mask) << (n * bits)
                    store_s32(to + (group * width + i) * 4, word)
                if left:
                    term = -b * total
                else:
                    term = K * a * b - (a + undo * shifted) * total
                if result_offset != 0:
                    term += load_s32(result_offset + min(first + i, vectors - 1) * 4 * varies)
                store_s32(terms + (first + i) * 4, term)

    return pack, types.void(*[types.int64] * 14)
