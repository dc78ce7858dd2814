"""Copies of fewer than 64 bytes, without stores of part of a vector: these take many cycles on some processors.

A copy of n bytes is two pieces of the largest power of two up to n, which overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import I8, Builder, Value, pointer


def _mover(size: int) -> Any:
    """Return the intrinsic that copies ``size`` bytes from one address to another."""
    kind = ir.VectorType(I8, size) if size > 8 else ir.IntType(8 * size)

    @intrinsic
    def move(_: Any, source: Any, target: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(b.load(pointer(b, a[0], kind), align=1), pointer(b, a[1], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return move


_MOVE1, _MOVE2, _MOVE4, _MOVE8, _MOVE16, _MOVE32 = (_mover(size) for size in (1, 2, 4, 8, 16, 32))


def _pairs(move: Any, size: int) -> Callable[..., None]:
    """Return what copies rows as two overlapping pieces of ``size`` bytes each."""

    def copy(source: int, target: int, rows: int, row_source: int, row_target: int, nbytes: int) -> None:
        second = nbytes - size
        for _ in range(rows):
            move(source, target)
            move(source + second, target + second)
            source += row_source
            target += row_target

    return copy


_PAIRS1, _PAIRS2, _PAIRS4, _PAIRS8, _PAIRS16, _PAIRS32 = (
    _pairs(move, 1 << number) for number, move in enumerate((_MOVE1, _MOVE2, _MOVE4, _MOVE8, _MOVE16, _MOVE32))
)


def copy_short_rows(source: int, target: int, rows: int, row_source: int, row_target: int, nbytes: int) -> None:
    """Copy rows of 1 to 63 bytes between places that do not overlap: each width has a loop without branches."""
    if nbytes >= 32:
        _PAIRS32(source, target, rows, row_source, row_target, nbytes)
    elif nbytes >= 16:
        _PAIRS16(source, target, rows, row_source, row_target, nbytes)
    elif nbytes >= 8:
        _PAIRS8(source, target, rows, row_source, row_target, nbytes)
    elif nbytes >= 4:
        _PAIRS4(source, target, rows, row_source, row_target, nbytes)
    elif nbytes >= 2:
        _PAIRS2(source, target, rows, row_source, row_target, nbytes)
    elif nbytes == 1:
        _PAIRS1(source, target, rows, row_source, row_target, nbytes)


def copy_short(source: int, target: int, nbytes: int) -> None:
    """Copy 1 to 63 bytes between places that do not overlap."""
    if nbytes >= 16:
        if nbytes >= 32:
            _MOVE32(source, target)
            _MOVE32(source + nbytes - 32, target + nbytes - 32)
        else:
            _MOVE16(source, target)
            _MOVE16(source + nbytes - 16, target + nbytes - 16)
    elif nbytes >= 4:
        if nbytes >= 8:
            _MOVE8(source, target)
            _MOVE8(source + nbytes - 8, target + nbytes - 8)
        else:
            _MOVE4(source, target)
            _MOVE4(source + nbytes - 4, target + nbytes - 4)
    elif nbytes >= 2:
        _MOVE2(source, target)
        _MOVE2(source + nbytes - 2, target + nbytes - 2)
    else:
        _MOVE1(source, target)
