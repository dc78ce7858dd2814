"""Take apart columns of a few elements whose rows follow one another: channels of pixels, halves of pairs.

What is read is whole vectors without masks, and each column is a shuffle of them.
"""

from __future__ import annotations

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
                column = _joined(b, [_shuffled(b, part, part, range(k, lanes * columns, columns)) for part in parts])
                movement.write(b, b.add(a[1], b.mul(a[2], I64(k))), column)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), emit

    return take_apart


def _joined(b: Builder, parts: list[Value]) -> Value:
    """Return the lanes of vectors, two, four or more of them, as one."""
    while len(parts) > 1:
        lanes = 2 * parts[0].type.count
        parts = [_shuffled(b, low, high, range(lanes)) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _shuffled(b: Builder, low: Value, high: Value, order: range) -> Value:
    """Return the lanes of two vectors that ``order`` names."""
    return b.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, len(order)), list(order)))
