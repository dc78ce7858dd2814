"""Batch normalization, local response normalization and softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ...shapes import normalize_axis
from ..call import NodeCall, Operand, Operator


def batch_normalization(call: NodeCall) -> Operand:
    """Reorder the operands: ONNX's order is src, scale, shift, mean, variance."""
    call.only_output("of running statistics")
    if call.integer("training_mode", 0):
        raise call.unsupported("training_mode is 1")
    if call.opset < 9 and not call.integer("spatial", 1):
        raise call.unsupported("spatial=0 (statistics for each element) is not supported")
    src, scale, shift, mean, variance = (call.tensor(index) for index in range(5))
    epsilon = call.number("epsilon", 1e-5)
    return call.graph.batch_normalization(src, mean, variance, scale, shift, epsilon=epsilon, name=call.name)


def lrn(call: NodeCall) -> Operand:
    """Rename the attributes: ONNX's bias is oneDNN's k."""
    size = call.integer("size")
    alpha, beta, bias = (call.number(n, d) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return call.graph.lrn(call.tensor(0), size, alpha, beta, bias, name=call.name)


def softmax(algorithm: str) -> Operator:
    """Return the operator that normalises along ``axis``; until opset 12 along all dimensions from ``axis`` on."""

    def operator(call: NodeCall) -> Operand:
        src, sizes = call.tensor(0), call.shape(0)
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


OPERATORS: Final[Mapping[str, Operator]] = {
    "BatchNormalization": batch_normalization,
    "LRN": lrn,
    "Softmax": softmax("accurate"),
    "LogSoftmax": softmax("log"),
}
