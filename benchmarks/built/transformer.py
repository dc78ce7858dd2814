"""The parts that BERT, ViT and GPT-2 have in common: dense layers, normalizations, heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from poolrt import Graph
from poolrt.graph.values import Value

from .weights import Weights


@dataclass(frozen=True)
class Sizes:
    """The number of layers, their width, heads and hidden width."""

    layers: int
    width: int
    heads: int
    hidden: int


#: BERT-base, ViT-B and GPT-2 124M.
BASE: Final = Sizes(12, 768, 12, 3072)


class Transformer:
    """Adds parts to a graph on tensors (1, rows, width), with weights in a fixed order."""

    def __init__(self, graph: Graph, sizes: Sizes, weights: Weights, epsilon: float) -> None:
        self.g = graph
        self.sizes = sizes
        self.weights = weights
        self._epsilon = epsilon

    def dense(self, x: Value, outputs: int) -> Value:
        """Multiply by a matrix and add a bias."""
        return self.g.matmul(x, self.weights.matrix(x.shape[-1], outputs), self.weights.bias(outputs))

    def norm(self, x: Value) -> Value:
        """Normalise rows."""
        width = x.shape[-1]
        scale, shift = self.weights.between(width, 0.9, 1.1), self.weights.bias(width)
        return self.g.layer_normalization(x, scale, shift, epsilon=self._epsilon)

    def add(self, x: Value, y: Value) -> Value:
        """Add two tensors."""
        return self.g.binary(x, y, "add")

    def split_heads(self, x: Value) -> Value:
        """Return (1, heads, rows, depth)."""
        heads = self.g.reshape(x, (1, x.shape[1], self.sizes.heads, self.sizes.width // self.sizes.heads))
        return self.g.transpose(heads, (0, 2, 1, 3))

    def join_heads(self, x: Value) -> Value:
        """Return (1, rows, width)."""
        return self.g.reshape(self.g.transpose(x, (0, 2, 1, 3)), (1, x.shape[2], self.sizes.width))

    def attend(self, x: Value, mask: Value | None = None) -> Value:
        """Return the attention of rows to one another, with an output projection."""
        width = self.sizes.width
        query, key, value = (self.split_heads(self.dense(x, width)) for _ in range(3))
        return self.dense(self.join_heads(self.g.attention(query, key, value, mask)), width)

    def feed_forward(self, x: Value, function: str = "gelu_erf") -> Value:
        """Return two dense layers with a function between them."""
        return self.dense(self.g.eltwise(self.dense(x, self.sizes.hidden), function), self.sizes.width)
