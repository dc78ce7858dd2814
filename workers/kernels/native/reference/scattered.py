"""How an update combines with what is at its place."""

from __future__ import annotations

from .data_types import is_less


def combined(reduction: int, value: float, update: float) -> float:
    """Return an update combined with the value before it, by the number of the reduction; NaN stays NaN."""
    if reduction == 1:
        return value + update
    if reduction == 2:
        return value * update
    if reduction == 0 or value != value:
        return update if reduction == 0 else value
    if reduction == 3:
        return value if value < update else update
    return value if value > update else update


def combined_whole(reduction: int, value: int, update: int, code: int) -> int:
    """Return the same of integers, whose sums and products wrap, with the code of their type."""
    if reduction == 1:
        return value + update
    if reduction == 2:
        return value * update
    less = is_less(update, value, code)
    return update if reduction == 0 or less == (reduction == 3) else value
