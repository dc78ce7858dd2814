"""Product by weights of 4 or 8 bits, which become floats in registers: 16 columns at a time, in the order of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .nbits_sums import make_columns, make_unpack
from .vec import fstore, vadd, vload_part, vset, vsum


def make(isa: str, part: str, rows: int, bits: int, points: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for a ``part``: "sums", "rows" or "unpack".

    Weights have four bytes of each of 16 columns side by side, one group of inputs after the other. Scales have 16 columns side
    by side, and so have zero points (``points``: "" for none, "bytes" for numbers packed as the weights are, "floats").

    "sums" adds up each block of inputs. Arguments: addresses of src and of the sums, one for each row and block; K, inputs of
    a block, blocks. One item of work is a row.

    "rows" multiplies tiles of ``rows`` rows; the last tile may begin before the one before it ends. Arguments: addresses of
    src, weights, scales, zero points, sums, bias (0: none), dst; rows, K, columns, bytes of a block of a column, blocks,
    lines of zero points. One item of work is 16 columns.

    "unpack" writes columns as floats, 16 side by side. Arguments: addresses of weights, scales, zero points and of the
    result; K, bytes of a block of a column, blocks, lines of zero points. One item of work is 16 columns.
    """
    count = 8 // bits
    if part == "sums":
        return _make_sums()
    if part == "unpack":
        unpack_columns = make_unpack(bits, points)

        def unpack(
            begin: int,
            end: int,
            weights: int,
            scales: int,
            zeros: int,
            dst: int,
            K: int,
            nbytes: int,
            blocks: int,
            line: int,
        ) -> None:
            for item in range(begin, end):
                unpack_columns(
                    weights + item * blocks * nbytes * 16, scales + item * blocks * 64, zeros + item * line, dst + item * K * 64,
                    K, nbytes, blocks,
                )  # fmt: skip

        return unpack, types.void(*[types.int64] * 10)
    columns_of = make_columns(isa, rows, bits, points)
    size = count

    def multiply(
        begin: int, end: int, src: int, weights: int, scales: int, zeros: int, sums: int, bias: int, dst: int, M: int, K: int,
        columns: int, nbytes: int, blocks: int, line: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            rest = min(16, columns - item * 16)
            added = vset(np.float32(0))
            if bias != 0:
                added = vload_part(bias + item * 64, rest)
            for tile in range((M + rows - 1) // rows):
                row = min(tile * rows, M - rows)
                columns_of(
                    weights + item * blocks * nbytes * 16, scales + item * blocks * 64, zeros + item * line,
                    src + row * K * 4, sums + row * blocks * 4, K, K // size, nbytes, blocks,
                    dst + (row * columns + item * 16) * 4, columns * 4, rest, added,
                )  # fmt: skip

    return multiply, types.void(*[types.int64] * 15)


def _make_sums() -> tuple[Callable[..., None], Any]:
    def add_up(begin: int, end: int, src: int, to: int, K: int, size: int, blocks: int) -> None:
        for item in range(begin, end):
            for block in range(blocks):
                total = vset(np.float32(0))
                last = min(K, (block + 1) * size)
                for k in range(block * size, last, 16):
                    total = vadd(total, vload_part(src + (item * K + k) * 4, min(16, last - k)))
                fstore(to + (item * blocks + block) * 4, vsum(total))

    return add_up, types.void(*[types.int64] * 7)
