"""GridSample, and sums of neighbours of places that other operators compute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from poolrt.workers.desc.operations.grid_sample import SAMPLE_PADDINGS

from ..call import NodeCall, Operator
from ..tensors import Operand, Tensors, dtype_of, shape_of

_MODES: Final = {"linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}


def grid_sample(call: NodeCall) -> Operand:
    """Sample images at the places of a grid."""
    source, grid, m = call.real(0), call.real(1), call.math
    sizes, places = shape_of(source), shape_of(grid)
    count = len(sizes) - 2
    mode, padding = call.text("mode", "linear"), call.text("padding_mode", "zeros")
    if count < 1 or len(places) != count + 2 or places[-1] != count or places[0] != sizes[0]:
        raise call.malformed(f"a grid of shape {places} does not fit {sizes}")
    if mode not in _MODES or padding not in SAMPLE_PADDINGS:
        raise call.malformed(f"unknown mode {mode!r} or padding_mode {padding!r}")
    dims = (*sizes[:2], *places[1:-1])
    if 0 in dims:
        return m.empty(dims, source)
    corners = bool(call.integer("align_corners", 0))
    return m.graph.grid_sample(
        m.value(source), m.value(grid), _MODES[mode], padding=padding, align_corners=corners, name=call.name
    )


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
    index = m.unsqueeze(images, (0,))
    for taps, size in zip(axes, sizes, strict=True):
        index = _outer(m, m.binary(index, m.number(size, index), "mul"), [place for place, _ in taps], "add")
    return index, weight


def _outer(m: Tensors, total: Operand, parts: Sequence[Operand], algorithm: str) -> Operand:
    """Return what joins each of the totals (totals, ...) with each part, as (totals * parts, ...)."""
    joined = m.concat([m.unsqueeze(part, (0,)) for part in parts], 0)
    neutral = 1 if algorithm == "mul" else 0
    if isinstance(total, np.ndarray) and total.size == 1 and total.ndim == len(shape_of(joined)) and total == neutral:
        return joined
    found = m.binary(m.unsqueeze(total, (1,)), m.unsqueeze(joined, (0,)), algorithm)
    dims = shape_of(found)
    return m.reshape(found, (dims[0] * dims[1], *dims[2:]))


def neighbours(m: Tensors, place: Operand, size: int) -> list[tuple[Operand, Operand]]:
    """Return indices and weights of both neighbours of places along one dimension; those outside weigh nothing."""
    first = m.floor(place)
    ratio = m.binary(place, first, "sub")
    found = []
    for offset, weight in ((0.0, m.eltwise(ratio, "linear", -1.0, 1.0)), (1.0, ratio)):
        near = m.eltwise(first, "linear", 1.0, offset)
        low, high = m.binary(near, m.number(0, near), "ge"), m.binary(near, m.number(size - 1, near), "le")
        weight = m.select(m.binary(low, high, "and"), weight, m.number(0, weight))
        clipped = m.binary(m.binary(near, m.number(0, near), "max"), m.number(size - 1, near), "min")
        found.append((m.cast(clipped, "int64"), weight))
    return found


OPERATORS: Final[Mapping[str, Operator]] = {"GridSample": grid_sample}
