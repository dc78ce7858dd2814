"""Where a resampling looks along one dimension: the elements of src and their weights for each index of dst.

A weight is an integer that counts `UNIT`: on every engine the number that it stands for is rounded once.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..desc import Resampling

#: Weights of the elements that one index sees add up to this.
UNIT: Final = 1 << 60


class Place(NamedTuple):
    """What an index of dst sees: elements of src and their weights; none if it is outside of src."""

    elements: tuple[int, ...]
    weights: tuple[int, ...]


def taps(op: Resampling) -> int:
    """Return how many elements an index sees along a dimension."""
    return {"nearest": 1, "linear": 2, "cubic": 4}[op.algorithm]


def places(op: Resampling, axis: int) -> list[Place]:
    """Return what each index of a spatial dimension sees, which is dimension ``axis + 2`` of the tensors."""
    size, wanted = op.src.dims[2 + axis], op.dst.dims[2 + axis]
    step, start = _line(op, axis, size, wanted)
    # Places are (slope * index + offset) / unit.
    unit = step.denominator * start.denominator
    slope, offset = step.numerator * start.denominator, start.numerator * step.denominator
    found = []
    for index in range(wanted):
        place = slope * index + offset
        if op.coordinates == "tf_crop_and_resize" and not 0 <= place <= (size - 1) * unit:
            found.append(Place((), ()))
        else:
            found.append(_seen(op, place, unit, size))
    return found


def _line(op: Resampling, axis: int, size: int, wanted: int) -> tuple[Fraction, Fraction]:
    """Return the distance of neighbouring places, and the first place."""
    half, factor = Fraction(1, 2), Fraction(op.factors[axis]) if op.factors else Fraction(wanted, size)
    match op.coordinates:
        case "align_corners":
            return (Fraction(size - 1, wanted - 1) if wanted > 1 else Fraction(0)), Fraction(0)
        case "asymmetric":
            return 1 / factor, Fraction(0)
        case "pytorch_half_pixel" if wanted == 1:
            return Fraction(0), Fraction(0)
        case "tf_crop_and_resize":
            low, high = (Fraction(bound) for bound in (op.roi[axis], op.roi[axis + op.src.ndims - 2]))
            if wanted == 1:
                return Fraction(0), half * (low + high) * (size - 1)
            return (high - low) * Fraction(size - 1, wanted - 1), low * (size - 1)
        case "half_pixel_symmetric":
            middle = Fraction(size, 2) * (1 - wanted / (factor * size))
            return 1 / factor, middle + half / factor - half
        case _:
            return 1 / factor, half / factor - half


def _seen(op: Resampling, place: int, unit: int, size: int) -> Place:
    if op.algorithm == "nearest":
        match op.nearest:
            case "floor":
                nearest = place // unit
            case "ceil":
                nearest = -(-place // unit)
            case "round_prefer_floor":
                nearest = -((unit - 2 * place) // (2 * unit))
            case _:
                nearest = (2 * place + unit) // (2 * unit)
        return Place((min(max(nearest, 0), size - 1),), (UNIT,))
    low, rest = divmod(place, unit)
    elements: tuple[int, ...]
    weights: tuple[int, ...]
    if op.algorithm == "linear":
        upper = (2 * rest * UNIT + unit) // (2 * unit)
        elements, weights = (low, low + 1), (UNIT - upper, upper)
    else:
        elements, weights = (low - 1, low, low + 1, low + 2), _cubic(op.cubic_coeff_a, rest / unit)
    if op.exclude_outside:
        kept = tuple(w if 0 <= e < size else 0 for e, w in zip(elements, weights, strict=True))
        if total := sum(kept):
            weights = tuple((2 * w * UNIT + total) // (2 * total) for w in kept)
    return Place(tuple(min(max(element, 0), size - 1) for element in elements), weights)


def _cubic(a: float, x: float) -> tuple[int, ...]:
    """Return the weights of the four neighbours of a place between the second and the third (Keys, 1981)."""
    near = [((a + 2.0) * d - (a + 3.0)) * d * d + 1.0 for d in (x, 1.0 - x)]
    far = [((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a for d in (1.0 + x, 2.0 - x)]
    return tuple(round(weight * UNIT) for weight in (far[0], near[0], near[1], far[1]))
