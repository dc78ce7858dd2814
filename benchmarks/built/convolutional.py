"""Convolutions with the batch normalization and the function that follow them."""

from __future__ import annotations

from poolrt import Graph
from poolrt.graph.values import Value

from .weights import Weights


class Convolutional:
    """Adds convolutions to a graph, with weights in a fixed order."""

    def __init__(self, graph: Graph, weights: Weights, epsilon: float) -> None:
        self._g = graph
        self._weights = weights
        self._epsilon = epsilon

    def convolution(
        self, x: Value, outputs: int, kernel: int, stride: int = 1, depthwise: bool = False, function: str = ""
    ) -> Value:
        """Convolve, padded so that a stride of 1 keeps the size, normalise, and apply a function."""
        draw = self._weights
        inputs = 1 if depthwise else x.shape[1]
        groups = outputs if depthwise else 1
        weights, padding = draw.kernel(outputs, inputs, kernel, kernel), kernel // 2
        y = self._g.convolution(x, weights, strides=stride, padding=padding, groups=groups)
        mean, variance = draw.bias(outputs), draw.between(outputs, 0.8, 1.2)
        scale, shift = draw.between(outputs, 0.8, 1.2), draw.bias(outputs)
        y = self._g.batch_normalization(y, mean, variance, scale, shift, epsilon=self._epsilon)
        return self._g.eltwise(y, function) if function else y
