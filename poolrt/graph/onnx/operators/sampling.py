"""GridSample: elements of an image at places that a grid names, between -1 and 1 along each dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ..call import NodeCall, Operator
from ..tensors import Operand, Tensors, array_dtype, dtype_of, shape_of

_MODES: Final = {"linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}
#: So few channels are gathered one after the other, as planes: the more neighbours have weights, the fewer.
_FEW_CHANNELS: Final = {"nearest": 16, "linear": 6, "cubic": 4}
#: The slope of the cubic function one element away.
_CUBIC: Final = -0.75
#: The data types of indices and weights of neighbours, unless narrower ones do.
_WIDE: Final = ("int64", "float64")
#: Dimensions from this size on have places that float32 cannot tell from each other.
_SHORT: Final = 2**22


def grid_sample(call: NodeCall) -> Operand:
    """Add up the neighbours of each place, times their weights; many channels of an image are rows, a few are planes."""
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
    are_planes = sizes[1] <= _FEW_CHANNELS[_MODES[mode]] and dtype in ("float32", "float64")
    is_small = math.prod(sizes) < 2**31
    types = ("int32" if is_small else "int64", "float64" if dtype == "float64" else "float32")
    taps = []
    for axis in range(count):
        # The last number of a place is that of the first spatial dimension.
        part = m.squeeze(m.slice(flat, [count - 1 - axis], [count - axis], [2], [1]), (2,))
        size = sizes[2 + axis]
        factor, shift = ((size - 1) / 2, (size - 1) / 2) if corners else (size / 2, (size - 1) / 2)
        place = m.eltwise(part, "linear", factor, shift)
        if padding == "reflection" and _MODES[mode] == "nearest":
            # The mirror image of a half may be nearest to another element.
            place = m.eltwise(place, "round")
        if padding != "zeros" and _MODES[mode] != "cubic":
            place = _inside(m, place, size, padding, corners)
        taps.append(neighbours(m, place, size, _MODES[mode], padding, corners, types))
    images = np.arange(sizes[0], dtype=array_dtype(types[0])).reshape(-1, 1) * (sizes[1] if are_planes else 1)
    if are_planes:
        index = _join_places(m, images, taps, sizes[2:])
        shape = (sizes[0], total)
        weights = [m.concat([m.unsqueeze(m.expand(w, shape), (0,)) for _, w in each], 0) for each in taps]
        return m.reshape(_weigh_planes(m, source, index, weights), (sizes[0], sizes[1], *places[1:-1]))
    index, weight = join_neighbours(m, images, taps, sizes[2:])
    index, weight = (m.transpose(each, (1, 2, 0)) for each in (index, weight))
    result = m.transpose(weigh_rows(m, channel_rows(m, source, 1), index, weight), (0, 2, 1))
    return m.reshape(m.cast(result, dtype), (sizes[0], sizes[1], *places[1:-1]))


def _weigh_planes(m: Tensors, source: Operand, place: Operand, weights: Sequence[Operand]) -> Operand:
    """Return sums of elements of images at places (neighbours, images, places) times their weights, for each channel.

    Places are elements of the first channels, whose planes are in the order of memory. The weights (neighbours along the
    dimension, images, places) are of one dimension each: a sum along the last one leaves less to multiply.
    """
    _, channels, *sizes = shape_of(source)
    plane, total = math.prod(sizes), math.prod(shape_of(source))
    flat = m.reshape(source, (total,))
    found = []
    for channel in range(channels):
        rest = m.slice(flat, [channel * plane], [total], [0], [1]) if channel else flat
        parts = m.take(rest, place, 0)
        for weight in reversed(weights):
            count, *rows = shape_of(weight)
            apart = m.reshape(parts, (shape_of(parts)[0] // count, count, *rows))
            parts = m.reduce(m.binary(apart, m.unsqueeze(weight, (0,)), "mul"), "sum", (1,), False)
        found.append(parts)
    joined = m.concat(found, 0) if channels > 1 else found[0]
    return m.transpose(joined, (1, 0, 2))


def weigh_rows(m: Tensors, rows: Operand, place: Operand, weight: Operand) -> Operand:
    """Return sums of rows (R, C) at places (..., T) times their weights, as (..., C): products of matrices of T rows."""
    *outer, count = shape_of(place)
    total, channels = math.prod(outer), shape_of(rows)[1]
    taken = m.take(rows, m.reshape(place, (total, count)), 0)
    factors = m.reshape(m.cast(weight, dtype_of(rows)), (total, 1, count))
    return m.reshape(m.matmul(factors, taken), (*outer, channels))


def channel_rows(m: Tensors, source: Operand, groups: int) -> Operand:
    """Return the channels of each place of each image, or of each group of channels of it, as a row."""
    batch, channels, *sizes = shape_of(source)
    apart = m.transpose(m.reshape(source, (batch * groups, channels // groups, math.prod(sizes))), (0, 2, 1))
    return m.reshape(apart, (batch * groups * math.prod(sizes), channels // groups))


def join_neighbours(
    m: Tensors, images: Operand, axes: Sequence[Sequence[tuple[Operand, Operand]]], sizes: Sequence[int]
) -> tuple[Operand, Operand]:
    """Return the rows of all neighbours of places (neighbours, ...), and their weights.

    ``images`` are the numbers of images; they and the neighbours along each dimension broadcast to the shape of the places.
    """
    one = m.unsqueeze(m.number(1, axes[0][0][1]), range(len(shape_of(images))))
    weight = m.unsqueeze(one, (0,))
    for taps in axes:
        weight = _outer(m, weight, [share for _, share in taps], "mul")
    return _join_places(m, images, axes, sizes), weight


def _join_places(
    m: Tensors, images: Operand, axes: Sequence[Sequence[tuple[Operand, Operand]]], sizes: Sequence[int]
) -> Operand:
    """Return the rows of all neighbours of places."""
    index = m.unsqueeze(images, (0,))
    for taps, size in zip(axes, sizes, strict=True):
        index = _outer(m, m.binary(index, m.number(size, index), "mul"), [place for place, _ in taps], "add")
    return index


def _outer(m: Tensors, total: Operand, parts: Sequence[Operand], algorithm: str) -> Operand:
    """Return what joins each of the totals (totals, ...) with each part, as (totals * parts, ...)."""
    joined = m.concat([m.unsqueeze(part, (0,)) for part in parts], 0)
    neutral = 1 if algorithm == "mul" else 0
    if isinstance(total, np.ndarray) and total.size == 1 and total.ndim == len(shape_of(joined)) and total == neutral:
        return joined
    found = m.binary(m.unsqueeze(total, (1,)), m.unsqueeze(joined, (0,)), algorithm)
    dims = shape_of(found)
    return m.reshape(found, (dims[0] * dims[1], *dims[2:]))


def neighbours(
    m: Tensors, place: Operand, size: int, mode: str, padding: str, corners: bool, types: tuple[str, str] = _WIDE
) -> list[tuple[Operand, Operand]]:
    """Return indices and weights of the neighbours of places along one dimension; those outside weigh nothing.

    ``types`` are the data types of indices and weights. Whole places are exact in a narrow one, as far as they are inside.
    """
    is_short = types[1] == "float32" and padding != "reflection" and size < _SHORT
    if mode == "nearest":
        near = m.eltwise(place, "round")
        near = m.cast(near, types[1]) if is_short else near
        return [_tap(m, near, np.asarray(1, array_dtype(types[1])), size, padding, corners, types[0])]
    first = m.floor(place)
    ratio = m.cast(m.binary(place, first, "sub"), types[1])
    first = m.cast(first, types[1]) if is_short else first
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
        found.append(_tap(m, m.eltwise(first, "linear", 1.0, offset), weight, size, padding, corners, types[0]))
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
    m: Tensors, place: Operand, weight: Operand, size: int, padding: str, corners: bool, kind: str
) -> tuple[Operand, Operand]:
    if padding == "zeros":
        low, high = m.binary(place, m.number(0, place), "ge"), m.binary(place, m.number(size - 1, place), "le")
        weight = m.select(m.binary(low, high, "and"), weight, m.number(0, weight))
    else:
        place = _inside(m, place, size, padding, corners)
    clipped = m.binary(m.binary(place, m.number(0, place), "max"), m.number(size - 1, place), "min")
    index = m.cast(clipped, kind)
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
