"""Take apart columns of a few elements whose rows follow one another, and join them: channels of pixels, halves of pairs.

What is read and written is whole vectors without masks, and each is a shuffle of those on the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .movement import Movement
from .vec import I32, I64, LANES, Builder, Value, pointer

#: Bytes of what is shuffled at a time: a register of AVX2, which shuffles more than two in many steps.
_REGISTER: Final = 32


def deinterleaver(movement: Movement, columns: int, rows: int = LANES, taken: int | None = None) -> Any:
    """Return an intrinsic (src, dst, step): element k of adjacent ``rows`` of ``columns`` elements to ``dst + k * step``.

    If only the first ``taken`` of each row are, all of the rows are read.
    """
    lanes = min(rows, _REGISTER // movement.src_size)
    wide = ir.VectorType(movement.src_kind, lanes * columns)

    @intrinsic
    def take_apart(_: Any, src: Any, dst: Any, step: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            size = movement.src_size * lanes * columns
            parts = [
                b.load(pointer(b, b.add(a[0], I64(size * number)), wide), align=1) for number in range(rows // lanes)
            ]
            for k in range(columns if taken is None else taken):
                column = joined(b, [shuffled(b, part, part, range(k, lanes * columns, columns)) for part in parts])
                movement.write(b, b.add(a[1], b.mul(a[2], I64(k))), column)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), emit

    return take_apart


def interleaver(movement: Movement, columns: int) -> Any:
    """Return an intrinsic (src, step, dst), the inverse: element k of 16 adjacent rows of ``columns`` from ``src + k * step``."""
    lanes = min(LANES, _REGISTER // movement.dst_size)

    @intrinsic
    def join(_: Any, src: Any, step: Any, dst: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            sources = [b.add(a[0], b.mul(a[1], I64(k))) for k in range(columns)]
            found = [movement.converted(b, movement.read(b, source, None)) for source in sources]
            for first in range(0, LANES, lanes):
                together = joined(b, [shuffled(b, each, each, range(first, first + lanes)) for each in found])
                order = [column * lanes + row for row in range(lanes) for column in range(columns)]
                rows = shuffled(b, together, together, order)
                place = b.add(a[2], I64(first * columns * movement.dst_size))
                b.store(rows, pointer(b, place, rows.type), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), emit

    return join


def joined(b: Builder, parts: list[Value]) -> Value:
    """Return the lanes of vectors as one; those of a third are followed by some that mean nothing."""
    while len(parts) > 1:
        lanes = 2 * parts[0].type.count
        pairs = zip_longest(parts[::2], parts[1::2], fillvalue=parts[-1])
        parts = [shuffled(b, low, high, range(lanes)) for low, high in pairs]
    return parts[0]


def shuffled(b: Builder, low: Value, high: Value, order: Sequence[int]) -> Value:
    """Return the lanes of two vectors that ``order`` names."""
    return b.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, len(order)), list(order)))
