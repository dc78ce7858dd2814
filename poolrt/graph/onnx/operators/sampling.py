"""GridSample: elements of an image at places that a grid names, between -1 and 1 along each dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np

from ..call import NodeCall, Operator
from ..tensors import Operand, Tensors, dtype_of, shape_of

_MODES: Final = {"linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}
#: The slope of the cubic function one element away.
_CUBIC: Final = -0.75


def grid_sample(call: NodeCall) -> Operand:
    """Add up the neighbours of each place, times their weights; each is picked from the image, seen as rows."""
    source, grid, m = call.real(0), call.real(1), call.math
    sizes, places = shape_of(source), shape_of(grid)
    count = len(sizes) - 2
    mode, padding = call.text("mode", "linear"), call.text("padding_mode", "zeros")
    if count < 1 or len(places) != count + 2 or places[-1] != count or places[0] != sizes[0]:
        raise call.malformed(f"a grid of shape {places} does not fit {sizes}")
    if mode not in _MODES or padding not in ("zeros", "border", "reflection"):
        raise call.malformed(f"unknown mode {mode!r} or padding_mode {padding!r}")
    corners = bool(call.integer("align_corners", 0))
    total = math.prod(places[1:-1])
    dtype = dtype_of(source)
    flat = m.cast(m.reshape(m.value(grid), (places[0], total, count)), "float64")
    taps = []
    for axis in range(count):
        # The last number of a place is that of the first spatial dimension.
        part = m.squeeze(m.slice(flat, [count - 1 - axis], [count - axis], [2], [1]), (2,))
        size = sizes[2 + axis]
        factor, shift = ((size - 1) / 2, (size - 1) / 2) if corners else (size / 2, (size - 1) / 2)
        place = m.eltwise(part, "linear", factor, shift)
        if padding != "zeros" and _MODES[mode] != "cubic":
            place = _inside(m, place, size, padding, corners)
        taps.append(neighbours(m, place, size, _MODES[mode], padding, corners))
    rows = m.reshape(m.value(source), (sizes[0], sizes[1], math.prod(sizes[2:])))
    result: Operand | None = None
    for chosen in product(*taps):
        added = _picked(m, rows, sizes, chosen)
        result = added if result is None else m.binary(result, added, "add")
    if result is None:
        raise call.malformed("there are no dimensions")
    return m.reshape(m.cast(result, dtype), (sizes[0], sizes[1], *places[1:-1]))


def _picked(m: Tensors, rows: Operand, sizes: Sequence[int], chosen: Sequence[tuple[Operand, Operand]]) -> Operand:
    """Return one neighbour of each place times its weight, in float64."""
    index: Operand | None = None
    weight: Operand | None = None
    for (at, share), size in zip(chosen, sizes[2:], strict=True):
        if index is None or weight is None:
            index, weight = at, share
        else:
            index = m.binary(m.binary(index, np.asarray(size, np.int64), "mul"), at, "add")
            weight = m.binary(weight, share, "mul")
    if index is None or weight is None:
        raise ValueError("there are no dimensions")
    batch, total = shape_of(index)
    wide = m.expand(m.unsqueeze(index, (1,)), (batch, sizes[1], total))
    return m.binary(m.cast(m.gather_elements(rows, wide, 2), "float64"), m.unsqueeze(weight, (1,)), "mul")


def neighbours(
    m: Tensors, place: Operand, size: int, mode: str, padding: str, corners: bool
) -> list[tuple[Operand, Operand]]:
    """Return indices and weights of the neighbours of places along one dimension; those outside weigh nothing."""
    if mode == "nearest":
        return [_tap(m, m.eltwise(place, "round"), m.number(1, place), size, padding, corners)]
    first = m.floor(place)
    ratio = m.binary(place, first, "sub")
    if mode == "linear":
        weights = [m.eltwise(ratio, "linear", -1.0, 1.0), ratio]
        offsets = [0.0, 1.0]
    else:
        offsets = [-1.0, 0.0, 1.0, 2.0]
        weights = [
            _cubic(m, m.eltwise(m.eltwise(ratio, "linear", 1.0, -offset), "abs"), abs(offset - 0.5) > 1)
            for offset in offsets
        ]
    found = []
    for offset, weight in zip(offsets, weights, strict=True):
        found.append(_tap(m, m.eltwise(first, "linear", 1.0, offset), weight, size, padding, corners))
    return found


def _cubic(m: Tensors, distance: Operand, is_far: bool) -> Operand:
    """Return the weight of Keys' function at a distance of at most 1, or from 1 to 2."""
    a = _CUBIC
    numbers = (a, -5 * a, 8 * a, -4 * a) if is_far else (a + 2, -(a + 3), 0.0, 1.0)
    total = m.eltwise(distance, "linear", numbers[0], numbers[1])
    for each in numbers[2:]:
        total = m.eltwise(m.binary(total, distance, "mul"), "linear", 1.0, each)
    return total


def _tap(
    m: Tensors, place: Operand, weight: Operand, size: int, padding: str, corners: bool
) -> tuple[Operand, Operand]:
    if padding == "zeros":
        low, high = m.binary(place, m.number(0, place), "ge"), m.binary(place, m.number(size - 1, place), "le")
        weight = m.select(m.binary(low, high, "and"), weight, m.number(0, place))
    else:
        place = _inside(m, place, size, padding, corners)
    clipped = m.binary(m.binary(place, m.number(0, place), "max"), m.number(size - 1, place), "min")
    index = m.cast(clipped, "int64")
    return index, m.expand(weight, shape_of(index)) if not weight.shape else weight


def _inside(m: Tensors, place: Operand, size: int, padding: str, corners: bool) -> Operand:
    """Return places moved to the edge, or mirrored there."""
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if corners else (-0.5, float(size))
        if span:
            # A walk to and fro: the distance from the nearest even turn.
            away = m.eltwise(place, "linear", 1.0, -low)
            turns = m.eltwise(m.eltwise(away, "linear", 0.5 / span), "round")
            rest = m.eltwise(m.binary(away, m.eltwise(turns, "linear", 2.0 * span), "sub"), "abs")
            place = m.eltwise(rest, "linear", 1.0, low)
    return m.binary(m.binary(place, m.number(0, place), "max"), m.number(size - 1, place), "min")


OPERATORS: Final[Mapping[str, Operator]] = {"GridSample": grid_sample}
