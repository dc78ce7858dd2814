"""Normalisations and softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...shapes import normalize_axis
from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import FLOATS, GRAPH_TYPES
from ..rearranging import arg_reduce
from ..tensors import Operand, dtype_of

#: What MeanVarianceNormalization adds to deviations.
_LEAST_DEVIATION: Final = 1e-9


def batch_normalization(call: NodeCall) -> tuple[Operand, ...]:
    """Reorder the operands: ONNX's order is src, scale, shift, mean, variance.

    In training, the statistics are those of the batch, and the running ones move towards them.
    """
    is_training = bool(call.integer("training_mode", 0)) and call.opset >= 14
    if not is_training:
        call.only_output("of running statistics")
    if call.opset < 9 and not call.integer("spatial", 1):
        raise call.unsupported("spatial=0 (statistics for each element) is not supported")
    src, scale, shift, mean, variance = (call.real(index) for index in range(5))
    epsilon = call.number("epsilon", 1e-5)
    running: list[Operand] = []
    if is_training:
        (mean, variance), running = _batch_statistics(call, src, (mean, variance))
    scale, shift, mean, variance = (call.math.cast(each, "float32") for each in (scale, shift, mean, variance))
    normalized = call.graph.batch_normalization(
        call.math.value(src), mean, variance, scale, shift, epsilon=epsilon, name=call.name
    )
    return normalized, *running


def _batch_statistics(
    call: NodeCall, src: Operand, former: tuple[Operand, Operand]
) -> tuple[tuple[Operand, Operand], list[Operand]]:
    """Return mean and variance of each channel of a batch, and the running ones, which move towards them."""
    m, rank = call.math, len(src.shape)
    axes, dtype = [axis for axis in range(rank) if axis != 1], dtype_of(former[0])
    wide = m.cast(src, "float64" if dtype_of(src) == "float64" else "float32")
    mean = m.reduce(wide, "mean", axes, True)
    variance = m.reduce(m.eltwise(m.binary(wide, mean, "sub"), "square"), "mean", axes, False)
    found = m.reshape(mean, (src.shape[1],)), variance
    momentum, running = call.number("momentum", 0.9), []
    for old, new in zip(former, found, strict=True):
        moved = (m.eltwise(m.cast(old, dtype_of(new)), "linear", momentum), m.eltwise(new, "linear", 1.0 - momentum))
        running.append(m.cast(m.binary(*moved, "add"), dtype))
    return found, running


def instance_normalization(call: NodeCall) -> Operand:
    """Normalise each channel of each image: groups of one channel."""
    src, scale, shift = (call.real(index) for index in range(3))
    channels = src.shape[1] if len(src.shape) > 2 else 0
    if channels < 1:
        raise call.malformed(f"expect images, got shape {tuple(src.shape)}")
    scale, shift = (call.math.cast(each, "float32") for each in (scale, shift))
    epsilon = call.number("epsilon", 1e-5)
    return call.graph.group_normalization(call.math.value(src), channels, scale, shift, epsilon=epsilon, name=call.name)


def group_normalization(call: NodeCall) -> Operand:
    """Normalise groups of channels; until opset 20 scale and shift have one number for each group."""
    src, scale, shift = (call.real(index) for index in range(3))
    groups = call.integer("num_groups")
    if len(src.shape) < 2 or groups < 1 or src.shape[1] % groups:
        raise call.malformed(f"{groups} groups do not fit the shape {tuple(src.shape)}")
    if call.opset < 21:
        each = src.shape[1] // groups
        scale, shift = (_repeat(call, operand, each) for operand in (scale, shift))
    scale, shift = (call.math.cast(operand, "float32") for operand in (scale, shift))
    epsilon = call.number("epsilon", 1e-5)
    # Each channel is one number if there are no spatial dimensions.
    images = call.math.reshape(src, (*src.shape, 1)) if len(src.shape) == 2 else src
    found = call.graph.group_normalization(
        call.math.value(images), groups, scale, shift, epsilon=epsilon, name=call.name
    )
    return call.math.reshape(found, tuple(src.shape)) if len(src.shape) == 2 else found


def _repeat(call: NodeCall, operand: Operand, times: int) -> Operand:
    (size,) = operand.shape
    wide = call.math.expand(call.math.reshape(operand, (size, 1)), (size, times))
    return call.math.reshape(wide, (size * times,))


def layer_normalization(call: NodeCall) -> tuple[Operand, ...]:
    """Normalise over the dimensions from an axis on, joined to one; also return the statistics if they are read."""
    result = _rows(call, "layer")
    return (result, *_row_statistics(call)) if call.outputs - {0} else (result,)


def _row_statistics(call: NodeCall) -> tuple[Operand, Operand]:
    """Return the mean over the dimensions from an axis on, and one over the standard deviation."""
    src, m = call.real(0), call.math
    rank, stash = len(src.shape), call.integer("stash_type", 1)
    dtype = GRAPH_TYPES.get(stash, "")
    if dtype not in FLOATS:
        raise call.malformed(f"stash_type={stash}: expect a type of floats")
    axes = range(call.axis(rank, -1), rank)
    wide = m.cast(src, "float64" if "float64" in (dtype, dtype_of(src)) else "float32")
    mean = m.reduce(wide, "mean", axes, True)
    variance = m.reduce(m.eltwise(m.binary(wide, mean, "sub"), "square"), "mean", axes, True)
    deviation = m.eltwise(m.binary(variance, m.number(call.number("epsilon", 1e-5), variance), "add"), "sqrt")
    inverse = m.binary(m.number(1, deviation), deviation, "div")
    return m.cast(mean, dtype), m.cast(inverse, dtype)


def rms_normalization(call: NodeCall) -> Operand:
    """Divide by the root mean square over the dimensions from an axis on."""
    return _rows(call, "rms")


def simplified_normalization(call: NodeCall) -> Operand:
    """Compute the same, as ONNX Runtime's optimiser writes it in ONNX's own domain."""
    call.only_output("of statistics")
    return rms_normalization(call)


def _rows(call: NodeCall, kind: str) -> Operand:
    src, sizes, m = call.real(0), call.shape(0), call.math
    axis = call.axis(len(sizes), -1)
    count, length = math.prod(sizes[:axis]), math.prod(sizes[axis:])
    given = [call.optional(index) for index in (1, 2)]
    whole = [each is None or tuple(each.shape) == sizes[axis:] for each in given]
    rows = src if axis == len(sizes) - 1 and len(sizes) > 1 else m.reshape(src, (count, length))
    scale, shift = (
        None if each is None or not fits else m.cast(m.reshape(each, (length,)), "float32")
        for each, fits in zip(given, whole, strict=True)
    )
    if not whole[0]:
        shift = None
    result = m.reshape(_normalized(call, rows, scale, shift, kind), sizes)
    for operand, used, algorithm in ((given[0], scale, "mul"), (given[1] if kind == "layer" else None, shift, "add")):
        if operand is not None and used is None:
            result = m.binary(result, operand, algorithm)
    return result


def _normalized(call: NodeCall, rows: Operand, scale: Operand | None, shift: Operand | None, kind: str) -> Operand:
    """Return rows without their scales of other shapes: known ones, as a table of relative positions, once and for all."""
    epsilon = call.number("epsilon", 1e-5)
    if not isinstance(rows, Value) and not isinstance(scale, Value) and not isinstance(shift, Value):
        known = call.folding.normalize(rows, kind == "layer", epsilon, scale, shift)
        if known is not None:
            return known
    value = call.math.value(rows)
    if kind == "rms":
        return call.graph.rms_normalization(value, scale, epsilon=epsilon, name=call.name)
    return call.graph.layer_normalization(value, scale, shift, epsilon=epsilon, name=call.name)


def lp_normalization(call: NodeCall) -> Operand:
    """Divide by the norm along an axis; zeros stay zeros."""
    source, m = call.real(0), call.math
    axis, order = call.axis(len(source.shape), -1), call.number("p", 2)
    norm = m.reduce(source, "norm_lp_sum", (axis,), True, order)
    safe = m.binary(norm, m.cast(m.binary(norm, m.number(0, norm), "eq"), dtype_of(norm)), "add")
    return m.binary(source, safe, "div")


def mean_variance_normalization(call: NodeCall) -> Operand:
    """Subtract the mean along axes and divide by the standard deviation, in float32 at least."""
    source, m = call.real(0), call.math
    rank = len(source.shape)
    axes = tuple(normalize_axis(axis, rank) for axis in call.integers("axes", (0, 2, 3)))
    wide = source if dtype_of(source) == "float64" else m.cast(source, "float32")
    apart = m.binary(wide, m.reduce(wide, "mean", axes, True), "sub")
    deviation = m.eltwise(m.reduce(m.eltwise(apart, "square"), "mean", axes, True), "sqrt")
    return m.cast(m.binary(apart, m.eltwise(deviation, "linear", 1.0, _LEAST_DEVIATION), "div"), dtype_of(source))


def lrn(call: NodeCall) -> Operand:
    """Rename the attributes: ONNX's bias is oneDNN's k."""
    size = call.integer("size")
    alpha, beta, bias = (call.number(n, d) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return call.graph.lrn(call.math.value(call.real(0)), size, alpha, beta, bias, name=call.name)


def softmax(algorithm: str) -> Operator:
    """Return the operator that normalises along ``axis``; until opset 12 along all dimensions from ``axis`` on."""

    def operator(call: NodeCall) -> Operand:
        src, sizes = call.math.value(call.real(0)), call.shape(0)
        if not sizes:
            return call.math.expand(np.asarray(1.0 if algorithm == "accurate" else 0.0, dtype_of(src)), ())
        if call.opset >= 13:
            return call.graph.softmax(src, call.integer("axis", -1), algorithm, name=call.name)
        axis = normalize_axis(call.integer("axis", 1), len(sizes))
        if math.prod(sizes[axis + 1 :]) == 1:
            return call.graph.softmax(src, axis, algorithm, name=call.name)
        flat = call.graph.reshape(
            src, (math.prod(sizes[:axis]), math.prod(sizes[axis:])), name=call.name_part("flatten")
        )
        result = call.graph.softmax(flat, 1, algorithm, name=call.name)
        return call.graph.reshape(result, sizes, name=call.name_part("reshape"))

    return operator


def hardmax(call: NodeCall) -> Operand:
    """Return 1 at the first greatest element along an axis, else 0."""
    source, m, sizes = call.real(0), call.math, call.shape(0)
    if call.opset >= 13:
        axis = call.axis(len(sizes), -1)
        rows: Operand = source
    else:
        first = normalize_axis(call.integer("axis", 1), len(sizes))
        rows, axis = m.reshape(source, (math.prod(sizes[:first]), math.prod(sizes[first:]))), 1
    place = arg_reduce(m, rows, "max", axis, True, False)
    numbers = np.arange(rows.shape[axis], dtype=np.int64).reshape(
        *(1,) * axis, -1, *(1,) * (len(rows.shape) - axis - 1)
    )
    return m.reshape(m.cast(m.binary(place, numbers, "eq"), dtype_of(source)), sizes)


OPERATORS: Final[Mapping[str, Operator]] = {
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    "SimplifiedLayerNormalization": simplified_normalization,
    "LpNormalization": lp_normalization,
    "LRN": lrn,
    "MeanVarianceNormalization": mean_variance_normalization,
    "Softmax": softmax("accurate"),
    "LogSoftmax": softmax("log"),
    "Hardmax": hardmax,
}
