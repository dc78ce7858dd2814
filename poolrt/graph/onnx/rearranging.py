"""Places of extremes, and products along an axis, by operations of `Tensors` and of the graph."""

from __future__ import annotations

from ..values import Value
from .tensors import WRAPS_AS, Operand, Tensors, dtype_of, shape_of


def arg_reduce(m: Tensors, x: Operand, algorithm: str, axis: int, keep: bool, last: bool) -> Operand:
    """Return the place of the greatest (``max``) or least (``min``) element along an axis, as int64."""
    run = m.graph.arg_max if algorithm == "max" else m.graph.arg_min
    return run(m.value(x), axis, keep, last, name=m.name("arg"))


def accumulate(m: Tensors, x: Operand, axis: int, algorithm: str, exclusive: bool, reverse: bool) -> Operand:
    """Return the sums (``add``) or products (``mul``) of the elements up to each along an axis.

    They are without the element itself if exclusive, and from the end if reversed. Each step of a product doubles the
    distance, so that n elements take log2(n) steps.
    """
    if algorithm == "add" and not isinstance(x, Value):
        return m.folding.accumulate(x, axis, exclusive, reverse)
    if algorithm == "add" and shape_of(x)[axis] == 1:
        # Sums of one element are the elements; those of none are as many zeros.
        zero = m.reshape(m.number(0, x), (1,) * len(shape_of(x)))
        return m.expand(m.value(zero), shape_of(x)) if exclusive else x
    if algorithm == "add":
        return m.graph.cumulative_sum(m.value(x), axis, exclusive, reverse, name=m.name("sum"))
    dtype = dtype_of(x)
    if dtype in WRAPS_AS:
        # High bits that do not fit are lost, as NumPy's are.
        return m.cast(accumulate(m, m.cast(x, WRAPS_AS[dtype]), axis, algorithm, exclusive, reverse), dtype)
    size = shape_of(x)[axis]
    neutral = m.number(1, x)
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
