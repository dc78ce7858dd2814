"""Small graphs with what NumPy computes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt import Graph

Array = NDArray[Any]
IMAGE = (2, 16, 6, 6)
TOLERANCE = 2e-5


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


class Network:
    """A 1 x 1 convolution, statistics given, an activation, a pooling, a product: outputs ``h`` and ``y``."""

    def __init__(self, seed: int, activation: str = "relu") -> None:
        self.activation = activation
        self.weights, self.product = array(16, 16, 1, 1, seed=seed), array(16, 5, seed=seed)
        self.mean, self.variance = array(16, seed=seed), np.abs(array(16, seed=seed + 1)) + np.float32(0.5)
        g = self.graph = Graph("network")
        x = g.input("x", IMAGE)
        h = g.convolution(x, self.weights, name="conv")
        h = g.batch_normalization(h, self.mean, self.variance, name="bn")
        h = g.eltwise(h, activation, name="act")
        g.output("h", h)
        h = g.pooling(h, "max", 2, strides=2, name="pool")
        h = g.reduction(h, "mean", (2, 3), keep_dims=False, name="mean")
        g.output("y", g.softmax(g.matmul(h, self.product, name="fc"), name="softmax"))

    def expected(self, x: Array, of_the_batch: bool = False) -> dict[str, Array]:
        """Return the outputs for (N, 16, 2 h, 2 w), with the statistics of the batch where these are wanted."""
        conv = np.einsum("ncij,oc->noij", x.astype(np.float64), self.weights[:, :, 0, 0])
        mean, variance = self.mean, self.variance
        if of_the_batch:
            mean, variance = conv.mean((0, 2, 3)), conv.var((0, 2, 3))
        scaled = (conv - mean[:, None, None]) / np.sqrt(variance[:, None, None] + 1e-5)
        h = np.maximum(scaled, 0) if self.activation == "relu" else np.tanh(scaled)
        n, c, rows, columns = h.shape
        pooled = h.reshape(n, c, rows // 2, 2, columns // 2, 2).max((3, 5))
        logits = pooled.mean((2, 3)) @ self.product
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        found = {"h": h, "y": exponentials / exponentials.sum(1, keepdims=True)}
        return found | ({"bn.mean": mean, "bn.variance": variance} if of_the_batch else {})


def close(found: dict[str, Array], expected: dict[str, Array]) -> bool:
    """Return whether all outputs that are expected are there, within the rounding of float32."""
    return all(
        found[name].shape == values.shape and float(np.abs(found[name] - values).max()) <= TOLERANCE
        for name, values in expected.items()
    )
