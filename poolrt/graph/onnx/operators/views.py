"""Operators that move or rename data: reshapes, transpositions, concatenation, identities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ...shapes import normalize_axes, normalize_axis
from ...values import Value
from ..call import NodeCall, Operand, Operator


def reshaped(call: NodeCall, source: Operand, dims: Sequence[int]) -> Operand:
    """Reshape a tensor in the graph, a known array at once; a size of 0 keeps the source's."""
    if isinstance(source, Value):
        return call.graph.reshape(source, dims, name=call.name)
    if any(size == 0 for size in dims[len(source.shape) :]):
        raise call.malformed(f"shape {tuple(dims)} keeps sizes that {source.shape} does not have")
    sizes = tuple(source.shape[axis] if size == 0 else size for axis, size in enumerate(dims))
    return call.folding.reshape(source, sizes)


def reshape(call: NodeCall) -> Operand:
    """Reshape; a size of 0 keeps the source's unless ``allowzero`` is set, which is not supported."""
    wanted = call.integers("shape") if call.opset < 5 else call.known_integers(1, "shape")
    if 0 in wanted and call.integer("allowzero", 0):
        raise call.unsupported("a size of 0")
    return reshaped(call, call.operand(0), wanted)


def flatten(call: NodeCall) -> Operand:
    """Make a matrix: the dimensions before ``axis``, and the rest."""
    sizes = call.shape(0)
    axis = call.integer("axis", 1)
    if not -len(sizes) <= axis <= len(sizes):
        raise call.malformed(f"axis: expect {-len(sizes)}..{len(sizes)}, got {axis}")
    axis = axis + len(sizes) if axis < 0 else axis
    # With axis 1 the batch may have another size later; otherwise the rows are a product of sizes, which is fixed.
    dims = (0, -1) if axis == 1 else (math.prod(sizes[:axis]), math.prod(sizes[axis:]))
    return reshaped(call, call.operand(0), dims)


def squeeze(call: NodeCall) -> Operand:
    """Drop dimensions of 1: those at the axes, or all of them."""
    axes, source = call.axes(1), call.operand(0)
    if isinstance(source, Value):
        return call.graph.squeeze(source, axes, name=call.name)
    return np.squeeze(source, None if axes is None else tuple(normalize_axes(axes, source.ndim)))


def unsqueeze(call: NodeCall) -> Operand:
    """Insert dimensions of 1 at axes of the result."""
    axes, source = call.axes(1), call.operand(0)
    if axes is None:
        raise call.malformed("axes are missing")
    if isinstance(source, Value):
        return call.graph.unsqueeze(source, axes, name=call.name)
    return np.expand_dims(source, tuple(normalize_axes(axes, source.ndim + len(axes))))


def transpose(call: NodeCall) -> Operand:
    """Permute dimensions; without ``perm``, reverse them."""
    source = call.operand(0)
    perm = call.integers("perm", range(len(source.shape) - 1, -1, -1))
    if isinstance(source, Value):
        return call.graph.transpose(source, perm, name=call.name)
    return source.transpose(tuple(normalize_axis(axis, source.ndim, "perm") for axis in perm))


def concat(call: NodeCall) -> Operand:
    """Join along an axis, which is 1 by default until opset 3 and required since."""
    axis = call.integer("axis", 1 if call.opset < 4 else None)
    operands = [call.operand(index) for index in range(len(call.operands))]
    arrays = [operand for operand in operands if not isinstance(operand, Value)]
    if len(arrays) == len(operands):
        return call.folding.join(arrays, axis)
    return call.graph.concat(call.tensors(), axis, name=call.name)


def identity(call: NodeCall) -> Operand:
    """Return the operand itself."""
    return call.operand(0)


def dropout(call: NodeCall) -> Operand:
    """Return the operand: inference drops nothing."""
    call.only_output("mask")
    if call.has(2) and bool(call.known(2, "training_mode").any()):
        raise call.unsupported("training_mode is true")
    return call.operand(0)


OPERATORS: Final[Mapping[str, Operator]] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Identity": identity,
    "Dropout": dropout,
}
