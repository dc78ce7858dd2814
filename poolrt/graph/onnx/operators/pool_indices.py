"""The places of what a MaxPool chooses, and MaxUnpool, which puts elements there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..call import NodeCall, Operator
from ..element_types import FLOATS
from ..rearranging import arg_reduce
from ..tensors import Operand, dtype_of, extreme, shape_of


def max_indices(
    call: NodeCall, source: Operand, kernel: tuple[int, ...], counts: tuple[int, ...], window: Mapping[str, Any]
) -> Operand:
    """Return where the greatest element of each window is, among all elements of the tensor.

    ``counts`` are the numbers of windows along the spatial dimensions. With ``storage_order`` 1, the first spatial dimension
    changes fastest in an image.
    """
    m = call.math
    batch, channels, *sizes = shape_of(source)
    padding = window["padding"]
    total, elements, count = math.prod(sizes), math.prod(kernel), len(sizes)
    call.folding.book((2, math.prod(counts), elements), np.dtype(np.int64))
    where = np.zeros((math.prod(counts), elements), np.int64)
    stored, is_inside = np.zeros_like(where), np.ones(where.shape, np.bool_)
    for axis in range(count):
        starts = np.arange(counts[axis]) * window["strides"][axis] - padding[axis][0]
        steps = np.arange(kernel[axis]) * (window["dilations"][axis] + 1)
        shape = [1] * 2 * count
        shape[axis], shape[count + axis] = counts[axis], kernel[axis]
        place = (starts[:, None] + steps[None]).reshape(shape)
        place = np.broadcast_to(place, (*counts, *kernel)).reshape(where.shape)
        is_inside &= (place >= 0) & (place < sizes[axis])
        where += place * math.prod(sizes[axis + 1 :])
        stored += place * math.prod(sizes[:axis] if call.integer("storage_order", 0) else sizes[axis + 1 :])
    rows = m.reshape(source, (batch * channels, total))
    if dtype_of(source) in FLOATS:
        # The greatest element passes over NaN.
        rows = m.select(m.binary(rows, rows, "eq"), rows, m.reshape(extreme(source, False), (1, 1)))
    if not is_inside.all():
        # Padding is one element behind all others, which is never the greatest.
        least = m.expand(m.reshape(extreme(source, False), (1, 1)), (batch * channels, 1))
        rows, where = m.concat([rows, least], 1), np.where(is_inside, where, total)
    blocks = m.reshape(m.take(rows, where.reshape(-1), 1), (batch * channels, *where.shape))
    chosen = arg_reduce(m, blocks, "max", 2, True, False)
    known = np.broadcast_to(stored, (batch * channels, *stored.shape))
    call.folding.book(known.shape, known.dtype)
    places = m.squeeze(m.gather_elements(np.ascontiguousarray(known), chosen, 2), (2,))
    first = np.arange(batch * channels, dtype=np.int64)[:, None] * total
    return m.reshape(m.binary(places, first, "add"), (batch, channels, *counts))


def max_unpooling(call: NodeCall) -> Operand:
    """Put elements at their places among zeros."""
    m, source, kernel = call.math, call.tensor(0), call.integers("kernel_shape")
    count, sizes = len(kernel), shape_of(source)
    strides, pads = call.integers("strides", (1,) * count), call.integers("pads", (0,) * 2 * count)
    if len(sizes) != count + 2 or len(strides) != count or len(pads) != 2 * count or call.shape(1) != sizes:
        raise call.malformed(f"kernel, strides and pads do not fit shapes {sizes} and {call.shape(1)}")
    made = [
        (size - 1) * stride - pads[axis] - pads[axis + count] + k
        for axis, (size, stride, k) in enumerate(zip(sizes[2:], strides, kernel, strict=True))
    ]
    wanted = call.known_integers(2, "output_shape") if call.has(2) else (*sizes[:2], *made)
    if min(made) < 1 or len(wanted) != len(sizes) or any(a < b for a, b in zip(wanted[2:], made, strict=True)):
        raise call.malformed(f"output_shape: expect at least {(*sizes[:2], *made)}, got {tuple(wanted)}")
    # One zero that the graph repeats: stored zeros would be read as often.
    zeros = m.expand(m.value(m.reshape(m.number(0, source), (1,))), (math.prod((*sizes[:2], *made)),))
    indices, values = (m.reshape(operand, (-1,)) for operand in (call.operand(1), source))
    flat = call.graph.scatter_elements(m.value(zeros), m.value(indices), m.value(values), 0, name=call.name)
    result = m.reshape(flat, (*sizes[:2], *made))
    after = [0, 0, *(a - b for a, b in zip(wanted[2:], made, strict=True))]
    return m.pad_constant(result, [0] * len(sizes), after, m.number(0, source)) if any(after) else result


OPERATORS: Final[Mapping[str, Operator]] = {"MaxUnpool": max_unpooling}
