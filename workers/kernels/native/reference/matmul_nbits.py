"""Product by weights of a few bits; an item is an element of dst."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler import types
from .epilogue import fetch, finish


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (src, weights, scales, points, bias, dst, chain, known, biased, K, N, blocks, nbytes, line, bits).

    ``known`` is 0 without zero points, 1 if each is a number, 2 if bytes hold them; ``line`` is how many of these a column
    has. The operands are last.
    """

    def matmul_nbits(
        begin: int, end: int, src: int, weights: int, scales: int, points: int, bias: int, dst: int, chain: int, known: int,
        biased: int, K: int, N: int, blocks: int, nbytes: int, line: int, bits: int, operands: Any,
    ) -> None:  # fmt: skip
        count = 8 // bits
        size, most = count * nbytes, (1 << bits) - 1
        for item in range(begin, end):
            row, column = item // N, item % N
            total = 0.0
            for block in range(blocks):
                place = column * blocks + block
                point = float((most + 1) // 2)
                if known == 1:
                    point = fetch(operands, points, place)
                elif known == 2:
                    stored = int(fetch(operands, points, column * line + block // count))
                    point = float(stored >> block % count * bits & most)
                scale = fetch(operands, scales, place)
                for k in range(block * size, min(K, (block + 1) * size)):
                    inside = k - block * size
                    stored = int(fetch(operands, weights, place * nbytes + inside // count))
                    number = float(stored >> inside % count * bits & most)
                    total += fetch(operands, src, row * K + k) * ((number - point) * scale)
            if biased != 0:
                total += fetch(operands, bias, column)
            finish(operands, dst, chain, item, total)

    return matmul_nbits, types.void(*[types.int64] * 17, types.voidptr)
