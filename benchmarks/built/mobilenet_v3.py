"""MobileNetV3-Large: inverted residuals with depthwise convolutions, some of which weigh their channels."""

from __future__ import annotations

from typing import Final

from poolrt import Graph
from poolrt.graph.values import Value

from .convolutional import Convolutional
from .weights import Weights

#: Kernel, expanded and resulting channels, whether channels are weighed, function and stride (table 1 of the paper).
BLOCKS: Final = (
    (3, 16, 16, False, "relu", 1), (3, 64, 24, False, "relu", 2), (3, 72, 24, False, "relu", 1), (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1), (5, 120, 40, True, "relu", 1), (3, 240, 80, False, "hardswish", 2),
    (3, 200, 80, False, "hardswish", 1), (3, 184, 80, False, "hardswish", 1), (3, 184, 80, False, "hardswish", 1),
    (3, 480, 112, True, "hardswish", 1), (3, 672, 112, True, "hardswish", 1), (5, 672, 160, True, "hardswish", 2),
    (5, 960, 160, True, "hardswish", 1), (5, 960, 160, True, "hardswish", 1),
)  # fmt: skip
_STEM: Final = 16
_LAST: Final = (960, 1280, 1000)


def build_mobilenet_v3(size: int = 224, blocks: int = len(BLOCKS)) -> Graph:
    """Return the graph on ``x`` (1, 3, size, size), of the first ``blocks``; the output are the scores of classes."""
    g, weights = Graph("mobilenet_v3"), Weights(4)
    parts = Convolutional(g, weights, epsilon=1e-3)
    x = parts.convolution(g.input("x", (1, 3, size, size)), _STEM, 3, 2, function="hardswish")
    for kernel, expanded, outputs, weighs, function, stride in BLOCKS[:blocks]:
        y = parts.convolution(x, expanded, 1, function=function) if expanded != x.shape[1] else x
        y = parts.convolution(y, expanded, kernel, stride, depthwise=True, function=function)
        if weighs:
            y = _weigh(g, weights, y)
        y = parts.convolution(y, outputs, 1)
        x = g.binary(x, y, "add") if y.shape == x.shape else y
    features, hidden, classes = _LAST
    x = parts.convolution(x, features, 1, function="hardswish")
    x = g.reshape(g.pooling(x, "avg_exclude_padding", x.shape[2:]), (1, features))
    x = g.eltwise(g.inner_product(x, weights.matrix(hidden, features), weights.bias(hidden)), "hardswish")
    g.output("scores", g.inner_product(x, weights.matrix(classes, hidden), weights.bias(classes)))
    return g


def _weigh(g: Graph, weights: Weights, x: Value) -> Value:
    """Multiply each channel by a number that all channels' means decide."""
    channels = x.shape[1]
    fewer = (channels // 4 + 4) // 8 * 8
    means = g.pooling(x, "avg_exclude_padding", x.shape[2:])
    y = g.eltwise(g.convolution(means, weights.kernel(fewer, channels, 1, 1), weights.bias(fewer)), "relu")
    y = g.convolution(y, weights.kernel(channels, fewer, 1, 1), weights.bias(channels))
    return g.binary(x, g.eltwise(y, "hardsigmoid"), "mul")
