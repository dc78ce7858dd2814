"""Operators of 8-bit integers with scales and zero points, as static quantisation writes them.

Each dequantises, computes in float32 and quantises again: passes turn that into integer operations where there are some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ....values import Value
from ...call import NodeCall, Operator
from ...tensors import Operand, dtype_of
from .. import quantisation, windows
from ..integer_products import integer_product, matrix_scale
from ..quantisation import dequantized, quantized
from .channels_last import channels_last


def arithmetic(algorithm: str) -> Operator:
    """Return the operator that combines two tensors."""

    def operator(call: NodeCall) -> Operand:
        left, right = (
            dequantized(call, call.tensor(first), call.tensor(first + 1), call.optional(first + 2)) for first in (0, 3)
        )
        return quantized(call, call.math.binary(left, right, algorithm), call.tensor(6), _zero(call, 7, 0))

    return operator


def function(compute: Callable[[NodeCall, Operand], Operand]) -> Operator:
    """Return the operator of a function of one tensor."""

    def operator(call: NodeCall) -> Operand:
        source = dequantized(call, call.tensor(0), call.tensor(1), call.optional(2))
        return quantized(call, compute(call, source), call.tensor(3), _zero(call, 4, 0))

    return operator


def _zero(call: NodeCall, index: int, like: int) -> Operand:
    """Return the zero point of a result, 0 of the type of an operand if it is missing."""
    given = call.optional(index)
    return np.zeros((), dtype_of(call.tensor(like))) if given is None else given


def _sigmoid(call: NodeCall, source: Operand) -> Operand:
    return call.math.eltwise(source, "logistic")


def _leaky_relu(call: NodeCall, source: Operand) -> Operand:
    return call.math.eltwise(source, "relu", call.number("alpha", 0.01))


def _softmax(call: NodeCall, source: Operand) -> Operand:
    m, sizes = call.math, tuple(source.shape)
    opset = call.integer("opset")
    axis = call.axis(len(sizes), -1)
    if opset >= 13:
        return call.graph.softmax(m.value(source), axis, name=call.name_part("softmax"))
    flat = m.reshape(source, (math.prod(sizes[:axis]), math.prod(sizes[axis:])))
    return m.reshape(call.graph.softmax(m.value(flat), 1, name=call.name_part("softmax")), sizes)


def global_mean(call: NodeCall) -> Operand:
    """Return means of images; those of known scales are exact sums times one number, as in ONNX Runtime."""
    source, m, rank = call.tensor(0), call.math, len(call.tensor(0).shape)
    last = call.integer("channels_last", 0)
    axes = tuple(range(1, rank - 1) if last else range(2, rank))
    zero, to_zero = _zero(call, 2, 0), _zero(call, 4, 0)
    numbers = call.tensor(1), zero, call.tensor(3)
    size = math.prod(source.shape[axis] for axis in axes)
    if last or size == 0 or not isinstance(source, Value) or any(isinstance(each, Value) for each in numbers):
        wide = dequantized(call, source, call.tensor(1), call.optional(2))
        return quantized(call, m.reduce(wide, "mean", axes, True), call.tensor(3), to_zero)
    scale, point, to_scale = (np.asarray(each).reshape(-1)[:1].reshape(()) for each in numbers)
    sums: Operand = call.graph.reduction(source, "sum", axes, dtype="int32", name=call.name_part("sums"))
    if point:
        sums = m.binary(sums, np.asarray(size * int(point), np.int32), "sub")
    factor = scale.astype(np.float32) / (to_scale.astype(np.float32) * np.float32(size))
    means = m.binary(m.cast(sums, "float32"), np.asarray(factor, np.float32), "mul")
    return quantized(call, means, np.ones((), np.float32), to_zero)


def _mean(call: NodeCall, source: Operand) -> Operand:
    axes = call.integers("axes", tuple(range(len(source.shape))))
    return call.math.reduce(source, "mean", axes, bool(call.integer("keepdims", 1)))


def average_pool(call: NodeCall) -> Operand:
    """Return means of windows; as in ONNX Runtime, they are rounded after the zero point is added."""
    m, wanted, zero = call.math, dtype_of(call.tensor(0)), _zero(call, 4, 0)
    source = dequantized(call, call.tensor(0), call.tensor(1), call.optional(2))
    means: Any = windows.OPERATORS["AveragePool"](call.with_operands(source))
    scale = m.reshape(m.cast(call.tensor(3), "float32"), ())
    if isinstance(scale, np.ndarray) and isinstance(zero, np.ndarray):
        points = {"dst": zero.astype(np.int32).reshape(())}
        return call.graph.reorder(
            m.value(means), dtype=wanted, scales={"dst": scale}, zero_points=points, name=call.name_part("quantised")
        )
    whole = m.binary(m.binary(means, scale, "div"), m.reshape(m.cast(zero, "float32"), ()), "add")
    return call.graph.reorder(m.value(whole), dtype=wanted, name=call.name_part("quantised"))


def concat(call: NodeCall) -> Operand:
    """Join tensors, each with a scale and a zero point of its own; those quantised as the result are joined as they are."""
    scale, zero, m = call.tensor(0), call.tensor(1), call.math
    count = len(call.operands) - 2
    if count < 3 or count % 3:
        raise call.malformed(f"expect three inputs for each tensor, got {count}")
    parts: list[Operand] = []
    for first in range(2, 2 + count, 3):
        source, given = call.tensor(first), (call.tensor(first + 1), call.tensor(first + 2))
        same = dtype_of(source) == dtype_of(zero) and all(
            isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.size == b.size == 1 and a.item() == b.item()
            for a, b in zip(given, (scale, zero), strict=True)
        )
        parts.append(source if same else quantized(call, dequantized(call, source, *given), scale, zero))
    return m.concat(parts, call.integer("axis"))


def where(call: NodeCall) -> Operand:
    """Choose between two tensors."""
    chosen, other = (
        dequantized(call, call.tensor(first), call.tensor(first + 1), call.tensor(first + 2)) for first in (1, 4)
    )
    return quantized(call, call.math.select(call.tensor(0), chosen, other), call.tensor(7), call.tensor(8))


def gemm(call: NodeCall) -> Operand:
    """Compute alpha * op(A) * op(B) + C, quantised if there is a scale of the result, else in float32."""
    m = call.math
    left, right = (
        m.transpose(call.tensor(index), (1, 0)) if call.integer(name, 0) else call.tensor(index)
        for index, name in ((0, "transA"), (3, "transB"))
    )
    alpha, scales = call.number("alpha", 1.0), (call.tensor(1), call.tensor(4))
    factor = m.binary(m.cast(scales[0], "float32"), np.asarray(alpha, np.float32), "mul")
    if call.has(7):
        point = call.optional(5)
        src = dequantized(call, left, factor, call.optional(2))
        result = m.matmul(src, dequantized(call, right, scales[1], point, 1), "float32")
    else:
        zeros = call.optional(2), call.optional(5)
        product = integer_product(call, left, zeros[0], right, zeros[1], (factor, scales[1]))
        if product is None:
            raise call.unsupported("several zero points of input 0 are not supported")
        result = product
    if call.has(6):
        unit = m.binary(m.reshape(factor, ()), matrix_scale(call, scales[1]), "mul")
        result = m.binary(result, m.binary(m.cast(call.tensor(6), "float32"), unit, "mul"), "add")
    if not call.has(7):
        return result
    return quantized(call, result, call.tensor(7), _zero(call, 8, 0))


OPERATORS: Final[Mapping[str, Operator]] = {
    "QLinearAdd": arithmetic("add"),
    "QLinearMul": arithmetic("mul"),
    "QLinearSigmoid": function(_sigmoid),
    "QLinearLeakyRelu": function(_leaky_relu),
    "QLinearSoftmax": function(_softmax),
    "QLinearGlobalAveragePool": global_mean,
    "QLinearAveragePool": channels_last(average_pool),
    "QLinearReduceMean": function(_mean),
    "QLinearConcat": concat,
    "QLinearWhere": where,
    "QGemm": gemm,
    "QLinearConv": channels_last(quantisation.quantized_convolution),
    "NhwcMaxPool": channels_last(windows.max_pooling, always=True),
    "QuantizeLinear": quantisation.quantize,
    "DequantizeLinear": quantisation.dequantize,
}
