"""Operators that read an image at computed places: RoiAlign, and DeformConv by samples at the places of a grid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ..call import NodeCall, Operator
from ..folding import Array
from ..tensors import Operand, shape_of


def roi_align(call: NodeCall) -> Operand:
    """Pool samples of an image in each part of a box: each sample is between four elements."""
    m = call.math
    source, boxes, images = call.real(0), call.real(1), call.operand(2)
    count = shape_of(boxes)[0] if shape_of(boxes) else 0
    if len(shape_of(source)) != 4 or shape_of(boxes) != (count, 4) or call.shape(2) != (count,):
        raise call.malformed(f"shapes {shape_of(source)}, {shape_of(boxes)} and {call.shape(2)} do not go together")
    parts = call.integer("output_height", 1), call.integer("output_width", 1)
    mode = call.text("mode", "avg")
    if mode not in ("avg", "max") or min(parts) < 1:
        raise call.malformed(f"unknown mode {mode!r}, or sizes {list(parts)}")
    if not count:
        return m.empty((0, shape_of(source)[1], *parts), source)
    usual = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    is_half = call.text("coordinate_transformation_mode", usual) == "half_pixel"
    return m.graph.roi_align(
        m.value(source), m.value(boxes), m.value(images), parts, "mean" if mode == "avg" else "max",
        samples=max(call.integer("sampling_ratio", 0), 0), scale=call.number("spatial_scale", 1.0), half_pixel=is_half,
        name=call.name,
    )  # fmt: skip


def deform_conv(call: NodeCall) -> Operand:
    """Convolve what is at moved places: samples at the places of a grid are columns, which one matrix product reads."""
    m = call.math
    source, weights, offsets = call.real(0), call.real(1), m.cast(call.real(2), "float64")
    if len(source.shape) != 4:
        raise call.unsupported(f"images of shape {shape_of(source)}; only those of two dimensions are supported")
    batch, channels, *sizes = shape_of(source)
    outputs, part, *kernel = shape_of(weights)
    groups, moved = call.integer("group", 1), call.integer("offset_group", 1)
    strides, dilations = call.integers("strides", (1, 1)), call.integers("dilations", (1, 1))
    pads, places = call.integers("pads", (0,) * 4), list(shape_of(offsets)[2:])
    elements = math.prod(kernel)
    fits = part * groups == channels and outputs % groups == 0 and moved > 0 and channels % moved == 0
    if not fits or shape_of(offsets)[:2] != (batch, moved * elements * 2):
        raise call.malformed(
            f"shapes {shape_of(source)}, {shape_of(weights)} and {shape_of(offsets)} do not go together"
        )
    # Image, group of offsets, element of the kernel, dimension, place
    apart = m.reshape(offsets, (batch, moved, *kernel, 2, *places))
    factors: Array = np.ones((1, 1, 1, 1, 2, 1, 1))
    known: Array = np.zeros((1, 1, *kernel, 2, *places))
    for axis, size in enumerate(sizes):
        first = np.arange(places[axis]) * strides[axis] - pads[axis]
        step = np.arange(kernel[axis]) * dilations[axis]
        shape = [1] * 6
        shape[2 + axis], shape[4 + axis] = kernel[axis], places[axis]
        # In a grid, -1 and 1 are the outer edges of the image.
        factors[:, :, :, :, axis] = 2 / size
        known[:, :, :, :, axis] = ((step[:, None] + first[None]).reshape(shape) * 2 + 1) / size - 1
    moved_to = m.binary(m.binary(apart, factors, "mul"), known, "add")
    # The first number of a place in a grid is along the last dimension.
    numbers = [m.slice(moved_to, [axis], [axis + 1], [4], [1]) for axis in (1, 0)]
    grid = m.concat([m.reshape(each, (*shape_of(each)[:4], *places, 1)) for each in numbers], 6)
    around = elements * places[0], places[1]
    columns: Operand = m.graph.grid_sample(
        m.value(m.reshape(source, (batch * moved, channels // moved, *sizes))),
        m.value(m.reshape(grid, (batch * moved, *around, 2))),
        name=call.name_part("columns"),
    )
    if call.has(4):
        columns = m.binary(columns, m.reshape(call.real(4), (batch * moved, 1, *around)), "mul")
    ordered = m.reshape(columns, (batch, groups, part * elements, math.prod(places)))
    factors_of = m.reshape(weights, (1, groups, outputs // groups, part * elements))
    result = m.reshape(m.matmul(factors_of, ordered), (batch, outputs, *places))
    return result if not call.has(3) else m.binary(result, m.reshape(call.real(3), (1, outputs, 1, 1)), "add")


OPERATORS: Final[Mapping[str, Operator]] = {"DeformConv": deform_conv, "RoiAlign": roi_align}
