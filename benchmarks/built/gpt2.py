"""GPT-2 124M in two graphs of one set of weights: a prompt, and one token more with the keys and values so far."""

from __future__ import annotations

from dataclasses import dataclass

from poolrt import Graph
from poolrt.graph.values import Value

from .transformer import BASE, Sizes, Transformer
from .weights import Array, Weights


@dataclass(frozen=True)
class Gpt2:
    """Both graphs have the outputs ``logits`` of the last row, and ``key0``, ``value0``, ... (1, heads, rows so far, depth).

    Scores are products with the table of tokens, as in the published network.
    """

    sizes: Sizes = BASE
    vocabulary: int = 50257
    longest: int = 1024

    def prompt(self, rows: int) -> Graph:
        """Return the graph on ``ids`` (1, rows) of int64."""
        g, weights = Graph("gpt2-prompt"), Weights(2)
        tokens, places = self._tables(weights)
        x = g.binary(g.gather(tokens, g.input("ids", (1, rows), "int64")), places[None, :rows], "add")
        parts = Transformer(g, self.sizes, weights, epsilon=1e-5)
        for layer in range(self.sizes.layers):
            query, key, value = self._heads(parts, x)
            g.output(f"key{layer}", key)
            g.output(f"value{layer}", value)
            x = self._finish(parts, x, g.attention(query, key, value, causal=True))
        self._score(parts, g.slice(x, rows - 1, rows, 1), tokens)
        return g

    def step(self, past: int) -> Graph:
        """Return the graph on ``ids`` and ``place`` (1, 1) of int64 and ``past_key0``, ``past_value0``, ... of ``past`` rows."""
        g, weights = Graph("gpt2-step"), Weights(2)
        tokens, places = self._tables(weights)
        ids, place = (g.input(name, (1, 1), "int64") for name in ("ids", "place"))
        x = g.binary(g.gather(tokens, ids), g.gather(places, place), "add")
        parts = Transformer(g, self.sizes, weights, epsilon=1e-5)
        dims = (1, self.sizes.heads, past, self.sizes.width // self.sizes.heads)
        for layer in range(self.sizes.layers):
            query, key, value = self._heads(parts, x)
            keys = g.concat([g.input(f"past_key{layer}", dims), key], axis=2)
            values = g.concat([g.input(f"past_value{layer}", dims), value], axis=2)
            g.output(f"key{layer}", keys)
            g.output(f"value{layer}", values)
            x = self._finish(parts, x, g.attention(query, keys, values))
        self._score(parts, x, tokens)
        return g

    def past_names(self) -> list[str]:
        """Return the inputs of a step that are the outputs of the graph before it, in their order."""
        return [f"past_{kind}{layer}" for layer in range(self.sizes.layers) for kind in ("key", "value")]

    def _tables(self, weights: Weights) -> tuple[Array, Array]:
        width = self.sizes.width
        return weights.normal((self.vocabulary, width), 0.05), weights.normal((self.longest, width), 0.05)

    def _heads(self, parts: Transformer, x: Value) -> tuple[Value, Value, Value]:
        """Return query, key and value of one product."""
        width, joint = self.sizes.width, parts.dense(parts.norm(x), 3 * self.sizes.width)
        query, key, value = (
            parts.split_heads(parts.g.slice(joint, each * width, (each + 1) * width, 2)) for each in range(3)
        )
        return query, key, value

    def _finish(self, parts: Transformer, x: Value, attended: Value) -> Value:
        """Return the layer's result."""
        x = parts.add(x, parts.dense(parts.join_heads(attended), self.sizes.width))
        return parts.add(x, parts.feed_forward(parts.norm(x), "gelu_tanh"))

    def _score(self, parts: Transformer, x: Value, tokens: Array) -> None:
        g = parts.g
        row = g.reshape(parts.norm(x), (1, self.sizes.width))
        g.output("logits", g.inner_product(row, tokens))
