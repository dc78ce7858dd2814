"""U-Net with 32 channels at its top, for pictures of 256 by 256: convolutions with batch normalization, and ways across."""

from __future__ import annotations

from poolrt import Graph
from poolrt.graph.values import Value

from .convolutional import Convolutional
from .weights import Weights


def build_unet(size: int = 256, channels: int = 32, levels: int = 4) -> Graph:
    """Return the graph on ``x`` (1, 3, size, size); the output is a mask (1, 1, size, size)."""
    g, weights = Graph("unet"), Weights(3)
    parts = Convolutional(g, weights, epsilon=1e-5)
    x = g.input("x", (1, 3, size, size))
    across: list[Value] = []
    for level in range(levels):
        x = _block(parts, x, channels << level)
        across.append(x)
        x = g.pooling(x, "max", 2, strides=2)
    x = _block(parts, x, channels << levels)
    for level in reversed(range(levels)):
        outputs = channels << level
        kernel = weights.kernel(outputs, x.shape[1], 2, 2)
        x = g.deconvolution(x, kernel, weights.bias(outputs), strides=2)
        x = _block(parts, g.concat([x, across[level]], axis=1), outputs)
    last = g.convolution(x, weights.kernel(1, channels, 1, 1), weights.bias(1))
    g.output("mask", g.eltwise(last, "logistic"))
    return g


def _block(parts: Convolutional, x: Value, outputs: int) -> Value:
    """Add two convolutions of 3 by 3."""
    for _ in range(2):
        x = parts.convolution(x, outputs, 3, function="relu")
    return x
