"""Operators that read an image at computed places: RoiAlign and DeformConv, by rows of channels gathered and weighed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from itertools import product
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..tensors import Operand, Tensors, dtype_of, shape_of
from .sampling import channel_rows, join_neighbours, neighbours, weigh_rows

#: Elements of an image that all samples of a node read.
_MOST_TAKEN: Final = 1 << 26
#: One neighbour of each place along a dimension: its index, and its weight.
_Tap = tuple[Operand, Operand]


def roi_align(call: NodeCall) -> Operand:
    """Pool samples of an image in each part of a box: each sample is between four elements.

    Limitation: if each box has as many samples as elements, a computed one has at most as many as the image.
    """
    m = call.math
    source, boxes = call.real(0), m.cast(call.real(1), "float64")
    channels, *sizes = shape_of(source)[1:]
    count = shape_of(boxes)[0]
    if len(source.shape) != 4 or shape_of(boxes) != (count, 4) or call.shape(2) != (count,):
        raise call.malformed(f"shapes {shape_of(source)}, {shape_of(boxes)} and {call.shape(2)} do not go together")
    pooled = [call.integer("output_height", 1), call.integer("output_width", 1)]
    given, mode = max(call.integer("sampling_ratio", 0), 0), call.text("mode", "avg")
    if mode not in ("avg", "max") or min(pooled) < 1:
        raise call.malformed(f"unknown mode {mode!r}, or sizes {pooled}")
    usual = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    is_half = call.text("coordinate_transformation_mode", usual) == "half_pixel"
    scaled = m.eltwise(boxes, "linear", call.number("spatial_scale", 1.0), -0.5 if is_half else 0.0)
    # Columns of a box are x1, y1, x2 and y2.
    axes, samples = [], []
    lengths = [] if given else _lengths(call, is_half)
    for axis, (size, parts) in enumerate(zip(sizes, pooled, strict=True)):
        first, last = (m.slice(scaled, [place], [place + 1], [1], [1]) for place in (1 - axis, 3 - axis))
        length = m.binary(last, first, "sub")
        if not is_half:
            length = m.binary(length, m.number(1, length), "max")
        share: Operand = ((np.arange(parts * given) + 0.5) / (parts * max(given, 1)))[None]
        weights: Operand | None = None
        if not given:
            share, weights = _adapted(m, lengths[axis], parts, size, mode == "max")
        samples.append(shape_of(share)[1] // parts)
        taps = _inside(m, m.binary(first, m.binary(length, share, "mul"), "add"), size)
        axes.append([(at, near if weights is None else m.binary(near, weights, "mul")) for at, near in taps])
    taken = 4 * math.prod(samples) * math.prod(pooled) * count
    if taken > _MOST_TAKEN:
        raise call.unsupported(f"samples of {taken} elements; at most {_MOST_TAKEN} are supported")
    rows = channel_rows(m, source, 1)
    if mode == "avg":
        joined = _mean_of_samples(m, rows, call.operand(2), axes, (sizes, pooled, samples), bool(given))
        return m.transpose(joined, (0, 3, 1, 2))
    image = m.reshape(m.cast(call.operand(2), "int64"), (count, 1, 1))
    found: list[Operand] = []
    for (y, high), (x, wide) in product(*axes):
        place = m.binary(
            m.binary(m.unsqueeze(y, (2,)), np.asarray(sizes[1], np.int64), "mul"), m.unsqueeze(x, (1,)), "add"
        )
        place = m.binary(m.binary(image, np.asarray(math.prod(sizes), np.int64), "mul"), place, "add")
        weight = m.cast(m.binary(m.unsqueeze(high, (2,)), m.unsqueeze(wide, (1,)), "mul"), dtype_of(source))
        found.append(m.binary(m.take(rows, place, 0), m.unsqueeze(weight, (3,)), "mul"))
    total = reduce(lambda a, b: m.binary(a, b, "max"), found)
    apart = m.reshape(total, (count, pooled[0], samples[0], pooled[1], samples[1], channels))
    joined = m.reduce(apart, "max", (2, 4), False)
    return m.transpose(joined, (0, 3, 1, 2))


def _lengths(call: NodeCall, is_half: bool) -> list[Operand]:
    """Return the height and width of boxes in float32: an error of the last place would add a sample to each part."""
    m, boxes = call.math, call.math.cast(call.real(1), "float32")
    scale = m.number(call.number("spatial_scale", 1.0), boxes)
    scaled = m.binary(m.binary(boxes, scale, "mul"), m.number(0.5 if is_half else 0.0, boxes), "sub")
    found = []
    for first, last in ((1, 3), (0, 2)):
        start, end = (m.slice(scaled, [place], [place + 1], [1], [1]) for place in (first, last))
        length = m.binary(end, start, "sub")
        found.append(length if is_half else m.binary(length, m.number(1, length), "max"))
    return found


def _adapted(m: Tensors, length: Operand, parts: int, size: int, repeats: bool) -> tuple[Operand, Operand]:
    """Return the places of a sample for each element of a box, as shares of its length, and the weights of samples.

    All boxes have as many samples as the largest one; further ones of a box are its last again, and weigh nothing unless
    ``repeats``.
    """
    wanted = m.cast(m.ceil(m.binary(length, m.number(parts, length), "div")), "float64")
    largest = -(-size // parts) if isinstance(wanted, Value) else int(min(wanted.max(initial=1), _MOST_TAKEN))
    index = np.arange(max(largest, 1), dtype=np.float64)[None]
    number = m.binary(m.binary(wanted, m.number(1, wanted), "max"), m.number(max(largest, 1), wanted), "min")
    inner = m.binary(m.binary(index, m.binary(number, m.number(1, number), "sub"), "min"), m.number(0.5, number), "add")
    within = m.unsqueeze(m.binary(inner, number, "div"), (1,))
    whole = m.binary(within, np.arange(parts, dtype=np.float64)[None, :, None], "add")
    count, samples = shape_of(inner)
    share = m.reshape(m.binary(whole, m.number(parts, whole), "div"), (count, parts * samples))
    counts = m.cast(m.binary(m.number(0, wanted) if repeats else index, wanted, "lt"), "float64")
    weights = counts if repeats else m.binary(counts, number, "div")
    wide = m.expand(m.unsqueeze(weights, (1,)), (count, parts, samples))
    return share, m.reshape(wide, (count, parts * samples))


def _mean_of_samples(
    m: Tensors,
    rows: Operand,
    images: Operand,
    axes: list[list[_Tap]],
    geometry: tuple[list[int], list[int], list[int]],
    alike: bool,
) -> Operand:
    """Return the means of samples of each box (boxes, height, width, channels): weighted sums of rows of channels.

    ``geometry`` is the size of the image, the parts of a box and the samples of a part, along each dimension. If they are
    not ``alike``, samples have weights.
    """
    (height, width), (tall, wide), (down, across) = geometry
    count = shape_of(images)[0]
    dims = ((count, tall * down, 1), (count, 1, wide * across))
    taps = [
        [(m.reshape(at, dim), m.reshape(share, dim)) for at, share in found]
        for found, dim in zip(axes, dims, strict=True)
    ]
    image = m.reshape(m.cast(images, "int64"), (count, 1, 1))
    place, weight = join_neighbours(m, image, taps, (height, width))
    if alike:
        weight = m.eltwise(weight, "linear", 1.0 / (down * across))
    apart = (4, count, tall, down, wide, across)
    place, weight = (
        m.reshape(m.transpose(m.reshape(each, apart), (1, 2, 4, 0, 3, 5)), (count, tall, wide, 4 * down * across))
        for each in (place, weight)
    )
    return weigh_rows(m, rows, place, weight)


def _inside(m: Tensors, place: Operand, size: int) -> list[_Tap]:
    """Return both neighbours of places along a dimension; what is more than one element outside weighs nothing."""
    low, high = m.binary(place, m.number(-1, place), "ge"), m.binary(place, m.number(size, place), "le")
    is_near = m.cast(m.binary(low, high, "and"), dtype_of(place))
    held = m.binary(m.binary(place, m.number(0, place), "max"), m.number(size - 1, place), "min")
    first = m.floor(held)
    ratio = m.binary(held, first, "sub")
    after = m.binary(m.eltwise(first, "linear", 1.0, 1.0), m.number(size - 1, place), "min")
    shares = m.eltwise(ratio, "linear", -1.0, 1.0), ratio
    return [
        (m.cast(each, "int64"), m.binary(share, is_near, "mul"))
        for each, share in zip((first, after), shares, strict=True)
    ]


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
