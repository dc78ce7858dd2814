"""Rules on shapes that need no operation: reshaping, axes, broadcasting. Every error is a ValueError."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from poolrt.workers.desc.typed import to_integer, to_integers


def infer_reshape(dims: tuple[int, ...], wanted: Sequence[int], axes: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the shape ``wanted``, with the size of its one -1. Raises ValueError if the number of elements differs.

    ``axes`` has for each size the dimension of ``dims`` that gives it instead, or -1; it may be empty.
    """
    known = [int(d) for d in wanted]
    if axes:
        if len(axes) != len(known) or max(axes) >= len(dims):
            raise ValueError(f"shape: {dims} does not have the dimensions {tuple(axes)} that {tuple(known)} keeps")
        known = [size if axis < 0 else dims[axis] for size, axis in zip(known, axes, strict=True)]
    if known.count(-1) > 1 or any(d < -1 for d in known):
        raise ValueError(f"shape: expect sizes and at most one -1, got {tuple(known)}")
    total = math.prod(dims)
    if -1 in known:
        rest = math.prod(d for d in known if d != -1)
        if rest == 0 or total % rest:
            raise ValueError(f"shape: {dims} does not reshape to {tuple(known)}")
        known[known.index(-1)] = total // rest
    if math.prod(known) != total:
        raise ValueError(f"shape: {dims} does not reshape to {tuple(known)}")
    return tuple(known)


def normalize_axis(axis: int, ndims: int, name: str = "axis") -> int:
    """Return an axis as 0..ndims-1; negative axes count from the end. Raises ValueError if it is out of range."""
    axis = to_integer(name, axis)
    if not -ndims <= axis < ndims:
        raise ValueError(f"{name}: expect {-ndims}..{ndims - 1}, got {axis}")
    return axis % ndims


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes of equal rank broadcast to, or raise ValueError naming them."""
    result = []
    for sizes in zip(*shapes, strict=True):
        distinct = {size for size in sizes if size != 1}
        if len(distinct) > 1:
            raise ValueError(f"shapes {' and '.join(map(str, shapes))} do not broadcast")
        result.append(distinct.pop() if distinct else 1)
    return tuple(result)


def normalize_axes(axes: Sequence[int] | int, ndims: int) -> set[int]:
    """Return distinct axes as 0..ndims-1. Raises ValueError if one is out of range or named twice."""
    given = one_or_more("axes", tuple(axes) if isinstance(axes, AbstractSet) else axes)
    found = {normalize_axis(axis, ndims, "axes") for axis in given}
    if len(found) != len(given):
        raise ValueError(f"axes: expect each axis once, got {given}")
    return found


def one_or_more(name: str, given: object) -> tuple[int, ...]:
    """Return the integers of an argument that is one or a sequence of them. Raises ValueError naming it."""
    try:
        return (to_integer(name, given),)
    except ValueError:
        return to_integers(name, given)
