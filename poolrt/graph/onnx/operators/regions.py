"""Operators that read an image at computed places: RoiAlign, and DeformConv by rows of channels gathered and weighed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ..call import NodeCall, Operator
from ..tensors import Operand, dtype_of, shape_of
from .sampling import channel_rows, join_neighbours, neighbours, weigh_rows


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
    """Convolve what is at moved places: all of them are gathered as columns, which one matrix product reads."""
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
    axes = []
    for axis, size in enumerate(sizes):
        first = np.arange(places[axis]) * strides[axis] - pads[axis]
        step = np.arange(kernel[axis]) * dilations[axis]
        shape = [1] * 6
        shape[2 + axis], shape[4 + axis] = kernel[axis], places[axis]
        known = (step[:, None] + first[None]).astype(np.float64).reshape(shape)
        offset = m.squeeze(m.slice(apart, [axis], [axis + 1], [4], [1]), (4,))
        axes.append(neighbours(m, m.binary(offset, known, "add"), size))
    rows = channel_rows(m, source, moved)
    start = np.arange(batch * moved, dtype=np.int64).reshape(batch, moved, 1, 1, 1, 1)
    place, weight = join_neighbours(m, start, axes, sizes)
    weight = m.cast(weight, dtype_of(source))
    if call.has(4):
        weight = m.binary(weight, m.reshape(call.real(4), (1, batch, moved, *kernel, *places)), "mul")
    around = (4, batch * moved * elements * math.prod(places))
    columns = weigh_rows(m, rows, *(m.transpose(m.reshape(each, around), (1, 0)) for each in (place, weight)))
    flat = m.reshape(columns, (batch, moved, elements, math.prod(places), channels // moved))
    ordered = m.reshape(m.transpose(flat, (0, 1, 4, 2, 3)), (batch, groups, part * elements, math.prod(places)))
    factors = m.reshape(weights, (1, groups, outputs // groups, part * elements))
    result = m.reshape(m.matmul(factors, ordered), (batch, outputs, *places))
    return result if not call.has(3) else m.binary(result, m.reshape(call.real(3), (1, outputs, 1, 1)), "add")


OPERATORS: Final[Mapping[str, Operator]] = {"DeformConv": deform_conv, "RoiAlign": roi_align}
