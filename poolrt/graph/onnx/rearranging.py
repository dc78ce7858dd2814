"""Places of extremes, sums along an axis, and sorting, by operations of `Tensors` and of the graph."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from .tensors import Operand, Tensors, Unavailable, shape_of

#: Elements along an axis that is sorted: each is compared with each.
MOST_COMPARED: Final = 4096
#: Comparisons of one sorting, each of which takes some bytes in a run.
MOST_COMPARISONS: Final = 1 << 27


def arg_reduce(m: Tensors, x: Operand, algorithm: str, axis: int, keep: bool, last: bool) -> Operand:
    """Return the place of the greatest (``max``) or least (``min``) element along an axis, as int64."""
    run = m.graph.arg_max if algorithm == "max" else m.graph.arg_min
    return run(m.value(x), axis, keep, last, name=m.name("arg"))


def accumulate(m: Tensors, x: Operand, axis: int, algorithm: str, exclusive: bool, reverse: bool) -> Operand:
    """Return the sums (``add``) or products (``mul``) of the elements up to each along an axis.

    They are without the element itself if exclusive, and from the end if reversed. Each step doubles the distance, so that n
    elements take log2(n) steps.
    """
    size = shape_of(x)[axis]
    neutral = m.number(0 if algorithm == "add" else 1, x)
    current: Operand = m.value(x)
    if exclusive:
        current = _shifted(m, current, axis, 1, neutral, reverse)
    distance = 1
    while distance < size:
        current = m.binary(current, _shifted(m, current, axis, distance, neutral, reverse), algorithm)
        distance *= 2
    return current


def _shifted(m: Tensors, x: Operand, axis: int, distance: int, neutral: Operand, reverse: bool) -> Operand:
    """Return x moved along an axis, towards its start if reversed, with a number in the places that become free."""
    sizes = shape_of(x)
    first, last = (distance, sizes[axis]) if reverse else (0, sizes[axis] - distance)
    ends = [0] * len(sizes)
    ends[axis] = min(distance, sizes[axis])
    none = [0] * len(sizes)
    if first >= last:
        return m.expand(m.reshape(neutral, (1,) * len(sizes)), sizes)
    kept = m.slice(x, [first], [last], [axis], [1])
    return m.pad_constant(kept, none if reverse else ends, ends if reverse else none, neutral)


def top_k(m: Tensors, x: Operand, count: int, axis: int, largest: bool) -> tuple[Operand, Operand]:
    """Return the greatest or least elements along an axis, in order, and their places as int64; the first of equal ones first.

    The rank of an element is the number of those before it.
    """
    sizes = shape_of(x)
    size, rank = sizes[axis], len(sizes)
    if size > MOST_COMPARED or math.prod(sizes) * size > MOST_COMPARISONS:
        raise Unavailable(f"{size} elements along an axis of {sizes}; at most {MOST_COMPARED} are sorted, in few rows")
    source = m.value(x)
    order = [each for each in range(rank) if each != axis] + [axis]
    rows = m.transpose(source, order)
    mine, others = m.unsqueeze(rows, (rank,)), m.unsqueeze(rows, (rank - 1,))
    numbers = np.arange(size)
    earlier = numbers[None, :] < numbers[:, None]
    before = m.binary(others, mine, "gt" if largest else "lt")
    tied = m.binary(m.binary(others, mine, "eq"), earlier, "and")
    ranks = m.reduce(m.cast(m.binary(before, tied, "or"), "int64"), "sum", (rank,), False)
    chosen = m.binary(m.unsqueeze(ranks, (rank,)), np.arange(count, dtype=np.int64), "eq")
    places = m.reduce(
        m.select(chosen, numbers.astype(np.int64)[:, None], np.asarray(0, np.int64)), "max", (rank - 1,), False
    )
    found = m.gather_elements(rows, places, rank - 1)
    back = [order.index(each) for each in range(rank)]
    return m.transpose(found, back), m.transpose(places, back)
