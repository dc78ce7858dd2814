"""Pack each right matrix of a batch for integer tiles, and compute what the sums of its columns begin with.

With a and b the zero points of both sides as they are packed, the sum of (x - a)(w - b) is that of x w, less a times the sum
of w along a column, less b times that of x along a row, plus K a b. The columns' part is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .integer_batch_moves import finish, make_move, make_zero
from .integer_batch_rows import make_interleave
from .integer_dot import GROUP, register_bits
from .integer_terms import left_point, make_total
from .integers import load_s32
from .vec import iload


def make(isa: str, how: str, kind: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel; ``kind`` is the data type of the matrices.

    With ``vnni``, bytes without sign become less by 128; in ``pairs``, bytes are widened to 16 bits, less their zero point as
    `integer_copy` bounds it.

    Arguments, distances in bytes: addresses of the matrices, of the packed ones, of what all sums begin with (s32, one a
    column), of what those of each matrix begin with (to write), and of zero points (s32; 0: none) of the left and the right
    side; the table of the matrices' offsets; K, columns, and groups of a column, filled up with zeros; the distances from number
    to number along K and from column to column; and what was added to the left side when it was packed. One item of work is a
    block of 16 columns of a matrix.
    """
    size = GROUP[how]
    flips, widens = how == "vnni" and kind == "u8", how == "pairs"
    wide = 2 if widens else 1
    interleave, interleave_part = (make_interleave(how, kind, part) for part in (False, True))
    move_group, move1, put1 = make_move(size, how, kind), make_move(1, how, kind), make_zero(wide)
    total = make_total(how, register_bits(isa), "s16" if widens else kind)

    def pack_block(
        source: int, to: int, lanes: int, K: int, groups: int, step: int, across: int, less: int
    ) -> None:  # fmt: skip
        for group in range(groups):
            first = group * size
            if across == 1 and lanes == 16 and first + size <= K:
                interleave(to, source + first * step, step, 16, size, less)
            elif across == 1 and first < K:
                interleave_part(to, source + first * step, step, lanes, K - first, less)
            elif step == 1 and first + size <= K:
                for lane in range(lanes):
                    move_group(to + lane * size * wide, source + lane * across + first, less)
                for at in range(lanes * size, 16 * size):
                    put1(to + at * wide)
            else:
                for lane in range(16):
                    for n in range(size):
                        at = to + (lane * size + n) * wide
                        if lane < lanes and first + n < K:
                            move1(at, source + lane * across + (first + n) * step, less)
                        else:
                            put1(at)
            to += 16 * size * wide

    def pack(
        begin: int, end: int, weights: int, packed: int, base: int, terms: int, src_point: int, weight_point: int,
        offsets: int, K: int, columns: int, groups: int, step: int, across: int, shift: int,
    ) -> None:  # fmt: skip
        blocks = (columns + 15) // 16
        point = left_point(src_point, shift, widens)
        other, less = left_point(weight_point, -128 if flips else 0, widens), 0
        if widens and weight_point != 0:
            less = load_s32(weight_point) - other
        for item in range(begin, end):
            block = item % blocks
            source = weights + iload(offsets + item // blocks * 8) + block * 16 * across
            to, at = packed + item * groups * 16 * size * wide, terms + item * 64
            pack_block(source, to, min(16, columns - block * 16), K, groups, step, across, less)
            total(groups if point != 0 else 0, to, at)
            finish(at, base + block * 64, -point, K * point * other)

    return pack, types.void(*[types.int64] * 15)
