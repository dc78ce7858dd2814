"""ViT-B/16: a picture in patches of 16 by 16, with a row for the class in front."""

from __future__ import annotations

from poolrt import Graph

from .transformer import BASE, Sizes, Transformer
from .weights import Weights


def build_vit(size: int = 224, sizes: Sizes = BASE, patch: int = 16, classes: int = 1000) -> Graph:
    """Return the graph on ``x`` (1, 3, size, size); the output are the scores of classes."""
    g, weights = Graph("vit"), Weights(1)
    parts = Transformer(g, sizes, weights, epsilon=1e-6)
    width, rows = sizes.width, (size // patch) ** 2
    x = g.input("x", (1, 3, size, size))
    x = g.convolution(x, weights.kernel(width, 3, patch, patch), weights.bias(width), strides=patch)
    x = g.transpose(g.reshape(x, (1, width, rows)), (0, 2, 1))
    x = g.concat([g.constant(weights.normal((1, 1, width), 1.0)), x], axis=1)
    x = g.binary(x, weights.normal((1, rows + 1, width), 0.5), "add")
    for _ in range(sizes.layers):
        x = parts.add(x, parts.attend(parts.norm(x)))
        x = parts.add(x, parts.feed_forward(parts.norm(x)))
    first = g.reshape(g.slice(parts.norm(x), 0, 1, 1), (1, width))
    g.output("scores", parts.dense(first, classes))
    return g
