"""The shape of an array as users give it."""

from __future__ import annotations

from operator import index


def shape_of(shape: object) -> tuple[int, ...]:
    """Return a shape that is one size or a sequence of them. Raises TypeError or ValueError naming it."""
    try:
        dims = (shape,) if isinstance(shape, int) else tuple(map(index, shape))  # type: ignore[call-overload]
    except TypeError as error:
        raise TypeError(
            f"shape: expect an integer or a sequence of integers, such as (64, 784), got {shape!r:.60}"
        ) from error
    if any(extent < 0 for extent in dims):
        raise ValueError(f"negative dimensions are not allowed: {dims}")
    return dims
